"""Pydantic AI's conversation store: random operations beside InMemoryConversationStore. Each call of a primitive goes to both."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

from beside import check, same
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import ConversationConflict, ConversationRecord, ConversationStore, InMemoryConversationStore
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.usage import RunUsage

import ctxpage
from ctxpage.adapters.pydantic_ai import CtxpageConversationStore


class Broken(CtxpageConversationStore):
    """Forgets to compare the revision."""

    async def write_record(self, record: ConversationRecord, *, new_entries: Any = (), expected_revision: str | None) -> None:
        stored = await self.read_record(record.conversation_id)
        await super().write_record(record, new_entries=new_entries, expected_revision=stored and stored.revision)


class Both(ConversationStore):
    def __init__(self, ours: ConversationStore, theirs: ConversationStore) -> None:
        self.stores = ours, theirs
        self.calls: Counter[str] = Counter()

    async def _both(self, name: str, *args: Any, **more: Any) -> Any:
        out: list[Any] = []
        for store in self.stores:
            try:
                out.append(await getattr(store, name)(*args, **more))
            except (ConversationConflict, LookupError) as e:
                out.append(e)
        ours, theirs = out
        if isinstance(theirs, Exception):
            same(f"{name} {args}", isinstance(ours, LookupError if isinstance(theirs, LookupError) else ConversationConflict), True)
            raise theirs
        self.calls[name] += 1
        same(f"{name} {args}", ours, theirs)
        return ours

    async def read_record(self, conversation_id: str) -> Any:
        return await self._both("read_record", conversation_id)

    async def read_records(self, **how: Any) -> Any:
        return await self._both("read_records", **how)

    async def write_record(self, record: Any, **how: Any) -> None:
        await self._both("write_record", record, **how)

    async def delete_record(self, conversation_id: str, **how: Any) -> None:
        await self._both("delete_record", conversation_id, **how)

    async def read_entry(self, entry_id: str) -> Any:
        return await self._both("read_entry", entry_id)

    async def read_history(self, head_id: str | None, **how: Any) -> Any:
        return await self._both("read_history", head_id, **how)


def message(rng: random.Random, n: int) -> ModelMessage:
    text = rng.choice(["refund", "größe 💥", "</page>", "‮evil", "'); --", "x" * 300]) + f" {n}"
    part: Any = rng.choice([UserPromptPart(text), UserPromptPart([text, "and more"]), TextPart(text), ToolCallPart("look", {"n": n, "t": text}, f"c{n}"), ToolReturnPart("look", {"found": [text, None, n]}, f"c{n}")])
    return ModelResponse([part], model_name="stub") if part.part_kind in ("text", "tool-call") else ModelRequest([part])


async def run(scope: ctxpage.Scope, rng: random.Random, operations: int, broken: bool) -> str:
    store = Both((Broken if broken else CtxpageConversationStore)(scope), InMemoryConversationStore())
    names = [f"chat/{n} é" for n in range(12)]
    owners = [None, "ann", "bob/eve"]
    loaded: dict[str, Conversation] = {}
    conflicts = 0
    for n in range(operations):
        name, owner = rng.choice(names), rng.choice(owners)
        old = loaded.get(name)
        try:
            match rng.choice(["load", "load", "save", "save", "save", "save", "rewrite", "branch", "fork", "list", "delete", "entries", "stale"]):
                case "load":
                    found = await store.load(name, limit=rng.choice([None, None, 0, 3]), scope=owner)
                    if found:
                        loaded[name] = found
                case "save" | "stale" as what:
                    c = old if old and what == "save" else Conversation(conversation_id=name)
                    c.messages = [*c.messages, *(message(rng, n) for _ in range(rng.randrange(3)))]
                    c.usage = RunUsage(requests=n, input_tokens=rng.randrange(99))
                    await store.save(c, scope=owner if what == "stale" else None)
                    loaded[name] = c
                case "rewrite" if old and old.messages:
                    old.messages = [message(rng, n), *old.messages[rng.randrange(len(old.messages)) :]]
                    await store.save(old)
                case "branch":
                    entries = await store.load_entries(name)
                    how: Any = {"from_entry": rng.choice(entries).id} if entries and rng.random() < 0.5 else {"at": rng.randrange(4)}
                    loaded[name] = await store.branch(name, expected_revision=old.revision if old else None, scope=owner, **how)
                case "fork":
                    new = rng.choice(names)
                    loaded[new] = await store.fork(name, new_conversation_id=new, at=rng.choice([None, 1]), scope=owner)
                case "list":
                    await store.list_conversations(scope=owner, limit=rng.choice([None, 2, 5]))
                case "delete":
                    await store.delete(name, scope=owner)
                    loaded.pop(name, None)
                case "entries":
                    await store.load_entries(name, limit=rng.choice([None, 1, 30]), scope=owner)
        except ConversationConflict:
            conflicts += 1
            loaded.pop(name, None)
        except UserError:
            pass
    for name in names:
        await store.load_entries(name)
    left = {p["id"].rpartition("/")[2] for p in scope.list("pydantic-ai/message/")}
    same("messages that are left", left, set(store.stores[1]._entries))  # type: ignore[attr-defined]
    return f"{sum(store.calls.values())} calls compared, {conflicts} conflicts, {len(left)} messages at the end"


asyncio.run(check("pydantic-ai", run))
