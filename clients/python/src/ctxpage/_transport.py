"""Connections to the server, for threads and for asyncio.

A call whose connection breaks, or that a closing server refuses, is made again: at once if the server had sent nothing and the call can be
repeated (http.REPEATABLE, or a batch id by which the server knows it), on another server if that one ended. So no acknowledged write is
lost, and none is applied twice. A call that cannot be repeated raises OutcomeUnknown.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
import threading
import time
import weakref
from collections.abc import AsyncIterator, Iterator
from typing import Any

from ._http import REPEATABLE, Cut, Head, answer, encode, request
from ._server import Address, Server, connect
from .errors import CtxpageError, Invalid, OutcomeUnknown, Unavailable

_AGAIN = frozenset(("closing", "full", "outcome_unknown", "not_answering", "cancelled"))
_BROKEN = (OSError, Cut, EOFError)
_SLACK = 5.0  # seconds beyond the time limit of a call, which the server keeps itself
_MOST_BYTES = 16 << 20  # of a request: what the server takes
_MAX_IDLE = 8  # connections that are kept


def _repeatable(name: str, args: dict[str, Any]) -> bool:
    return name in REPEATABLE or "batch" in args or name in ("put", "delete") and "trace" in args  # drafts of an open transaction


def _again(e: Exception, repeatable: bool) -> bool:
    """Reports whether a call that failed is made again."""
    if isinstance(e, CtxpageError):
        return e.code in _AGAIN and (repeatable or e.code in ("full", "closing"))
    return repeatable


class _Base:
    def __init__(self, server: Server, timeout: float) -> None:
        self.server, self.timeout = server, timeout
        self.address: Address | None = None
        self.closed = False

    def _body(self, name: str, args: dict[str, Any] | None) -> bytes | None:
        if self.closed:
            raise Unavailable("the client is closed", hint="open the database again")
        body = None if args is None else encode(args)
        if body is not None and len(body) > _MOST_BYTES:
            raise Invalid(f"{name}: got {len(body)} bytes, expected at most {_MOST_BYTES}", code="too_large", hint="send it in parts")
        return body

    @staticmethod
    def _unknown(name: str, e: Exception) -> CtxpageError:
        if isinstance(e, CtxpageError):
            return e
        return OutcomeUnknown(f"{name}: the connection ended before the answer: {e}", hint="it may or may not have happened")

    @staticmethod
    def _late(name: str, e: Exception) -> CtxpageError:
        if isinstance(e, CtxpageError):
            return e
        return Unavailable(f"{name}: no answer in time: {e}", hint="call again with a longer timeout")


_all: weakref.WeakSet[Transport] = weakref.WeakSet()


def _forked() -> None:
    for t in list(_all):
        t.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


class Transport(_Base):
    """For threads. Each call takes a connection for itself; a child after fork opens its own."""

    def __init__(self, server: Server, timeout: float) -> None:
        super().__init__(server, timeout)
        self._lock = threading.Lock()
        self._idle: list[socket.socket] = []
        _all.add(self)

    def forked(self) -> None:
        """Leaves the connections to the parent."""
        idle, self._idle, self._lock = self._idle, [], threading.Lock()
        for s in idle:
            s.close()

    def locate(self) -> Address:
        address = self.address
        if address is None:
            with self._lock:
                address = self.address = self.address or self.server.locate()
        return address

    def lost(self, address: Address) -> None:
        """Forgets a server that does not answer."""
        with self._lock:
            if self.address == address:
                self.address = None
            idle, self._idle = self._idle, []
        for s in idle:
            s.close()

    def _take(self, address: Address) -> socket.socket:
        while True:
            with self._lock:
                s = self._idle.pop() if self._idle else None
            if s is None:
                return connect(address, 30.0)
            if not select.select([s], [], [], 0)[0]:
                return s
            s.close()  # the server ended, or cut it off

    def _give(self, s: socket.socket) -> None:
        with self._lock:
            if not self.closed and len(self._idle) < _MAX_IDLE:
                self._idle.append(s)
                return
        s.close()

    def call(self, name: str, who: bytes, args: dict[str, Any] | None, timeout: float | None = None) -> Any:
        limit = timeout or self.timeout
        body = self._body(name, args)
        until = time.monotonic() + limit + _SLACK
        repeatable = _repeatable(name, args or {})
        pause = 0.002
        while True:
            address = self.locate()
            sent = False
            try:
                s = self._take(address)
                try:
                    sent = True
                    s.settimeout(limit + _SLACK)
                    s.sendall(request(address, name, who, body, limit))
                    head, rest = _read_head(s)
                    data = b"".join(_read_body(s, head, rest))
                except BaseException:
                    s.close()
                    raise
                self._give(s) if head.keep else s.close()
                return answer(head.status, data)
            except (CtxpageError, *_BROKEN) as e:
                if sent and not _again(e, repeatable):
                    raise self._unknown(name, e) from None
                if not isinstance(e, CtxpageError) or e.code == "closing":
                    self.lost(address)
                if time.monotonic() + pause > until:
                    raise self._late(name, e) from None
            time.sleep(pause)
            pause = min(pause * 2, 0.1)

    def stream(self, name: str, who: bytes, args: dict[str, Any], timeout: float | None = None) -> Iterator[bytes]:
        """Yields the lines of an answer. A stream that breaks raises; the caller continues where it was."""
        body = self._body(name, args)
        address = self.locate()
        try:
            s = connect(address, 30.0)
        except OSError:
            self.lost(address)
            address = self.locate()
            s = connect(address, 30.0)
        try:
            s.settimeout(timeout)
            s.sendall(request(address, name, who, body, timeout or 3600))
            head, rest = _read_head(s)
            if head.status >= 400:
                answer(head.status, b"".join(_read_body(s, head, rest)))
            buffer = b""
            for part in _read_body(s, head, rest):
                buffer += part
                while (at := buffer.find(b"\n")) >= 0:
                    yield _line(buffer[:at])
                    buffer = buffer[at + 1 :]
        except _BROKEN as e:
            self.lost(address)
            raise Unavailable(f"{name}: the stream ended: {e}", hint="call again") from None
        finally:
            s.close()

    def close(self) -> None:
        with self._lock:
            self.closed = True
            idle, self._idle = self._idle, []
        for s in idle:
            s.close()


def _line(line: bytes) -> bytes:
    """A line of a stream, or the error that is its last line."""
    if line.startswith(b'{"error":{"code":'):
        answer(500, line)
    return line


def _recv(s: socket.socket) -> bytes:
    data = s.recv(1 << 16)
    if not data:
        raise EOFError("the server closed the connection")
    return data


def _read_head(s: socket.socket) -> tuple[Head, bytes]:
    data = _recv(s)
    while (at := data.find(b"\r\n\r\n")) < 0:
        data += _recv(s)
        if len(data) > 1 << 16:
            raise Cut("the head of the answer is too long")
    return Head(data[:at]), data[at + 4 :]


def _read_body(s: socket.socket, head: Head, rest: bytes) -> Iterator[bytes]:
    if not head.chunked:
        left = head.length - len(rest)
        if rest:
            yield rest
        while left > 0:
            data = _recv(s)
            left -= len(data)
            yield data
        return
    while True:
        while (at := rest.find(b"\r\n")) < 0:
            rest += _recv(s)
        n = int(rest[:at].split(b";")[0], 16)
        rest = rest[at + 2 :]
        while len(rest) < n + 2:
            rest += _recv(s)
        if n == 0:
            return
        yield rest[:n]
        rest = rest[n + 2 :]


class _Stream:
    """A connection of asyncio."""

    __slots__ = ("r", "w")

    def __init__(self, r: asyncio.StreamReader, w: asyncio.StreamWriter) -> None:
        self.r, self.w = r, w

    def close(self) -> None:
        try:
            self.w.close()
        except RuntimeError:  # its event loop is closed
            pass

    async def ask(self, data: bytes) -> tuple[Head, bytes]:
        self.w.write(data)
        await self.w.drain()
        head = Head((await self.r.readuntil(b"\r\n\r\n"))[:-4])
        return head, await self.r.readexactly(head.length) if not head.chunked else b""


class AsyncTransport(_Base):
    """For asyncio. Connections belong to the event loop that made them; a call that is cancelled closes its own."""

    def __init__(self, server: Server, timeout: float) -> None:
        super().__init__(server, timeout)
        self._idle: list[_Stream] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = os.getpid()
        self._locating: asyncio.Task[Address] | None = None

    def _here(self) -> None:
        """Leaves the connections of another event loop, or of the parent process."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop or self._pid != os.getpid():
            idle, self._idle = self._idle, []
            self._loop, self._pid, self._locating = loop, os.getpid(), None
            for s in idle:
                s.close()

    async def locate(self) -> Address:
        if self.address is not None:
            return self.address
        if self._locating is None:
            self._locating = asyncio.ensure_future(asyncio.to_thread(self.server.locate))
        task = self._locating
        try:
            address = await asyncio.shield(task)  # a caller that is cancelled leaves it to the others
        finally:
            if task.done() and self._locating is task:
                self._locating = None
        self.address = address
        return address

    def lost(self, address: Address) -> None:
        if self.address == address:
            self.address = None
        idle, self._idle = self._idle, []
        for s in idle:
            s.close()

    async def _connect(self, address: Address) -> _Stream:
        if address.socket:
            return _Stream(*await asyncio.open_unix_connection(address.socket, limit=1 << 22))
        return _Stream(*await asyncio.open_connection(address.host, address.port, limit=1 << 22))

    async def _take(self, address: Address) -> _Stream:
        while self._idle:
            s = self._idle.pop()
            if not s.r.at_eof() and not s.w.is_closing():
                return s
            s.close()
        return await self._connect(address)

    async def call(self, name: str, who: bytes, args: dict[str, Any] | None, timeout: float | None = None) -> Any:
        self._here()
        limit = timeout or self.timeout
        body = self._body(name, args)
        until = time.monotonic() + limit + _SLACK
        repeatable = _repeatable(name, args or {})
        pause = 0.002
        while True:
            address = await self.locate()
            sent = False
            try:
                s = await self._take(address)
                try:
                    sent = True
                    # Not wait_for: before Python 3.12 it can swallow a cancellation.
                    late = asyncio.get_running_loop().call_later(limit + _SLACK, s.w.transport.abort)
                    try:
                        head, data = await s.ask(request(address, name, who, body, limit))
                    finally:
                        late.cancel()
                except BaseException:
                    s.close()
                    raise
                if head.keep and not self.closed and len(self._idle) < _MAX_IDLE:
                    self._idle.append(s)
                else:
                    s.close()
                return answer(head.status, data)
            except (CtxpageError, *_BROKEN) as e:
                if sent and not _again(e, repeatable):
                    raise self._unknown(name, e) from None
                if not isinstance(e, CtxpageError) or e.code == "closing":
                    self.lost(address)
                if time.monotonic() + pause > until:
                    raise self._late(name, e) from None
            await asyncio.sleep(pause)
            pause = min(pause * 2, 0.1)

    async def stream(self, name: str, who: bytes, args: dict[str, Any], timeout: float | None = None) -> AsyncIterator[bytes]:
        """Yields the lines of an answer. A stream that breaks raises; the caller continues where it was."""
        self._here()
        body = self._body(name, args)
        address = await self.locate()
        try:
            s = await self._connect(address)
        except OSError:
            self.lost(address)
            address = await self.locate()
            s = await self._connect(address)
        try:
            head, data = await s.ask(request(address, name, who, body, timeout or 3600))
            if head.status >= 400:
                answer(head.status, data)
            buffer = b""
            while n := int((await s.r.readuntil(b"\r\n")).split(b";")[0], 16):
                buffer += (await s.r.readexactly(n + 2))[:-2]
                while (at := buffer.find(b"\n")) >= 0:
                    yield _line(buffer[:at])
                    buffer = buffer[at + 1 :]
        except _BROKEN as e:
            self.lost(address)
            raise Unavailable(f"{name}: the stream ended: {e}", hint="call again") from None
        finally:
            s.close()

    async def close(self) -> None:
        self.closed = True
        idle, self._idle = self._idle, []
        for s in idle:
            s.close()
            try:
                await s.w.wait_closed()
            except (OSError, RuntimeError):
                pass
