"""A pytest plugin: upstream's own tests run on the classes of ctxpage.adapters.

CTXPAGE_UPSTREAM names the suite: anthropic, openai-agents, store, strands or strands-memory. Each database is in a temporary folder.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import pathlib
import shutil
import tempfile
from typing import Any

import ctxpage

SUITE = os.environ["CTXPAGE_UPSTREAM"]
FOLDER = tempfile.mkdtemp(prefix="ctxpage-upstream-")
_opened: dict[str, ctxpage.Database] = {}


def database() -> ctxpage.Database:
    """One database for all tests of a process; each test has a scope of its own."""
    if "all" not in _opened:
        _opened["all"] = ctxpage.open(os.path.join(FOLDER, "all.ctx"), idle="5s")
    return _opened["all"]


_count = 0


def scope() -> ctxpage.Scope:
    global _count
    _count += 1
    return database().scope(f"test-{_count}")


@atexit.register
def _end() -> None:
    for db in _opened.values():
        with contextlib.suppress(ctxpage.CtxpageError):
            db.operator("x").stop()
        db.close()
    shutil.rmtree(FOLDER, ignore_errors=True)


if SUITE == "anthropic":
    from anthropic.lib.tools import _beta_builtin_memory_tool as upstream

    from ctxpage.adapters.anthropic import CtxpageAsyncMemoryTool, CtxpageMemoryTool, Files

    _tools: dict[str, Files] = {}

    class Place:
        """What the tests use of a path: a file or folder of a tool."""

        def __init__(self, files: Files, name: str, awaited: bool = False) -> None:
            self.files, self.name, self.awaited = files, name, awaited

        def __truediv__(self, name: str) -> Place:
            return Place(self.files, f"{self.name}/{name}", self.awaited)

        def __str__(self) -> str:
            return f"ctxpage:{id(self.files)}:{self.name}"

        def is_dir(self) -> Any:
            async def later() -> bool:
                return self.files.is_dir(self.name)

            return later() if self.awaited else self.files.is_dir(self.name)

        def mkdir(self, **_: Any) -> None:
            pass

        def write_bytes(self, data: bytes) -> None:
            self.files.scope.put(**self.files.page(self.name, data.decode()))

        def read_bytes(self) -> bytes:
            text = self.files.read(self.name)
            assert text is not None
            return text.encode()

    def _place(path: Any) -> Any:
        text = str(path)
        if text.startswith("ctxpage:"):
            _, key, name = text.split(":", 2)
            return Place(_tools[key], name)
        return pathlib.Path(path)

    class SyncTool(CtxpageMemoryTool):
        def __init__(self, base_path: str = "./memory") -> None:
            super().__init__(scope())
            self.base_path = base_path
            _tools[str(id(self.files))] = _tools[base_path] = self.files
            self.memory_root = Place(self.files, "memories")

    class AsyncTool(CtxpageAsyncMemoryTool):
        def __init__(self, base_path: str = "./memory") -> None:
            super().__init__(scope())
            self.base_path = base_path
            _tools[str(id(self.files))] = _tools[base_path] = self.files
            self.memory_root = Place(self.files, "memories", True)

    upstream.BetaLocalFilesystemMemoryTool = SyncTool  # type: ignore[misc, assignment]
    upstream.BetaAsyncLocalFilesystemMemoryTool = AsyncTool  # type: ignore[misc, assignment]

    def _snapshot(base_path: str) -> dict[str, str]:
        files = _tools[base_path]
        return {name: files.read(name) or "" for name in files.below("memories") if not name.endswith("/")}

    def pytest_collection_modifyitems(items: list[Any]) -> None:
        for item in items:
            item.module.get_directory_snapshot = _snapshot
            item.module.Path = _place

elif SUITE == "openai-agents":
    import agents
    import agents.memory

    from ctxpage.adapters.openai_agents import CtxpageSession

    class SQLiteSession(CtxpageSession):
        def __init__(self, session_id: str, db_path: Any = ":memory:", *_: Any, session_settings: Any = None, **__: Any) -> None:
            where = os.path.join(FOLDER, f"{id(self)}.ctx") if str(db_path) == ":memory:" else f"{db_path}.ctx"
            super().__init__(session_id, where, session_settings=session_settings)
            self._db.transport.server.idle = "3s"

    agents.SQLiteSession = SQLiteSession  # type: ignore[misc, assignment]
    agents.memory.SQLiteSession = SQLiteSession  # type: ignore[misc, assignment]

elif SUITE == "store":
    import langgraph.store.sqlite
    import langgraph.store.sqlite.aio

    from ctxpage.adapters.langgraph import CtxpageAsyncStore, CtxpageStore

    _scopes: dict[str, ctxpage.Scope] = {}

    def _scope(conn: str) -> ctxpage.Scope:
        if conn == ":memory:":
            return scope()
        return _scopes.setdefault(conn, scope())

    class SqliteStore(CtxpageStore):
        @classmethod
        @contextlib.contextmanager
        def from_conn_string(cls, conn: str, *, index: Any = None, ttl: Any = None) -> Any:
            store = cls(_scope(conn), index=index, ttl=ttl)
            yield store
            store.stop_ttl_sweeper()

        def setup(self) -> None:
            pass

    class AsyncSqliteStore(CtxpageAsyncStore):
        @classmethod
        @contextlib.asynccontextmanager
        async def from_conn_string(cls, conn: str, *, index: Any = None, ttl: Any = None) -> Any:
            store = cls(_scope(conn), index=index, ttl=ttl)
            yield store
            CtxpageStore.stop_ttl_sweeper(store)

        async def setup(self) -> None:
            pass

        async def sweep_ttl(self) -> int:  # type: ignore[override]
            return CtxpageStore.sweep_ttl(self)

        async def start_ttl_sweeper(self, minutes: float | None = None) -> None:  # type: ignore[override]
            CtxpageStore.start_ttl_sweeper(self, minutes)

        async def stop_ttl_sweeper(self, timeout: float | None = None) -> bool:  # type: ignore[override]
            return CtxpageStore.stop_ttl_sweeper(self, timeout)

    langgraph.store.sqlite.SqliteStore = SqliteStore  # type: ignore[misc, assignment]
    langgraph.store.sqlite.AsyncSqliteStore = AsyncSqliteStore  # type: ignore[misc, assignment]
    langgraph.store.sqlite.aio.AsyncSqliteStore = AsyncSqliteStore  # type: ignore[misc, assignment]

elif SUITE == "strands":

    def pytest_configure() -> None:
        import tests.fixtures.mock_session_repository as upstream  # of the suite

        from ctxpage.adapters.strands import CtxpageSessionRepository

        class MockedSessionRepository(CtxpageSessionRepository):
            def __init__(self) -> None:
                super().__init__(scope())

        upstream.MockedSessionRepository = MockedSessionRepository

elif SUITE == "strands-memory":
    import strands.vended_memory_stores
    import strands.vended_memory_stores.test_memory_store as vended

    from ctxpage.adapters.strands import CtxpageMemoryStore

    _places: dict[str, ctxpage.Scope] = {}

    class TestMemoryStore(CtxpageMemoryStore):
        __test__ = False

        def __init__(self, *, path: str | None = None, **config: Any) -> None:
            super().__init__(_places.setdefault(path, scope()) if path else scope(), **config)

    vended.TestMemoryStore = TestMemoryStore  # type: ignore[misc, assignment]
