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
	"github.com/ctxpage/ctxpage/lexical"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// Options are what an engine is told when it is made.
type Options struct {
	Path     string // names the database in errors
	ReadOnly bool
	Now      func() time.Time
	Rand     io.Reader
	Analyzer *lexical.Analyzer
	State    []store.StateKind
	Hook     func(step string) error // tests; nil: none
	Trust    bool                    // negative control of tests: rows are not held against the audit
	// Checkpoint frees what gc dropped. It is called under gcMu and no other lock.
	Checkpoint func(context.Context) error
	// Space is asked when the disk may be full; nil: it never is.
	Space Space
}

// Space is what a store knows of the space on its disk.
type Space interface {
	// Admit waits until a batch of n bytes may be sequenced, or says that there is no space. done is called after it.
	// What puts nothing is admitted always.
	Admit(ctx context.Context, n int64, puts bool) (done func(), err error)
	// Relieve frees what can be freed for a log that is full: nil when it is worth another try.
	Relieve(ctx context.Context) error
	// Tight says that the disk is full or about to be.
	Tight() bool
	// NoSpace gives the error of a batch of n bytes that found the disk full the type that says what would help.
	NoSpace(err error, n int64) error
}

// endless is the space of a store that does not know.
type endless struct{}

func (endless) Admit(context.Context, int64, bool) (func(), error) { return func() {}, nil }
func (endless) Relieve(context.Context) error                      { return ErrLogFull }
func (endless) Tight() bool                                        { return false }
func (endless) NoSpace(err error, _ int64) error                   { return err }

// Engine is the state machine of every store: the catalogue, the index and what is not yet in the rows, built from an
// ordered stream of commits. It judges new commits and answers reads.
type Engine struct {
	opts      Options
	info      store.Info
	applied   uint64 // LSN of the rows when they were loaded
	askedFrom uint64 // leaf before which the rows had all questions then
	rows      Rows
	log       Log            // it is the Rows, too
	Leaves    *manifest.Log  // the audit; whoever is handed it may write. Hosts get Audit
	index     *lexical.Index // under cat.mu
	cat       *catalogue
	// pageLimit is the highest page number that the size of file and log allows, while they are read: the columns of
	// the catalogue are as long as the highest number, and a forged one must not take all memory. 0: no limit.
	pageLimit uint64

	followed uint64 // leaves of the audit up to the last one that Follow was given

	unread []uint64 // pages found damaged at open, rising: the index does not know their words. Fixed from then on

	overlay *Overlay // under cat.mu
	frozen  *Overlay // being written by a checkpoint; under cat.mu
	high    highest  // numbers of the catalogue when the rows were written; under cat.mu

	// Held batches that wait for review, once counted, and how often one was held or decided; under cat.mu.
	heldOpen, heldChanges int
	heldKnown             bool

	seq sequencer

	provedFrom struct { // LSN of the first leaf with digests of rows; 0: there is none
		once sync.Once
		lsn  uint64
		err  error
	}

	stateFrom struct { // LSN of the first leaf with entries of state rows, or of a program that writes them; 0: there is none
		once sync.Once
		lsn  uint64
		err  error
	}

	inventory inventory

	changes changes
	holds   holds

	findings  sync.Pool     // of *finding
	gcMu      sync.Mutex    // one gc at a time; before Store.ckptMu
	releases  atomic.Uint64 // overlays released: what was read of the rows before one may be old
	unflushed atomic.Int64  // bytes in over and old, for throttle
	failed    atomic.Pointer[error]
	reindex   atomic.Bool   // the index was found damaged
	stop      chan struct{} // closed by Shut
	closed    atomic.Bool
}

func New(opts Options) *Engine {
	if opts.Space == nil {
		opts.Space = endless{}
	}
	e := &Engine{opts: opts, cat: newCatalogue(), overlay: newOverlay(), stop: make(chan struct{}), inventory: inventory{busy: make(chan struct{}, 1)}}
	e.seq.init()
	return e
}

// Attach gives the engine its log, which is made for it.
func (s *Engine) Attach(l Log) { s.log, s.rows = l, l }

// Unflushed is the bytes that are not in the rows yet.
func (s *Engine) Unflushed() int64 { return s.unflushed.Load() }

func (s *Engine) Corrupt(where string, err error) error {
	if errors.Is(err, codec.ErrNewer) {
		return fmt.Errorf("%w: %s: %w; use a newer release", store.ErrNewerFormat, where, err)
	}
	return &store.CorruptError{File: s.opts.Path, Err: fmt.Errorf("%s: %w", where, err), Hint: store.HintSalvage}
}

func (s *Engine) Failure() error {
	if p := s.failed.Load(); p != nil {
		return *p
	}
	return nil
}

// Fail poisons the store after a failed write or sync: what was under way has an unknown outcome, and no later write
// may build on it.
func (s *Engine) Fail(err error) error {
	unknown := fmt.Errorf("%w: %w; reopen the database and repeat with the same id", store.ErrOutcomeUnknown, err)
	s.failed.CompareAndSwap(nil, &unknown)
	s.seq.abandon()
	return *s.failed.Load()
}

// Identify names the database before anything is held against its audit.
func (s *Engine) Identify(info store.Info) { s.info = info }

// Start names the database and takes the next numbers from what was loaded and followed: commits may come.
func (s *Engine) Start(info store.Info) {
	s.info = info
	s.seq.name(s.cat)
	s.changes.start(s.cat.lsn)
}

// LimitPages sets the highest page number that is believed while rows and log are read: the columns of the catalogue are as
// long as the highest number, and a forged one must not take all memory. 0: no limit. It is called before commits may come.
func (s *Engine) LimitPages(highest uint64) { s.pageLimit = highest }

// Followed is how many leaves of the audit there are up to the last one that Follow was given. It is for the time before
// commits may come.
func (s *Engine) Followed() uint64 { return s.followed }

// MarkIndexDamaged notes that the index was found damaged: who closes the store drops it, and the next open makes it again.
func (s *Engine) MarkIndexDamaged() { s.reindex.Store(true) }

// IndexDamaged says whether the index was found damaged.
func (s *Engine) IndexDamaged() bool { return s.reindex.Load() }

// Shut refuses commits and reads from now on and wakes whoever waits for a commit. It returns false if it was called before.
func (s *Engine) Shut() bool {
	first := s.closed.CompareAndSwap(false, true)
	if first {
		close(s.stop)
	}
	return first
}

// Closed says whether Shut was called.
func (s *Engine) Closed() bool { return s.closed.Load() }

// Stopped is closed by Shut.
func (s *Engine) Stopped() <-chan struct{} { return s.stop }
