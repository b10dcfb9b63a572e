"""Writes src/ctxpage/_sync.py: the surface for threads, made of the one for asyncio word by word.

    python3 scripts/make_sync.py [--check]
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

SRC = Path(__file__).resolve().parent.parent / "src" / "ctxpage"
WORDS = [
    (r'"""The surface for asyncio\..*?"""', '"""The surface for threads. Written by scripts/make_sync.py from _async.py; do not edit."""'),
    (r"async def aopen", "def open"), (r'"aopen"', '"open"'), (r"async def", "def"), (r"async with", "with"), (r"async for", "for"), (r"await ", ""),
    (r"AsyncIterator", "Iterator"), (r"__aenter__", "__enter__"), (r"__aexit__", "__exit__"), (r"Async([A-Z]\w+)", r"\1"),
]  # fmt: skip


def generate() -> str:
    text = (SRC / "_async.py").read_text()
    for pattern, word in WORDS:
        text = re.sub(pattern, word, text, flags=re.S)
    return text


def main() -> None:
    target = SRC / "_sync.py"
    if "--check" in sys.argv[1:]:
        if target.read_text() != generate():
            raise SystemExit(f"{target} is out of date: run scripts/make_sync.py")
        return
    target.write_text(generate())


if __name__ == "__main__":
    main()
