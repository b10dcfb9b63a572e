"""Runs the conformance suite of LangGraph on our checkpointer: 58 tests must pass."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator

from langgraph.checkpoint.conformance import checkpointer_test, validate

import ctxpage
from ctxpage.adapters.langgraph import CtxpageSaver


async def main() -> None:
    with ctxpage.open(tempfile.mkdtemp() + "/agent.ctx", idle="2s") as db:
        count = 0

        async def saver() -> AsyncIterator[CtxpageSaver]:
            nonlocal count
            count += 1
            yield CtxpageSaver(db.scope(f"run-{count}"))

        report = await validate(checkpointer_test(name="CtxpageSaver")(saver))
        passed = sum(r.tests_passed for r in report.results.values())
        failed = [f for r in report.results.values() for f in r.failures]
        print(f"checkpointer: {passed} passed, {len(failed)} failed")
        if passed != 58 or failed or not report.passed_all_base():
            raise SystemExit(f"expected 58 passed: {failed}")


asyncio.run(main())
