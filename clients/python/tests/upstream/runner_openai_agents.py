"""OpenAI Agents: a Runner with a scripted model and tools over CtxpageSession, in two processes; the server is killed between and during them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from typing import Any

from agents import Agent, Model, ModelResponse, Runner, Usage, function_tool, set_tracing_disabled
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

import ctxpage
from ctxpage.adapters.openai_agents import CtxpageSession

set_tracing_disabled(True)
path = ""
looked_up: list[str] = []


def kill_server() -> None:
    with open(path + ".api.lock") as f:
        os.kill(json.load(f)["pid"], signal.SIGKILL)


@function_tool
def order(number: str) -> str:
    """Looks up an order."""
    looked_up.append(number)
    kill_server()  # in the middle of a turn, between the call and its answer
    return f"order {number}: a lamp, $120"


class Scripted(Model):
    """Gives the outputs in turn, and keeps what it was asked."""

    def __init__(self, *outputs: Any) -> None:
        self.outputs, self.asked = list(outputs), list[Any]()

    async def get_response(self, system_instructions: str | None, input: Any, *args: Any, **more: Any) -> ModelResponse:
        self.asked.append((system_instructions, input))
        return ModelResponse(output=[self.outputs.pop(0)], usage=Usage(), response_id=None)

    def stream_response(self, *args: Any, **more: Any) -> AsyncIterator[Any]:
        raise NotImplementedError


def says(text: str) -> ResponseOutputMessage:
    return ResponseOutputMessage(id="m", content=[ResponseOutputText(text=text, type="output_text", annotations=[])], role="assistant", status="completed", type="message")


def calls(id: str, number: str) -> ResponseFunctionToolCall:
    return ResponseFunctionToolCall(call_id=id, name="order", arguments=json.dumps({"number": number}), type="function_call")


async def first(db: ctxpage.AsyncDatabase) -> None:
    model = Scripted(calls("c1", "17"), says("A lamp for $120."), says("Up to $400 without approval."))
    agent = Agent(name="desk", model=model, tools=[order])
    session = CtxpageSession("chat-1", db, scope="acme/support")
    assert (await Runner.run(agent, "What is order 17?", session=session)).final_output == "A lamp for $120."
    assert (await Runner.run(agent, "What may I refund?", session=session)).final_output == "Up to $400 without approval."
    kinds = [i.get("type", i.get("role")) for i in model.asked[-1][1]]
    assert kinds == ["user", "function_call", "function_call_output", "message", "user"], kinds


async def second(db: ctxpage.AsyncDatabase) -> None:
    model = Scripted(calls("c2", "18"), calls("c3", "19"), says("Two more lamps."))
    session = CtxpageSession("chat-1", db, scope="acme/support")
    result = await Runner.run(Agent(name="desk", model=model, tools=[order]), "And orders 18 and 19?", session=session)
    assert result.final_output == "Two more lamps." and looked_up == ["18", "19"], looked_up
    heard = json.dumps(model.asked[0][1])
    assert "order 17: a lamp, $120" in heard and "Up to $400" in heard, "the second process knows the first"
    items = await session.get_items()
    assert len(items) == 12, items
    assert [i.get("call_id") for i in items if i.get("type") == "function_call_output"] == ["c1", "c2", "c3"]
    assert await CtxpageSession("chat-2", db, scope="acme/support").get_items() == [], "nothing bleeds into another session"
    # What the session adds: the same turns in a context that keeps its budget, and says why.
    scope = db.scope("acme/support")
    await scope.put("policy", "Refunds up to $400 need no approval.")
    context = await scope.assemble("what may I refund?", 300, session="chat-1")
    assert context.tokens <= 300 and "Refunds up to $400" in context.text, context.text
    assert (await scope.why(context, "policy"))["in"]


async def main(part: str) -> None:
    async with await ctxpage.aopen(path) as db:
        await (first if part == "first" else second)(db)


if len(sys.argv) == 3:
    path = sys.argv[2]
    asyncio.run(main(sys.argv[1]))
else:
    with tempfile.TemporaryDirectory() as folder:
        path = folder + "/agent.ctx"
        for part in ("first", "second"):
            subprocess.run([sys.executable, __file__, part, path], check=True)
            kill_server()
    print("openai-agents Runner: 3 turns, 3 tool calls, 2 processes, 5 kills: every item is there once")
