package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ctxpage/ctxpage/store"
	"github.com/oklog/ulid/v2"
)

// sequencer is the one place where an order is made. Under mu a batch is judged against the catalogue and the batches
// in flight, gets its LSN and its numbers, and enters the log's group buffer; so the order of the log is the order of
// LSNs, of leaves, and of installs. Judging outside loses updates: two batches that read x@5 would both pass before
// either is installed.
//
// mu is first in the lock order after ckptMu; flight is a leaf below it, and is also taken by the installer.
type sequencer struct {
	Mu        sync.Mutex
	lsn       uint64
	nextArt   uint64
	nextNum   uint64
	nextGroup uint64
	scopes    map[string]uint32
	groups    map[artKey]uint64
	reserve   int    // bytes of leaves in the log's reserve
	record    []byte // encoded last, to use again

	flight sync.Mutex
	queue  []*pending // in LSN order, not installed
	arts   map[string]*pending
	ids    map[ulid.ULID]*pending
	broken bool // abandoned: nothing is taken into flight any more

	watch *names // while gc runs: what it must know of commits that come meanwhile; under mu
}

// pending is a batch in the log's buffer that is not yet installed. done is closed by the installer, after which
// outcome may be read; a batch that conflicts only with one in flight waits for it and is judged again.
type pending struct {
	record  commitRecord
	keys    []string
	seq     uint64
	outcome store.Outcome
	done    chan struct{}
	// analysed is waited for by the installer; see analyse
	analysed sync.WaitGroup

	installed bool // set by the installer before done is closed
}

func (q *sequencer) init() {
	q.scopes, q.groups = map[string]uint32{}, map[artKey]uint64{}
	q.arts, q.ids = map[string]*pending{}, map[ulid.ULID]*pending{}
}

// start takes the next numbers from the recovered catalogue.
func (q *sequencer) start(s *Engine) {
	q.lsn = s.Catalogue.LSN
	q.nextArt, q.nextNum, q.nextGroup = uint64(len(s.Catalogue.arts))+1, uint64(len(s.Catalogue.pages))+1, uint64(len(s.Catalogue.groups))+1
	for name, n := range s.Catalogue.byName {
		q.scopes[name] = n
	}
	for k, n := range s.Catalogue.named {
		q.groups[k] = n
	}
}

// abandon wakes everybody who waits for a batch that will never be installed.
func (q *sequencer) abandon() {
	q.flight.Lock()
	defer q.flight.Unlock()
	q.broken = true
	for _, p := range q.queue {
		close(p.done)
	}
	q.queue = nil
}

// Commit: durable, then visible, then answered. See the Store interface.
func (s *Engine) Commit(ctx context.Context, b store.Batch) (store.Outcome, error) {
	return s.Submit(ctx, Request{Batch: b})
}

// Request is a batch with what only this package asks of one.
type Request struct {
	store.Batch
	// drops are the versions that gc takes away. One that is named by now stays, and says so.
	drops []*drop
	// forget are head rows by which gc takes rows of dropped versions away.
	forget []*store.Head
	// Carried: the batch was held in another database. A conflict that it has by now waits for review with it.
	Carried bool
}

func (s *Engine) Submit(ctx context.Context, b Request) (store.Outcome, error) {
	if err := s.Writable(); err != nil {
		return store.Outcome{}, err
	}
	if err := store.CheckClock(b.Now); err != nil {
		return store.Outcome{}, err
	}
	if age := b.Now.Sub(ulid.Time(b.ID.Time())); age > outcomeDays {
		return store.Outcome{}, fmt.Errorf("%w: %s is %s old; use a new id", store.ErrTxnExpired, b.ID, age.Round(time.Hour))
	}
	if now := max(b.Now.UnixMilli(), 0); b.ID.Time() > uint64(now+idAhead.Milliseconds()) { // it would look like the present to what forgets old outcomes
		return store.Outcome{}, store.Invalid("batch id", b.ID.String()+", of "+ulid.Time(b.ID.Time()).UTC().Format(time.DateOnly), "a ULID of about now")
	}
	if b.Bound == nil {
		if err := b.Bind(); err != nil {
			return store.Outcome{}, err
		}
	}
	if err := s.throttle(ctx, &b.Batch); err != nil {
		return store.Outcome{}, err
	}
	done, err := s.opts.Space.Admit(ctx, b.Bytes(), len(b.Puts) > 0)
	if err != nil {
		return store.Outcome{}, err
	}
	defer done()
	for full := false; ; {
		p, out, err := s.sequence(ctx, &b)
		if errors.Is(err, ErrLogFull) && !full && s.opts.Space.Relieve(ctx) == nil {
			full = true
			continue
		}
		if err != nil || p == nil {
			return out, s.opts.Space.NoRoom(err, b.Bytes())
		}
		if p.seq == 0 { // somebody else's, in flight under the same id or artefact
			if err := s.wait(ctx, p); err != nil {
				return store.Outcome{}, err
			}
			continue
		}
		go s.analyseBehind(p)
		if err := s.Log.SyncOr(ctx, p.seq, p.done); err != nil {
			return store.Outcome{}, s.SyncError(ctx, err)
		}
		if !p.installed { // the store failed meanwhile: durable, and never visible here
			return store.Outcome{}, s.Failure()
		}
		return p.outcome, nil
	}
}

func (s *Engine) Writable() error {
	switch {
	case s.Closed.Load():
		return store.ErrClosed
	case s.opts.ReadOnly:
		return store.ErrReadOnly
	}
	return s.Failure()
}

func (s *Engine) SyncError(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return fmt.Errorf("%w: %w; it may still happen: repeat with the same id", store.ErrOutcomeUnknown, err)
	}
	return s.Fail(err)
}

// wait is for a batch in flight. p is a copy that carries only the channel.
func (s *Engine) wait(ctx context.Context, p *pending) error {
	// Somebody must drive the log while we wait; whoever enqueued it does, unless its context ended.
	if err := s.Log.Sync(ctx, s.Log.Last()); err != nil {
		return s.SyncError(ctx, err)
	}
	select {
	case <-p.done:
		return s.Failure()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// sequence judges a batch and puts it into the log's buffer. It returns the pending batch; or, with seq 0, one to wait
// for before trying again; or nil and the outcome, when the id is known.
func (s *Engine) sequence(ctx context.Context, b *Request) (*pending, store.Outcome, error) {
	pre, err := s.prepare(ctx, b)
	if err != nil {
		return nil, store.Outcome{}, err
	}
	if pre.known != nil {
		return nil, *pre.known, nil
	}
	s.Seq.Mu.Lock()
	defer s.Seq.Mu.Unlock()
	if err := s.Writable(); err != nil {
		return nil, store.Outcome{}, err
	}
	if w := s.Seq.blocker(b, pre.keys); w != nil {
		return &pending{done: w.done}, store.Outcome{}, nil
	}
	if pre.releases != s.Releases.Load() {
		return s.again()
	}
	if row, _ := s.overlayOutcome(b.ID); row != nil {
		out, err := s.answer(row, &b.Batch)
		if err != nil {
			return nil, store.Outcome{}, err
		}
		return nil, *out, nil
	}
	if pre.spent {
		return nil, store.Outcome{}, fmt.Errorf("%w: %s was used, and its outcome is no longer kept; the manifest has it under that trace", store.ErrTxnExpired, b.ID)
	}
	if decided, err := s.decidedMeanwhile(ctx, b); decided || err != nil {
		if err != nil {
			return nil, store.Outcome{}, err
		}
		return s.again()
	}
	v := s.judge(b, pre)
	switch {
	case v.retry:
		return s.again()
	case v.conflict != nil, v.err != nil:
		return nil, store.Outcome{}, s.refuse(b, v)
	}
	p, err := s.enqueue(b, pre, v)
	return p, store.Outcome{}, err
}

// again asks for another round at once.
func (s *Engine) again() (*pending, store.Outcome, error) {
	done := make(chan struct{})
	close(done)
	return &pending{done: done}, store.Outcome{}, nil
}

// blocker finds a batch in flight that this one must wait for: the same id, or an artefact it judges or writes.
func (q *sequencer) blocker(b *Request, writes []string) *pending {
	q.flight.Lock()
	defer q.flight.Unlock()
	if p := q.ids[b.ID]; p != nil {
		return p
	}
	if len(q.arts) == 0 { // not the queue: it is empty while a group is being installed
		return nil
	}
	for _, key := range writes {
		if p := q.arts[key]; p != nil {
			return p
		}
	}
	for _, e := range b.Expect {
		if p := q.arts[FlightKey(e.Ref.Scope, e.Ref.ID)]; p != nil {
			return p
		}
	}
	for _, c := range b.Context {
		if p := q.arts[FlightKey(c.Scope, c.ID)]; p != nil {
			return p
		}
	}
	return nil
}

// packPages pages of an artefact are many: their analyses are packed while they wait.
const packPages = 64
