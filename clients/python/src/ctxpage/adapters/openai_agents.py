"""OpenAI Agents SDK: a session.

    from ctxpage.adapters.openai_agents import CtxpageSession

    session = CtxpageSession("chat-1", "agent.ctx", scope="acme/support")
    await Runner.run(agent, "what may I refund?", session=session)

Each item is a turn: its words for contexts, and the item itself, which comes back as it was.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from agents.memory.session_settings import SessionSettings, coerce_session_settings, resolve_session_limit

from .. import types as t
from .._async import AsyncDatabase, AsyncSession
from .._ids import new_batch
from .._server import Server
from .._transport import AsyncTransport
from ._pages import parts, value_of, words

if TYPE_CHECKING:
    from agents.items import TResponseInputItem


class CtxpageSession:
    """A conversation in a scope. database is an open one, or a path, which the session opens and close() closes."""

    def __init__(self, session_id: str, database: AsyncDatabase | str, *, scope: str = "default", session_settings: SessionSettings | dict[str, Any] | None = None) -> None:
        self.session_id = session_id
        self.session_settings = SessionSettings() if session_settings is None else coerce_session_settings(session_settings)
        self._own = isinstance(database, str)
        self._db = AsyncDatabase(AsyncTransport(Server(database), 60.0), "openai-agents") if isinstance(database, str) else database
        self._chat: AsyncSession = self._db.scope(scope).session(session_id)
        self._closed = False

    def _open(self) -> AsyncSession:
        if self._closed:
            raise RuntimeError(f"{type(self).__name__} is closed")
        return self._chat

    async def get_items(self, limit: int | None = None, wrapper: Any = None) -> list[TResponseInputItem]:
        """The items in order; the newest ones with a limit."""
        chat = self._open()
        limit = resolve_session_limit(limit, self.session_settings)
        if limit == 0:
            return []
        pages = [p async for p in chat.history(last=limit if limit is not None and limit > 0 else None)]
        return [value_of(p) for p in pages]

    async def add_items(self, items: list[TResponseInputItem], wrapper: Any = None) -> None:
        """Adds items, all or none. It is known whether they were added before a cancellation is raised."""
        chat = self._open()
        if items:
            turns = [_turn(cast("dict[str, Any]", item)) for item in items]
            await _finish(chat.append(*turns, batch=new_batch()))

    async def pop_item(self, wrapper: Any = None) -> TResponseInputItem | None:
        """Takes the newest item. Of several callers each takes another one."""
        page = await _finish(self._open().pop())
        return None if page is None else value_of(page)

    async def clear_session(self, wrapper: Any = None) -> None:
        """Deletes all items. Their versions stay for replays, until gc."""
        await _finish(self._open().truncate())

    def close(self) -> None:
        """Ends the session object; a database that was given stays open."""
        self._closed = True
        if self._own:
            transport = self._db.transport
            transport.closed = True
            for s in transport._idle:  # pyright: ignore[reportPrivateUsage]
                s.close()


def _turn(item: dict[str, Any]) -> t.Turn:
    """Only what the user said is the user's: instructions of the developer and results of tools are not."""
    said = item.get("content", item.get("output", item.get("arguments", item.get("summary"))))
    text = "\n".join(words(said)) or f"[{item.get('type', 'item')}]"
    return {"role": "user" if item.get("role") == "user" else "assistant", "parts": parts(item, text)}


async def _finish(work: Any) -> Any:
    """Waits for work also if the caller is cancelled, and then raises the cancellation."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as e:
            cancelled = e
    if cancelled is not None:
        if not task.cancelled():
            task.exception()  # it was seen
        raise cancelled
    return task.result()
