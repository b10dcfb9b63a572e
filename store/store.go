package store

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/ctxpage/ctxpage/lexical"
	"github.com/ctxpage/ctxpage/manifest"
)

// Store is the seam between the pipeline, which runs in the agent's process, and the place where
// pages live. Plain data goes in and comes out: no callbacks, no database transaction, no borrowed
// memory. So the store can be in another process, or in another database. The embedded file is one
// (package filestore); storetest.Memory is the contract in code. The package comment has the rules
// that span several methods.
//
// Every method may be called concurrently. When a context ends, only the wait ends, never a commit
// that has started.
type Store interface {
	// Info returns which database this is.
	Info(ctx context.Context) (Info, error)
	// Resolve returns the version of an artefact that a reference names, in the first scope of the
	// chain that has it. A deleted artefact does not hide an ancestor's, unless the reference names
	// its scope or version: then the result is ErrNotFound. With an error, Located is zero. It
	// reads the catalogue only. Errors: ErrNotFound, ErrGone.
	Resolve(ctx context.Context, scopes Scopes, ref Ref) (Located, error)
	// Load reads immutable page versions by number: heads and, if wanted, texts. Nil scopes mean
	// the operator, who sees everything; empty scopes do not.
	Load(ctx context.Context, scopes Scopes, pages []PageKey, want Want) ([]Loaded, error)
	// Candidates proposes pages for an assembly or a search: one snapshot, all as of
	// Candidates.LSN.
	Candidates(ctx context.Context, q CandidateQuery) (Candidates, error)
	// Scan lists what ScanKind says, in its order, a page at a time. Each page is one snapshot. The
	// cursor of another listing returns an InvalidError if the store can recognise it.
	Scan(ctx context.Context, q ScanQuery) (ScanPage, error)
	// Commit applies, holds or reviews a batch, as a whole or not at all. The batch is durable
	// before it is visible, and visible before Commit returns. The same batch under the same id
	// returns the same outcome; another batch under that id is an InvalidError.
	//
	// A batch is judged in this order: Expect and ExpectState, which return a ConflictError;
	// Context, as OnStale says; then what Action asks. It is judged and numbered in one step, so of
	// two batches that expect the same LSN one is refused. A refused batch leaves an audit leaf,
	// and its id stays free. The store keeps none of the caller's memory.
	Commit(ctx context.Context, b Batch) (Outcome, error)
	// Held reads one held batch.
	Held(ctx context.Context, id ulid.ULID) (HeldBatch, error)
	// Vectors reads the stored vectors that a model made of pages, by page number. A vector is nil
	// if there is none, or if the page is outside the chain.
	Vectors(ctx context.Context, scopes Scopes, model string, nums []uint64) ([][]float32, error)
	// PutVectors stores vectors of page versions, each with its number. They are derived data: a
	// crash may lose the latest, which are then computed again. No LSN changes and no leaf is
	// written.
	PutVectors(ctx context.Context, model string, nums []uint64, vecs [][]float32) error
	// State reads a state row (directives, sessions, file roots) with the LSN of the commit that
	// last wrote it. A row that does not exist has LSN 0 and a nil Value, and is no error. The row
	// may be older than a commit that is not answered yet, never older than one that is answered.
	State(ctx context.Context, key string) (StateRow, error)
	// Outcome returns how the batch of an id ended. Use it for your own batch, after Commit
	// returned ErrOutcomeUnknown: only the id is compared. It waits while the batch is in flight.
	//
	// ErrNotFound is final: of the calls to Commit with this id that have returned, none was
	// applied or ever will be, and the id is still free. It is returned only for ids recent enough
	// to be remembered (see type Outcome); an older id, used or not, returns ErrTxnExpired.
	// ErrOutcomeUnknown means that this store cannot know, and the error says why; open the store
	// again and ask it.
	Outcome(ctx context.Context, id ulid.ULID) (Outcome, error)
	// Mark returns how far readers have come. It does not wait, and does not ask another process.
	Mark() Mark
	// Refresh returns once readers see three things: every commit that was answered, to any
	// process, before the call; every commit that was in flight in this process; and the commit
	// atLeast (0: none). If no commit has the LSN atLeast, it returns an InvalidError that names
	// the newest.
	Refresh(ctx context.Context, atLeast uint64) (Mark, error)
	// Hold keeps gc from dropping what was current at a moment, or later, until Release. What was
	// dropped before stays gone. Every read of several steps takes and releases a hold, so it must
	// be cheap: a store that several hosts share keeps the holds of a host on that host and tells
	// the others the oldest.
	//
	// Holds end with the store's Close, and must not outlive their client. If the client is another
	// process, its holds end when it was silent for longer than the store's lease. The embedded
	// file has no lease: it is open in one process, and holds end with that process.
	Hold(ctx context.Context, at Moment) (Ticket, error)
	// Release ends a hold. A ticket that was released, or has lapsed, is ignored.
	Release(t Ticket)
	// Changes returns the page versions that were ended by commits after an LSN. If there is no
	// newer commit, it waits for one, at most wait, and may then return nothing. Only caches depend
	// on it.
	Changes(ctx context.Context, after uint64, wait time.Duration) (Changes, error)
	// Append writes audit leaves in order. The Question of a leaf is stored as a row beside it,
	// which can be erased; the leaf gets its salted digest as Query. Append sets Query and
	// QuestionKept in the given leaves, and keeps no reference to them. A store that numbers a leaf
	// at once also sets Index. A log on a server numbers it later: look the leaf up by trace in
	// Audit, which waits for it.
	Append(ctx context.Context, leaves []*manifest.Record, d Durability) error
	// Audit returns the audit log for reading.
	Audit() Audit
	// Head syncs the log and returns the head of what is durable.
	Head(ctx context.Context) (manifest.Head, error)
	// Maintain runs a job: checkpoint, backup, check, gc and its plan, erase, compaction and its
	// plan. A nil progress is allowed.
	Maintain(ctx context.Context, job Job, progress Progress) (JobReport, error)
	Stat(ctx context.Context) (StoreStats, error)
	// Close waits for commits that have started, ends the holds, and returns the error of what
	// failed. The other methods then return ErrClosed. A second Close returns nil.
	Close() error
}

// Mark is how far readers have come.
type Mark struct {
	LSN uint64 // newest commit that readers see
	// Heard is the last time at which readers are known to have seen every answered commit; zero:
	// they always see all, because commits are made in this process.
	Heard time.Time
}

// Moment is the point at which a reader reads. The reader sees what was current after the commit
// LSN, and treats as expired what has expired by Time. The zero moment is before everything.
type Moment struct {
	LSN  uint64
	Time time.Time
}

// Ticket names a hold. 0 is none.
type Ticket uint64

// Info names a database.
type Info struct {
	ID     string // never changes, unique
	Secret []byte // key of the fences of contexts and of the digests of questions; never leaves the database
	// Host names the machine whose files the file: sources of this handle are; "": the database is
	// of one machine, and none is recorded. Handles of one database on several machines have
	// different names.
	Host string
}

// Progress receives how far long work has come. It is called from the goroutine of the call and
// must not call the store.
type Progress func(what string, done, total uint64)

// Scopes is a visible chain: a scope and its ancestors, nearest first.
type Scopes []string

// Want says how much of a page to load.
type Want uint8

// What to load.
const (
	WantHead Want = iota
	WantText
)

// Durability says when an appended leaf is on disk.
type Durability uint8

// Either way a leaf is with the operating system before Append returns. Written leaves are synced
// within 100 ms, Synced ones before Append returns.
const (
	Written Durability = iota
	Synced
)

// PageKey names a page as part of one version of its artefact: page contents outlive changes of the
// artefact's head.
type PageKey struct {
	Num     uint64
	Version uint32 // of the artefact; in Load, 0: the newest that has the page
}

// Located is the catalogue's answer for a reference.
type Located struct {
	Scope   string
	Version uint32 // of the artefact
	LSN     uint64 // of the commit that wrote the version
	Pages   []PageKey
	Current bool
	Expires int64  // unix µs, 0 never
	By      uint64 // number of the page that superseded it; 0: none, or it was deleted since
	ByID    string // id of the artefact that superseded it; "": none
}

// Changes are page versions that are no longer current.
type Changes struct {
	LSN   uint64   // pass it to the next call
	Ended []uint64 // numbers, in no order
	All   bool     // the store does not remember that far back: forget every page
}

// Validator identifies the state of a source.
type Validator struct {
	Stamp string    `json:"stamp,omitempty"` // cheap: size and mtime, ETag, version
	Hash  uint64    `json:"hash,omitempty"`  // xxhash64 of the content; 0 unknown. Fast, not cryptographic
	At    time.Time `json:"at,omitzero"`     // when it was taken
}

// hostMark ends the stamp of a file where a host is recorded; its name follows.
const hostMark = "\nhost "

// StampOf is the stamp of a file of a host; with host "" it is the stamp alone.
func StampOf(stamp, host string) string {
	if host == "" {
		return stamp
	}
	return stamp + hostMark + host
}

// PageRow is what the store keeps of one page version.
type PageRow struct {
	Num     uint64
	Version uint32 // version of the artefact in which this content appeared
	LSN     uint64
	Tokens  uint32
	Bytes   uint32
	Hash    uint64
	Salt    [DigestSaltSize]byte
	Digest  [32]byte
}

// Head is one version of an artefact without its content. It is immutable once made.
type Head struct {
	Artefact // Text empty; text parts carry no text
	Scope    string
	Art      uint64 // number of the artefact
	Version  uint32
	LSN      uint64
	PutAt    time.Time
	Actor    string
	Deleted  bool
	Gone     bool   // gc dropped the version: what remains names it and what it replaced, and can prove its text
	GoneBy   string // trace of the run of gc, or of the erase
	ErasedBy string // the operator who erased it; "": not erased. Nothing of its content is kept then, not even a proof of a copy
	Floor    bool   // nothing is kept of the versions before it
	GroupNum uint64
	Source   Validator
	Rows     []PageRow
	// PartBytes is, for each of Parts that is text, its length in the joined text.
	PartBytes []int
	// Counter is the name of the token counter that counted Rows.
	Counter string
	// Turn holds what a session measured of a turn, in the session's encoding. It can be computed
	// again from the texts, so it does not count as content when puts are compared. A deletion has
	// none.
	Turn []byte

	// Forgotten is set only in a batch of gc: all rows of the artefact are removed.
	Forgotten bool

	Superseded string // id of the artefact that supersedes it; only in listings

	// Unknown holds fields of this version that a later release stored, beside those of the
	// artefact.
	Unknown []byte
}

// SourceHost names the host that read the file: source of a version; "": none is recorded, or it
// has no such source.
func (h *Head) SourceHost() string {
	if !strings.HasPrefix(h.Artefact.Source, "file:") {
		return ""
	}
	_, host, _ := strings.Cut(h.Source.Stamp, hostMark)
	return host
}

// Loaded is one page version. Err matches ErrGone if gc or an erase took it, or is a *CorruptError.
// With ErrGone there still is a Head, if the version is known.
type Loaded struct {
	Key  PageKey
	Head *Head
	Page int // from 1
	Text string
	Err  error
}

// CandidateQuery asks for the pages that may enter a context.
type CandidateQuery struct {
	Scopes  Scopes
	Terms   []string
	Dates   lexical.Dates // months and years that the question names
	Kinds   []Kind        // empty: all
	Floor   Provenance    // pages below it are excluded
	Session string        // its own turns are exempt from the floor
	Now     time.Time
	AsOf    uint64           // an LSN; 0: now
	K       int              // lexical hits
	Recent  int              // newest pages that are candidates whatever their words
	Newest  int              // the same for each provenance and scope: two passes by recency and provenance need them
	Mask    []Ref            // artefacts of the nearest scope that a transaction overwrites or deletes
	Weights *lexical.Weights // nil: the zero Weights, a page scores by its own words alone
	// Filter restricts the candidates before the best are chosen; nil: nothing is restricted.
	// System pages and the turns of Session pass it, unless Strict. Excluded.Count of ReasonFilter
	// is the number of live, not superseded pages of the chain that do not pass, whatever other
	// rules say. Pages that do not pass lend no score to neighbours.
	Filter *Filter
	Strict bool
	// Near adds the pages whose vectors are nearest to a vector, under the same rules as pages
	// found by words; nil: none.
	Near *Near
}

// Candidate is a page that may enter a context, with what triage needs to judge it.
type Candidate struct {
	Key        PageKey
	Ref        Ref
	Kind       Kind
	Provenance Provenance
	AsOf       int64 // unix µs
	Tokens     int
	Pages      int // of its artefact's newest version; 0: not known
	Pinned     bool
	Recent     bool
	Group      uint64
	GroupName  string
	Seq        int64
	Lexical    lexical.Hit // zero where the text did not match
	Near       bool        // among the K nearest of CandidateQuery.Near
	Cosine     *float64    // between its vector and that of Near, to about .001; nil: it has no vector or a zero vector, or Near is nil
	// Beside is the score that its neighbours in its group lend it: the greatest of their cosines,
	// times LendNext for adjacent pages and LendAfter for the pages after those. 0: none is above
	// 0. Excluded pages lend nothing.
	Beside   float64
	Excluded string // reason, empty: may enter
}

// Excluded counts the live pages that one rule keeps out. Nearest names the nearest misses: pages
// that match the words. Matched counts such pages, as far as the store looked.
type Excluded struct {
	Reason  string
	Count   int
	Matched int
	Nearest []Candidate
}

// Candidates is one snapshot.
type Candidates struct {
	LSN      uint64
	Hits     []Candidate
	Stats    lexical.Stats // of the terms, as the index is now, when the query has a Mask: drafts are scored with it
	Excluded []Excluded
}

// Action is what a batch asks for.
type Action uint8

// The actions.
const (
	ActApply Action = iota
	ActHold
	ActApprove
	ActReject
)

// OnStale says what happens if the context that a batch was written from has changed.
type OnStale uint8

// HoldStale, the default, holds the batch for review; FailStale refuses it with ErrStaleContext;
// AllowStale commits it. The decision is made together with the commit, so a crash cannot lose the
// draft.
const (
	HoldStale OnStale = iota
	FailStale
	AllowStale
)

// Precondition expects that an artefact still has this LSN; 0: that it is absent.
type Precondition struct {
	Ref Ref
	LSN uint64
}

// Seen is a page version the model saw.
type Seen struct {
	Scope string
	ID    string
	Page  int
	Num   uint64
}

// Put is one artefact to write, its pages already made.
type Put struct {
	Artefact Artefact // Text moved into Pages
	Source   Validator
	Pages    []NewPage // at least one
	// AsOfGiven: the caller gave CurrentAsOf; otherwise it is the time of the put, and a repeated
	// put does not change it.
	AsOfGiven bool
	// PartBytes, Counter and Turn as in Head.
	PartBytes []int
	Counter   string
	Turn      []byte `msgpack:",omitempty"`
	// Unknown holds fields of a held put that a later release stored.
	Unknown []byte `msgpack:",omitempty"`
}

// NewPage is a page to write.
type NewPage struct {
	Text     string
	Tokens   int
	Hash     uint64
	Salt     [DigestSaltSize]byte
	Digest   [32]byte
	Analysis *lexical.Analysis `msgpack:"-"` // nil: made when it is needed
}

// StateRow is a row of state that travels with a batch. In a batch a nil Value deletes the row, and
// LSN is ignored; a row that is read has the LSN of the commit that last wrote it. If the file
// does not record it, the row has LSN 1, which is above 0 (absent) and below that of every later
// write.
type StateRow struct {
	Key   string
	Value []byte
	LSN   uint64
}

// StatePre expects that a state row still has this LSN; 0: that it does not exist. So two writers
// cannot overwrite each other's row. To protect a set of rows, every writer also writes one common
// row with a precondition.
type StatePre struct {
	Key string
	LSN uint64
}

// StateKind is what a store must know of the state rows under a prefix. The pipeline writes those
// rows and registers their kinds when it opens a store; the store does not know their formats.
type StateKind struct {
	Prefix string
	// Names returns the numbers of the page versions that a row names; gc keeps those. Nil: rows
	// name none. It must not call the store.
	Names func(value []byte) ([]uint64, error)
	// Past returns since when a row is needed only to read the past: a time in microseconds since
	// 1970, or an artefact, which means since that artefact was deleted. GC drops the row when that
	// is long enough ago. If Past is nil, or returns 0 and no artefact, the row stays.
	Past func(key string) (at int64, of Ref)
	// Journal describes rows that are numbered as they come, each replacing the previous one; nil:
	// none. GC drops those that were replaced long enough ago.
	Journal *StateJournal
	// Scope returns the scope that a row is about, from its key; "": none. GC keeps the names of
	// those scopes. Nil: the rows are about none.
	Scope func(key string) string
	// Copy lets Salvage copy the rows to another database. Rows that name pages by number cannot be
	// copied.
	Copy bool
	// Unit returns the set of rows that a row belongs to. Nil: each row is independent. Salvage
	// copies a unit whole or not at all.
	Unit func(key string) StateUnit
	// Stays excludes the rows from exports, because they are useless in another database.
	Stays bool
	// Renumber returns a row with the page numbers of another database. Numbers that are not in
	// the map are left out. Nil: rows name no pages by number.
	Renumber func(value []byte, to map[uint64]uint64) ([]byte, error)
	// Lost and Why are the entry in the list of losses for rows that Salvage does not copy; "": no
	// entry.
	Lost, Why string
}

// StateJournal describes rows that are numbered as they come, such as the steps that led to a
// state. GC drops a row when the next one was written longer than GCJob.KeepFor ago, unless it is
// among the newest max(Keep, GCJob.KeepVersions) of its journal, or the head row names it. The
// functions must not call the store.
type StateJournal struct {
	// Entry returns the journal of a row and its number in it; 0: the row belongs to none.
	Entry func(key string) (journal string, number uint64)
	// At returns when a row was written, in microseconds.
	At func(value []byte) (int64, error)
	// Head is the key of the row that changes with every row of the journal. GC drops nothing of a
	// journal whose head row changed since it looked.
	Head func(journal string) (key string)
	// Needs returns the numbers of the rows that the head row names; nil: it names none.
	Needs func(head []byte) ([]uint64, error)
	Keep  int // how many of the newest rows stay whatever their age; at least one stays
}

// StateUnit is a set of state rows that belong together.
type StateUnit struct {
	Name string // in the list of losses
	Key  string // of the row without which the others say nothing
	Page Ref    // the artefact that shows what the rows say
}

// Batch is the unit of commit.
type Batch struct {
	ID     ulid.ULID
	Trace  string // of the assembly it came from
	From   ulid.ULID
	Scope  string
	Actor  string
	Action Action
	Reason string // of a hold
	Expect []Precondition
	// ExpectState are preconditions on state rows. Those of a held batch are judged again when it
	// is approved.
	ExpectState []StatePre
	Context     []Seen
	OnStale     OnStale
	Now         time.Time
	Puts        []Put
	Deletes     []string // ids of Scope
	State       []StateRow
	// Carry lists versions from another database, of any scope. Each must continue its artefact
	// here, or the batch returns a ConflictError. Only an operator's import uses it.
	Carry []Carried `msgpack:"-"`
	// Hold says that the batch was held in another database.
	Hold  *CarriedHold    `msgpack:"-"`
	Raise bool            // approve as human-verified
	Force bool            // approve although the context went stale
	Leaf  manifest.Record // Type, Confidence, By, Note, Evaluator; the store fills what it decides
	// Bound binds the id to a request: it is a digest of scope and content as the caller asked for
	// them. A batch that repeats the id returns the outcome only if its Bound is the same. nil: the
	// store computes it from the batch.
	Bound []byte `msgpack:"-"`
	// Unknown holds fields of a held batch that a later release stored.
	Unknown []byte `msgpack:",omitempty"`
}

// Status is how a batch ended.
type Status uint8

// The outcomes.
const (
	StatusApplied Status = iota
	StatusHeld
	StatusRejected
)

func (s Status) String() string {
	if names := [...]string{"applied", "held", "rejected"}; int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("status(%d)", uint8(s))
}

// Outcome is how a batch ended. A store remembers the newest 10,000 outcomes under the ids of their
// batches, for 7 days.
type Outcome struct {
	Status  Status
	LSN     uint64
	Leaf    uint64 // index of its audit leaf
	Refs    []Ref
	Reason  string
	Stale   []Ref
	Repeats []Ref // pages that puts merely repeated (touches)
}

// HeldBatch waits for review, or was reviewed.
type HeldBatch struct {
	Batch   Batch
	Reason  string
	Stale   []Ref
	At      time.Time
	LSN     uint64
	Decided string // "", approved, rejected
	By      string
	Note    string
	Outcome Outcome
	// Unknown holds fields that a later release stored, beside those of the batch.
	Unknown []byte
}

// ScanKind says what a scan lists.
type ScanKind uint8

// What can be listed.
const (
	ScanArtefacts ScanKind = iota // of a scope, by id
	ScanHistory                   // versions of one artefact, newest first
	ScanGroup                     // pages of a group, in order
	ScanHeld                      // held batches, oldest first
	ScanSummaries                 // live summaries that derive from one artefact and nothing else, newest first
	ScanScopes                    // all scopes, by name
	ScanMembers                   // keys of the live pages of a group, in order, all at once
	ScanState                     // state rows whose keys have Prefix, by key
	ScanSourced                   // first page of each live artefact of a scope that has a source, by id, all at once
	// ScanUnembedded lists the live pages of a chain that have no vector by Model yet, by number:
	// those that no other artefact supersedes, without system pages and without what is trusted
	// less than Tool. Cursor is the number of a page.
	ScanUnembedded
)

// ScanQuery asks for the page of a listing after Cursor, which is opaque and comes from the
// previous page. A cursor of ScanHistory is bound to its artefact: the list continues with that
// artefact even if a nearer scope has the id by then, and a query that cannot mean that artefact is
// rejected.
type ScanQuery struct {
	What    ScanKind
	Scopes  Scopes
	ID      string
	Of      Ref // summaries: scope and id of the artefact they derive from
	Group   string
	Known   uint64 // members, sourced: the LSN of an earlier listing; unchanged entries are not listed again (ScanPage.Same)
	Prefix  string
	Deleted bool
	Filter  *Filter // artefacts: only those that pass it; nil: all
	Newest  bool    // artefacts: by the commit of their newest version, latest first; within a commit by id
	Brief   bool    // artefacts: of a live one, Scope, ID, Art, Version, LSN, PutAt and the number of its first page suffice; a store may omit the rest
	Ever    *Ever   // artefacts: only those that an erase must look at; nil: all
	Model   string  // without vector: the model
	All     bool    // held: decided ones too
	Space   bool    // scopes: with ScopeInfo.Space and Bodies
	Cursor  string
	Limit   int // 0: as many as the store likes
}

// Ever restricts a listing for an erase to artefacts of which any version, current or past, has the
// subject, is in the group, or was made from another artefact (DerivedFrom, a page: source, a
// received packet). A store may list more artefacts, or ignore Ever and list all. A page of such a
// listing may have fewer than Limit entries, or none, and still have a Next.
type Ever struct {
	Subject  string // "": none
	Group    string // of the scope that is listed; "": none
	Replaces bool   // also artefacts with a version that supersedes others
}

// ScanPage is a page of a listing. Next is empty at the end.
type ScanPage struct {
	LSN   uint64
	Heads []*Head
	Held  []HeldBatch
	Names []ScopeInfo
	Keys  []PageKey  // ScanMembers, ScanSourced, ScanUnembedded
	Count int        // ScanUnembedded: how many there are, on this page and others
	Same  bool       // nothing of Known has changed. ScanMembers: Keys lists only later members; ScanSourced: Keys is empty
	State []StateRow // ScanState
	Next  string
}

// ScopeInfo is a scope that something was written to.
type ScopeInfo struct {
	Name      string `json:"name"`
	Artefacts int    `json:"artefacts"` // live ones
	// Space is what its stored page versions take, by kind; nil unless ScanQuery.Space asks for it.
	Space []KindSpace `json:"space,omitempty"`
	// Bodies is how many bytes the kept bodies of its audit leaves have; 0 unless ScanQuery.Space
	// asks for it.
	Bodies int64 `json:"bodies,omitempty"`
}

// JobKind is a kind of maintenance.
type JobKind uint8

// The jobs.
const (
	JobCheckpoint JobKind = iota
	JobBackup
	JobCheck
	JobGCPlan
	JobGC
	JobErase
	JobCompactPlan
	JobCompact
)

// Job is a request for maintenance.
type Job struct {
	Kind JobKind
	Path string // backup
	GC   *GCJob // gc plan, gc
	// Erase is what an erase takes.
	Erase *EraseJob
}

// JobReport says what a job did.
type JobReport struct {
	Applied  uint64 // LSN up to which the log is applied
	Rows     int
	Bytes    int64
	Segments int // log segments removed
	Problems []Problem
	// Unverified counts rows that a check cannot compare with the audit, because an older program
	// wrote them without digests.
	Unverified int
	GC         GCReport
	Erase      EraseReport
	Compact    CompactReport
}

// Problem is a broken invariant that a check found.
type Problem struct {
	Invariant string `json:"invariant"`
	Where     string `json:"where"`
	What      string `json:"what"`
}

// StoreStats is a snapshot of sizes and counters.
type StoreStats struct {
	ID           string    `json:"id"`
	Format       int       `json:"format"`
	Created      time.Time `json:"created"`
	LSN          uint64    `json:"lsn"`
	Applied      uint64    `json:"applied_lsn"`
	Artefacts    int       `json:"artefacts"`
	Pages        int       `json:"pages"`
	PageVersions int       `json:"page_versions"`
	Scopes       int       `json:"scopes"`
	Held         int       `json:"held"`
	Unverified   int       `json:"unverified_versions,omitempty"` // in the file at open: their heads have no digest in the audit
	Leaves       uint64    `json:"leaves"`
	Archived     uint64    `json:"leaves_archived"`
	FileBytes    int64     `json:"file_bytes"`
	LogBytes     int64     `json:"log_bytes"`
	ColumnBytes  int64     `json:"column_bytes,omitempty"` // of the snapshot that makes opening fast
	ColumnsRead  bool      `json:"columns_read,omitempty"` // the open used it
	Overlay      int       `json:"unflushed_rows"`
	Checkpoints  uint64    `json:"checkpoints"`
}

// OperatorScope names the operator's own writes in the manifest. It holds no artefacts.
const OperatorScope = "operator"

// ReasonStaleContext is HeldError.Reason for a batch with a stale Context.
const ReasonStaleContext = "stale context"
