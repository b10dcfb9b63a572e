"""Agent Framework's history provider: random operations beside InMemoryHistoryProvider, which keeps its messages in the state of a session."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

from agent_framework import Content, InMemoryHistoryProvider, Message
from beside import check, same

import ctxpage
from ctxpage.adapters.agent_framework import CtxpageHistoryProvider


class Broken(CtxpageHistoryProvider):
    """Appends what is repeated, too."""

    async def save_messages(self, session_id: str | None, messages: Sequence[Message], **more: Any) -> None:
        if messages:
            await self._add(session_id, messages)

    async def _add(self, session_id: str | None, messages: Sequence[Message]) -> None:
        from ctxpage.adapters.agent_framework import _turn  # pyright: ignore[reportPrivateUsage]

        await asyncio.to_thread(lambda: self.scope.session(session_id or "default").append(*map(_turn, messages)))


def message(rng: random.Random, n: int) -> Message:
    text = rng.choice(["refund", "größe 💥", "</page>", "‮evil", "x" * 300, "ok"]) + rng.choice([f" {n}", ""])
    match rng.randrange(5):
        case 0:
            return Message("assistant", [Content.from_function_call(f"c{n}", "look", arguments={"n": n, "text": text})])
        case 1:
            return Message("tool", [Content.from_function_result(f"c{n}", result=text)])
        case 2:
            return Message("assistant", [text, "and more"], author_name="kim", additional_properties={"n": n})
        case 3:
            return Message("system", [text], message_id=f"m{n}")
        case _:
            return Message("user", [text])


def plain(messages: list[Message]) -> list[Any]:
    return [m.to_dict() for m in messages]


async def run(scope: ctxpage.Scope, rng: random.Random, operations: int, broken: bool) -> str:
    ours, theirs = (Broken if broken else CtxpageHistoryProvider)(scope), InMemoryHistoryProvider()
    states: dict[str | None, dict[str, Any]] = {}
    read = saved = 0
    generation = 0
    for n in range(operations):
        if n % 150 == 0:  # new sessions, as the old ones grow long
            generation, states = generation + 1, {}
        session = rng.choice([None if generation == 1 else f"{generation}", f"chat-{generation}", f"a/b é {generation}", f"{generation}:x"])
        state = states.setdefault(session, {})
        if rng.random() < 0.5:
            same(f"messages of {session}", plain(await ours.get_messages(session)), plain(await theirs.get_messages(session, state=state)))
            read += 1
            continue
        new = [message(rng, n + i) for i in range(rng.randrange(4))]
        there = await theirs.get_messages(session, state=state)
        if there and rng.random() < 0.4:  # the caller repeats the history, or its end
            new = [*there[-rng.randrange(1, len(there) + 1) :], *new]
        await ours.save_messages(session, new)
        await theirs.save_messages(session, new, state=state)
        saved += 1
    for session, state in states.items():
        same(f"messages of {session}", plain(await ours.get_messages(session)), plain(await theirs.get_messages(session, state=state)))
    return f"{read} reads compared, {saved} saves, {sum(len(s.get('messages', [])) for s in states.values())} messages at the end"


asyncio.run(check("agent-framework", run))
