"""Microsoft Agent Framework: a history provider.

    from ctxpage.adapters.agent_framework import CtxpageHistoryProvider

    agent = Agent(client=client, context_providers=[CtxpageHistoryProvider(db.scope("acme/chats"))])
    await agent.run("what may I refund?", session=AgentSession(session_id="chat-1"))

Each message is a turn: its words for contexts, and the message itself, which comes back as it was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from agent_framework import HistoryProvider, Message
from agent_framework._sessions import filter_new_messages  # pyright: ignore[reportPrivateUsage]

from .. import types as t
from .._sync import Scope
from ._pages import parts, value_of

_NO_SESSION = "default"


class CtxpageHistoryProvider(HistoryProvider):
    """The sessions of a scope. settings are those of HistoryProvider, such as store_context_messages."""

    def __init__(self, scope: Scope, *, source_id: str = "ctxpage", **settings: Any) -> None:
        super().__init__(source_id, **settings)
        self.scope = scope

    async def get_messages(self, session_id: str | None, *, state: dict[str, Any] | None = None, **kwargs: Any) -> list[Message]:
        """The messages of a session, in order."""
        return await asyncio.to_thread(self._read, session_id or _NO_SESSION)

    def _read(self, session: str, last: int | None = None) -> list[Message]:
        return [Message.from_dict(value_of(p)) for p in self.scope.session(session).history(last=last)]

    async def save_messages(self, session_id: str | None, messages: Sequence[Message], *, state: dict[str, Any] | None = None, **kwargs: Any) -> None:
        """Appends messages, all or none. What repeats the end of the history is not appended again."""
        if messages:
            await asyncio.to_thread(self._append, session_id or _NO_SESSION, messages)

    def _append(self, session: str, messages: Sequence[Message]) -> None:
        new = filter_new_messages(self._read(session, len(messages) + 1), messages)  # a repetition is no longer than they are
        if new:
            self.scope.session(session).append(*map(_turn, new))


def _turn(message: Message) -> t.Turn:
    """Only what the user said is the user's: instructions and results of tools are not."""
    text = message.text or "\n".join(str(c.result) for c in message.contents if c.type == "function_result" and c.result) or f"[{message.role}]"
    return {"role": "user" if message.role == "user" else "assistant", "parts": parts(message.to_dict(), text)}


__all__ = ["CtxpageHistoryProvider"]
