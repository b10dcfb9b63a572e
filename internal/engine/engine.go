// Package engine is the state machine of every store. It judges commits and numbers them. From
// their ordered stream it builds what readers ask for: the catalogue, the index, and the rows that
// are not yet in the store's tables. It knows nothing of sessions, directives or budgets.
//
// The package stands between two interfaces. Above it is store.Store, which Engine implements apart
// from opening, closing and files. Below it are Log, the durable order of commits, and Rows, the
// tables beside it; both belong to the store.
//
// Data flows one way:
//
//	Batch → prepare → judge → build → Log → (durable) → install → catalogue, index, overlay → checkpoint → Rows
//
// Readers see a commit once install has run. Only then does the caller of Commit get its answer.
// Recovery and followers enter the same path at install (Follow), so one function alone changes
// what readers see.
//
// # Numbers
//
// Each number counts one kind of thing and starts at 1 unless the list says otherwise. No number is
// used twice, unless its commit was Lost, which no reader saw.
//
//	LSN      commits. A reader that reads "as of" an LSN sees that commit and all before it
//	Seq      records of the log: commits, leaves of reads, marks
//	Leaf     leaves of the audit, from 0. A commit has one, and so has each read
//	Art      artefacts. Scope, Group: scopes, and groups of neighbouring pages
//	Num      page versions. A page keeps its number while its content stays in its place
//	Version  versions of one artefact
//	times    microseconds since 1970 in UTC (codec.Micros); 0: none
//
// # Who guards what
//
// In lock order, outermost first. db.go has the order of all locks of a process:
//
//	gcMu                one gc, or the commits of one erase, at a time; other commits and reads go on
//	tail of the Log     the order of commits; sequencer.watch
//	sequencer.flight    commits and leaves in flight, and the names of scopes and groups with theirs
//	catalogue.mu        what readers see: catalogue, overlay and frozen, index, vectors in memory, quotas,
//	                    how many held batches wait
//	leaves              changes.mu, holds.mu, names.mu, sieves.mu, idList.mu, bodies.mu
//
// Three things may be read without a lock: a frozen overlay, a row taken from any overlay, and
// whatever the Rows show in a snapshot.
//
// # What a crash leaves
//
// The engine keeps everything in memory. A commit exists once its record is durable in the Log, as
// a whole or not at all. An open loads the rows and follows the Log from their LSN on. It arrives
// at the state that readers saw, plus commits that were durable and not yet answered. Only two
// things can be lost without a trace: leaves of reads of the last 100 ms, which were not synced yet
// (audit.go), and vectors that no checkpoint had written, which are computed again (vector.go).
//
// # What a host calls
//
// A host is a store that owns a Log and Rows. Besides the methods of store.Store it calls:
//
//	open         New, Attach, Identify, then LoadRows or LoadColumns (IndexAnew if only the index is damaged), Follow, Start;
//	             LimitPages bounds the page numbers that are accepted, Followed counts the leaves that Follow got
//	the order    Position, Counters, Follow, Durable, Lost: the engine as its Log sees it (Follower);
//	             AppendLeafHead and OutcomeIn for what the Log writes and answers
//	commits      Submit: a batch with instructions of the host (Request); Note: leaves of the database itself
//	background   IndexWaiting
//	checkpoint   Waiting and Unflushed say when, then Checkpoint, FlushTail; Columns for a snapshot of the columns
//	gc           Collect, OldestHold
//	erase        Erase, then for each run: Purge, Purging, EraseOutcomes, EraseDone; EraseRest for runs that were interrupted;
//	             ErasedTag and DestroyedHead for rows whose key is destroyed
//	check        Check, MarkIndexDamaged, IndexDamaged; SumRows and NewestOutcome for what the host keeps about its rows
//	figures      Count, Undecided; AfterTold for who waits long for a commit that writes a told row
//	errors       Corrupt, AuditError
//	end          Fail and Failure, Shut, Closed and Stopped; Readable and Writable say why a call is refused
//	tests        At
package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ctxpage/ctxpage/internal/archive"
	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/lexical"
	"github.com/ctxpage/ctxpage/store"
)

// Options configure an engine. Functions are called from any goroutine.
type Options struct {
	Path     string // names the database in errors
	ReadOnly bool
	Now      func() time.Time
	Rand     io.Reader
	Analyzer *lexical.Analyzer
	State    []store.StateKind
	Hook     func(step string) error // tests; nil: none
	Trust    bool                    // negative control of tests: rows are not compared with the audit
	// Sealed says that the rows are encrypted: then some may be the remainders of rows that were
	// erased after a backup (eraserows.go).
	Sealed bool
	// Checkpoint frees the space of what gc dropped. It is called under gcMu and no other lock.
	Checkpoint func(context.Context) error
	// Repeat judges a commit anew that the log lost before it was durable: the log is on a server,
	// and another host may have had the tail meanwhile. A log on a disk that failed would fail
	// again.
	Repeat bool
	// Space is asked when the disk may be full; nil: it never is.
	Space Space
}

// Space tells the engine about the space on the disk of its store. Its methods may make a checkpoint, so the
// engine calls them without any of its locks except gcMu.
type Space interface {
	// Admit waits until a batch of n bytes may be sequenced, or returns that there is no space. The
	// caller calls done when the batch has ended. A batch that puts nothing is always admitted.
	Admit(ctx context.Context, n int64, puts bool) (done func(), err error)
	// Relieve frees space for a log that is full. nil: another try is worth it.
	Relieve(ctx context.Context) error
	// Tight reports whether the disk is full or nearly full.
	Tight() bool
	// NoSpace adds advice to the error of a batch of n bytes, or of leaves, that found the disk full.
	NoSpace(err error, n int64) error
}

// endless is the Space of a store that knows nothing of its disk.
type endless struct{}

func (endless) Admit(context.Context, int64, bool) (func(), error) { return func() {}, nil }
func (endless) Relieve(context.Context) error                      { return ErrLogFull }
func (endless) Tight() bool                                        { return false }
func (endless) NoSpace(err error, _ int64) error                   { return err }

// Engine is the state machine of every store: the catalogue, the index and the rows that are not in
// the file yet, built from an ordered stream of commits. It judges new commits and answers reads.
// Its methods are safe for concurrent use, except those that its store calls before commits may
// come (LoadRows, Follow, Identify, Start, LimitPages).
//
// Fields without a remark of their own: opts, rows, log and Leaves are set before Start and stay;
// overlay, frozen, high and what counts held batches are under cat.mu; the rest is atomic, or has a
// lock inside.
type Engine struct {
	opts      Options
	info      store.Info
	applied   uint64 // the LSN of the rows when they were loaded
	askedFrom uint64 // the rows had the questions of all leaves before this one then
	rows      Rows
	log       Log            // it is the Rows, too
	Leaves    *archive.Log   // the audit, with the right to write; hosts get Audit
	index     *lexical.Index // under cat.mu
	cat       *catalogue
	// pageLimit is the highest page number that the size of file and log allows, set while they are
	// read. The columns of the catalogue are as long as the highest number, and a forged one must
	// not take all memory. 0: no limit.
	pageLimit uint64

	followed uint64 // the number of leaves up to the last one that Follow got

	unread []uint64 // pages found damaged at open, rising: the index does not know their words. Not changed after the open

	near nearModels // vectors in memory

	overlay *overlay // under cat.mu
	frozen  *overlay // being written by a checkpoint; under cat.mu
	high    highest  // numbers of the catalogue when the rows were written; under cat.mu

	pageRows []store.PageRow // memory of install; under cat.mu

	// heldOpen counts the held batches that wait for review, if heldKnown. heldChanges counts holds and
	// decisions. Under cat.mu.
	heldOpen, heldChanges int
	heldKnown             bool
	quotas                quotas
	bodies                bodies // of audit leaves; a lock of its own

	seq      sequencer
	indexing atomic.Bool // a goroutine enters pages into the index

	eraseOpen map[string]uint64 // runs of erases of which commits are missing, with the LSN of their first; under cat.mu

	changes changes
	holds   holds

	findings  sync.Pool     // of *finding
	gcMu      JobLock       // one gc or erase at a time; before filestore's ckptMu
	releases  atomic.Uint64 // how many overlays were released: rows read before a release may be out of date
	unflushed atomic.Int64  // bytes in overlay and frozen, for throttle
	failed    atomic.Pointer[error]
	reindex   atomic.Bool   // the index was found damaged
	stop      chan struct{} // closed by Shut
	closed    atomic.Bool
}

// New makes an engine without a log. See Engine for the order of calls.
func New(opts Options) *Engine {
	if opts.Space == nil {
		opts.Space = endless{}
	}
	e := &Engine{opts: opts, cat: newCatalogue(), overlay: newOverlay(), stop: make(chan struct{})}
	e.seq.init()
	return e
}

// Attach sets the log of the engine.
func (s *Engine) Attach(l Log) { s.log, s.rows = l, l }

// Unflushed returns the bytes that are not in the rows yet.
func (s *Engine) Unflushed() int64 { return s.unflushed.Load() }

// Corrupt returns the error for damage at a place in the rows. A row of a later release is no
// damage: ErrNewerFormat.
func (s *Engine) Corrupt(where string, err error) error {
	if errors.Is(err, codec.ErrNewer) {
		return fmt.Errorf("%w: %s: %w; use a newer release", store.ErrNewerFormat, where, err)
	}
	return &store.CorruptError{File: s.opts.Path, Err: fmt.Errorf("%s: %w", where, err), Hint: store.HintSalvage}
}

// Failure returns what Fail was given first; nil: the engine has not failed.
//
// Reads ask for it too where an answer would hide a commit that is in the log and was not installed
// (Outcome, Refresh).
func (s *Engine) Failure() error {
	if p := s.failed.Load(); p != nil {
		return *p
	}
	return nil
}

// Fail ends commits after a failed write or sync, and returns the first failure. Commits in flight
// have an unknown outcome, and no later write may build on them. Reads go on. Reopening the store
// reads what the disk has. Fail may be called more than once and from any goroutine. Only the first
// error counts, and every caller gets that one: a person must look at the first failure.
func (s *Engine) Fail(err error) error {
	unknown := fmt.Errorf("%w: %w; reopen the database and repeat with the same id", store.ErrOutcomeUnknown, err)
	s.failed.CompareAndSwap(nil, &unknown)
	s.seq.abandon()
	return *s.failed.Load()
}

// Identify names the database, before anything is compared with its audit.
//
// The secret in info keys the tags of state rows, so no state row is read before. Call it before
// LoadRows.
func (s *Engine) Identify(info store.Info) { s.info = info }

// Start begins after what was loaded and followed. Commits may come from now on.
func (s *Engine) Start() { s.changes.start(s.cat.lsn) }

// LimitPages sets the highest page number that is accepted while rows and log are read. The columns
// of the catalogue are as long as the highest page number, and a forged number must not take all
// memory. 0: no limit. Call it before Start.
func (s *Engine) LimitPages(highest uint64) { s.pageLimit = highest }

// Followed returns the number of leaves up to the last one that Follow got. Call it before Start.
func (s *Engine) Followed() uint64 { return s.followed }

// MarkIndexDamaged notes that the index was found damaged. Its store drops the segments when it
// closes, and the next open makes them again.
func (s *Engine) MarkIndexDamaged() { s.reindex.Store(true) }

// IndexDamaged reports whether the index was found damaged.
func (s *Engine) IndexDamaged() bool { return s.reindex.Load() }

// Shut refuses commits and reads from now on and wakes callers that wait to be admitted or for
// changes. It returns false if it was called before. Shut does not wait: calls under way end with
// what they have. The store that owns the files waits for its own jobs.
func (s *Engine) Shut() bool {
	first := s.closed.CompareAndSwap(false, true)
	if first {
		close(s.stop)
	}
	return first
}

// Closed reports whether Shut was called.
func (s *Engine) Closed() bool { return s.closed.Load() }

// Readable returns why nothing can be read: ErrClosed, or the error of ctx. Reads call it first.
func (s *Engine) Readable(ctx context.Context) error {
	if s.closed.Load() {
		return store.ErrClosed
	}
	return ctx.Err()
}

// Stopped returns a channel that Shut closes.
func (s *Engine) Stopped() <-chan struct{} { return s.stop }

// JobLock lets one long job run at a time. A waiting job can give up when its context ends, which a
// sync.Mutex does not allow: the jobs before it may take minutes. The zero value is not locked.
type JobLock struct {
	once sync.Once
	held chan struct{}
}

// place makes the channel at first use, so that the zero value works. A token in it is the lock.
func (l *JobLock) place() chan struct{} {
	l.once.Do(func() { l.held = make(chan struct{}, 1) })
	return l.held
}

// Lock waits for its turn, however long that is.
func (l *JobLock) Lock() { l.place() <- struct{}{} }

// Unlock lets the next one begin.
func (l *JobLock) Unlock() { <-l.place() }

// Take waits like Lock, but returns the error of ctx when ctx ends. A free lock is taken even
// if ctx has ended: the job itself will notice.
func (l *JobLock) Take(ctx context.Context) error {
	select {
	case l.place() <- struct{}{}:
		return nil
	default:
	}
	select {
	case l.place() <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// AuditError turns an error of the audit into the error that store.Store promises. Damage and
// other formats have the right error already. Errors that are about one leaf (manifest.ErrNoLeaf, ErrNoQuestion) pass as
// they are: they are part of the interface.
func AuditError(err error) error {
	switch {
	case errors.Is(err, archive.ErrGap):
		return &store.CorruptError{File: "the audit", Err: err, Hint: "leaves are in neither the log nor the archive; " + store.HintSalvage}
	}
	return err
}
