"""Documents in pages: a value as JSON in a part of its own, beside the words in it by which the page is found."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote

from .. import types as t
from .._sync import Scope

_MAX_SEGMENT = 100
ITEM = "item"


def segment(name: str) -> str:
    """A name as a part of an id: percent-encoded, so that it has no slash, or hashed if it is long."""
    text = quote(name, safe="")
    return text if len(text) <= _MAX_SEGMENT else "~" + hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()


def words(value: Any) -> Iterator[str]:
    """The texts in a value."""
    if isinstance(value, str):
        if value.strip():
            yield value
    elif isinstance(value, dict):
        for v in value.values():  # pyright: ignore[reportUnknownVariableType]
            yield from words(v)
    elif isinstance(value, (list, tuple)):
        for v in value:  # pyright: ignore[reportUnknownVariableType]
            yield from words(v)


def parts(value: Any, text: str) -> list[t.Part]:
    """The parts of a page: words, and the value. An item costs no tokens."""
    return [{"type": "text", "text": text}, {"type": ITEM, "text": json.dumps(value, ensure_ascii=True, separators=(",", ":"))}]


def value_of(page: t.Page) -> Any:
    """The value in a page."""
    for part in page.get("parts", []):
        if part["type"] == ITEM:
            return json.loads(part.get("text", "null"))
    raise ValueError(f"{page['ref']} has no value: somebody else wrote it")


class Pages:
    """Documents of one scope whose ids begin with a prefix. They are of kind tool: data of the framework, not facts."""

    def __init__(self, scope: Scope, prefix: str, kind: str = "tool") -> None:
        self.scope, self.prefix, self.kind = scope, prefix, kind

    def write(self, id: str, value: Any, text: str = "", **fields: Any) -> t.Write:
        return {"id": self.prefix + id, "parts": parts(value, text or "[data]"), "kind": self.kind, **fields}  # type: ignore[typeddict-item]

    def put(self, *writes: t.Write) -> None:
        if writes:
            self.scope.put_all(writes)

    def get(self, id: str) -> Any:
        """The value of a document; None: there is none."""
        page = self.scope.find(self.prefix + id)
        return None if page is None else value_of(page)

    def ids(self, under: str = "") -> list[str]:
        """Ids that begin with a text, in order."""
        return [p["id"].removeprefix(self.prefix) for p in self.scope.list(self.prefix + under)]

    def delete(self, ids: Iterable[str]) -> None:
        names = [self.prefix + i for i in ids]
        for at in range(0, len(names), 500):
            self.scope.delete(*names[at : at + 500])
