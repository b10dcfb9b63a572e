"""Google ADK: a session service and a memory service.

    from ctxpage.adapters.adk import CtxpageMemoryService, CtxpageSessionService

    runner = Runner(app_name="desk", agent=agent, session_service=CtxpageSessionService(scope), memory_service=CtxpageMemoryService(scope))

Sessions are in SCOPE/sessions: an event is a page, and is written with the states it changes in one transaction.
Memory of a user is in SCOPE/memory/APP/USER: a search sees it and the facts of the scopes above, never another user's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.memory.base_memory_service import BaseMemoryService, SearchMemoryResponse
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.platform import time as platform_time
from google.adk.platform import uuid as platform_uuid
from google.adk.sessions.base_session_service import BaseSessionService, GetSessionConfig, ListSessionsResponse
from google.adk.sessions.session import Session
from google.adk.sessions.state import State
from google.genai.types import Content, Part
from pydantic_core import to_jsonable_python

from .. import types as t
from .._ids import new_batch
from .._sync import Scope, Transaction
from ._pages import ITEM, Pages, parts, segment, transact, value_of, words

_BY = "google-adk"


def _json(value: Any) -> Any:
    return to_jsonable_python(value, serialize_unknown=True)


def _text(content: Content | None) -> str:
    return "\n".join(words([p.text for p in (content and content.parts) or [] if p.text]))


class CtxpageSessionService(BaseSessionService):
    """Sessions below a scope. An event that another program appended meanwhile is no error: each keeps its place."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope.below("sessions")
        self._sessions = Pages(self.scope, "session/", kind="scratch")
        self._events = Pages(self.scope, "event/", kind="message")
        self._states = Pages(self.scope, "state/", kind="scratch")

    async def _transact(self, work: Callable[[Transaction], Any]) -> Any:
        return await asyncio.to_thread(transact, self.scope, _BY, work)

    async def create_session(self, *, app_name: str, user_id: str, state: dict[str, Any] | None = None, session_id: str | None = None) -> Session:
        session_id = (session_id.strip() if session_id else None) or platform_uuid.new_uuid()
        id, now = _place(app_name, user_id, session_id), platform_time.get_time()
        own, shared = _split(app_name, user_id, _json(state or {}))

        def create(tx: Transaction) -> Session:
            if self._sessions.read(tx, id) is not None:
                raise AlreadyExistsError(f"Session with id {session_id} already exists.")
            doc = {"app": app_name, "user": user_id, "id": session_id, "state": own, "updated": now, "next": 0}
            self._sessions.add(tx, id, doc, subject=user_id)
            return self._session(doc, [], self._merge(tx, app_name, user_id, shared))

        made: Session = await self._transact(create)
        return made

    def _merge(self, tx: Transaction, app: str, user: str, changes: dict[str, dict[str, Any]]) -> dict[str, Any]:
        """Writes what changes in the states of the app and the user, and returns both."""
        out: dict[str, Any] = {}
        for place, prefix in _shared(app, user):
            state = self._states.read(tx, place) or {}
            if changes[place]:
                state.update(changes[place])
                self._states.add(tx, place, state, **({"subject": user} if prefix == State.USER_PREFIX else {}))
            out.update({prefix + k: v for k, v in state.items()})
        return out

    def _state(self, app: str, user: str) -> dict[str, Any]:
        return {prefix + k: v for place, prefix in _shared(app, user) for k, v in (self._states.get(place) or {}).items()}

    @staticmethod
    def _session(doc: dict[str, Any], events: list[Event], shared: dict[str, Any]) -> Session:
        return Session(app_name=doc["app"], user_id=doc["user"], id=doc["id"], state={**doc["state"], **shared}, events=events, last_update_time=doc["updated"])

    async def get_session(self, *, app_name: str, user_id: str, session_id: str, config: GetSessionConfig | None = None) -> Session | None:
        return await asyncio.to_thread(self._get, app_name, user_id, session_id.strip(), config or GetSessionConfig())

    def _get(self, app: str, user: str, session_id: str, config: GetSessionConfig) -> Session | None:
        id = _place(app, user, session_id)
        doc = self._sessions.get(id)
        if doc is None:
            return None
        last, docs = config.num_recent_events, []
        if last is None or last > 20:
            docs = [v for n, v in self._events.values(id + "/") if int(n.rpartition("/")[2]) < doc["next"]][-(last or 0) :]
        elif last > 0:
            docs = [v for n in range(max(0, doc["next"] - last), doc["next"]) if (v := self._events.get(f"{id}/{n:08}")) is not None]
        events = [Event.model_validate(d) for d in docs]
        if config.after_timestamp is not None:
            old = [n for n, e in enumerate(events) if e.timestamp < config.after_timestamp]
            events = events[old[-1] + 1 :] if old else events
        return self._session(doc, events, self._state(app, user))

    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        return ListSessionsResponse(sessions=await asyncio.to_thread(self._list, app_name, user_id))

    def _list(self, app: str, user: str | None) -> list[Session]:
        docs = [doc for _, doc in self._sessions.values(segment(app) + "/" + ("" if user is None else segment(user) + "/"))]
        states = {u: self._state(app, u) for u in {d["user"] for d in docs}}
        sessions = [self._session(d, [], states[d["user"]]) for d in docs]
        return sorted(sessions, key=lambda s: (s.last_update_time, s.user_id, s.id))

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        id = _place(app_name, user_id, session_id.strip())

        def delete(tx: Transaction) -> None:
            if self._sessions.read(tx, id) is not None:
                self._sessions.remove(tx, id)
                self._events.remove(tx, *self._events.ids(id + "/"))

        await self._transact(delete)

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        place = _shared(app_name, user_id)[1][0]
        return await asyncio.to_thread(self._states.get, place) or {}

    async def append_event(self, session: Session, event: Event) -> Event:
        """Appends an event and applies its changes of state. The same event again changes nothing."""
        if event.partial:
            return event
        id = _place(session.app_name, session.user_id, session.id)
        delta = _json({k: v for k, v in event.actions.state_delta.items() if not k.startswith(State.TEMP_PREFIX)})
        stored = event.model_dump(mode="json", by_alias=False)
        stored["actions"]["state_delta"] = delta
        own, shared = _split(session.app_name, session.user_id, delta)

        def append(tx: Transaction) -> bool:
            doc = self._sessions.read(tx, id)
            if doc is None:
                raise SessionNotFoundError(f"Session {session.id} not found.")
            if any(Event.model_validate(v) == event for _, v in self._events.values(id + "/", filter={"meta": {"event": segment(event.id)}})):
                return False
            role = "user" if event.author == "user" else "assistant"
            text = _text(event.content) or f"[{event.author}]"
            self._events.add(tx, f"{id}/{doc['next']:08}", stored, text, role=role, subject=session.user_id, meta={"event": segment(event.id)})
            doc["state"].update(own)
            doc.update(next=doc["next"] + 1, updated=event.timestamp)
            self._sessions.add(tx, id, doc, subject=session.user_id)
            self._merge(tx, session.app_name, session.user_id, shared)
            return True

        if await self._transact(append):
            await super().append_event(session=session, event=event)
            session.last_update_time = event.timestamp
        return event


def _place(app: str, user: str, session: str) -> str:
    return f"{segment(app)}/{segment(user)}/{segment(session)}"


def _shared(app: str, user: str) -> list[tuple[str, str]]:
    """Where the states of the app and of the user are, and their prefixes."""
    return [(f"app/{segment(app)}", State.APP_PREFIX), (f"user/{segment(app)}/{segment(user)}", State.USER_PREFIX)]


def _split(app: str, user: str, state: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """The session's own part of a state, and the parts that are shared, by their places."""
    shared = {place: {k.removeprefix(p): v for k, v in state.items() if k.startswith(p)} for place, p in _shared(app, user)}
    return {k: v for k, v in state.items() if not k.startswith((State.APP_PREFIX, State.USER_PREFIX, State.TEMP_PREFIX))}, shared


class CtxpageMemoryService(BaseMemoryService):
    """Memory of users. add_memory writes facts: over a gated scope they are held for review, and the call raises Held."""

    def __init__(self, scope: Scope, *, max_results: int = 10) -> None:
        self.scope, self.max_results = scope, max_results

    def of(self, app_name: str, user_id: str) -> Scope:
        """The scope of a user's memory, for assemble and why."""
        return self.scope.below("memory", app_name, user_id)

    async def add_session_to_memory(self, session: Session) -> None:
        """Makes the memory of a session that of its events."""
        await asyncio.to_thread(self._remember, session.app_name, session.user_id, session.id, session.events, True)

    async def add_events_to_memory(
        self, *, app_name: str, user_id: str, events: Sequence[Event], session_id: str | None = None, custom_metadata: Mapping[str, object] | None = None
    ) -> None:
        """Adds events that are not there yet."""
        await asyncio.to_thread(self._remember, app_name, user_id, session_id or "", events, False)

    def _remember(self, app: str, user: str, session: str, events: Iterable[Event], replace: bool) -> None:
        scope = self.of(app, user)
        memory, forgotten = Pages(scope, "memory/", kind="message"), Pages(scope, "forgotten/", kind="scratch")
        under = f"session/{segment(session)}/"
        wanted = {under + segment(e.id): e for e in events if e.content and e.content.parts}

        def remember(tx: Transaction) -> None:
            forgotten.read(tx, "newest")  # a delete that is committed meanwhile makes this one run again
            gone, there = set(forgotten.ids("id/")), set(memory.ids(under))
            if replace:
                memory.remove(tx, *sorted(there - wanted.keys()))
            for id, event in wanted.items():
                if "id/" + segment(event.id) not in gone and (replace or id not in there):
                    # What the model said is trusted as the result of a tool is, less than what the user said.
                    said = {"role": "user"} if event.author == "user" else {"role": "assistant", "provenance": "tool"}
                    doc = _doc(event.id, event.content, event.author, event.timestamp)
                    at = datetime.fromtimestamp(event.timestamp).astimezone()
                    memory.add(tx, id, doc, _text(event.content), subject=user, meta={"memory": segment(event.id)}, current_as_of=at, **said)

        transact(scope, _BY, remember)

    async def add_memory(self, *, app_name: str, user_id: str, memories: Sequence[MemoryEntry], custom_metadata: Mapping[str, object] | None = None) -> None:
        """Adds facts about a user."""
        scope = self.of(app_name, user_id)
        writes: list[t.Write] = []
        for m in memories:
            id = m.id or new_batch()
            doc = {**_doc(id, m.content, m.author, None), "timestamp": m.timestamp, "custom": _json({**(custom_metadata or {}), **m.custom_metadata})}
            writes.append({"id": f"memory/fact/{segment(id)}", "parts": parts(doc, _text(m.content) or "[data]"), "subject": user_id, "meta": {"memory": segment(id)}})
        if writes:
            await asyncio.to_thread(scope.put_all, writes)

    async def search_memory(self, *, app_name: str, user_id: str, query: str) -> SearchMemoryResponse:
        """What matches, best first: memory of the user, and facts of the scopes above."""
        return SearchMemoryResponse(memories=await asyncio.to_thread(self._search, self.of(app_name, user_id), query))

    def _search(self, scope: Scope, query: str) -> list[MemoryEntry]:
        if not query.strip():
            return []
        found: list[MemoryEntry] = []
        for hit in scope.search(query, limit=self.max_results)["hits"]:
            page = scope.get(ref=hit["ref"])
            if page["id"].startswith("memory/") and any(p["type"] == ITEM for p in page.get("parts", [])):
                doc = value_of(page)
                content = Content.model_validate(doc["content"])
                found.append(MemoryEntry(content=content, id=doc["id"], author=doc["author"], timestamp=doc["timestamp"], custom_metadata=doc["custom"]))
            else:
                found.append(MemoryEntry(content=Content(role="user", parts=[Part(text=hit["text"])]), timestamp=page.get("current_as_of"), custom_metadata={"ref": hit["ref"]}))
        return found

    async def delete_memory(self, *, app_name: str, user_id: str, memory_id: str | None = None) -> None:
        """Deletes what search_memory returned under an id. It is not remembered again."""
        if memory_id:
            await asyncio.to_thread(self._forget, self.of(app_name, user_id), memory_id)

    def _forget(self, scope: Scope, memory_id: str) -> None:
        forgotten = Pages(scope, "forgotten/", kind="scratch")

        def forget(tx: Transaction) -> None:
            forgotten.read(tx, "newest")
            ids = [p["id"] for p in scope.list("memory/", filter={"meta": {"memory": segment(memory_id)}})]
            if ids:
                tx.delete(*ids)
                for id in ("newest", "id/" + segment(memory_id)):
                    forgotten.add(tx, id, memory_id)

        transact(scope, _BY, forget)


def _doc(id: str, content: Content | None, author: str | None, timestamp: float | None) -> dict[str, Any]:
    at = None if timestamp is None else datetime.fromtimestamp(timestamp).isoformat()
    return {"id": id, "content": content and content.model_dump(mode="json", exclude_none=True), "author": author, "timestamp": at, "custom": {}}


__all__ = ["CtxpageMemoryService", "CtxpageSessionService"]
