"""The objects that calls take and return. Written by scripts/make_types.py from the schemas of the server; do not edit.

sha256 of the schema: 2556569c6594e8e80d2802e6e46e4c985b5b12f7d3ac90c765d19db9cd2a1c2a
"""

from __future__ import annotations

from typing import Any, Literal, TypedDict

VERSION = 1

Code = Literal[
    "body",
    "budget",
    "call",
    "cancelled",
    "closing",
    "conflict",
    "corrupt",
    "deadline",
    "dirty",
    "erased",
    "expired",
    "file_root",
    "foreign",
    "full",
    "gated",
    "gone",
    "headroom",
    "held",
    "host",
    "internal",
    "invalid",
    "key",
    "locked",
    "method",
    "newer_format",
    "no_database",
    "no_space",
    "not_answering",
    "not_database",
    "not_found",
    "old_format",
    "origin",
    "outcome_unknown",
    "provenance",
    "quota",
    "read_only",
    "replay_differs",
    "reviewed",
    "role",
    "scope",
    "self_certified",
    "skew",
    "stale_context",
    "stop",
    "too_large",
    "txn_done",
    "txn_expired",
    "txn_failed",
    "unauthorized",
    "undo",
    "vanished",
    "wrong_key",
]


class Hello(TypedDict):
    key: str
    """send it as the header Ctxpage-Key with each call"""
    scope: str
    actor: str
    role: str
    version: int
    """of the calls"""
    lease_s: int
    """seconds without a call after which the key ends"""


class _Status(TypedDict):
    version: int
    """of the calls"""
    database: str
    """its id"""
    format: int
    """of the file"""
    pid: int
    program: str
    since: str
    now: str
    role: str
    """the highest that this caller can have"""


class Status(_Status, total=False):
    path: str
    lsn: int
    """this and the other counts are for operators of all scopes"""
    leaves: int
    pages: int
    held: int
    """batches that wait for review"""
    within: str
    """only this scope and those below it are served"""
    keys: int
    transactions: int
    """that are open"""
    calls: int
    """under way, this one included"""


class Filter(TypedDict, total=False):
    id_prefix: str
    """how ids begin"""
    tags_any: list[str]
    """at least one of these tags"""
    tags_all: list[str]
    """all of these tags"""
    subject: str
    """whom it is about, exactly"""
    meta: dict[str, Any]
    """metadata by key: a value, or an object of operators $eq $ne $gt $gte $lt $lte $exists"""
    kinds: list[str]
    """only these kinds: system, fact, chunk, message, tool, scratch, summary"""
    since: str
    """current at or after this time, RFC 3339"""
    until: str
    """current before this time, RFC 3339"""
    written_since: str
    """written at or after this time, RFC 3339"""
    written_until: str
    """written before this time, RFC 3339"""


class _Block(TypedDict):
    ref: str
    form: str
    """full, range, summary or stub; get returns the rest"""
    kind: str
    provenance: str
    tokens: int
    score: float
    text: str


class Block(_Block, total=False):
    role: str
    stale: bool
    meta: dict[str, str]


class _AssembleResult(TypedDict):
    trace: str
    """cite it in begin, commit, why and replay"""
    lsn: int
    text: str
    """the context, ready to be read"""
    tier: int
    """of the red and yellow pages: 1 all are in, whole; 2 some are shortened; 3 some are left out; 4 what is protected does not fit"""
    tokens: int
    limit: int
    counter: str
    """what counted"""
    covered: float
    """share of the question's words that the pages have"""
    blocks: list[Block]
    """the pages of the context, in order: the text calls the first one 1"""
    left_out: dict[str, int]
    """pages that were considered and left out, counted by reason"""


class AssembleResult(_AssembleResult, total=False):
    messages: Any
    """the fragment of the provider's request"""
    review: bool
    """not even the protected pages fitted"""
    match: str
    """none: nothing matches the question, say so; weak: less than three fifths of its words, or by meaning alone; good"""
    degraded: str


class Backup(TypedDict):
    path: str
    bytes: int
    head: str
    """of the audit: keep it elsewhere"""


class Begun(TypedDict):
    trace: str
    """names the transaction in the calls that follow"""
    batch: str
    lease_s: int
    """seconds without a call after which it is rolled back"""


class _ServedPage(TypedDict):
    ref: str
    form: str
    tokens: int


class ServedPage(_ServedPage, total=False):
    score: float
    reason: str


class _ChangedPage(TypedDict):
    ref: str
    version: int


class ChangedPage(_ChangedPage, total=False):
    deleted: bool
    touch: bool
    """it repeated what was there"""


class _Leaf(TypedDict):
    index: int
    type: str
    at: str
    trace: str
    lsn: int


class Leaf(_Leaf, total=False):
    parent: str
    """the trace it belongs to"""
    scope: str
    actor: str
    session: str
    question: str
    """what was asked, unless it was erased or not kept; in manifest alone"""
    budget: int
    tokens: int
    tier: int
    preset: str
    overflow: str
    counter: str
    """what counted the tokens"""
    pages: list[ServedPage]
    """what a read served, in order"""
    left_out: dict[str, int]
    batch: str
    status: str
    reason: str
    confidence: float
    by: str
    note: str
    writes: list[ChangedPage]
    action: str


class _Change(TypedDict):
    next: int
    """from, to go on after this line"""


class Change(_Change, total=False):
    leaf: Leaf
    """absent in a sign of life, which comes every 15 seconds"""


class _Part(TypedDict):
    type: str
    """text, or a type of yours that is carried as it is"""


class Part(_Part, total=False):
    text: str
    url: str
    detail: str


class _Write(TypedDict):
    id: str
    """key in the scope; an id that exists gets a new version, with the fields of this write alone"""


class Write(_Write, total=False):
    text: str
    """the content; empty with source or parts"""
    parts: list[Part]
    kind: str
    """system, fact (default), chunk, message, tool, scratch or summary"""
    provenance: str
    """scratch, tool, validated or chunk; default: that of the kind"""
    role: str
    name: str
    source: str
    """where the text comes from: file:PATH or page:REF"""
    expires_at: str
    ttl_s: int
    """seconds until it expires, instead of expires_at"""
    current_as_of: str
    """when the content was true; default: now"""
    group: str
    seq: int
    subject: str
    """whom it is about"""
    derived_from: list[str]
    """references of what it was made from"""
    supersedes: list[str]
    """ids of the scope that it replaces"""
    pinned: bool
    tags: list[str]
    meta: dict[str, str]


class _Verdict(TypedDict):
    confidence: float
    """0 to 1"""
    by: str
    """the judge of the answer; not its writer"""


class Verdict(_Verdict, total=False):
    note: str


class _Written(TypedDict):
    status: str
    """committed; open: it waits for commit"""
    refs: list[str]
    """what was written"""


class Written(_Written, total=False):
    batch: str
    trace: str
    """names the end of the transaction in the manifest"""
    lsn: int


class DiffFields(TypedDict):
    name: str
    a: str
    b: str


class DiffChanged(TypedDict):
    ref: str
    what: list[str]


class Difference(TypedDict):
    a: str
    b: str
    same: bool
    fields: list[DiffFields]
    only_a: list[str]
    """pages of a alone"""
    only_b: list[str]
    changed: list[DiffChanged]


class DirectivesShowPremises(TypedDict):
    scope: str
    premise: str


class DirectivesShowPolicies(TypedDict):
    scope: str
    item: str
    polarity: str


class DirectiveState(TypedDict):
    version: int
    """of the scope's own state; 0 before the first change"""
    premises: list[DirectivesShowPremises]
    """outermost scope first"""
    policies: list[DirectivesShowPolicies]
    text: str
    """as a context shows it"""
    question: bool
    """a question to the user is open: the next input answers it"""


class _Decision(TypedDict):
    kind: str
    """passthrough: call the model; update: it was kept; clarify: show prompt to the user and do not call the model"""
    changed: bool


class Decision(_Decision, total=False):
    prompt: str
    code: str
    repair: list[str]
    scope: str
    """the ancestor that set the item"""
    hint: str
    dry_run: bool


class _Suggestion(TypedDict):
    grounded: bool
    """the message itself says it, word for word"""


class Suggestion(_Suggestion, total=False):
    directive: str
    would: Decision
    """what stepping it would decide"""


class EmbedScopes(TypedDict):
    scope: str
    pages: int
    made: int


class _EmbedFailed(TypedDict):
    error: str


class EmbedFailed(_EmbedFailed, total=False):
    id: str
    dir: str


class _EmbedReport(TypedDict):
    model: str
    scopes: list[EmbedScopes]
    """those that had pages without a vector"""
    made: int
    left: int
    failed: list[EmbedFailed]


class EmbedReport(_EmbedReport, total=False):
    dry_run: bool


class EraseReportErased(TypedDict):
    ref: str
    kind: str
    versions: int
    why: str


EraseReportDerived = TypedDict("EraseReportDerived", {"ref": str, "from": list[str], "left": list[str], "stays": bool})


class EraseReportHeld(TypedDict):
    id: str
    scope: str
    actor: str
    at: str
    why: str


class _EraseReportContexts(TypedDict):
    trace: str
    type: str
    scope: str
    actor: str
    at: str
    pages: int


class EraseReportContexts(_EraseReportContexts, total=False):
    session: str


class EraseReportAnswers(TypedDict):
    trace: str
    context: str
    status: str
    refs: list[str]


class EraseReportFiles(TypedDict):
    ref: str
    path: str
    dir: str


class EraseReportBackups(TypedDict):
    name: str
    at: str
    lsn: int


class _EraseReportDone(TypedDict):
    trace: str
    at: str
    by: str
    reason: str
    artefacts: int
    versions: int
    pages: int
    bytes: int
    held: int
    questions: int
    state: int
    leaf: int
    lsn: int


class EraseReportDone(_EraseReportDone, total=False):
    bodies: int
    asked: list[str]
    cascade: str
    backups: list[EraseReportBackups]
    numbers: list[list[int]]
    batches: list[str]
    file_before: int
    file_after: int


class _EraseReport(TypedDict):
    erased: list[EraseReportErased]
    derived: list[EraseReportDerived]
    held: list[EraseReportHeld]
    contexts: list[EraseReportContexts]
    answers: list[EraseReportAnswers]
    sessions: list[str]
    scopes: list[str]
    questions: int
    rows: int
    files: list[EraseReportFiles]
    backups: list[EraseReportBackups]


class EraseReport(_EraseReport, total=False):
    dry_run: bool
    bodies: int
    named_by: list[str]
    missing: list[str]
    done: EraseReportDone


class _Erased(TypedDict):
    report: EraseReport


class Erased(_Erased, total=False):
    receipt: Any
    """proves the erase to others: keep it whole"""


class EraseList(TypedDict):
    erases: list[EraseReportDone]


class EraseReceipt(TypedDict):
    receipt: Any


class _ToolCall(TypedDict):
    id: str
    name: str


class ToolCall(_ToolCall, total=False):
    type: str
    arguments: str


class Piece(TypedDict):
    ref: str
    num: int
    tokens: int
    digest: str


class _Page(TypedDict):
    ref: str
    scope: str
    id: str
    version: int
    lsn: int
    kind: str
    provenance: str
    """an order of trust: scratch, tool, validated, chunk, human-verified"""
    tokens: int


class Page(_Page, total=False):
    text: str
    parts: list[Part]
    role: str
    name: str
    tool_calls: list[ToolCall]
    tool_call_id: str
    source: str
    pages: list[Piece]
    put_at: str
    """absent in a held batch"""
    current_as_of: str
    expires_at: str
    actor: str
    trace: str
    """of the read that it was written from, for why and replay"""
    group: str
    seq: int
    subject: str
    derived_from: list[str]
    supersedes: list[str]
    superseded_by: str
    pinned: bool
    tags: list[str]
    meta: dict[str, str]
    deleted: bool
    gone: bool
    gone_by: str
    """trace of the gc or the erase that took its text"""
    stale: bool
    elsewhere: str
    """the host that has the file of its source: it could not be checked here"""


_HealthFindingsExamples = TypedDict("_HealthFindingsExamples", {"id": str})
_HealthFindingsExamplesMay = TypedDict("_HealthFindingsExamplesMay", {"with": str}, total=False)


class HealthFindingsExamples(_HealthFindingsExamples, _HealthFindingsExamplesMay):
    pass


class HealthFindings(TypedDict):
    what: str
    count: int
    meaning: str
    mend: str
    examples: list[HealthFindingsExamples]


class HealthReport(TypedDict):
    scope: str
    lsn: int
    artefacts: int
    pages: int
    assemblies: int
    findings: list[HealthFindings]


class ImportVersions(TypedDict):
    new: int
    same: int
    other: int


class _Imported(TypedDict):
    database: str
    lsn: int
    versions: ImportVersions
    state: ImportVersions
    held: ImportVersions
    erased: int
    erasures: list[str]
    others: list[str]
    withheld: list[str]


class Imported(_Imported, total=False):
    dry_run: bool


class _PageList(TypedDict):
    items: list[Page]


class PageList(_PageList, total=False):
    next: str
    """give it as cursor for what follows"""


class Manifest(TypedDict):
    leaves: list[Leaf]


class Quota(TypedDict, total=False):
    bytes: int
    pages: int
    held: int
    bodies: int
    closed: str


class StoredQuota(TypedDict):
    scope: str
    quota: Quota
    used: Quota


class QuotaList(TypedDict):
    quotas: list[StoredQuota]


class _RefreshReport(TypedDict):
    sources: int
    """pages whose source was probed"""
    unchanged: int
    changed: list[str]
    new: list[str]
    vanished: list[str]
    not_taken: list[str]
    deleted: list[str]
    failed: list[EmbedFailed]


class RefreshReport(_RefreshReport, total=False):
    dry_run: bool


class _Replay(TypedDict):
    trace: str
    text: str
    same: bool
    """the bytes are those that were recorded"""


class Replay(_Replay, total=False):
    missing: list[str]
    """pages that gc dropped"""


RetentionRunItems = TypedDict("RetentionRunItems", {"scope": str, "what": str, "from": str, "age": str, "count": int, "first": list[str]})


class _RetentionRunGcDropped(TypedDict):
    versions: int
    pages: int
    bytes: int


class RetentionRunGcDropped(_RetentionRunGcDropped, total=False):
    reason: str
    nearest: list[str]


class _RetentionRunGc(TypedDict):
    dropped: RetentionRunGcDropped
    reasons: list[RetentionRunGcDropped]
    kept: list[RetentionRunGcDropped]
    refs: list[str]
    records: int
    names: int
    drafts: int
    reviews: int
    turns: int
    journal: int
    scopes: int


class RetentionRunGc(_RetentionRunGc, total=False):
    dry_run: bool
    trace: str
    vectors: int


class _RetentionReport(TypedDict):
    trace: str
    items: list[RetentionRunItems]


class RetentionReport(_RetentionReport, total=False):
    dry_run: bool
    changed: int
    gc: RetentionRunGc


class Policy(TypedDict, total=False):
    kinds: dict[str, str]
    sessions: str
    held: str
    decided: str
    directives: str
    versions: str
    prune: str
    keep_versions: int


class StoredPolicy(TypedDict):
    scope: str
    """empty: the whole database"""
    policy: Policy


RetentionShowEffectiveKinds = TypedDict("RetentionShowEffectiveKinds", {"age": str, "from": str})


class RetentionShowEffective(TypedDict):
    scope: str
    kinds: dict[str, RetentionShowEffectiveKinds]
    sessions: RetentionShowEffectiveKinds
    held: RetentionShowEffectiveKinds
    decided: RetentionShowEffectiveKinds
    directives: RetentionShowEffectiveKinds
    versions: RetentionShowEffectiveKinds
    prune: RetentionShowEffectiveKinds
    keep_versions: int


class Policies(TypedDict):
    effective: RetentionShowEffective
    """what holds in the scope, and which policy says it"""
    policies: list[StoredPolicy]
    """the policies that apply to the scope, the whole database first"""


class _Approved(TypedDict):
    batch: str
    scope: str
    actor: str
    reason: str
    at: str
    ids: list[str]
    replaces: int
    """pages that an approval takes out of use"""
    status: str
    """applied, held; of a dry run: would be applied"""
    refs: list[str]


class Approved(_Approved, total=False):
    error: str
    """why it is still held"""


class ApprovedList(TypedDict):
    batches: list[Approved]
    approved: int
    left: int
    dry_run: bool


class _Held(TypedDict):
    batch: str
    scope: str
    actor: str
    reason: str
    confidence: float
    at: str
    writes: list[Page]


class Held(_Held, total=False):
    trace: str
    by: str
    """who gave the verdict"""
    note: str
    decided: str
    """approved or rejected"""
    decided_by: str
    """name of the reviewer"""
    deletes: list[str]
    replaces: list[str]
    """current versions that an approval would overwrite"""
    drops: list[str]
    """of them: what the new version would no longer have, such as expiry, tags or pin"""
    stale: list[str]
    """pages it was written from that had changed when it was held"""
    stale_now: list[str]
    conflicts: list[str]
    look_alikes: list[str]
    """names above that look the same and are not"""


class _HeldList(TypedDict):
    batches: list[Held]


class HeldList(_HeldList, total=False):
    next: str


class Rejected(TypedDict):
    batch: str
    status: str


class Rollback(TypedDict):
    trace: str


class ScopeInfo(TypedDict):
    name: str
    artefacts: int
    """live ones"""


class _ScopeList(TypedDict):
    scopes: list[ScopeInfo]


class ScopeList(_ScopeList, total=False):
    next: str
    """give it as cursor for what follows"""


class _Hit(TypedDict):
    ref: str
    text: str
    score: float
    tokens: int


class Hit(_Hit, total=False):
    stale: bool
    more: list[str]
    """further pages of the artefact that match"""


class _Found(TypedDict):
    trace: str
    hits: list[Hit]
    """best first"""
    left_out: dict[str, int]
    """pages that match and are not served, counted by reason"""


class Found(_Found, total=False):
    below: str
    """how many matches are below the provenance floor, and how to see them"""
    degraded: str
    """why words alone decided, or meaning did not see all pages"""


class _Turn(TypedDict):
    role: str
    """user, assistant or tool"""


class Turn(_Turn, total=False):
    id: str
    """appending the same turn again under its id changes nothing; default: a new id"""
    name: str
    text: str
    parts: list[Part]
    """instead of text"""
    tool_calls: list[ToolCall]
    tool_call_id: str
    """of a tool turn: the call that it answers"""
    at: str
    """default: now"""
    expires_at: str
    subject: str
    """whom it is about, for exports and erases"""
    priority: str
    """how long the watcher keeps it whole: low, medium, high or critical; default: high for the user, medium for the assistant, low for tools"""
    relevance: float
    """how much it matters to the task, 0 to 1; of turns of one priority the least relevant are compacted first"""
    tags: list[str]
    meta: dict[str, str]
    trace: str
    """of an answer: the assembly that it was written from"""


class _Appended(TypedDict):
    refs: list[str]


class Appended(_Appended, total=False):
    dry_run: bool
    compacted: int
    """of a dry run: turns that would make room"""
    freed: int
    """of a dry run: tokens they would free"""


class _History(TypedDict):
    turns: list[Page]


class History(_History, total=False):
    next: int
    """from of the turns that follow, if the limit was reached"""


class _WindowTurn(TypedDict):
    id: str
    seq: int
    kind: str
    level: str
    """how the window shows it"""
    tokens: int
    stored: int


class WindowTurn(_WindowTurn, total=False):
    role: str
    pinned: bool
    verdict: str
    why: str
    trace: str
    """of the assembly that it was written from, for why and replay"""


_Window = TypedDict("_Window", {"session": str, "lsn": int, "pass": int, "in_force": int, "tokens": int, "stored": int, "turns": list[WindowTurn]})
_WindowMay = TypedDict("_WindowMay", {"total": int, "usable": int}, total=False)


class Window(_Window, _WindowMay):
    pass


class _SessionList(TypedDict):
    sessions: list[str]


class SessionList(_SessionList, total=False):
    next: str
    """after of the names that follow"""


class TurnVerdict(TypedDict):
    id: str
    action: str
    """retain, page or evict"""
    score: float
    reason: str
    why: str


_Pass = TypedDict("_Pass", {"pass": int, "retained": int, "paged": int, "evicted": int, "verdicts": list[TurnVerdict]})
_PassMay = TypedDict("_PassMay", {"repeated": bool}, total=False)


class Pass(_Pass, _PassMay):
    pass


class SessionPin(TypedDict):
    session: str
    id: str
    pinned: bool


class Truncated(TypedDict):
    deleted: list[str]
    """references of the tombstones, by id"""


Undone = TypedDict("Undone", {"pass": int, "kind": str})


class StatsSpaceSpace(TypedDict):
    kind: str
    pages: int
    bytes: int
    old_pages: int
    old_bytes: int


class _StatsSpace(TypedDict):
    name: str
    artefacts: int


class StatsSpace(_StatsSpace, total=False):
    space: list[StatsSpaceSpace]
    bodies: int


class _Stats(TypedDict):
    path: str
    id: str
    format: int
    created: str
    lsn: int
    applied_lsn: int
    artefacts: int
    pages: int
    page_versions: int
    scopes: int
    held: int
    leaves: int
    leaves_archived: int
    file_bytes: int
    log_bytes: int
    unflushed_rows: int
    checkpoints: int
    file_roots: list[str]
    """directories that file sources may be in"""


class Stats(_Stats, total=False):
    column_bytes: int
    columns_read: bool
    space: list[StatsSpace]


_Why = TypedDict("_Why", {"trace": str, "ref": str, "in": bool, "steps": list[str]})
_WhyMay = TypedDict("_WhyMay", {"question": str}, total=False)


class Why(_Why, _WhyMay):
    pass


class _ErrorBody(TypedDict):
    code: str
    """stable: programs compare it"""
    message: str
    """for people: what was expected"""


class ErrorBody(_ErrorBody, total=False):
    hint: str
    """what to do"""
    batch: str
    """of held: the batch that waits for review"""
    trace: str
    reason: str
    """of held: why"""
    ref: str
    """of conflict: what has a newer version"""
