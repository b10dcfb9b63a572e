"""What a call costs beside the same call from Go, in one run and in turn."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import time

import pytest

import ctxpage

ROUNDS, CALLS = 15, 30
GO = os.environ.get("CTXPAGE_OVERHEAD", "")  # clients/typescript/test/testdata/overhead, built


def middle(took: list[float]) -> float:
    return sorted(took)[len(took) // 2]


def threads(scope: ctxpage.Scope, name: str) -> float:
    took: list[float] = []
    for i in range(CALLS):
        begun = time.perf_counter()
        if name == "put":
            scope.put(f"page-{i % 50}", f"refund {i} within {7 * i} days, says py")
        elif name == "get":
            scope.get(f"page-{i % 50}")
        else:
            scope.assemble("refund", 1000)
        took.append((time.perf_counter() - begun) * 1000)
    return middle(took)


async def tasks(scope: ctxpage.AsyncScope, name: str) -> float:
    took: list[float] = []
    for i in range(CALLS):
        begun = time.perf_counter()
        if name == "put":
            await scope.put(f"page-{i % 50}", f"refund {i} within {7 * i} days, says io")
        elif name == "get":
            await scope.get(f"page-{i % 50}")
        else:
            await scope.assemble("refund", 1000)
        took.append((time.perf_counter() - begun) * 1000)
    return middle(took)


@pytest.mark.skipif(not GO, reason="CTXPAGE_OVERHEAD is not set")
def test_overhead(path: str) -> None:
    """The figures are reported, not judged: the machine may be busy."""
    with ctxpage.open(path) as db:
        scope = db.scope("overhead")
        address = db.transport.address
        loop = asyncio.new_event_loop()
        aio = loop.run_until_complete(ctxpage.aopen(path))

        def go(name: str) -> float:
            assert address is not None
            out = subprocess.run([GO, address.socket, str(CALLS), name], check=True, capture_output=True).stdout
            return float(json.loads(out)[name])

        for name in ("put", "get", "assemble"):
            callers = {
                "Go": lambda: go(name),
                "threads": lambda: threads(scope, name),
                "asyncio": lambda: loop.run_until_complete(tasks(aio.scope("overhead"), name)),
            }
            rounds: dict[str, list[float]] = {who: [] for who in callers}
            for n in range(ROUNDS + 1):
                order = [*callers][n % 3 :] + [*callers][: n % 3]
                for who in order:
                    took = callers[who]()
                    if n:  # the first round warms
                        rounds[who].append(took)
            theirs, *ours = (middle(rounds[who]) for who in callers)
            assert min(theirs, *ours) > 0
            more = (f"{who} {took:.2f} ({took - theirs:+.2f} ms, ratio {took / theirs:.2f})" for who, took in zip(("threads", "asyncio"), ours))
            print(f"measured {name}: {theirs:.2f} ms from Go; {', '.join(more)}")
        loop.run_until_complete(aio.close())
        loop.close()
