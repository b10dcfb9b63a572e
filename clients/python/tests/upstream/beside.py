"""What the runs of random operations share: a database, and a control that must be noticed."""

from __future__ import annotations

import contextlib
import os
import random
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator

import ctxpage

OPERATIONS = int(os.environ.get("CTXPAGE_OPERATIONS") or 10_000)
SEED = 20261128


class Differs(AssertionError):
    """Our class and upstream's answered differently."""


def same(what: str, ours: object, theirs: object) -> None:
    if ours != theirs:
        raise Differs(f"{what}: got {ours!r}, expected {theirs!r}")


@contextlib.contextmanager
def database() -> Iterator[ctxpage.Database]:
    with tempfile.TemporaryDirectory(prefix="ctxpage-beside-", ignore_cleanup_errors=True) as folder, ctxpage.open(folder + "/agent.ctx", idle="5s") as db:
        try:
            yield db
        finally:
            with contextlib.suppress(ctxpage.CtxpageError):
                db.operator("x").stop()


async def check(name: str, run: Callable[[ctxpage.Scope, random.Random, int, bool], Awaitable[str]]) -> None:
    """Makes the operations, and again with a class that is broken on purpose, which must be noticed."""
    with database() as db:
        print(f"{name}: {OPERATIONS} operations as upstream's own class, {await run(db.scope('run'), random.Random(SEED), OPERATIONS, False)}")
        try:
            await run(db.scope("control"), random.Random(SEED), OPERATIONS, True)
        except Differs as noticed:
            print(f"{name}: the broken class was noticed: {str(noticed)[:100]}")
        else:
            sys.exit(f"{name}: nobody noticed the broken class")
