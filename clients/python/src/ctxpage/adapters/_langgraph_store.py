"""The store of LangGraph: a value is a page, its namespace the first part of the id."""

from __future__ import annotations

import asyncio
import json
import math
import re
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timezone
from typing import Any

from langgraph.store.base import (
    BaseStore,
    GetOp,
    IndexConfig,
    InvalidNamespaceError,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
    ensure_embeddings,
    get_text_at_path,
    tokenize_path,
)

from .. import types as t
from .._sync import Scope
from ._pages import Pages, segment, words

_PREFIX = "store/"


class CtxpageStore(BaseStore):
    """A store in one scope. Namespaces are not scopes: a search sees what is below a namespace, a scope what is above it."""

    supports_ttl = True

    def __init__(self, scope: Scope, *, index: IndexConfig | None = None, ttl: TTLConfig | None = None) -> None:
        self.scope, self.ttl_config, self.index_config = scope, ttl, index
        self._pages = Pages(scope, _PREFIX, kind="fact")
        self._embed = ensure_embeddings(index["embed"]) if index else None
        self.embeddings = self._embed
        fields = (index or {}).get("fields") or (index or {}).get("text_fields") or ["$"]
        self._fields = [(p, tokenize_path(p) if p != "$" else p) for p in fields]
        self._sweeper: tuple[threading.Thread, threading.Event] | None = None

    # A batch: reads see what was there before its writes; of several writes of one key the last counts.

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        ops = _checked(ops)
        queries, texts = self._to_embed(ops)
        vectors = dict(zip(queries, map(self._embed.embed_query, queries))) if self._embed and queries else {}
        made = dict(zip(texts, self._embed.embed_documents(texts))) if self._embed and texts else {}
        return self._carry_out(ops, vectors, made)

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        ops = _checked(ops)
        queries, texts = self._to_embed(ops)
        vectors = dict(zip(queries, await asyncio.gather(*map(self._embed.aembed_query, queries)))) if self._embed and queries else {}
        made = dict(zip(texts, await self._embed.aembed_documents(texts))) if self._embed and texts else {}
        return await asyncio.to_thread(self._carry_out, ops, vectors, made)

    def _to_embed(self, ops: list[Op]) -> tuple[list[str], list[str]]:
        if self._embed is None:
            return [], []
        queries = {op.query: None for op in ops if isinstance(op, SearchOp) and op.query}
        texts = {text: None for op in ops if isinstance(op, PutOp) for _, text in self._texts(op)}
        return list(queries), list(texts)

    def _texts(self, op: PutOp) -> list[tuple[str, str]]:
        """The texts of a value that are embedded, by path."""
        if op.value is None or op.index is False or self._embed is None:
            return []
        fields = self._fields if op.index is None else [(p, tokenize_path(p)) for p in op.index]
        return [(f"{path}.{i}", text) for path, field in fields for i, text in enumerate(get_text_at_path(op.value, field))]

    def _carry_out(self, ops: list[Op], vectors: dict[str, list[float]], made: dict[str, list[float]]) -> list[Result]:
        results: list[Result] = []
        puts: dict[str, PutOp] = {}
        touched: dict[str, t.Write] = {}
        for op in ops:
            if isinstance(op, GetOp):
                results.append(self._get(op, touched))
            elif isinstance(op, SearchOp):
                results.append(self._search(op, vectors, touched))
            elif isinstance(op, ListNamespacesOp):
                results.append(self._list(op))
            elif isinstance(op, PutOp):
                puts[_id(op.namespace, op.key)] = op
                results.append(None)
            else:
                raise ValueError(f"Unknown operation type: {type(op)}")
        writes = {id: w for id, w in touched.items() if id not in puts}
        for id, op in puts.items():
            if op.value is not None:
                writes[id] = self._write(id, op, made)
        self._pages.put(*writes.values())
        gone = {id for id, op in puts.items() if op.value is None}
        if gone:
            self._pages.delete(sorted(gone & set(self._pages.ids())))
        return results

    def _write(self, id: str, op: PutOp, made: dict[str, list[float]]) -> t.Write:
        was = self._pages.get(id)
        now = time.time()
        doc = {
            "ns": list(op.namespace), "key": op.key, "value": op.value, "created": was["created"] if was else now, "updated": now, "ttl": op.ttl,
            "expires": now + op.ttl * 60 if op.ttl is not None else None, "vectors": {path: made[text] for path, text in self._texts(op)},
        }  # fmt: skip
        return self._page(id, doc)

    def _page(self, id: str, doc: dict[str, Any]) -> t.Write:
        meta = {"ns": json.dumps(doc["ns"])}
        if doc["expires"] is not None:
            meta["expires"] = repr(doc["expires"])
        return self._pages.write(id, doc, "\n".join(words(doc["value"])) or "[data]", meta=meta)

    def _expired(self, doc: dict[str, Any]) -> bool:
        return doc["expires"] is not None and doc["expires"] <= time.time() and bool((self.ttl_config or {}).get("omit_expired"))

    def _touch(self, id: str, doc: dict[str, Any], touched: dict[str, t.Write]) -> None:
        if doc["ttl"] is not None and (self.ttl_config or {}).get("refresh_on_read"):
            doc["expires"] = time.time() + doc["ttl"] * 60
            touched[id] = self._page(id, doc)

    def _get(self, op: GetOp, touched: dict[str, t.Write]) -> Item | None:
        id = _id(op.namespace, op.key)
        doc = self._pages.get(id)
        if doc is None or self._expired(doc):
            return None
        if op.refresh_ttl:
            self._touch(id, doc, touched)
        return Item(value=doc["value"], key=doc["key"], namespace=tuple(doc["ns"]), created_at=_at(doc["created"]), updated_at=_at(doc["updated"]))

    def _search(self, op: SearchOp, vectors: dict[str, list[float]], touched: dict[str, t.Write]) -> list[SearchItem]:
        found: list[tuple[float | None, str, dict[str, Any]]] = []
        query = vectors.get(op.query) if op.query else None
        for key in op.filter or {}:
            if not _KEY.fullmatch(key):
                raise ValueError(f"Invalid filter key: {key!r}: expected letters, digits, _, - and .")
        for id, doc in self._pages.values(_under(op.namespace_prefix)):
            if self._expired(doc) or not all(_matches(_at_path(doc["value"], k), want) for k, want in (op.filter or {}).items()):
                continue
            score = max((_cosine(query, v) for v in doc["vectors"].values()), default=None) if query else None
            found.append((score, id, doc))
        found.sort(key=lambda f: (f[0] is not None, f[0] or 0.0, f[2]["updated"]), reverse=True)
        out = []
        for score, id, doc in found[op.offset : op.offset + op.limit]:
            if op.refresh_ttl:
                self._touch(id, doc, touched)
            out.append(
                SearchItem(
                    namespace=tuple(doc["ns"]), key=doc["key"], value=doc["value"], created_at=_at(doc["created"]), updated_at=_at(doc["updated"]), score=score
                )
            )
        return out

    def _list(self, op: ListNamespacesOp) -> list[tuple[str, ...]]:
        all = {tuple(json.loads(p.get("meta", {}).get("ns", "[]"))) for p in self.scope.list(_PREFIX)}
        names = [ns for ns in all if all_match(op.match_conditions, ns)]
        cut = sorted({ns[: op.max_depth] if op.max_depth is not None else ns for ns in names})
        return cut[op.offset : op.offset + op.limit]

    # Expiry: what is expired is swept.

    def sweep_ttl(self) -> int:
        """Deletes what is expired, and returns how many that were."""
        return self._sweep()

    def _sweep(self) -> int:
        now = time.time()
        gone = [p["id"].removeprefix(_PREFIX) for p in self.scope.list(_PREFIX) if float(p.get("meta", {}).get("expires", "inf")) <= now]
        self._pages.delete(gone)
        return len(gone)

    def start_ttl_sweeper(self, sweep_interval_minutes: float | None = None) -> None:
        """Sweeps in the background."""
        if self._sweeper is not None:
            return
        every = 60 * (sweep_interval_minutes or (self.ttl_config or {}).get("sweep_interval_minutes") or 5)
        stop = threading.Event()

        def sweep() -> None:
            while not stop.wait(every):
                self._sweep()

        thread = threading.Thread(target=sweep, daemon=True, name="ctxpage-sweeper")
        thread.start()
        self._sweeper = (thread, stop)

    def stop_ttl_sweeper(self, timeout: float | None = None) -> bool:
        """Ends the sweeper. Reports whether it has ended."""
        if self._sweeper is None:
            return True
        thread, stop = self._sweeper
        self._sweeper = None
        stop.set()
        thread.join(timeout)
        return not thread.is_alive()


_KEY = re.compile(r"[\w.-]+")


def _at_path(value: dict[str, Any], key: str) -> Any:
    """The field of a value, or of an object in it: user.name."""
    if key in value:
        return value[key]
    at: Any = value
    for part in key.split("."):
        at = at.get(part) if isinstance(at, dict) else None
    return at


def _checked(ops: Iterable[Op]) -> list[Op]:
    """Refuses a batch with a namespace that is none, before anything is done."""
    all = list(ops)
    for op in all:
        if isinstance(op, ListNamespacesOp):
            paths = [tuple(c.path) for c in op.match_conditions or ()]
        else:
            paths = [op.namespace_prefix if isinstance(op, SearchOp) else op.namespace]
        for label in (label for path in paths for label in path):
            if not isinstance(label, str) or not label or "." in label:  # pyright: ignore[reportUnnecessaryIsInstance]
                raise InvalidNamespaceError(f"Invalid namespace label {label!r}: expected a text without periods")
    return all


def _under(namespace: Sequence[str]) -> str:
    return "".join(segment(label) + "/" for label in namespace)


class CtxpageAsyncStore(CtxpageStore):
    """The store for asyncio: its sync methods refuse to block an event loop."""

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return super().batch(ops)
        raise asyncio.InvalidStateError("this would block the event loop: await the method whose name begins with a")


def _id(namespace: Sequence[str], key: str) -> str:
    return _under(namespace) + "/" + segment(key)


def _at(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, timezone.utc)


_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "$eq": lambda a, b: a == b,
    "$ne": lambda a, b: a != b,
    "$gt": lambda a, b: _number(a) > _number(b),
    "$gte": lambda a, b: _number(a) >= _number(b),
    "$lt": lambda a, b: _number(a) < _number(b),
    "$lte": lambda a, b: _number(a) <= _number(b),
}


def _number(v: Any) -> float:
    return float(v) if v is not None else math.nan


def _matches(value: Any, want: Any) -> bool:
    if isinstance(want, dict):
        if any(k.startswith("$") for k in want):
            unknown = [k for k in want if k not in _OPERATORS]
            if unknown:
                raise ValueError(f"Unsupported operator: {unknown[0]}")
            return all(_OPERATORS[k](value, v) for k, v in want.items())
        return isinstance(value, dict) and all(_matches(value.get(k), v) for k, v in want.items())
    return bool(value == want)


def _cosine(a: Sequence[float], b: Sequence[float]) -> float:
    norm = math.sqrt(sum(x * x for x in a) * sum(x * x for x in b))
    return sum(x * y for x, y in zip(a, b)) / norm if norm else 0.0


def all_match(conditions: Sequence[MatchCondition] | None, ns: tuple[str, ...]) -> bool:
    """Reports whether a namespace passes all conditions."""
    for c in conditions or ():
        if len(ns) < len(c.path):
            return False
        part = ns[: len(c.path)] if c.match_type == "prefix" else ns[len(ns) - len(c.path) :]
        if any(want != "*" and want != has for want, has in zip(c.path, part)):
            return False
    return True


__all__ = ["CtxpageAsyncStore", "CtxpageStore"]
