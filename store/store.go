package store

import (
	"context"
	"time"

	"github.com/oklog/ulid/v2"

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
	// Changes returns what commits after an LSN changed: the page versions that they ended, and the
	// rows of told kinds (StateKind.Told) that they wrote. If there is no newer commit, it waits for
	// one, at most wait, and may then return nothing. Only caches and background work depend on it.
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

// Mark is the state that readers have reached.
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

// Changes lists what commits changed.
type Changes struct {
	LSN   uint64   // pass it to the next call
	Ended []uint64 // numbers of page versions that are no longer current, in no order
	All   bool     // the store does not remember that far back: forget every page

	Told    []StateRow // rows of told kinds that were written, as they are now, in no order; deleted ones may be missing
	AllTold bool       // the store does not remember that far back: read all rows of told kinds
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

// OperatorScope names the operator's own writes in the manifest. It holds no artefacts.
const OperatorScope = "operator"
