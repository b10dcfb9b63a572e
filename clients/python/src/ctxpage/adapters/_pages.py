"""Documents in pages: a value as JSON in a part of its own, beside the words in it by which the page is found."""

from __future__ import annotations

import hashlib
import json
import random
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar
from urllib.parse import quote

from .. import types as t
from .._sync import Scope, Transaction
from ..errors import Conflict, CtxpageError, NotFound, Unavailable

T = TypeVar("T")
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

    def values(self, under: str = "", filter: t.Filter | None = None) -> Iterator[tuple[str, Any]]:
        """The documents whose ids begin with a text, in order."""
        for page in self.scope.list(self.prefix + under, filter=filter, full=True):
            yield page["id"].removeprefix(self.prefix), value_of(page)

    def read(self, tx: Transaction, id: str) -> Any:
        """get in a transaction: its commit fails if the document was changed, made or deleted meanwhile."""
        try:
            return value_of(tx.get(self.prefix + id))
        except NotFound:
            return None

    def add(self, tx: Transaction, id: str, value: Any, text: str = "", **fields: Any) -> None:
        """put in a transaction."""
        tx.put(**self.write(id, value, text, **fields))  # type: ignore[misc]

    def remove(self, tx: Transaction, *ids: str) -> None:
        """delete in a transaction."""
        tx.delete(*(self.prefix + i for i in ids))

    def ids(self, under: str = "") -> list[str]:
        """Ids that begin with a text, in order."""
        return [p["id"].removeprefix(self.prefix) for p in self.scope.list(self.prefix + under)]

    def delete(self, ids: Iterable[str]) -> None:
        names = [self.prefix + i for i in ids]
        for at in range(0, len(names), 500):
            self.scope.delete(*names[at : at + 500])


def transact(scope: Scope, by: str, work: Callable[[Transaction], T]) -> T:
    """Commits what work reads and writes in a transaction. It runs again if what it read was changed meanwhile, or if the server ended."""
    for left in range(50, -1, -1):
        with scope.transaction() as tx:
            try:
                result = work(tx)
                tx.commit(1.0, by)
                return result
            except CtxpageError as e:
                if not left or not (isinstance(e, (Conflict, Unavailable)) or e.code == "transaction_lost"):
                    raise
        time.sleep(random.random() * 0.02)
    raise AssertionError("unreachable")
