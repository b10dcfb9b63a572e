"""Databases for tests: each test has a folder of its own, and leaves no server behind."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest


def owner(path: str | Path) -> int:
    """The process that serves a database; 0: none."""
    for suffix in (".api.lock", ".http.lock"):
        try:
            line = json.loads(Path(f"{path}{suffix}").read_text() or "{}")
        except (OSError, ValueError):
            continue
        if line.get("socket"):
            return int(line["pid"])
    return 0


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def end(path: str | Path) -> None:
    """Ends the server of a database at once."""
    pid = owner(path)
    if pid and alive(pid):
        os.kill(pid, signal.SIGKILL)


@pytest.fixture
def path(tmp_path: Path) -> Iterator[str]:
    file = str(tmp_path / "agent.ctx")
    yield file
    end(file)
