"""Strands' memory store: random operations beside the in-memory TestMemoryStore, through upstream's own MemoryManager."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from beside import check, same
from strands.memory.memory_manager import MemoryManager
from strands.vended_memory_stores.test_memory_store import TestMemoryStore

import ctxpage
from ctxpage.adapters.strands import Added, CtxpageMemoryStore

WORDS = [f"{a}{b}{n:02}" for n, (a, b) in enumerate((a, b) for a in "bdfgklmnprst" for b in ("ilo", "aru", "emi", "oka"))]


class Broken(CtxpageMemoryStore):
    """Keeps the first of what it is given."""

    async def add(self, content: str, metadata: dict[str, Any] | None = None) -> Added:
        return await super().add(content.split()[0], metadata)


async def run(scope: ctxpage.Scope, rng: random.Random, operations: int, broken: bool) -> str:
    added = found = 0
    for generation in range(0, operations, 200):
        ours = (Broken if broken else CtxpageMemoryStore)(scope.below(str(generation)), name="ours", max_search_results=1000)
        theirs = TestMemoryStore(name="theirs", persist=False, max_search_results=1000)
        manager = MemoryManager(stores=[ours, theirs])
        known: dict[str, dict[str, Any]] = {}
        for n in range(generation, min(generation + 200, operations)):
            if rng.random() < 0.4:
                text = rng.choice(list(known)) if known and rng.random() < 0.2 else " ".join(rng.sample(WORDS, 4)) + rng.choice(["", " größe 💥", " </page>"])
                if text not in known:
                    known[text] = rng.choice([{}, {"source": "user", "n": n}])
                await manager.add(text, {"metadata": known[text]})
                added += 1
                continue
            query = rng.choice([" ".join(rng.sample(WORDS, rng.randrange(1, 3))), "...", ""])
            entries = await manager.search(query)
            mine, other = ({e.content: {k: v for k, v in (e.metadata or {}).items() if k in ("source", "n")} for e in entries if e.store_name == name} for name in ("ours", "theirs"))
            same(f"search {query!r} misses", {k: mine.get(k) for k in other}, other)  # ours also finds words that are alike
            same(f"search {query!r} finds too much", {k: known.get(k) for k in mine}, mine)
            found += len(other)
    return f"{added} added, {found} found"


asyncio.run(check("strands memory", run))
