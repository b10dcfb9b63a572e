"""What the surfaces for threads and for asyncio share."""

from __future__ import annotations

import json
import re
import unicodedata
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


_SLASHES = frozenset("/\\%\u0337\u0338\u1735\u2041\u2044\u2215\u2216\u2571\u2572\u27cb\u27cd\u29f5\u29f8\u29f9\u2cc6\u2f03\u3033\u3035\u30ce\u31d2\u31d3\u4e3f\u4e36\U0001d23a\U0001f67c")
_UNSEEN = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")


def escape(name: str) -> str:
    """A name as a part of a scope's name, as ScopeOf of Go writes it: what could end it, hide in it or pass for a slash is %XX."""

    def breaks(c: str) -> bool:
        if c in _SLASHES or c != " " and unicodedata.category(c)[0] in "CZ" or _UNSEEN.match(c):
            return True
        return c > "~" and any(n in _SLASHES or n in ". " for n in unicodedata.normalize("NFKC", c))

    dots = not name.strip(".")
    out: list[str] = []
    for i, c in enumerate(name):
        blank = c == " " and i in (0, len(name) - 1)
        out += (f"%{b:02X}" for b in c.encode("utf-8", "surrogatepass")) if dots or blank or breaks(c) else c
    return "".join(out)


def given(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that are not None."""
    return {k: v for k, v in arguments.items() if v is not None}


def write_of(w: t.Write | Mapping[str, Any]) -> t.Write:
    return cast(t.Write, given(w))


def turn_of(turn: t.Turn | Mapping[str, Any]) -> t.Turn:
    """A turn. A message of OpenAI's chat API is one, too: its content is the text or the parts, and its calls are functions. It may
    have the fields of a turn, such as a subject; other fields of a message, such as a refusal, are left out."""
    if not isinstance(turn, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise Invalid(f"turn: got a {type(turn).__name__}, expected a mapping such as {{'role': 'user', 'text': 'hello'}}")
    out = given(turn)
    content, calls = out.get("content"), cast("list[dict[str, Any]]", out.get("tool_calls") or [])
    if "content" in out or any("function" in c for c in calls):
        own = t.Turn.__required_keys__ | t.Turn.__optional_keys__ - {"id", "text", "parts", "tool_calls"}
        words = {"parts": _parts_of(out["content"])} if isinstance(content, list) else {"text": content}
        out = {k: v for k, v in out.items() if k in own}
        out.update(given({**words, "tool_calls": [{"id": c["id"], **{k: c["function"][k] for k in ("name", "arguments")}} for c in calls] or None}))
    return cast(t.Turn, out)


def _parts_of(content: list[Any]) -> list[t.Part]:
    """The parts of a message. One without words gets a word, because a turn needs words."""
    parts: list[t.Part] = []
    for part in cast("list[dict[str, Any]]", content):
        kind = str(part.get("type")) if isinstance(part, Mapping) else type(part).__name__  # pyright: ignore[reportUnnecessaryIsInstance]
        image: dict[str, Any] = part["image_url"] if kind == "image_url" else {}
        if kind == "text":
            parts.append({"type": "text", "text": part["text"]})
        elif image and not str(image["url"]).startswith("data:"):
            parts.append(cast(t.Part, {"type": "image_url", **given(image)}))
        elif kind in ("image_url", "input_audio", "file", "refusal"):
            parts.append({"type": kind, "detail": json.dumps(part)})
        else:
            raise Invalid(f"turn: got a part of type {kind}, expected text, image_url, input_audio, file or refusal, as OpenAI's chat API has them")
    if parts and not any(p.get("text", "").strip() for p in parts):
        parts.insert(0, {"type": "text", "text": f"[{parts[0]['type']}]"})
    return parts


def trace_of(of: Assembly | str | None) -> str | None:
    return of.trace if isinstance(of, Assembly) else of


def id_of(ref: str) -> str:
    """The id in a reference such as acme/support:policy#1@2."""
    from urllib.parse import unquote

    name = ref.partition(":")[2]
    return unquote(name.split("@")[0].split("#")[0])
