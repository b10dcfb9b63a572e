"""Finds the server of a database, and starts one if there is none.

    PATH.api.lock    names the unix socket of `dbctl serve PATH`
    PATH.http.lock   names the loopback address of `dbctl serve PATH --http`, where there are no unix sockets (Windows)
    PATH.http.tokens has the tokens of that server, which makes the file if it is missing

A server that is started here runs in a session of its own: it outlives the program that started it, and ends by itself when nobody
calls it for a while. If several programs start one at once, the lock of the database decides, and the others use that server.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from .errors import Unavailable

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

HAS_UNIX = os.name != "nt" and hasattr(socket, "AF_UNIX")

# On Windows a server in the console of its starter would end with it.
_DETACHED = getattr(subprocess, "DETACHED_PROCESS", 0) | getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)


@dataclass(frozen=True)
class Address:
    """Where a server answers: a unix socket, or a loopback port with a token."""

    socket: str = ""
    host: str = ""
    port: int = 0
    token: str = ""


def find_binary() -> str:
    """The path of dbctl: CTXPAGE_BINARY, else the one that the wheel installed, else the one on PATH."""
    name = "dbctl.exe" if os.name == "nt" else "dbctl"
    given = os.environ.get("CTXPAGE_BINARY")
    if given:
        return given
    for folder in (sysconfig.get_path("scripts"), sysconfig.get_path("scripts", f"{os.name}_user"), str(Path(sys.executable).parent)):
        if folder and os.access(os.path.join(folder, name), os.X_OK):
            return os.path.join(folder, name)
    found = shutil.which(name)
    if found:
        return found
    raise Unavailable(f"there is no {name}", hint="install a wheel of ctxpage for this platform, or put dbctl on PATH, or set CTXPAGE_BINARY")


@dataclass
class Server:
    """The server of one database."""

    path: str
    binary: str | None = None
    idle: str = "60s"
    args: tuple[str, ...] = ()
    http: bool = not HAS_UNIX
    start_timeout: float = 60.0

    def __post_init__(self) -> None:
        self.path = os.path.realpath(self.path)

    def locate(self) -> Address:
        """Returns where the database is served. It starts a server if none accepts connections."""
        until = time.monotonic() + self.start_timeout
        pause = 0.005
        while True:
            address = self._announced()
            if address and _accepts(address):
                return address
            said: Address | str = "another program is starting it"
            with self._turn() as mine:
                if mine:
                    said = self._start(until)
            if isinstance(said, Address):
                return said
            # Another program may have started one at the same moment: then the lock file names it soon.
            if time.monotonic() + pause > until or (mine and not _retryable(said)):
                raise Unavailable(f"dbctl serve {self.path} did not start: {_message(said)}", hint="run it in a terminal to see why")
            time.sleep(pause)
            pause = min(pause * 2, 0.2)

    @contextlib.contextmanager
    def _turn(self) -> Generator[bool, None, None]:
        """Lets one program of the user start the server of this database. It spares the others a process; the lock of the database decides."""
        if fcntl is None:
            yield True
            return
        name = hashlib.sha256(self.path.encode("utf-8", "surrogateescape")).hexdigest()[:32]
        file = os.path.join(tempfile.gettempdir(), f"ctxpage-{os.getuid()}-{name}.start")
        try:
            fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError:
            yield True
            return
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                yield False
                return
            yield True
            with contextlib.suppress(OSError):
                os.unlink(file)
        finally:
            os.close(fd)

    def _announced(self) -> Address | None:
        try:
            with open(self.path + (".http.lock" if self.http else ".api.lock"), encoding="utf-8") as f:
                line = json.load(f)
            where = line.get("socket", "")
            # The port of a server that ended may be another program's, which must not get the token.
            if not where or self.http and not _alive(line["pid"]):
                return None
            return self._address(where)
        except (OSError, ValueError, AttributeError, KeyError):
            return None  # no server was started yet, or it writes the file at this moment

    def _address(self, where: str) -> Address:
        if not self.http:
            return Address(socket=where)
        host, _, port = where.removeprefix("http://").rpartition(":")
        return Address(host=host, port=int(port), token=self._token())

    def _token(self) -> str:
        """The first token of the highest role. Only the user can read it."""
        ranks = ("agent", "host", "operator")
        best, token = -1, ""
        with open(self.path + ".http.tokens", encoding="utf-8") as f:
            for words in map(str.split, f):
                if len(words) == 2 and words[0] in ranks and ranks.index(words[0]) > best:
                    best, token = ranks.index(words[0]), words[1]
        return token

    def _start(self, until: float) -> Address | str:
        """Starts a server. Returns its address, or what it said when it ended."""
        command = [self.binary or find_binary(), "serve", self.path, "--json", "--idle", self.idle, *self.args]
        if self.http:
            command += ["--http", "127.0.0.1:0"]
        with tempfile.TemporaryFile() as errors:
            try:
                child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, start_new_session=True, creationflags=_DETACHED)
            except OSError as e:
                raise Unavailable(f"{command[0]} cannot be run: {e}", hint="set CTXPAGE_BINARY to the path of dbctl") from e
            assert child.stdout is not None
            with child.stdout as out:
                line = _first_line(out, child, until - time.monotonic())
            threading.Thread(target=child.wait, daemon=True, name="ctxpage-reaper").start()  # no zombie stays of a server that ends
            if line:
                said = json.loads(line)
                return self._address(said.get("socket") or said["url"])
            child.wait()
            errors.seek(0)
            return errors.read().decode("utf-8", "replace").strip()


def _message(said: str) -> str:
    """The message in what dbctl --json writes on its standard error."""
    try:
        return str(json.loads(said.splitlines()[-1])["error"]["message"])
    except (ValueError, KeyError, TypeError, IndexError):
        return said[-2000:]


def _retryable(said: str) -> bool:
    """Reports whether another server is about to answer."""
    return any(w in said for w in ("is open in", "holds", "serves", "locked", "lock", "is opening", "not answer"))


def _first_line(out: IO[bytes], child: subprocess.Popen[bytes], limit: float) -> bytes:
    """Reads the line in which a server says that it serves; empty if it ended."""
    timer = threading.Timer(max(limit, 0.1), child.kill)
    timer.daemon = True
    timer.start()
    try:
        return out.readline()
    finally:
        timer.cancel()


def _alive(pid: int) -> bool:
    """Reports whether a process of this user is there."""
    if sys.platform == "win32":
        import ctypes

        kernel = ctypes.windll.kernel32
        handle = kernel.OpenProcess(0x00100000, False, pid)  # SYNCHRONIZE
        if not handle:
            return False
        ended = kernel.WaitForSingleObject(handle, 0) == 0
        kernel.CloseHandle(handle)
        return not ended
    try:
        os.kill(pid, 0)
    except (OSError, OverflowError):
        return False
    return True


def _accepts(address: Address) -> bool:
    try:
        connect(address, 2.0).close()
    except OSError:
        return False
    return True


def connect(address: Address, timeout: float) -> socket.socket:
    """Opens a connection."""
    if not address.socket:
        s = socket.create_connection((address.host, address.port), timeout)
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return s
    s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        s.settimeout(timeout)
        s.connect(address.socket)
    except BaseException:
        s.close()
        raise
    return s
