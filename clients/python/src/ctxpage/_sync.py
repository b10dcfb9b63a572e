"""The surface for threads. Written by scripts/make_sync.py from _async.py; do not edit."""

from __future__ import annotations

import json
from collections.abc import Iterator, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, cast

from . import types as t
from ._http import headers
from ._ids import new_batch
from ._server import Server
from ._shared import Assembly, Provider, escape, given, id_of, trace_of, turn_of, write_of
from ._transport import Transport
from .errors import Conflict, Held, Invalid, NotFound, OutcomeUnknown, StaleContext, TxnDone


def open(
    path: str, *, actor: str = "python", timeout: float = 60.0, binary: str | None = None, idle: str = "60s", args: Sequence[str] = (), http: bool | None = None
) -> Database:
    """Opens a database: connects to its server, and starts one if there is none. The file is created if it is missing.

    actor names this program in manifests and reviews. timeout is the time limit of a call in seconds. A server that is started here ends
    after `idle` without a call; `args` are further flags of `dbctl serve`, such as ["--model", "FOLDER"]. `http` uses a loopback address with a
    token in place of a unix socket; the default on Windows.
    """
    server = Server(path, binary=binary, idle=idle, args=tuple(args))
    if http is not None:
        server.http = http
    db = Database(Transport(server, timeout), actor)
    db.transport.locate()
    return db


class Database:
    """An open database. All handles of it share its connections. It is safe for concurrent use."""

    def __init__(self, transport: Transport, actor: str) -> None:
        self.transport, self.actor = transport, actor

    @property
    def path(self) -> str:
        return self.transport.server.path

    def scope(self, name: str, *, actor: str | None = None, gated: bool = False) -> Scope:
        """The handle of a scope. gated is for code that acts for a model: its writes pass the commit gate or are held for review."""
        return Scope(self.transport, name, actor or self.actor, "agent" if gated else "host")

    def gated(self, name: str, *, actor: str | None = None) -> Scope:
        """scope(name, gated=True)."""
        return self.scope(name, actor=actor, gated=True)

    def operator(self, scope: str, *, actor: str = "operator") -> Operator:
        """The operator's access, for a scope and those below it. actor is recorded as the one who did it."""
        return Operator(self.transport, scope, actor, "operator")

    def status(self) -> t.Status:
        """Describes the server."""
        return cast(t.Status, self.transport.call("status", b"", None))

    def schema(self) -> dict[str, Any]:
        """The schemas of all calls."""
        return cast("dict[str, Any]", self.transport.call("schema", b"", None))

    def close(self) -> None:
        """Closes the connections. The server goes on, and ends when nobody calls it."""
        self.transport.close()

    def __enter__(self) -> Database:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class _Handle:
    """A caller: scope, actor and role, which no call can change."""

    def __init__(self, transport: Transport, name: str, actor: str, role: str) -> None:
        self._transport, self.name, self.actor, self.role = transport, name, actor, role
        self._who = headers(name, actor, role)

    def call(self, name: str, /, timeout: float | None = None, **arguments: Any) -> Any:
        """Makes a call of PROTOCOL.md. Arguments that are None are left out."""
        return self._transport.call(name, self._who, given(arguments), timeout)


class Scope(_Handle):
    """What an agent works with: it reads its scope and the scopes above, and writes its scope alone."""

    def put(self, id: str, text: str = "", *, batch: str | None = None, **fields: Any) -> str:
        """Writes one page and returns its reference. Fields are those of types.Write. A gated handle raises Held unless an evaluator passes it."""
        return (self.put_all([cast(t.Write, {"id": id, "text": text, **fields})], batch=batch))["refs"][0]

    def put_all(self, writes: Iterable[t.Write], *, batch: str | None = None) -> t.Written:
        """Writes pages, all or none."""
        return cast(t.Written, self.call("put", writes=[write_of(w) for w in writes], batch=batch or new_batch()))

    def delete(self, *ids: str, batch: str | None = None) -> t.Written:
        """Marks pages as deleted; their versions stay."""
        return cast(t.Written, self.call("delete", ids=list(ids), batch=batch or new_batch()))

    def get(self, id: str | None = None, *, ref: str | None = None, serve_stale: bool | None = None) -> t.Page:
        """Reads one page in full. If its source changed, it is fetched again first."""
        return cast(t.Page, self.call("get", id=id, ref=ref, serve_stale=serve_stale))

    def find(self, id: str) -> t.Page | None:
        """get, or None if there is no such page."""
        try:
            return self.get(id)
        except NotFound:
            return None

    def below(self, *names: str) -> Scope:
        """The handle of a scope below this one. Names are escaped: a user called bob/eve is not inside bob."""
        name = "/".join([self.name, *(escape(n) for n in names)])
        return Scope(self._transport, name, self.actor, self.role)

    def list(
        self, prefix: str | None = None, *, filter: t.Filter | None = None, newest: bool | None = None, full: bool | None = None, limit: int | None = None
    ) -> Iterator[t.Page]:
        """The scope's own pages: by id, or the newest first. They have no text unless full is set."""
        cursor: str | None = None
        while True:
            part = cast(t.PageList, self.call("list", prefix=prefix, filter=filter, newest=newest, full=full, cursor=cursor, limit=min(limit or 1000, 1000)))
            for page in part["items"]:
                yield page
            cursor = part.get("next")
            if limit is not None:
                limit -= len(part["items"])
            if not cursor or (limit is not None and limit <= 0):
                return

    def versions(self, id: str) -> Iterator[t.Page]:
        """The versions of a page, newest first, without text."""
        cursor: str | None = None
        while True:
            part = cast(t.PageList, self.call("versions", id=id, cursor=cursor, limit=1000))
            for page in part["items"]:
                yield page
            cursor = part.get("next")
            if not cursor:
                return

    def search(self, query: str, *, limit: int | None = None, filter: t.Filter | None = None, floor: str | None = None) -> t.Found:
        """Pages that match words, best first."""
        return cast(t.Found, self.call("search", query=query, limit=limit, filter=filter, floor=floor))

    def assemble(self, query: str, budget: int | None = None, *, session: str | None = None, messages: Provider | None = None, **settings: Any) -> Assembly:
        """The context for a question within a token budget. messages names the provider for Assembly.messages; settings are those of PROTOCOL.md."""
        result = self.call("assemble", query=query, budget=budget, session=session, messages=messages, **settings)
        return Assembly(cast(t.AssembleResult, result), messages)

    def transaction(self, of: Assembly | str | None = None, *, on_stale: str | None = None) -> Transaction:
        """A transaction, of the context that it is written from. `with` rolls it back unless commit was called."""
        return Transaction(self, trace_of(of), on_stale)

    def session(self, id: str) -> Session:
        """A conversation of the scope. It needs no creating."""
        return Session(self, id)

    def sessions(self) -> Iterator[str]:
        """The conversations of the scope, by name."""
        after: str | None = None
        while True:
            part = cast(t.SessionList, self.call("session/list", after=after, limit=1000))
            for name in part["sessions"]:
                yield name
            after = part.get("next")
            if not after:
                return

    @property
    def directives(self) -> Directives:
        """What the user has decided."""
        return Directives(self)

    def why(self, of: Assembly | str, id: str | None = None, *, ref: str | None = None) -> t.Why:
        """Why a page was in a past context, or was not; without a page, the whole context."""
        return cast(t.Why, self.call("why", trace=trace_of(of), id=id, ref=ref))

    def replay(self, of: Assembly | str) -> t.Replay:
        """Renders a past context again, byte for byte."""
        return cast(t.Replay, self.call("replay", trace=trace_of(of)))

    def diff(self, a: Assembly | str, b: Assembly | str) -> t.Difference:
        """How two past contexts differ."""
        return cast(t.Difference, self.call("diff", a=trace_of(a), b=trace_of(b)))

    def manifest(self, of: Assembly | str) -> t.Manifest:
        """The audit leaves of a trace."""
        return cast(t.Manifest, self.call("manifest", trace=trace_of(of)))

    def refresh(self, *, dry_run: bool | None = None, delete: bool | None = None, files_only: bool | None = None) -> t.RefreshReport:
        """Probes the sources of the scope and fetches what changed."""
        return cast(t.RefreshReport, self.call("refresh", dry_run=dry_run, delete=delete, files_only=files_only))

    def changes(self, start: int | None = None, *, limit: int | None = None, types: Sequence[str] | None = None, idle_s: int | None = None) -> Iterator[t.Change]:
        """The audit leaves of the scope as they are written. To continue, give `next` of the last one as start."""
        arguments = given({"from": start, "limit": limit, "types": types, "idle_s": idle_s})
        for line in self._transport.stream("changes", self._who, arguments):
            change = cast(t.Change, json.loads(line))
            if "leaf" in change:  # else it is a sign of life
                yield change


class Transaction:
    """Writes that are committed together, or not at all.

    They wait here until commit, which sends them in one call under one batch id: a server that ends meanwhile loses none and applies none
    twice. A read in the transaction (get, assemble) opens it at the server, sees its writes, and joins what it has read.
    """

    def __init__(self, scope: Scope, of: str | None, on_stale: str | None) -> None:
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

    def _call(self, name: str, /, **arguments: Any) -> Any:
        """A call within the open transaction."""
        try:
            return self.scope.call(name, **arguments)
        except NotFound as e:
            if "no open transaction" not in e.message:
                raise
            self.done = True
            raise TxnDone(
                f"the server no longer has the transaction {self.batch}, and nothing of it was written: it ended, or the lease was over",
                code="transaction_lost", hint="assemble again and begin another", batch=self.batch,
            ) from None  # fmt: skip

    def _open(self) -> str:
        """Opens the transaction at the server, and sends the writes that wait."""
        if self.done:
            raise TxnDone(f"the transaction {self.batch} has ended", hint="begin another", batch=self.batch)
        if self.trace is None:
            begun = self.scope.call("begin", trace=self._of, batch=self.batch, on_stale=self._on_stale)
            self.trace = str(begun["trace"])
        if self._writes:
            self._call("put", writes=self._writes, trace=self.trace)
            self._writes = []
        if self._deletes:
            self._call("delete", ids=self._deletes, trace=self.trace)
            self._deletes = []
        return self.trace

    def get(self, id: str) -> t.Page:
        """Reads a page, the transaction's own writes first. The commit conflicts if it was changed, or made, meanwhile."""
        return cast(t.Page, self._call("get", id=id, trace=self._open()))

    def assemble(self, query: str, budget: int | None = None, *, messages: Provider | None = None, **settings: Any) -> Assembly:
        """The context for a question, with the drafts of the transaction."""
        result = self._call("assemble", query=query, budget=budget, messages=messages, txn=self._open(), **settings)
        return Assembly(cast(t.AssembleResult, result), messages)

    def commit(self, confidence: float | None = None, by: str | None = None, note: str | None = None) -> t.Written:
        """Commits through the gate. A verdict is the host's: confidence and who judged. Without one the evaluator judges, else the writes are held.

        If the server ended, a transaction that has read raises TxnDone of the code transaction_lost: nothing of it was written.
        """
        if (confidence is None) != (by is None):
            raise Invalid("commit: got half of a verdict, expected confidence and by", hint="by is the judge, who is not the writer; without a verdict give neither")
        verdict = None if confidence is None else given({"confidence": confidence, "by": by, "note": note})
        try:
            if self.trace is not None:
                out = self._commit_open(self._open(), verdict)
            else:
                out = self.scope.call(
                    "commit", trace=self._of, writes=self._writes or None, deletes=self._deletes or None, verdict=verdict, batch=self.batch, on_stale=self._on_stale
                )
        except (Conflict, Held, StaleContext, TxnDone):
            self.done = True
            raise
        self.done = True
        return cast(t.Written, out)

    def _commit_open(self, trace: str, verdict: Any) -> Any:
        """Commits at the server. If the answer is lost, it asks again: the transaction is open still, or has ended, or its server has."""
        lost = 0
        while True:
            try:
                return self._call("commit", trace=trace, verdict=verdict)
            except OutcomeUnknown:
                lost += 1
                if lost == 20:
                    raise
            except (Invalid, TxnDone) as e:
                if not lost and "no open transaction" not in e.message:
                    raise
                return self._outcome(trace)

    def _outcome(self, trace: str) -> Any:
        """Reads in the audit how the transaction ended."""
        try:
            leaves = (self.scope.manifest(trace))["leaves"]
        except NotFound:
            leaves = []
        for leaf in leaves:
            if leaf.get("batch") == self.batch and leaf["type"] == "held":
                raise Held(f"the gate held the batch {self.batch}", batch=self.batch, trace=trace, reason=leaf.get("reason", ""))
            if leaf.get("batch") == self.batch and leaf["type"] == "commit":
                return {"status": "committed", "refs": [w["ref"] for w in leaf.get("writes", [])], "batch": self.batch, "trace": leaf["trace"]}
        raise TxnDone(f"the transaction {self.batch} is lost with its server, and nothing of it was written", code="transaction_lost", hint="begin another", batch=self.batch)

    def rollback(self) -> None:
        """Drops the writes. After commit it does nothing."""
        if self.done:
            return
        self.done = True
        if self.trace is not None:
            try:
                self.scope.call("rollback", trace=self.trace)
            except (NotFound, OutcomeUnknown):  # a server that ended has rolled it back
                pass

    def __enter__(self) -> Transaction:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.rollback()


class Session:
    """A conversation: its turns, and a window on them."""

    def __init__(self, scope: Scope, id: str) -> None:
        self.scope, self.id = scope, id

    def call(self, name: str, /, timeout: float | None = None, **arguments: Any) -> Any:
        return self.scope.call("session/" + name, timeout, session=self.id, **arguments)

    def append(self, *turns: t.Turn | Mapping[str, Any], batch: str | None = None) -> list[str]:
        """Appends turns in one transaction, and returns their references. Turns are those of types.Turn."""
        return cast("list[str]", (self.call("append", turns=[turn_of(x) for x in turns], batch=batch or new_batch()))["refs"])

    def user(self, text: str, **fields: Any) -> str:
        """Appends what the user said."""
        return (self.append({"role": "user", "text": text, **fields}))[0]

    def assistant(self, text: str, *, of: Assembly | str | None = None, **fields: Any) -> str:
        """Appends an answer. of is the context that it was written from."""
        return (self.append({"role": "assistant", "text": text, **given({"trace": trace_of(of)}), **fields}))[0]

    def truncate(self, after: int = 0, *, last: str | None = None, batch: str | None = None) -> list[str]:
        """Deletes the turns behind a number, 0: all, in one transaction. Conflict if the newest turn is not `last`."""
        return cast("list[str]", (self.call("truncate", after=after, last=last, batch=batch or new_batch()))["deleted"])

    def pop(self) -> t.Page | None:
        """Takes the newest turn: deletes it and returns it. Of several callers each takes another turn."""
        while True:
            newest = (cast(t.History, self.call("history", last=1)))["turns"]
            if not newest:
                return None
            page = newest[-1]
            try:
                self.truncate(page.get("seq", 0) - 1, last=page["id"])
            except Conflict:
                continue
            return page

    def history(self, *, last: int | None = None, start: int | None = None) -> Iterator[t.Page]:
        """The turns in full, in order; the newest ones with last."""
        if last is not None and last <= 0:
            return
        if last is not None and last <= 1000:
            for page in cast(t.History, self.call("history", last=last))["turns"]:
                yield page
            return
        pages: list[t.Page] = []
        while True:
            part = cast(t.History, self.call("history", limit=1000, **given({"from": start})))
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

    def window(self) -> t.Window:
        """How the window shows each turn, without texts."""
        return cast(t.Window, self.call("window"))

    def limit(self, total: int, *, output_reserve: int | None = None, keep_last: int | None = None, reserve_percent: float | None = None) -> t.Window:
        """Sets the size of the window in tokens; 0 removes the limit."""
        return cast(t.Window, self.call("limit", total=total, output_reserve=output_reserve, keep_last=keep_last, reserve_percent=reserve_percent))

    def compact(self, *keywords: str, keep_last: int | None = None, dry_run: bool | None = None) -> t.Pass:
        """Makes a pass: decides which turns stay whole, become stubs or leave the window."""
        return cast(t.Pass, self.call("pass", keywords=list(keywords) or None, keep_last=keep_last, dry_run=dry_run))

    def undo(self) -> t.Undone:
        """Undoes the newest pass."""
        return cast(t.Undone, self.call("undo"))

    def pin(self, id: str, pinned: bool = True) -> None:
        """Pins a turn, so that passes leave it whole, or unpins it."""
        self.call("pin", id=id, pinned=pinned)

    def recall(self, id: str) -> t.Page:
        """Reads one turn in full, whatever the window shows of it."""
        return cast(t.Page, self.call("recall", id=id))


class Directives:
    """What the user has decided. Only input of the user changes it."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    def show(self) -> t.DirectiveState:
        return cast(t.DirectiveState, self.scope.call("directives/show"))

    def step(self, input: str, **options: Any) -> t.Decision:
        """Judges an input of the user."""
        return cast(t.Decision, self.scope.call("directives/step", input=input, **options))

    def suggest(self, message: str, draft: str) -> t.Suggestion:
        """Validates what a preprocessor read in a message of the user."""
        return cast(t.Suggestion, self.scope.call("directives/suggest", message=message, draft=draft))


class Review:
    """Batches that the gate held."""

    def __init__(self, operator: Operator) -> None:
        self._op = operator

    def list(self, *, all: bool | None = None, every_scope: bool | None = None) -> Iterator[t.Held]:
        """Held batches, oldest first, without texts."""
        cursor: str | None = None
        while True:
            part = cast(t.HeldList, self._op.call("review/list", all=all, every_scope=every_scope, cursor=cursor, limit=1000))
            for held in part["batches"]:
                yield held
            cursor = part.get("next")
            if not cursor:
                return

    def show(self, batch: str) -> t.Held:
        return cast(t.Held, self._op.call("review/show", batch=batch))

    def approve(self, batch: str, *, note: str | None = None, human_verified: bool | None = None, stale: bool | None = None) -> t.Written:
        """Commits a held batch. The actor of the operator approves; it must not be the writer."""
        return cast(t.Written, self._op.call("review/approve", batch=batch, note=note, human_verified=human_verified, stale=stale))

    def approve_all(self, **select: Any) -> t.ApprovedList:
        """Commits all held batches that the fields select: actor, kind, tag, reason, older_s, replacing, every_scope, dry_run."""
        return cast(t.ApprovedList, self._op.call("review/approve_all", **select))

    def reject(self, batch: str, note: str | None = None) -> t.Rejected:
        return cast(t.Rejected, self._op.call("review/reject", batch=batch, note=note))


class Operator(_Handle):
    """The operator's access: review, upkeep and erasure. It is for people and their tools, never for a model."""

    @property
    def review(self) -> Review:
        return Review(self)

    def scopes(self, prefix: str | None = None, *, depth: int | None = None) -> Iterator[t.ScopeInfo]:
        """The scopes by name, or by their first parts."""
        cursor: str | None = None
        while True:
            part = cast(t.ScopeList, self.call("scopes", prefix=prefix, depth=depth, cursor=cursor, limit=1000))
            for scope in part["scopes"]:
                yield scope
            cursor = part.get("next")
            if not cursor:
                return

    def stats(self, *, space: bool | None = None) -> t.Stats:
        return cast(t.Stats, self.call("stats", space=space))

    def health(self, *, assemblies: int | None = None, examples: int | None = None) -> t.HealthReport:
        """Which pages of the scope are of no use, or mislead."""
        return cast(t.HealthReport, self.call("health", assemblies=assemblies, examples=examples))

    def export(self, *, whole: bool | None = None, subject: str | None = None, no_secret: bool | None = None, versions: bool | None = None, since: int | None = None) -> Iterator[bytes]:
        """The lines of an export: the scope and those below it, a person, or the whole database. The last line has counts and a digest."""
        for line in self._transport.stream("export", self._who, given({"whole": whole, "subject": subject, "no_secret": no_secret, "versions": versions, "since": since})):
            yield line

    def bring(self, *, path: str | None = None, lines: str | None = None, timeout: float | None = 3600, **options: Any) -> t.Imported:
        """Imports an export: a file on the server's machine, or its text."""
        return cast(t.Imported, self.call("import", timeout, path=path, lines=lines, **options))

    def backup(self, path: str, *, timeout: float | None = 3600) -> t.Backup:
        """Copies the database to an absolute path of the server's machine."""
        return cast(t.Backup, self.call("backup", timeout, path=path))

    def erase(self, *ids: str, reason: str, timeout: float | None = 3600, **options: Any) -> t.Erased:
        """Removes content from every file: pages by id, or subject=, session=, whole=True. dry_run=True reports only."""
        return cast(t.Erased, self.call("erase", timeout, ids=list(ids) or None, reason=reason, **options))

    def erasures(self) -> t.EraseList:
        return cast(t.EraseList, self.call("erase/list"))

    def receipt(self, trace: str) -> dict[str, Any]:
        """The receipt of a finished erase."""
        return cast("dict[str, Any]", (self.call("erase/receipt", trace=trace))["receipt"])

    def set_retention(self, policy: t.Policy, *, whole: bool | None = None, dry_run: bool | None = None) -> t.StoredPolicy:
        """Sets how long the scope keeps things; {} removes the policy."""
        return cast(t.StoredPolicy, self.call("retention/set", policy=policy, whole=whole, dry_run=dry_run))

    def retention(self) -> t.Policies:
        return cast(t.Policies, self.call("retention/show"))

    def run_retention(self, *, every_scope: bool | None = None, dry_run: bool | None = None, timeout: float | None = 3600) -> t.RetentionReport:
        """Removes what is older than the policies allow."""
        return cast(t.RetentionReport, self.call("retention/run", timeout, every_scope=every_scope, dry_run=dry_run))

    def set_quota(self, quota: t.Quota, *, dry_run: bool | None = None) -> t.StoredQuota:
        """Sets how much the scope may hold; {} removes the quota."""
        return cast(t.StoredQuota, self.call("quota/set", quota=quota, dry_run=dry_run))

    def quotas(self, *, every_scope: bool | None = None) -> t.QuotaList:
        return cast(t.QuotaList, self.call("quota/show", every_scope=every_scope))

    def embed(self, *, every_scope: bool | None = None, dry_run: bool | None = None, timeout: float | None = 3600) -> t.EmbedReport:
        """Makes the vectors that pages lack. The server needs a model."""
        return cast(t.EmbedReport, self.call("embed", timeout, every_scope=every_scope, dry_run=dry_run))

    def stop(self) -> None:
        """Ends the server."""
        self.call("stop")


__all__ = ["Database", "Directives", "Operator", "Review", "Scope", "Session", "Transaction", "open", "id_of"]
