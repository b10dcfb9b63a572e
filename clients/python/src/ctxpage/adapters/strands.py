"""Strands: sessions of agents, and a memory store.

    from ctxpage.adapters.strands import CtxpageMemoryStore, CtxpageSessionRepository

    manager = RepositorySessionManager(session_id="chat-1", session_repository=CtxpageSessionRepository(db.scope("acme/strands")))
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from strands.memory.types import MemoryEntry, MemoryStore, SearchOptions
from strands.session.session_repository import SessionRepository
from strands.types.exceptions import SessionException
from strands.types.session import Session, SessionAgent, SessionMessage

from .._ids import new_batch
from .._sync import Scope
from ._pages import ITEM, Pages, parts, segment, value_of, words

if TYPE_CHECKING:
    from strands.memory.extraction.types import ExtractionConfig
    from strands.multiagent import MultiAgentBase


class CtxpageSessionRepository(SessionRepository):
    """Sessions, agents and messages as pages of a scope."""

    def __init__(self, scope: Scope) -> None:
        self._sessions = Pages(scope, "strands/session/")
        self._agents = Pages(scope, "strands/agent/")
        self._messages = Pages(scope, "strands/message/")
        self._multi = Pages(scope, "strands/multi/")

    @staticmethod
    def _agent(session_id: str, agent_id: str) -> str:
        return f"{segment(session_id)}/{segment(agent_id)}"

    def _message(self, session_id: str, agent_id: str, message_id: int) -> str:
        return f"{self._agent(session_id, agent_id)}/{message_id:012}"

    def _session_there(self, session_id: str) -> None:
        if self._sessions.get(segment(session_id)) is None:
            raise SessionException(f"Session {session_id} does not exist")

    def _agent_there(self, session_id: str, agent_id: str) -> None:
        self._session_there(session_id)
        if self._agents.get(self._agent(session_id, agent_id)) is None:
            raise SessionException(f"Agent {agent_id} does not exist in session {session_id}")

    def create_session(self, session: Session, **kwargs: Any) -> Session:
        if self._sessions.get(segment(session.session_id)) is not None:
            raise SessionException(f"Session {session.session_id} already exists")
        self._sessions.put(self._sessions.write(segment(session.session_id), session.to_dict()))
        return session

    def read_session(self, session_id: str, **kwargs: Any) -> Session | None:
        doc = self._sessions.get(segment(session_id))
        return None if doc is None else Session.from_dict(doc)

    def create_agent(self, session_id: str, session_agent: SessionAgent, **kwargs: Any) -> None:
        self._session_there(session_id)
        id = self._agent(session_id, session_agent.agent_id)
        if self._agents.get(id) is not None:
            raise SessionException(f"Agent {session_agent.agent_id} already exists in session {session_id}")
        self._agents.put(self._agents.write(id, session_agent.to_dict()))

    def read_agent(self, session_id: str, agent_id: str, **kwargs: Any) -> SessionAgent | None:
        doc = self._agents.get(self._agent(session_id, agent_id))
        return None if doc is None else SessionAgent.from_dict(doc)

    def update_agent(self, session_id: str, session_agent: SessionAgent, **kwargs: Any) -> None:
        self._agent_there(session_id, session_agent.agent_id)
        self._agents.put(self._agents.write(self._agent(session_id, session_agent.agent_id), session_agent.to_dict()))

    def create_message(self, session_id: str, agent_id: str, session_message: SessionMessage, **kwargs: Any) -> None:
        self._agent_there(session_id, agent_id)
        id = self._message(session_id, agent_id, session_message.message_id)
        if self._messages.get(id) is not None:
            raise SessionException(f"Message {session_message.message_id} already exists in agent {agent_id} in session {session_id}")
        self._put_message(id, session_message)

    def _put_message(self, id: str, message: SessionMessage) -> None:
        doc = message.to_dict()
        self._messages.put(self._messages.write(id, doc, "\n".join(words(doc["message"].get("content"))) or "[data]"))

    def read_message(self, session_id: str, agent_id: str, message_id: int, **kwargs: Any) -> SessionMessage | None:
        doc = self._messages.get(self._message(session_id, agent_id, message_id))
        return None if doc is None else SessionMessage.from_dict(doc)

    def update_message(self, session_id: str, agent_id: str, session_message: SessionMessage, **kwargs: Any) -> None:
        self._agent_there(session_id, agent_id)
        id = self._message(session_id, agent_id, session_message.message_id)
        if self._messages.get(id) is None:
            raise SessionException(f"Message {session_message.message_id} does not exist in session {session_id}")
        self._put_message(id, session_message)

    def list_messages(self, session_id: str, agent_id: str, limit: int | None = None, offset: int = 0, **kwargs: Any) -> list[SessionMessage]:
        docs = self._messages.values(self._agent(session_id, agent_id) + "/")
        return [SessionMessage.from_dict(d) for _, d in islice(docs, offset, None if limit is None else offset + limit)]

    def create_multi_agent(self, session_id: str, multi_agent: MultiAgentBase, **kwargs: Any) -> None:
        self._session_there(session_id)
        self._multi.put(self._multi.write(self._agent(session_id, multi_agent.id), multi_agent.serialize_state()))

    def read_multi_agent(self, session_id: str, multi_agent_id: str, **kwargs: Any) -> dict[str, Any] | None:
        doc: dict[str, Any] | None = self._multi.get(self._agent(session_id, multi_agent_id))
        return doc

    def update_multi_agent(self, session_id: str, multi_agent: MultiAgentBase, **kwargs: Any) -> None:
        self._session_there(session_id)
        id = self._agent(session_id, multi_agent.id)
        if self._multi.get(id) is None:
            raise SessionException(f"MultiAgent {multi_agent.id} does not exist in session {session_id}")
        self._multi.put(self._multi.write(id, multi_agent.serialize_state()))


class Added(NamedTuple):
    """The id of what was added, or of what has the same text."""

    id: str


class CtxpageMemoryStore(MemoryStore):
    """A memory store: what is added is a fact, found by its words. Over a gated scope it is held for review, and add raises Held.

    A search also finds what the scope and those above it have from others. The same text is added once.
    """

    def __init__(
        self, scope: Scope, *, name: str = "ctxpage", description: str | None = None, max_search_results: int | None = 5, writable: bool = True,
        extraction: ExtractionConfig | bool | None = None,
    ) -> None:  # fmt: skip
        if not name.strip():
            raise ValueError("CtxpageMemoryStore: name must not be empty")
        self._limit(max_search_results)
        self.scope, self.name, self.description = scope, name, description
        self.max_search_results, self.writable, self.extraction = max_search_results, writable, extraction

    def _limit(self, limit: int | None) -> int | None:
        if limit is not None and limit < 1:
            raise ValueError(f"CtxpageMemoryStore: max_search_results must be at least 1, got {limit}")
        return limit

    async def search(self, query: str, options: SearchOptions | None = None) -> list[MemoryEntry]:
        limit = self._limit((options or {}).get("max_search_results")) or self.max_search_results
        return await asyncio.to_thread(self._search, query, limit) if re.search(r"\w", query) else []

    def _search(self, query: str, limit: int | None) -> list[MemoryEntry]:
        found: list[MemoryEntry] = []
        for hit in self.scope.search(query, limit=limit)["hits"]:
            page = self.scope.get(ref=hit["ref"])
            own = value_of(page)["metadata"] if page["id"].startswith("memory/") and any(p["type"] == ITEM for p in page.get("parts", [])) else {}
            found.append(MemoryEntry(content=hit["text"], metadata={**own, "ref": hit["ref"], "score": hit["score"]}))
        return found

    async def add(self, content: str, metadata: dict[str, Any] | None = None) -> Added:
        if not self.writable:
            raise ValueError("CtxpageMemoryStore: store is not writable; make it with writable=True")
        if not content.strip():
            raise ValueError("CtxpageMemoryStore: content must not be empty")
        return await asyncio.to_thread(self._add, content.strip(), metadata or {})

    def _add(self, content: str, metadata: dict[str, Any]) -> Added:
        id = "memory/" + hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()
        if self.scope.find(id) is None:
            self.scope.put(id, parts=parts({"metadata": metadata}, content), batch=new_batch())
        return Added(id)
