"""HTTP/1.1 as the server speaks it: one request, one answer of a known length, or lines in chunks."""

from __future__ import annotations

import json
from typing import Any

from ._server import Address
from .errors import CtxpageError, error_of

# Calls that can be repeated: they change nothing, or repeating them changes nothing more. A call that has a batch can be, too.
REPEATABLE = frozenset(
    (
        "get", "list", "versions", "search", "assemble", "begin", "why", "replay", "diff", "manifest", "session/window", "session/recall", "session/history",
        "session/list", "session/pin", "session/limit", "directives/show", "directives/suggest", "review/list", "review/show", "review/approve", "review/reject",
        "refresh", "status", "schema", "scopes", "stats", "health", "erase/list", "erase/receipt", "retention/set", "retention/show", "quota/set", "quota/show",
        "embed", "import",
    )
)  # fmt: skip


class Cut(Exception):
    """The connection ended before the answer was whole."""


def headers(scope: str, actor: str, role: str) -> bytes:
    """The headers of a caller."""
    out = b""
    for name, value in ((b"Scope", scope), (b"Actor", actor), (b"Role", role)):
        raw = value.encode()
        if any(c < 32 or c == 127 for c in raw):
            raise CtxpageError(f"{name.decode().lower()} {value!r} has control characters", code="invalid")
        if raw:
            out += b"Ctxpage-" + name + b": " + raw + b"\r\n"
    return out


def request(address: Address, name: str, who: bytes, body: bytes | None, timeout: float) -> bytes:
    """The bytes of a request; without a body it is a GET."""
    auth = f"Authorization: Bearer {address.token}\r\n" if address.token else ""
    host = f"{address.host}:{address.port}" if address.host else "localhost"
    if body is None:
        return f"GET /v1/{name} HTTP/1.1\r\nHost: {host}\r\n{auth}\r\n".encode()
    head = f"POST /v1/{name} HTTP/1.1\r\nHost: {host}\r\n{auth}Ctxpage-Timeout: {max(1, min(3600, round(timeout)))}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + who + b"\r\n" + body


def encode(arguments: dict[str, Any]) -> bytes:
    return json.dumps(arguments, ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=_plain).encode("utf-8", "surrogatepass")


def _plain(v: Any) -> Any:
    if hasattr(v, "isoformat"):  # a datetime
        if v.tzinfo is None:
            v = v.astimezone()
        return v.isoformat()
    raise TypeError(f"{type(v).__name__} cannot be sent as JSON")


class Head:
    """Status line and headers of an answer."""

    __slots__ = ("chunked", "keep", "length", "status")

    def __init__(self, raw: bytes) -> None:
        lines = raw.split(b"\r\n")
        try:
            self.status = int(lines[0].split(b" ", 2)[1])
        except (IndexError, ValueError):
            raise Cut("no HTTP") from None
        self.length, self.chunked, self.keep = 0, False, True
        for line in lines[1:]:
            name, _, value = line.partition(b":")
            name = name.lower()
            if name == b"content-length":
                self.length = int(value)
            elif name == b"transfer-encoding":
                self.chunked = b"chunked" in value
            elif name == b"connection":
                self.keep = value.strip().lower() != b"close"


def answer(status: int, body: bytes) -> Any:
    """The value of an answer, or its error."""
    try:
        value: Any = json.loads(body)
        error: dict[str, Any] | None = value["error"] if status >= 400 else None
    except (ValueError, KeyError, TypeError):
        raise Cut("no answer of this protocol") from None
    if error is not None:
        raise error_of(error)
    return value
