package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/lexical"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// Options are what an engine is told when it is made. Functions are called from any goroutine.
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
	// erased after a backup (destroyed.go).
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

// Space is what a store knows of the space on its disk. Its methods may make a checkpoint, so the
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
// Life of an engine:
//
//	New       options only
//	Attach    it has its log
//	LoadRows  catalogue and index as of the rows; or LoadColumns, from a snapshot of them
//	Follow    what the log has above them
//	Start     commits and reads may come
//	Fail      a write failed or memory no longer follows the log: no more commits; reads go on
//	Shut      neither commits nor reads
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
	Leaves    *manifest.Log  // the audit, with the right to write; hosts get Audit
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

	// heldOpen is how many held batches wait for review, if heldKnown. heldChanges counts holds and
	// decisions. Under cat.mu.
	heldOpen, heldChanges int
	heldKnown             bool
	quotas                quotas
	bodies                bodies // of audit leaves; a lock of its own

	seq    sequencer
	behind behind

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

// Attach gives the engine its log, which was made for it.
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
// error counts, and every caller gets that one: what failed first is what a person must look at.
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

// Start takes the next numbers from what was loaded and followed. Commits may come from now on.
func (s *Engine) Start() {
	s.seq.name(s.cat)
	s.changes.start(s.cat.lsn)
}

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

// Stopped returns a channel that Shut closes.
func (s *Engine) Stopped() <-chan struct{} { return s.stop }
