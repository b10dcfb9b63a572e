"""Pydantic AI: a conversation store.

    from ctxpage.adapters.pydantic_ai import CtxpageConversationStore

    store = CtxpageConversationStore(db.scope("acme/chats"))
    conversation = await store.load("chat-1") or Conversation(conversation_id="chat-1")
    result = await agent.run(prompt, conversation=conversation)
    await store.save(result, scope="ann")

A message is a page with its words, a conversation a page that names the newest message. A save writes both in one transaction. The scope of
a conversation is the subject of its pages, so `operator.erase(subject="ann")` takes them all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Any, cast

from pydantic import TypeAdapter
from pydantic_ai.conversation_store import ConversationConflict, ConversationEntry, ConversationRecord, ConversationStore
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter

from .. import types as t
from .._sync import Scope, Transaction
from ._pages import Pages, segment, transact, value_of, words

_RECORD: TypeAdapter[ConversationRecord] = TypeAdapter(ConversationRecord)
_FORKS = "forks"


class CtxpageConversationStore(ConversationStore):
    """Conversations in a scope. delete also deletes the messages that no other conversation reaches; their versions stay for replays, until gc or erase."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self._records = Pages(scope, "pydantic-ai/conversation/", kind="scratch")
        self._entries = Pages(scope, "pydantic-ai/message/")
        self._guard = Pages(scope, "pydantic-ai/", kind="scratch")

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        doc = await asyncio.to_thread(self._records.get, segment(conversation_id))
        return None if doc is None else _RECORD.validate_python(doc)

    async def read_records(self, *, scope: str | None = None, limit: int | None = None) -> Sequence[ConversationRecord]:
        return await asyncio.to_thread(self._newest, scope, limit)

    def _newest(self, scope: str | None, limit: int | None) -> list[ConversationRecord]:
        filter: t.Filter | None = None if scope is None else {"meta": {"scope": segment(scope)}}
        if limit is None:
            records = [_RECORD.validate_python(doc) for _, doc in self._records.values(filter=filter)]
            return sorted(records, key=lambda r: r.updated_at, reverse=True)
        heads = sorted(self.scope.list(self._records.prefix, filter=filter), key=lambda p: datetime.fromisoformat(p.get("meta", {})["updated"]), reverse=True)
        docs = [self._records.get(p["id"].removeprefix(self._records.prefix)) for p in heads[:limit]]
        return [_RECORD.validate_python(d) for d in docs if d is not None]

    async def write_record(self, record: ConversationRecord, *, new_entries: Sequence[ConversationEntry] = (), expected_revision: str | None) -> None:
        await asyncio.to_thread(transact, self.scope, "pydantic-ai", lambda tx: self._write(tx, record, new_entries, expected_revision))

    def _write(self, tx: Transaction, record: ConversationRecord, new: Sequence[ConversationEntry], expected: str | None) -> None:
        id = segment(record.conversation_id)
        stored = self._records.read(tx, id)
        revision = None if stored is None else stored["revision"]
        if revision == record.revision:
            return  # an earlier attempt was committed, and its answer lost
        if revision != expected:
            raise ConversationConflict(record.conversation_id)
        made = {e.id for e in new}
        shared = {i for i in (record.head_id, *(e.parent_id for e in new)) if i is not None and i not in made}
        if any(self._entries.read(tx, i) is None for i in shared):
            raise ConversationConflict(record.conversation_id)
        if stored is None and shared:
            self._guard.add(tx, _FORKS, record.conversation_id)  # a delete that runs now must see this fork
        who = {"subject": record.scope} if record.scope else {}
        for e in new:
            kind, role, text = _said(e.message)
            doc = {"id": e.id, "parent": e.parent_id, "message": ModelMessagesTypeAdapter.dump_python([e.message], mode="json")[0]}
            self._entries.add(tx, e.id, doc, text, kind=kind, role=role, group=id, meta={"in": id, "parent": e.parent_id or ""}, **who)
        meta = {"updated": record.updated_at.isoformat(), **({} if record.scope is None else {"scope": segment(record.scope)})}
        self._records.add(tx, id, _RECORD.dump_python(record, mode="json"), meta=meta, **who)

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        await asyncio.to_thread(transact, self.scope, "pydantic-ai", lambda tx: self._delete(tx, conversation_id, expected_revision))

    def _delete(self, tx: Transaction, conversation_id: str, expected: str) -> None:
        id = segment(conversation_id)
        stored = self._records.read(tx, id)
        if stored is None or stored["revision"] != expected:
            raise ConversationConflict(conversation_id)
        # A fork that is written from here on conflicts with this page. Messages are listed before the conversations: whoever wrote a
        # message that is listed is in the second list too.
        self._guard.read(tx, _FORKS)
        self._guard.add(tx, _FORKS, conversation_id)
        parents = {p["id"].removeprefix(self._entries.prefix): p.get("meta", {}).get("parent", "") for p in self.scope.list(self._entries.prefix)}
        reached: set[str] = set()
        for other, doc in self._records.values():
            if other != id:
                for tip in (doc["head_id"], *doc["branches"]):
                    while tip and tip not in reached:
                        reached.add(tip)
                        tip = parents.get(tip, "")
        self._records.remove(tx, id)
        self._entries.remove(tx, *(i for i in parents if i not in reached))

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        return (await asyncio.to_thread(self._history, entry_id, 1))[0]

    async def read_history(self, head_id: str | None, *, limit: int | None = None) -> list[ConversationEntry]:
        return await asyncio.to_thread(self._history, head_id, limit)

    def _history(self, head: str | None, limit: int | None) -> list[ConversationEntry]:
        known: dict[str, Any] = {}
        line: list[ConversationEntry] = []
        while head is not None and (limit is None or len(line) < limit):
            if head not in known:
                page = self.scope.find(self._entries.prefix + head)
                if page is None:
                    raise LookupError(f"there is no message {head!r}")
                known[head] = value_of(page)
                if limit is None:  # the others of its conversation, in one call
                    known.update(self._entries.values(filter={"meta": {"in": page.get("meta", {})["in"]}}))
            doc = known[head]
            message = ModelMessagesTypeAdapter.validate_python([doc["message"]])[0]
            line.append(ConversationEntry(id=head, parent_id=doc["parent"], message=message))
            head = doc["parent"]
        return line[::-1]


def _said(message: ModelMessage) -> tuple[str, str, str]:
    """Kind, role and words. Only what the user said is the user's: instructions and results of tools are not."""
    all = cast("Sequence[Any]", message.parts)
    said = [p.content for p in all if p.part_kind == "user-prompt"]
    if said:
        return "message", "user", "\n".join(words(said)) or "[data]"
    if message.kind == "response":
        return "message", "assistant", "\n".join(words([p.content for p in all if p.part_kind == "text"])) or "[tool call]"
    return "tool", "", "\n".join(words([p.content for p in all if p.part_kind in ("tool-return", "retry-prompt")])) or "[data]"


__all__ = ["CtxpageConversationStore"]
