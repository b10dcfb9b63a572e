"""What the surfaces for threads and for asyncio share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, cast

from . import types as t
from .errors import Invalid

Provider = Literal["openai", "anthropic", "gemini"]


class Assembly:
    """A context: its text, its blocks, and the trace to cite in transaction, why and replay."""

    __slots__ = ("_messages", "_provider", "raw")

    def __init__(self, raw: t.AssembleResult, provider: Provider | None) -> None:
        self._messages = raw.pop("messages", None)
        self._provider = provider
        self.raw = raw

    @property
    def text(self) -> str:
        """The whole context, ready to be read."""
        return self.raw["text"]

    @property
    def trace(self) -> str:
        return self.raw["trace"]

    @property
    def tokens(self) -> int:
        return self.raw["tokens"]

    @property
    def tier(self) -> int:
        """1: all pages that matter are in, whole. 2: some are shortened. 3: some are left out. 4: what is protected does not fit."""
        return self.raw["tier"]

    @property
    def blocks(self) -> list[t.Block]:
        """The pages of the context, in order."""
        return self.raw["blocks"]

    @property
    def left_out(self) -> dict[str, int]:
        """Pages that were considered and left out, counted by reason."""
        return self.raw["left_out"]

    @property
    def degraded(self) -> str:
        return self.raw.get("degraded", "")

    def messages(self, provider: Provider) -> dict[str, Any]:
        """The context as a part of the provider's request: client.messages.create(**context.messages("anthropic"), …)."""
        if provider != self._provider or self._messages is None:
            raise Invalid(f"messages: got {provider}, expected {self._provider or 'none'}", hint=f"assemble(…, messages={provider!r})")
        return cast("dict[str, Any]", self._messages)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<Assembly {self.trace} {self.tokens} tokens, {len(self.blocks)} blocks>"


def given(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that are not None."""
    return {k: v for k, v in arguments.items() if v is not None}


def write_of(w: t.Write | Mapping[str, Any]) -> t.Write:
    return cast(t.Write, given(w))


def turn_of(turn: t.Turn | Mapping[str, Any]) -> t.Turn:
    return cast(t.Turn, given(turn))


def trace_of(of: Assembly | str | None) -> str | None:
    return of.trace if isinstance(of, Assembly) else of


def id_of(ref: str) -> str:
    """The id in a reference such as acme/support:policy#1@2."""
    from urllib.parse import unquote

    name = ref.partition(":")[2]
    return unquote(name.split("@")[0].split("#")[0])
