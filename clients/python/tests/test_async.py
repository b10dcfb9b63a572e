"""The surface for asyncio."""

from __future__ import annotations

import asyncio
import random

import pytest

import ctxpage


async def test_walk(path: str) -> None:
    async with await ctxpage.aopen(path) as db:
        memory = db.scope("acme")
        await memory.put("policy", "Refunds up to $400 need no approval.")
        context = await memory.assemble("refund?", 1000, messages="openai")
        assert "Refunds" in context.text and context.messages("openai")
        async with memory.transaction(context) as tx:
            tx.put("answer", "Up to $400.")
            assert (await tx.get("answer")).get("text") == "Up to $400."
            await tx.commit(0.9, "checker")
        chat = memory.session("chat")
        await chat.user("what?")
        await chat.assistant("Up to $400.", of=context)
        assert [p.get("text") async for p in chat.history()] == ["what?", "Up to $400."]
        assert [p["id"] async for p in memory.list(limit=2)] == ["answer", "block-chat-1"]
        with pytest.raises(ctxpage.Held):
            await db.gated("acme", actor="bot").put("x", "held")
        operator = db.operator("acme", actor="ann")
        assert [h["actor"] async for h in operator.review.list()] == ["bot"]
        assert len([line async for line in operator.export()]) > 3
        assert [s["name"] async for s in operator.scopes()] == ["acme"]


async def test_concurrent(path: str) -> None:
    async with await ctxpage.aopen(path) as db:
        memory = db.scope("acme")

        async def one(i: int) -> None:
            await memory.put(f"{i}", f"text {i}")
            assert (await memory.get(f"{i}")).get("text") == f"text {i}"

        await asyncio.gather(*(one(i) for i in range(150)))
        assert len([p async for p in memory.list()]) == 150


def test_many_loops(path: str) -> None:
    """A database outlives an event loop: connections of a closed loop are left."""
    db = asyncio.run(ctxpage.aopen(path))

    async def use(i: int) -> None:
        await db.scope("acme").put("a", f"loop {i}")
        assert (await db.scope("acme").get("a")).get("text") == f"loop {i}"

    for i in range(5):
        asyncio.run(use(i))
    asyncio.run(db.close())


async def test_cancelled(path: str) -> None:
    """An event loop whose tasks are cancelled at random mixes up no answers and keeps working."""
    rng = random.Random(7)
    async with await ctxpage.aopen(path) as db:
        memory = db.scope("acme")
        for i in range(50):
            await memory.put(f"{i}", f"text {i}")

        async def reads(n: int) -> int:
            done = 0
            while True:
                i = (n * 7 + done) % 50
                assert (await memory.get(f"{i}")).get("text") == f"text {i}"
                await memory.put(f"w-{n}", f"write {done}")
                done += 1

        cancelled = 0
        for _ in range(40):
            tasks = [asyncio.ensure_future(reads(n)) for n in range(8)]
            await asyncio.wait(tasks, timeout=rng.random() / 20)
            for t in tasks:
                t.cancel()
            for result in await asyncio.gather(*tasks, return_exceptions=True):
                assert isinstance(result, asyncio.CancelledError), result
                cancelled += 1
        assert cancelled == 320
        for i in range(50):
            assert (await memory.get(f"{i}")).get("text") == f"text {i}"
        for n in range(8):
            assert "write" in str((await memory.get(f"w-{n}")).get("text"))
