"""The surface for asyncio. scripts/make_sync.py makes _sync.py of it, the same for threads."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, cast

from . import types as t
from ._http import headers
from ._ids import new_batch
from ._server import Server
from ._shared import Assembly, Provider, escape, given, id_of, trace_of, turn_of, write_of
from ._transport import AsyncTransport
from .errors import Conflict, Held, Invalid, NotFound, OutcomeUnknown, StaleContext, TxnDone


async def aopen(
    path: str, *, actor: str = "python", timeout: float = 60.0, binary: str | None = None, idle: str = "60s", args: Sequence[str] = (), http: bool | None = None
) -> AsyncDatabase:
    """Opens a database: connects to its server, and starts one if there is none. The file is created if it is missing.

    actor names this program in manifests and reviews. timeout is the time limit of a call in seconds. A server that is started here ends
    after `idle` without a call; `args` are further flags of `dbctl serve`, such as ["--model", "FOLDER"]. `http` uses a loopback address with a
    token in place of a unix socket; the default on Windows.
    """
    server = Server(path, binary=binary, idle=idle, args=tuple(args))
    if http is not None:
        server.http = http
    db = AsyncDatabase(AsyncTransport(server, timeout), actor)
    await db.transport.locate()
    return db


class AsyncDatabase:
    """An open database. All handles of it share its connections. It is safe for concurrent use."""

    def __init__(self, transport: AsyncTransport, actor: str) -> None:
        self.transport, self.actor = transport, actor

    @property
    def path(self) -> str:
        return self.transport.server.path

    def scope(self, name: str, *, actor: str | None = None, gated: bool = False) -> AsyncScope:
        """The handle of a scope. gated is for code that acts for a model: its writes pass the commit gate or are held for review."""
        return AsyncScope(self.transport, name, actor or self.actor, "agent" if gated else "host")

    def gated(self, name: str, *, actor: str | None = None) -> AsyncScope:
        """scope(name, gated=True)."""
        return self.scope(name, actor=actor, gated=True)

    def operator(self, scope: str, *, actor: str = "operator") -> AsyncOperator:
        """The operator's access, for a scope and those below it. actor is recorded as the one who did it."""
        return AsyncOperator(self.transport, scope, actor, "operator")

    async def status(self) -> t.Status:
        """Describes the server."""
        return cast(t.Status, await self.transport.call("status", b"", None))

    async def schema(self) -> dict[str, Any]:
        """The schemas of all calls."""
        return cast("dict[str, Any]", await self.transport.call("schema", b"", None))

    async def close(self) -> None:
        """Closes the connections. The server goes on, and ends when nobody calls it."""
        await self.transport.close()

    async def __aenter__(self) -> AsyncDatabase:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()


class _Handle:
    """A caller: scope, actor and role, which no call can change."""

    def __init__(self, transport: AsyncTransport, name: str, actor: str, role: str) -> None:
        self._transport, self.name, self.actor, self.role = transport, name, actor, role
        self._who = headers(name, actor, role)

    async def call(self, name: str, /, timeout: float | None = None, **arguments: Any) -> Any:
        """Makes a call of PROTOCOL.md. Arguments that are None are left out."""
        return await self._transport.call(name, self._who, given(arguments), timeout)


class AsyncScope(_Handle):
    """What an agent works with: it reads its scope and the scopes above, and writes its scope alone."""

    async def put(self, id: str, text: str = "", *, batch: str | None = None, **fields: Any) -> str:
        """Writes one page and returns its reference. Fields are those of types.Write. A gated handle raises Held unless an evaluator passes it."""
        return (await self.put_all([cast(t.Write, {"id": id, "text": text, **fields})], batch=batch))["refs"][0]

    async def put_all(self, writes: Iterable[t.Write], *, batch: str | None = None) -> t.Written:
        """Writes pages, all or none."""
        return cast(t.Written, await self.call("put", writes=[write_of(w) for w in writes], batch=batch or new_batch()))

    async def delete(self, *ids: str, batch: str | None = None) -> t.Written:
        """Marks pages as deleted; their versions stay."""
        return cast(t.Written, await self.call("delete", ids=list(ids), batch=batch or new_batch()))

    async def get(self, id: str | None = None, *, ref: str | None = None, serve_stale: bool | None = None) -> t.Page:
        """Reads one page in full. If its source changed, it is fetched again first."""
        return cast(t.Page, await self.call("get", id=id, ref=ref, serve_stale=serve_stale))

    async def find(self, id: str) -> t.Page | None:
        """get, or None if there is no such page."""
        try:
            return await self.get(id)
        except NotFound:
            return None

    def below(self, *names: str) -> AsyncScope:
        """The handle of a scope below this one. Names are escaped: a user called bob/eve is not inside bob."""
        name = "/".join([self.name, *(escape(n) for n in names)])
        return AsyncScope(self._transport, name, self.actor, self.role)

    async def list(
        self, prefix: str | None = None, *, filter: t.Filter | None = None, newest: bool | None = None, full: bool | None = None, limit: int | None = None
    ) -> AsyncIterator[t.Page]:
        """The scope's own pages: by id, or the newest first. They have no text unless full is set."""
        cursor: str | None = None
        while True:
            part = cast(t.PageList, await self.call("list", prefix=prefix, filter=filter, newest=newest, full=full, cursor=cursor, limit=min(limit or 1000, 1000)))
            for page in part["items"]:
                yield page
            cursor = part.get("next")
            if limit is not None:
                limit -= len(part["items"])
            if not cursor or (limit is not None and limit <= 0):
                return

    async def versions(self, id: str) -> AsyncIterator[t.Page]:
        """The versions of a page, newest first, without text."""
        cursor: str | None = None
        while True:
            part = cast(t.PageList, await self.call("versions", id=id, cursor=cursor, limit=1000))
            for page in part["items"]:
                yield page
            cursor = part.get("next")
            if not cursor:
                return

    async def search(self, query: str, *, limit: int | None = None, filter: t.Filter | None = None, floor: str | None = None) -> t.Found:
        """Pages that match words, best first."""
        return cast(t.Found, await self.call("search", query=query, limit=limit, filter=filter, floor=floor))

    async def assemble(self, query: str, budget: int | None = None, *, session: str | None = None, messages: Provider | None = None, **settings: Any) -> Assembly:
        """The context for a question within a token budget. messages names the provider for Assembly.messages; settings are those of PROTOCOL.md."""
        result = await self.call("assemble", query=query, budget=budget, session=session, messages=messages, **settings)
        return Assembly(cast(t.AssembleResult, result), messages)

    def transaction(self, of: Assembly | str | None = None, *, on_stale: str | None = None) -> AsyncTransaction:
        """A transaction, of the context that it is written from. `async with` rolls it back unless commit was called."""
        return AsyncTransaction(self, trace_of(of), on_stale)

    def session(self, id: str) -> AsyncSession:
        """A conversation of the scope. It needs no creating."""
        return AsyncSession(self, id)

    async def sessions(self) -> AsyncIterator[str]:
        """The conversations of the scope, by name."""
        after: str | None = None
        while True:
            part = cast(t.SessionList, await self.call("session/list", after=after, limit=1000))
            for name in part["sessions"]:
                yield name
            after = part.get("next")
            if not after:
                return

    @property
    def directives(self) -> AsyncDirectives:
        """What the user has decided."""
        return AsyncDirectives(self)

    async def why(self, of: Assembly | str, id: str | None = None, *, ref: str | None = None) -> t.Why:
        """Why a page was in a past context, or was not; without a page, the whole context."""
        return cast(t.Why, await self.call("why", trace=trace_of(of), id=id, ref=ref))

    async def replay(self, of: Assembly | str) -> t.Replay:
        """Renders a past context again, byte for byte."""
        return cast(t.Replay, await self.call("replay", trace=trace_of(of)))

    async def diff(self, a: Assembly | str, b: Assembly | str) -> t.Difference:
        """How two past contexts differ."""
        return cast(t.Difference, await self.call("diff", a=trace_of(a), b=trace_of(b)))

    async def manifest(self, of: Assembly | str) -> t.Manifest:
        """The audit leaves of a trace."""
        return cast(t.Manifest, await self.call("manifest", trace=trace_of(of)))

    async def refresh(self, *, dry_run: bool | None = None, delete: bool | None = None, files_only: bool | None = None) -> t.RefreshReport:
        """Probes the sources of the scope and fetches what changed."""
        return cast(t.RefreshReport, await self.call("refresh", dry_run=dry_run, delete=delete, files_only=files_only))

    async def changes(self, start: int | None = None, *, limit: int | None = None, types: Sequence[str] | None = None, idle_s: int | None = None) -> AsyncIterator[t.Change]:
        """The audit leaves of the scope as they are written. To continue, give `next` of the last one as start."""
        arguments = given({"from": start, "limit": limit, "types": types, "idle_s": idle_s})
        async for line in self._transport.stream("changes", self._who, arguments):
            change = cast(t.Change, json.loads(line))
            if "leaf" in change:  # else it is a sign of life
                yield change


class AsyncTransaction:
    """Writes that are committed together, or not at all.

    They wait here until commit, which sends them in one call under one batch id: a server that ends meanwhile loses none and applies none
    twice. A read in the transaction (get, assemble) opens it at the server, sees its writes, and joins what it has read.
    """

    def __init__(self, scope: AsyncScope, of: str | None, on_stale: str | None) -> None:
        self.scope, self._of, self._on_stale = scope, of, on_stale
        self.batch = new_batch()
        self.trace: str | None = None
        """Of the open transaction, once something was read in it."""
        self.done = False
        self._writes: list[t.Write] = []
        self._deletes: list[str] = []

    def put(self, id: str, text: str = "", **fields: Any) -> None:
        """Adds a page."""
        self._writes.append(write_of(cast(t.Write, {"id": id, "text": text, **fields})))

    def delete(self, *ids: str) -> None:
        """Adds deletes."""
        self._deletes.extend(ids)

    async def _call(self, name: str, /, **arguments: Any) -> Any:
        """A call within the open transaction."""
        try:
            return await self.scope.call(name, **arguments)
        except NotFound as e:
            if "no open transaction" not in e.message:
                raise
            self.done = True
            raise TxnDone(
                f"the server no longer has the transaction {self.batch}, and nothing of it was written: it ended, or the lease was over",
                code="transaction_lost", hint="assemble again and begin another", batch=self.batch,
            ) from None  # fmt: skip

    async def _open(self) -> str:
        """Opens the transaction at the server, and sends the writes that wait."""
        if self.done:
            raise TxnDone(f"the transaction {self.batch} has ended", hint="begin another", batch=self.batch)
        if self.trace is None:
            begun = await self.scope.call("begin", trace=self._of, batch=self.batch, on_stale=self._on_stale)
            self.trace = str(begun["trace"])
        if self._writes:
            await self._call("put", writes=self._writes, trace=self.trace)
            self._writes = []
        if self._deletes:
            await self._call("delete", ids=self._deletes, trace=self.trace)
            self._deletes = []
        return self.trace

    async def get(self, id: str) -> t.Page:
        """Reads a page, the transaction's own writes first. The commit conflicts if it was changed, or made, meanwhile."""
        return cast(t.Page, await self._call("get", id=id, trace=await self._open()))

    async def assemble(self, query: str, budget: int | None = None, *, messages: Provider | None = None, **settings: Any) -> Assembly:
        """The context for a question, with the drafts of the transaction."""
        result = await self._call("assemble", query=query, budget=budget, messages=messages, txn=await self._open(), **settings)
        return Assembly(cast(t.AssembleResult, result), messages)

    async def commit(self, confidence: float | None = None, by: str | None = None, note: str | None = None) -> t.Written:
        """Commits through the gate. A verdict is the host's: confidence and who judged. Without one the evaluator judges, else the writes are held.

        If the server ended, a transaction that has read raises TxnDone of the code transaction_lost: nothing of it was written.
        """
        if (confidence is None) != (by is None):
            raise Invalid("commit: got half of a verdict, expected confidence and by", hint="by is the judge, who is not the writer; without a verdict give neither")
        verdict = None if confidence is None else given({"confidence": confidence, "by": by, "note": note})
        try:
            if self.trace is not None:
                out = await self._commit_open(await self._open(), verdict)
            else:
                out = await self.scope.call(
                    "commit", trace=self._of, writes=self._writes or None, deletes=self._deletes or None, verdict=verdict, batch=self.batch, on_stale=self._on_stale
                )
        except (Conflict, Held, StaleContext, TxnDone):
            self.done = True
            raise
        self.done = True
        return cast(t.Written, out)

    async def _commit_open(self, trace: str, verdict: Any) -> Any:
        """Commits at the server. If the answer is lost, it asks again: the transaction is open still, or has ended, or its server has."""
        lost = 0
        while True:
            try:
                return await self._call("commit", trace=trace, verdict=verdict)
            except OutcomeUnknown:
                lost += 1
                if lost == 20:
                    raise
            except (Invalid, TxnDone) as e:
                if not lost and "no open transaction" not in e.message:
                    raise
                return await self._outcome(trace)

    async def _outcome(self, trace: str) -> Any:
        """Reads in the audit how the transaction ended."""
        try:
            leaves = (await self.scope.manifest(trace))["leaves"]
        except NotFound:
            leaves = []
        for leaf in leaves:
            if leaf.get("batch") == self.batch and leaf["type"] == "held":
                raise Held(f"the gate held the batch {self.batch}", batch=self.batch, trace=trace, reason=leaf.get("reason", ""))
            if leaf.get("batch") == self.batch and leaf["type"] == "commit":
                return {"status": "committed", "refs": [w["ref"] for w in leaf.get("writes", [])], "batch": self.batch, "trace": leaf["trace"]}
        raise TxnDone(f"the transaction {self.batch} is lost with its server, and nothing of it was written", code="transaction_lost", hint="begin another", batch=self.batch)

    async def rollback(self) -> None:
        """Drops the writes. After commit it does nothing."""
        if self.done:
            return
        self.done = True
        if self.trace is not None:
            try:
                await self.scope.call("rollback", trace=self.trace)
            except (NotFound, OutcomeUnknown):  # a server that ended has rolled it back
                pass

    async def __aenter__(self) -> AsyncTransaction:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        await self.rollback()


class AsyncSession:
    """A conversation: its turns, and a window on them."""

    def __init__(self, scope: AsyncScope, id: str) -> None:
        self.scope, self.id = scope, id

    async def call(self, name: str, /, timeout: float | None = None, **arguments: Any) -> Any:
        return await self.scope.call("session/" + name, timeout, session=self.id, **arguments)

    async def append(self, *turns: t.Turn | Mapping[str, Any], batch: str | None = None) -> list[str]:
        """Appends turns in one transaction, and returns their references. Turns are those of types.Turn."""
        return cast("list[str]", (await self.call("append", turns=[turn_of(x) for x in turns], batch=batch or new_batch()))["refs"])

    async def user(self, text: str, **fields: Any) -> str:
        """Appends what the user said."""
        return (await self.append({"role": "user", "text": text, **fields}))[0]

    async def assistant(self, text: str, *, of: Assembly | str | None = None, **fields: Any) -> str:
        """Appends an answer. of is the context that it was written from."""
        return (await self.append({"role": "assistant", "text": text, **given({"trace": trace_of(of)}), **fields}))[0]

    async def truncate(self, after: int = 0, *, last: str | None = None, batch: str | None = None) -> list[str]:
        """Deletes the turns behind a number, 0: all, in one transaction. Conflict if the newest turn is not `last`."""
        return cast("list[str]", (await self.call("truncate", after=after, last=last, batch=batch or new_batch()))["deleted"])

    async def pop(self) -> t.Page | None:
        """Takes the newest turn: deletes it and returns it. Of several callers each takes another turn."""
        while True:
            newest = (cast(t.History, await self.call("history", last=1)))["turns"]
            if not newest:
                return None
            page = newest[-1]
            try:
                await self.truncate(page.get("seq", 0) - 1, last=page["id"])
            except Conflict:
                continue
            return page

    async def history(self, *, last: int | None = None, start: int | None = None) -> AsyncIterator[t.Page]:
        """The turns in full, in order; the newest ones with last."""
        if last is not None and last <= 0:
            return
        if last is not None and last <= 1000:
            for page in cast(t.History, await self.call("history", last=last))["turns"]:
                yield page
            return
        pages: list[t.Page] = []
        while True:
            part = cast(t.History, await self.call("history", limit=1000, **given({"from": start})))
            if last is None:
                for page in part["turns"]:
                    yield page
            else:
                pages = (pages + part["turns"])[-last:]
            start = part.get("next")
            if not start:
                break
        for page in pages:
            yield page

    async def window(self) -> t.Window:
        """How the window shows each turn, without texts."""
        return cast(t.Window, await self.call("window"))

    async def limit(self, total: int, *, output_reserve: int | None = None, keep_last: int | None = None, reserve_percent: float | None = None) -> t.Window:
        """Sets the size of the window in tokens; 0 removes the limit."""
        return cast(t.Window, await self.call("limit", total=total, output_reserve=output_reserve, keep_last=keep_last, reserve_percent=reserve_percent))

    async def compact(self, *keywords: str, keep_last: int | None = None, dry_run: bool | None = None) -> t.Pass:
        """Makes a pass: decides which turns stay whole, become stubs or leave the window."""
        return cast(t.Pass, await self.call("pass", keywords=list(keywords) or None, keep_last=keep_last, dry_run=dry_run))

    async def undo(self) -> t.Undone:
        """Undoes the newest pass."""
        return cast(t.Undone, await self.call("undo"))

    async def pin(self, id: str, pinned: bool = True) -> None:
        """Pins a turn, so that passes leave it whole, or unpins it."""
        await self.call("pin", id=id, pinned=pinned)

    async def recall(self, id: str) -> t.Page:
        """Reads one turn in full, whatever the window shows of it."""
        return cast(t.Page, await self.call("recall", id=id))


class AsyncDirectives:
    """What the user has decided. Only input of the user changes it."""

    def __init__(self, scope: AsyncScope) -> None:
        self.scope = scope

    async def show(self) -> t.DirectiveState:
        return cast(t.DirectiveState, await self.scope.call("directives/show"))

    async def step(self, input: str, **options: Any) -> t.Decision:
        """Judges an input of the user."""
        return cast(t.Decision, await self.scope.call("directives/step", input=input, **options))

    async def suggest(self, message: str, draft: str) -> t.Suggestion:
        """Validates what a preprocessor read in a message of the user."""
        return cast(t.Suggestion, await self.scope.call("directives/suggest", message=message, draft=draft))


class AsyncReview:
    """Batches that the gate held."""

    def __init__(self, operator: AsyncOperator) -> None:
        self._op = operator

    async def list(self, *, all: bool | None = None, every_scope: bool | None = None) -> AsyncIterator[t.Held]:
        """Held batches, oldest first, without texts."""
        cursor: str | None = None
        while True:
            part = cast(t.HeldList, await self._op.call("review/list", all=all, every_scope=every_scope, cursor=cursor, limit=1000))
            for held in part["batches"]:
                yield held
            cursor = part.get("next")
            if not cursor:
                return

    async def show(self, batch: str) -> t.Held:
        return cast(t.Held, await self._op.call("review/show", batch=batch))

    async def approve(self, batch: str, *, note: str | None = None, human_verified: bool | None = None, stale: bool | None = None) -> t.Written:
        """Commits a held batch. The actor of the operator approves; it must not be the writer."""
        return cast(t.Written, await self._op.call("review/approve", batch=batch, note=note, human_verified=human_verified, stale=stale))

    async def approve_all(self, **select: Any) -> t.ApprovedList:
        """Commits all held batches that the fields select: actor, kind, tag, reason, older_s, replacing, every_scope, dry_run."""
        return cast(t.ApprovedList, await self._op.call("review/approve_all", **select))

    async def reject(self, batch: str, note: str | None = None) -> t.Rejected:
        return cast(t.Rejected, await self._op.call("review/reject", batch=batch, note=note))


class AsyncOperator(_Handle):
    """The operator's access: review, upkeep and erasure. It is for people and their tools, never for a model."""

    @property
    def review(self) -> AsyncReview:
        return AsyncReview(self)

    async def scopes(self, prefix: str | None = None, *, depth: int | None = None) -> AsyncIterator[t.ScopeInfo]:
        """The scopes by name, or by their first parts."""
        cursor: str | None = None
        while True:
            part = cast(t.ScopeList, await self.call("scopes", prefix=prefix, depth=depth, cursor=cursor, limit=1000))
            for scope in part["scopes"]:
                yield scope
            cursor = part.get("next")
            if not cursor:
                return

    async def stats(self, *, space: bool | None = None) -> t.Stats:
        return cast(t.Stats, await self.call("stats", space=space))

    async def health(self, *, assemblies: int | None = None, examples: int | None = None) -> t.HealthReport:
        """Which pages of the scope are of no use, or mislead."""
        return cast(t.HealthReport, await self.call("health", assemblies=assemblies, examples=examples))

    async def export(self, *, whole: bool | None = None, subject: str | None = None, no_secret: bool | None = None, versions: bool | None = None, since: int | None = None) -> AsyncIterator[bytes]:
        """The lines of an export: the scope and those below it, a person, or the whole database. The last line has counts and a digest."""
        async for line in self._transport.stream("export", self._who, given({"whole": whole, "subject": subject, "no_secret": no_secret, "versions": versions, "since": since})):
            yield line

    async def bring(self, *, path: str | None = None, lines: str | None = None, timeout: float | None = 3600, **options: Any) -> t.Imported:
        """Imports an export: a file on the server's machine, or its text."""
        return cast(t.Imported, await self.call("import", timeout, path=path, lines=lines, **options))

    async def backup(self, path: str, *, timeout: float | None = 3600) -> t.Backup:
        """Copies the database to an absolute path of the server's machine."""
        return cast(t.Backup, await self.call("backup", timeout, path=path))

    async def erase(self, *ids: str, reason: str, timeout: float | None = 3600, **options: Any) -> t.Erased:
        """Removes content from every file: pages by id, or subject=, session=, whole=True. dry_run=True reports only."""
        return cast(t.Erased, await self.call("erase", timeout, ids=list(ids) or None, reason=reason, **options))

    async def erasures(self) -> t.EraseList:
        return cast(t.EraseList, await self.call("erase/list"))

    async def receipt(self, trace: str) -> dict[str, Any]:
        """The receipt of a finished erase."""
        return cast("dict[str, Any]", (await self.call("erase/receipt", trace=trace))["receipt"])

    async def set_retention(self, policy: t.Policy, *, whole: bool | None = None, dry_run: bool | None = None) -> t.StoredPolicy:
        """Sets how long the scope keeps things; {} removes the policy."""
        return cast(t.StoredPolicy, await self.call("retention/set", policy=policy, whole=whole, dry_run=dry_run))

    async def retention(self) -> t.Policies:
        return cast(t.Policies, await self.call("retention/show"))

    async def run_retention(self, *, every_scope: bool | None = None, dry_run: bool | None = None, timeout: float | None = 3600) -> t.RetentionReport:
        """Removes what is older than the policies allow."""
        return cast(t.RetentionReport, await self.call("retention/run", timeout, every_scope=every_scope, dry_run=dry_run))

    async def set_quota(self, quota: t.Quota, *, dry_run: bool | None = None) -> t.StoredQuota:
        """Sets how much the scope may hold; {} removes the quota."""
        return cast(t.StoredQuota, await self.call("quota/set", quota=quota, dry_run=dry_run))

    async def quotas(self, *, every_scope: bool | None = None) -> t.QuotaList:
        return cast(t.QuotaList, await self.call("quota/show", every_scope=every_scope))

    async def embed(self, *, every_scope: bool | None = None, dry_run: bool | None = None, timeout: float | None = 3600) -> t.EmbedReport:
        """Makes the vectors that pages lack. The server needs a model."""
        return cast(t.EmbedReport, await self.call("embed", timeout, every_scope=every_scope, dry_run=dry_run))

    async def stop(self) -> None:
        """Ends the server."""
        await self.call("stop")


__all__ = ["AsyncDatabase", "AsyncDirectives", "AsyncOperator", "AsyncReview", "AsyncScope", "AsyncSession", "AsyncTransaction", "aopen", "id_of"]
