"""The surface for threads."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from conftest import alive, owner

import ctxpage

HERE = Path(__file__).resolve().parent


@pytest.fixture
def db(path: str) -> Iterator[ctxpage.Database]:
    with ctxpage.open(path) as db:
        yield db


def test_walk(db: ctxpage.Database) -> None:
    """A host writes, an agent answers from a context, an operator decides, and each step can be explained."""
    memory = db.scope("acme/support")
    assert memory.put("policy", "Refunds up to $400 need no approval.") == "acme/support:policy@1"
    agent = db.gated("acme/support", actor="bot")
    context = agent.assemble("what may I refund?", 1000, messages="openai")
    assert "Refunds up to $400" in context.text and context.tier == 1 and context.tokens < 1000 and str(context) == context.text
    assert context.messages("openai")["messages"]
    with pytest.raises(ctxpage.Invalid, match="expected openai"):
        context.messages("gemini")
    assert set(agent.assemble("refund", 1000, messages="anthropic").messages("anthropic")) == {"system", "messages"}
    assert set(agent.assemble("refund", 1000, messages="gemini").messages("gemini")) == {"systemInstruction", "contents"}
    with agent.transaction(context) as tx:
        tx.put("answer", "Up to $400.")
        with pytest.raises(ctxpage.Held) as held:
            tx.commit()
    assert held.value.batch and held.value.reason == "no verdict"
    with pytest.raises(ctxpage.NotFound):
        agent.get("answer")
    with pytest.raises(ctxpage.Forbidden), agent.transaction(context) as tx:
        tx.put("answer", "Up to $400.")
        tx.commit(1.0, "me")
    operator = db.operator("acme/support", actor="ann")
    assert [h["batch"] for h in operator.review.list()] == [held.value.batch]
    assert operator.review.show(held.value.batch)["writes"][0].get("text") == "Up to $400."
    with pytest.raises(ctxpage.SelfCertified):
        db.operator("acme/support", actor="bot").review.approve(held.value.batch)
    operator.review.approve(held.value.batch, note="right")
    with pytest.raises(ctxpage.Reviewed):
        operator.review.reject(held.value.batch)
    assert agent.get("answer").get("text") == "Up to $400."
    why = agent.why(context, "policy")
    assert why["in"] and why["steps"]
    assert agent.replay(context)["text"] == context.text
    other = agent.assemble("what may I refund?", 1000)
    assert agent.diff(context, other)["only_b"] == ["acme/support:answer#1@1"]
    assert agent.manifest(context)["leaves"][0]["type"] == "assemble"
    assert memory.search("refunds")["hits"][0]["ref"] == "acme/support:policy#1@1"
    assert memory.refresh()["sources"] == 0


def test_pages(db: ctxpage.Database) -> None:
    memory = db.scope("acme")
    until = datetime.now(timezone.utc) + timedelta(days=1)
    memory.put("a", "one", kind="fact", tags=["x"], expires_at=until, meta={"k": "v"}, group=None)
    page = memory.get("a")
    assert page.get("tags") == ["x"] and page.get("meta") == {"k": "v"}
    assert datetime.fromisoformat(page.get("expires_at", "").replace("Z", "+00:00")[:19] + "+00:00") == until.replace(microsecond=0)
    memory.put_all([{"id": f"n/{i:04}", "text": f"number {i}"} for i in range(1500)])
    assert len(list(memory.list())) == 1501
    assert [p["id"] for p in memory.list("n/", limit=2)] == ["n/0000", "n/0001"]
    assert [p["id"] for p in memory.list(filter={"tags_any": ["x"]})] == ["a"]
    memory.put("a", "two")
    assert [p["version"] for p in memory.versions("a")] == [2, 1]
    assert memory.get(ref="acme:a@1").get("text") == "one"
    memory.delete("a")
    assert memory.find("a") is None
    for hostile in ("\x00", "‮evil", "</page>", "{'$gt':1}", "é" * 200, "💥"):
        memory.put("hostile", hostile + "text")
        assert memory.get("hostile").get("text") == hostile + "text"
    with pytest.raises(ctxpage.Invalid):
        memory.put("half", "\ud800")
    with pytest.raises(ctxpage.Invalid, match="put: got 16777") as large:  # the server hangs up on it, and looks as if it did not answer
        memory.put("large", "a" * (16 << 20))
    assert large.value.code == "too_large"
    with pytest.raises(ctxpage.Invalid, match="id: got nothing"):  # the control: the server reads a request of nearly that size
        memory.put("", "a" * ((16 << 20) - 1000))
    with pytest.raises(ctxpage.CtxpageError, match="control"):
        db.scope("acme\r\nCtxpage-Role: operator")
    assert [p.get("text") for p in memory.list("n/", full=True, limit=3)] == ["number 0", "number 1", "number 2"]
    names = {"bob/eve": "bob%2Feve", "..": "%2E%2E", "größe 1": "größe 1", " x ": "%20x%20", "a\u200bb": "a%E2%80%8Bb", "a\uff0fb": "a%EF%BC%8Fb", "50%": "50%25", "💥": "💥"}
    assert {n: memory.below(n).name for n in names} == {n: "acme/" + e for n, e in names.items()}
    memory.below("bob/eve").put("own", "of one user")
    assert memory.find("own") is None and db.scope("acme/bob").find("own") is None
    uni = db.scope("acme/größe")
    uni.put("x", "of a scope with letters")
    assert uni.get("x")["scope"] == "acme/größe"
    assert ctxpage.id_of("acme/gr%C3%B6%C3%9Fe:a%20b#1@2") == "a b"


def test_transaction(db: ctxpage.Database) -> None:
    memory = db.scope("acme")
    memory.put("a", "one")
    with memory.transaction() as tx:
        tx.put("b", "two")
        tx.delete("a")
        with pytest.raises(ctxpage.Invalid, match="half of a verdict"):
            tx.commit(0.9)
    assert memory.find("b") is None and memory.find("a"), "it was rolled back"
    with memory.transaction() as tx:
        tx.put("b", "two")
        assert tx.get("b").get("text") == "two"
        tx.put("c", "three")
        assert "three" in tx.assemble("three", 1000).text
        with pytest.raises(ctxpage.NotFound):
            memory.get("b")
        tx.delete("a")
        done = tx.commit(0.9, "checker")
    assert sorted(done["refs"]) == ["acme:a@2", "acme:b@1", "acme:c@1"] and tx.done
    context = memory.assemble("two", 1000)
    memory.put("b", "two and a half")
    with memory.transaction(context, on_stale="fail") as tx:
        tx.put("d", "from a stale context")
        with pytest.raises(ctxpage.StaleContext):
            tx.commit(0.9, "checker")


def test_session(db: ctxpage.Database) -> None:
    memory = db.scope("acme")
    chat = memory.session("chat")
    chat.user("what may I refund?", subject="ann")
    chat.append({"role": "assistant", "text": "Let me look.", "tool_calls": [{"id": "c1", "name": "look", "arguments": "{}"}]}, {"role": "tool", "tool_call_id": "c1", "text": "400"})
    context = memory.assemble("refund", 1000, session="chat")
    chat.assistant("Up to $400.", of=context)
    assert [p.get("role") for p in chat.history()] == ["user", "assistant", "tool", "assistant"]
    assert [p.get("text") for p in chat.history(last=1)] == ["Up to $400."]
    assert list(memory.sessions()) == ["chat"]
    assert chat.limit(8000, output_reserve=1000).get("usable")
    assert chat.compact("refund", keep_last=1)["pass"] == 1
    assert chat.undo()["pass"] == 1
    turn = chat.window()["turns"][0]["id"]
    chat.pin(turn)
    assert chat.window()["turns"][0].get("pinned") and chat.recall(turn).get("text") == "what may I refund?"
    page = chat.pop()
    assert page and page.get("text") == "Up to $400."
    batch = ctxpage.new_batch()
    assert chat.append({"role": "user", "text": "thanks"}, batch=batch) == chat.append({"role": "user", "text": "thanks"}, batch=batch)
    assert len(list(chat.history())) == 4
    chat.truncate()
    assert list(chat.history()) == [] and chat.pop() is None
    calls = [{"id": "c9", "type": "function", "function": {"name": "look", "arguments": '{"n":1}'}}]
    chat.append(  # messages of OpenAI's chat API
        {"role": "user", "content": "look"},
        {"role": "assistant", "content": None, "tool_calls": calls, "refusal": None, "annotations": []},
        {"role": "tool", "tool_call_id": "c9", "content": "17"},
    )
    shown = memory.assemble("look", 1000, session="chat", messages="openai").messages("openai")["messages"]
    assert [m for m in shown if m.get("tool_calls")][0]["tool_calls"] == calls and shown[-1]["content"] == "17"
    seen = memory.session("seen")
    image = {"type": "image_url", "image_url": {"url": "https://x/y.png", "detail": "low"}}
    inside = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    seen.append(
        {"role": "user", "content": [{"type": "text", "text": "see"}, image], "subject": "ann", "tags": ["x"], "priority": "critical"},
        {"role": "user", "content": [inside]},
    )
    whole, bare = seen.history()
    assert whole.get("parts") == [{"type": "text", "text": "see"}, {"type": "image_url", "url": "https://x/y.png", "detail": "low"}]
    assert whole.get("subject") == "ann" and whole.get("tags") == ["x"], "fields of a turn beside those of the message"
    assert bare.get("text") == "[image_url]" and json.loads(bare["parts"][1]["detail"]) == inside
    with pytest.raises(ctxpage.Invalid, match="got a part of type tool_use, expected text"):
        seen.append({"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]})
    with pytest.raises(ctxpage.Invalid, match="got a str, expected a mapping"):
        chat.append("hello")  # type: ignore[arg-type]
    rules = memory.directives
    assert rules.step("prohibit emails").get("changed") and "emails" in str(rules.show())
    assert rules.suggest("no more mail", "prohibit mail")["grounded"] is False


def test_operator(db: ctxpage.Database, tmp_path: Path) -> None:
    memory = db.scope("acme/support")
    memory.put_all([{"id": f"p{i}", "text": f"page {i}", "subject": "ann"} for i in range(3)])
    operator = db.operator("acme/support", actor="ann")
    assert [(s["name"], s["artefacts"]) for s in operator.scopes(depth=1)] == [("acme", 3)]
    assert operator.stats()["artefacts"] == 3 and operator.health()["artefacts"] == 3
    lines = b"\n".join(operator.export(no_secret=True)) + b"\n"
    (tmp_path / "export.jsonl").write_bytes(lines)
    with ctxpage.open(str(tmp_path / "other.ctx"), idle="1s") as other:
        assert other.operator("acme/support").bring(path=str(tmp_path / "export.jsonl"))["versions"]["new"] == 3
        assert other.operator("acme/support").bring(lines=lines.decode())["versions"]["same"] == 3
        assert other.scope("acme/support").get("p1").get("text") == "page 1"
        other.operator("acme/support").stop()
    assert operator.backup(str(tmp_path / "copy.ctx"))["head"]
    assert operator.set_retention({"kinds": {"fact": "30d"}})["policy"].get("kinds") == {"fact": "30d"}
    assert operator.retention()["policies"] and operator.run_retention(dry_run=True)["items"] == []
    operator.set_quota({"pages": 3})
    with pytest.raises(ctxpage.Quota):
        memory.put("more", "too much")
    operator.set_quota({})
    assert operator.quotas()["quotas"] == []
    assert len(operator.erase(subject="ann", reason="asked", dry_run=True)["report"]["erased"]) == 3
    erased = operator.erase("p0", reason="asked")
    assert erased.get("receipt")["done"]["by"] == "ann" and operator.receipt(operator.erasures()["erases"][0]["trace"])["db"]
    with pytest.raises(ctxpage.Gone):
        memory.get(ref="acme/support:p0@1")
    with pytest.raises(ctxpage.Held):
        db.gated("acme/support", actor="bot").put("x", "held")
    assert operator.review.approve_all(actor="bot")["approved"] == 1
    change = next(iter(memory.changes(0, limit=1)))
    assert change.get("leaf", {}).get("scope") == "acme/support"
    assert operator.embed()["model"].startswith("small-")


def test_threads(db: ctxpage.Database) -> None:
    memory = db.scope("acme")
    failed: list[BaseException] = []

    def work(n: int) -> None:
        try:
            for i in range(25):
                memory.put(f"{n}-{i}", f"text {n} {i}")
                assert memory.get(f"{n}-{i}").get("text") == f"text {n} {i}"
        except BaseException as e:
            failed.append(e)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(16)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failed and len(list(memory.list())) == 400


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_fork(db: ctxpage.Database) -> None:
    """A child after fork opens connections of its own: parent and child never read each other's answers."""
    memory = db.scope("acme")
    memory.put("shared", "before")
    children = []
    for n in range(8):
        pid = os.fork()
        if pid == 0:
            try:
                for i in range(20):
                    memory.put(f"child-{n}-{i}", f"of {n} {i}")
                    assert memory.get(f"child-{n}-{i}").get("text") == f"of {n} {i}"
                os._exit(0)
            except BaseException:
                os._exit(1)
        children.append(pid)
    for i in range(20):
        memory.put(f"parent-{i}", f"of the parent {i}")
        assert memory.get(f"parent-{i}").get("text") == f"of the parent {i}"
    assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children] == [0] * 8
    assert len(list(memory.list())) == 8 * 20 + 20 + 1


def test_closed(path: str) -> None:
    with ctxpage.open(path) as db:
        memory = db.scope("acme")
        memory.put("a", "one")
    with pytest.raises(ctxpage.Unavailable, match="closed"):
        memory.get("a")


def test_no_binary(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ctxpage.Unavailable, match="cannot be run"):
        ctxpage.open(path, binary="/nowhere/dbctl")
    with pytest.raises(ctxpage.Unavailable, match="did not start: unknown flag --no-such-flag"):
        ctxpage.open(path, args=["--no-such-flag"])


def test_loopback(path: str) -> None:
    """Where there are no unix sockets: a loopback address, and a token that only the user can read."""
    with ctxpage.open(path, http=True, idle="2s") as db, ctxpage.open(path, http=True) as second:
        db.scope("acme").put("a", "one")
        assert second.scope("acme").get("a").get("text") == "one"
        assert second.transport.address == db.transport.address
        assert os.stat(path + ".http.tokens").st_mode & 0o077 == 0
        assert db.operator("acme").stats()["artefacts"] == 1


def test_stale_announcement(path: str) -> None:
    """The port of a server that ended may be another program's: it gets no token."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        Path(path + ".http.tokens").write_text("# ours\nagent agent-token-0123456\noperator operator-token-012345\n")
        os.chmod(path + ".http.tokens", 0o600)
        Path(path + ".http.lock").write_text(json.dumps({"pid": ended.pid, "program": "dbctl", "socket": f"http://127.0.0.1:{port}"}))
        with ctxpage.open(path, http=True, idle="2s") as db:
            assert db.transport.address is not None and db.transport.address.port != port
            assert db.operator("acme").stats()["artefacts"] == 0, "with the token of the highest role"
        other.setblocking(False)
        with pytest.raises(BlockingIOError):
            other.accept()


def test_server_outlives_its_starter(path: str) -> None:
    """The server belongs to nobody: it goes on when the program that started it is killed."""
    program = f"import ctxpage, os; ctxpage.open({path!r}).scope('a').put('x', 'one'); os.kill(os.getpid(), 9)"
    subprocess.run([sys.executable, "-c", program], check=False)
    pid = owner(path)
    assert alive(pid)
    with ctxpage.open(path) as db:
        assert db.scope("a").get("x").get("text") == "one" and db.status()["pid"] == pid


def test_generated() -> None:
    """Types are those of the server's schema, and the surface for threads is that of asyncio."""
    for script in ("make_types.py", "make_sync.py"):
        subprocess.run([sys.executable, str(HERE.parent / "scripts" / script), "--check"], check=True)


def test_schema(db: ctxpage.Database) -> None:
    """The server that runs has the version of the types."""
    assert db.schema()["version"] == ctxpage.types.VERSION
