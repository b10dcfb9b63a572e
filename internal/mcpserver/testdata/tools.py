"""Drives every tool of dbctl mcp with Python's mcp client, over standard input and output and over HTTP.

python tools.py DBCTL    needs the package mcp; prints one line for each transport; any failure ends it with an error.
"""

import asyncio
import json
import os
import secrets
import subprocess
import sys
import tempfile

from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

TOOLS = ["assemble", "search", "get", "list", "put", "delete", "history", "why"]


async def call(client, name, **arguments):
    result = await client.call_tool(name, arguments)
    assert not result.is_error, (name, result.content)
    assert result.structured_content is None and len(result.content) == 1, "nothing is sent twice"
    text, _, last = result.content[0].text.rpartition("\n")
    return {"text": text, **json.loads(last)}  # assemble: the context, and JSON as its last line


async def drive(client):
    names = [tool.name for tool in (await client.list_tools()).tools]
    assert sorted(names) == sorted(TOOLS), names
    context = await call(client, "assemble", query="what may I refund?", budget=2000)
    assert "Refunds up to $400" in context["text"], context
    assert context["blocks"] and context["tokens"] <= 2000, context
    hits = (await call(client, "search", query="refunds"))["hits"]
    assert hits[0]["ref"].startswith("acme/support:policy"), hits
    page = await call(client, "get", ref=hits[0]["ref"])
    assert page["text"] == "Refunds up to $400 need no approval.", page
    listed = await call(client, "list", prefix="pol")
    assert [item["id"] for item in listed["items"]] == ["policy"], listed
    put = await call(client, "put", writes=[{"id": "answer", "text": "Up to $400."}], trace=context["trace"])
    assert put["status"] == "committed", put
    assert (await call(client, "get", ref="answer"))["text"] == "Up to $400."
    deleted = await call(client, "delete", ids=["answer"])
    assert deleted["status"] == "committed", deleted
    versions = (await call(client, "history", ref="answer"))["versions"]
    assert len(versions) == 2 and versions[0]["state"] == "deleted", versions
    gone = await client.call_tool("get", {"ref": "answer"})
    assert gone.is_error, "a deleted page is not served"
    why = await call(client, "why", trace=context["trace"], ref=context["blocks"][0]["ref"])
    assert why["verdict"] == "in" and why["replayable"], why
    refused = await client.call_tool("put", {"writes": [], "by": "me"})
    assert refused.is_error, "no argument says who judged"


def database(dbctl, folder, name):
    file = os.path.join(folder, name)
    subprocess.run([dbctl, "init", file], check=True, stdout=subprocess.DEVNULL)
    put = [dbctl, "put", file, "acme/support", "policy", "Refunds up to $400 need no approval."]
    subprocess.run(put, check=True, stdout=subprocess.DEVNULL)
    judge = os.path.join(folder, "judge")
    with open(judge, "w") as out:
        out.write("#!/bin/sh\ncat >/dev/null\necho '{\"confidence\": 0.9, \"note\": \"checked\"}'\n")
    os.chmod(judge, 0o700)
    return ["mcp", file, "--scope", "acme/support", "--actor", "model", "--write", "--evaluator", judge]


async def main(dbctl):
    with tempfile.TemporaryDirectory() as folder:
        args = database(dbctl, folder, "stdio.ctx")
        async with Client(StdioServerParameters(command=dbctl, args=args)) as client:
            await drive(client)
        print("stdio: eight tools")
        args = database(dbctl, folder, "http.ctx") + ["--http", "127.0.0.1:0"]
        token = secrets.token_hex(16)
        server = subprocess.Popen([dbctl, *args], stderr=subprocess.PIPE, text=True, env={**os.environ, "CTXPAGE_MCP_TOKEN": token})
        try:
            url = server.stderr.readline().split()[-1]
            http = create_mcp_http_client(headers={"Authorization": "Bearer " + token})
            async with Client(streamable_http_client(url, http_client=http)) as client:
                await drive(client)
        finally:
            server.terminate()
            server.wait(20)
        print("http: eight tools")


asyncio.run(asyncio.wait_for(main(sys.argv[1]), 60))
