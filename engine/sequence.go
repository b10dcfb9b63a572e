package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ctxpage/ctxpage/store"
	"github.com/oklog/ulid/v2"
)

// sequencer judges and numbers: the one place where an order is made. With the tail of the log in hand a batch is judged against the
// catalogue and the batches in flight, gets its LSN and its numbers, and enters the log; so the order of the log is the
// order of LSNs, of leaves, and of installs. Judging outside loses updates: two batches that read x@5 would both pass
// before either is installed.
//
//	prepared    outside: old heads read, what is cold encoded           prepare
//	blocked     one in flight has its id or an artefact it judges       waits for that one, and begins again
//	known       its id has an outcome                                   answered with it
//	refused     conflict, or stale context                              a leaf says so; the id stays free
//	in flight   numbered, in the log, not durable                       enter
//	installed   durable, visible, answered                              installer
//	lost        the log says that it never will be durable              takeBack; it is as if it had not been judged
//
// The tail of the log is first in the lock order after ckptMu; flight is a leaf below it, and is also taken by the installer.
type sequencer struct {
	watch *names // while gc runs: what it must know of commits that come meanwhile; guarded by the tail

	flight sync.Mutex // guards the following
	scopes map[string]uint32
	groups map[artKey]uint64 // names of the catalogue and of what is in flight
	arts   map[string]*Commit
	states map[string]*Commit // by key of a state row it writes
	ids    map[ulid.ULID]*Commit
	traces map[string]int // of leaves in flight, and their parents
	leaves int            // leaves in flight, also those of commits
	broken bool           // abandoned: nothing is taken into flight any more
}

func (q *sequencer) init() {
	q.scopes, q.groups = map[string]uint32{}, map[artKey]uint64{}
	q.arts, q.states, q.ids, q.traces = map[string]*Commit{}, map[string]*Commit{}, map[ulid.ULID]*Commit{}, map[string]int{}
}

// name takes the names of the catalogue and of what is in flight, and forgets others.
func (q *sequencer) name(c *catalogue) {
	q.flight.Lock()
	defer q.flight.Unlock()
	q.nameLocked(c)
}

func (q *sequencer) nameLocked(c *catalogue) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	clear(q.scopes)
	clear(q.groups)
	for name, n := range c.byName {
		q.scopes[name] = n
	}
	for k, n := range c.named {
		q.groups[k] = n
	}
	for _, commit := range q.ids {
		q.named(&commit.record)
	}
}

// named takes the names that a commit brings, and lets go of those that it forgets. The caller holds flight.
func (q *sequencer) named(c *commitRecord) {
	for _, n := range c.Scopes {
		q.scopes[n.Name] = n.Num
	}
	for _, g := range c.groups {
		q.groups[artKey{g.scope, g.name}] = g.num
	}
	for i := range c.Heads {
		if h := c.Heads[i].head; h.Forgotten {
			delete(q.groups, artKey{q.scopes[h.Scope], "\x00" + h.ID})
		}
	}
}

// scope is the number of a scope, group that of a group; 0: there is none.
func (q *sequencer) scope(name string) uint32 {
	q.flight.Lock()
	defer q.flight.Unlock()
	return q.scopes[name]
}

func (q *sequencer) nextScope() uint32 {
	q.flight.Lock()
	defer q.flight.Unlock()
	return uint32(len(q.scopes)) + 1
}

func (q *sequencer) group(k artKey) uint64 {
	q.flight.Lock()
	defer q.flight.Unlock()
	return q.groups[k]
}

// abandon wakes everybody who waits for a batch that will never be installed.
func (q *sequencer) abandon() {
	q.flight.Lock()
	defer q.flight.Unlock()
	q.broken = true
	for id, c := range q.ids {
		if !c.installing { // else the installer does
			close(c.done)
			delete(q.ids, id)
		}
	}
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
	// erase is what leaves the database for good; nil: nothing does.
	erase *erasure
	// Carried: the batch was held in another database. A conflict that it has by now waits for review with it.
	Carried bool
}

// Submit is Commit of a batch of the engine's own.
func (s *Engine) Submit(ctx context.Context, b Request) (store.Outcome, error) {
	done, err := s.admit(ctx, &b)
	if err != nil {
		return store.Outcome{}, err
	}
	defer done()
	for full := false; ; {
		r, err := s.sequence(ctx, &b)
		switch {
		case errors.Is(err, ErrLogFull) && !full && s.opts.Space.Relieve(ctx) == nil:
			full = true
		case err != nil:
			return store.Outcome{}, s.opts.Space.NoSpace(err, b.Bytes())
		case r.known != nil:
			return *r.known, nil
		case r.commit != nil:
			return s.settle(ctx, r.commit)
		case r.behind != nil:
			if err := s.wait(ctx, r.behind); err != nil {
				return store.Outcome{}, err
			}
		}
	}
}

// admit checks what needs no order, and waits where the file falls behind the log or the disk is full.
func (s *Engine) admit(ctx context.Context, b *Request) (done func(), err error) {
	if err := cmp.Or(s.Writable(), store.CheckClock(b.Now)); err != nil {
		return nil, err
	}
	if age := b.Now.Sub(ulid.Time(b.ID.Time())); age > outcomeDays {
		return nil, fmt.Errorf("%w: %s is %s old; use a new id", store.ErrTxnExpired, b.ID, age.Round(time.Hour))
	}
	if now := max(b.Now.UnixMilli(), 0); b.ID.Time() > uint64(now+idAhead.Milliseconds()) { // it would look like the present to what forgets old outcomes
		return nil, store.Invalid("batch id", b.ID.String()+", of "+ulid.Time(b.ID.Time()).UTC().Format(time.DateOnly), "a ULID of about now")
	}
	if err := b.CheckIDs(); err != nil {
		return nil, err
	}
	if b.Bound == nil {
		if err := b.Bind(); err != nil {
			return nil, err
		}
	}
	if err := s.throttle(ctx, &b.Batch); err != nil {
		return nil, err
	}
	return s.opts.Space.Admit(ctx, b.Bytes(), len(b.Puts) > 0)
}

// settle waits until a commit is installed.
func (s *Engine) settle(ctx context.Context, c *Commit) (store.Outcome, error) {
	go s.analyseBehind(c)
	err := s.log.Sync(ctx, c.Seq, c.done)
	switch {
	case err != nil:
		return store.Outcome{}, s.syncError(ctx, err)
	case c.lost:
		return store.Outcome{}, fmt.Errorf("ctxpage: log: %w", ErrNothing)
	case !c.installed: // the store failed meanwhile: durable, and never visible here
		return store.Outcome{}, s.Failure()
	}
	return c.outcome, nil
}

// Writable says why the store takes no commits: ErrClosed, ErrReadOnly, or what failed.
func (s *Engine) Writable() error {
	switch {
	case s.closed.Load():
		return store.ErrClosed
	case s.opts.ReadOnly:
		return store.ErrReadOnly
	}
	return s.Failure()
}

// syncError says what an error of Log.Sync means for who waited.
func (s *Engine) syncError(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return fmt.Errorf("%w: %w; it may still happen: repeat with the same id", store.ErrOutcomeUnknown, err)
	case errors.Is(err, ErrNothing):
		return fmt.Errorf("ctxpage: log: %w", err)
	}
	return s.Fail(err)
}

// wait is for a batch in flight. Somebody must drive the log while we wait: whoever entered it may have given up.
func (s *Engine) wait(ctx context.Context, c *Commit) error {
	err := s.log.Sync(ctx, 0, c.done) // not its own record: it may be about to get one
	switch {
	case errors.Is(err, ErrNothing):
		return nil // it is out of the way
	case err != nil:
		return s.syncError(ctx, err)
	}
	select {
	case <-c.done:
		return s.Failure()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// sequenced is how a round ended: one of these, or none: what prepare read is old, another round.
type sequenced struct {
	commit *Commit        // in flight
	behind *Commit        // in flight; it must be installed first
	known  *store.Outcome // of this id
}

// sequence prepares a batch, and judges and numbers it at the tail of the log.
func (s *Engine) sequence(ctx context.Context, b *Request) (sequenced, error) {
	pre, err := s.prepare(ctx, b)
	switch {
	case err != nil:
		return sequenced{}, err
	case pre.known != nil:
		return sequenced{known: pre.known}, nil
	}
	r, no, err := s.atTail(ctx, b, pre)
	if no != nil {
		err = s.refuse(ctx, b, *no)
	}
	return r, err
}

// atTail is the part of sequence that makes the order. no: the batch is refused, and a leaf is still to say so.
func (s *Engine) atTail(ctx context.Context, b *Request, pre *prepared) (r sequenced, no *judgement, err error) {
	tail, err := s.log.Acquire(ctx)
	if err != nil {
		return r, nil, fmt.Errorf("ctxpage: log: %w", err)
	}
	defer tail.Release()
	if err := s.Writable(); err != nil {
		return r, nil, err
	}
	if c := s.seq.blocker(b, pre.keys); c != nil {
		return sequenced{behind: c}, nil, nil
	}
	if pre.releases != s.releases.Load() {
		return r, nil, nil
	}
	if r.known, err = s.ended(b, pre); r.known != nil || err != nil {
		return r, nil, err
	}
	if decided, err := s.decidedMeanwhile(ctx, b); decided || err != nil {
		return r, nil, err
	}
	v := s.judge(b, pre)
	switch {
	case v.retry:
		return r, nil, nil
	case v.conflict != nil, v.err != nil:
		v.at = tail.Next().LSN - 1
		return r, &v, nil
	}
	if r.commit, err = s.build(b, pre, v, tail.Next()); err == nil {
		err = s.enter(tail, r.commit)
	}
	return r, nil, err
}

// ended is the outcome of an id that was installed since prepare looked. An id that the audit has and nobody has an
// outcome of is spent.
func (s *Engine) ended(b *Request, pre *prepared) (*store.Outcome, error) {
	if row := s.overlayOutcome(b.ID); row != nil {
		return s.answer(row, &b.Batch)
	}
	if pre.spent {
		return nil, fmt.Errorf("%w: %s was used, and its outcome is no longer kept; the manifest has it under that trace", store.ErrTxnExpired, b.ID)
	}
	return nil, nil
}

// blocker finds a batch in flight that this one must wait for: the same id, an artefact it judges or writes, or a state
// row it judges.
func (q *sequencer) blocker(b *Request, writes []string) *Commit {
	q.flight.Lock()
	defer q.flight.Unlock()
	if c := q.ids[b.ID]; c != nil {
		return c
	}
	for i := range b.ExpectState {
		if c := q.states[b.ExpectState[i].Key]; c != nil {
			return c
		}
	}
	if len(q.arts) == 0 {
		return nil
	}
	for _, key := range writes {
		if c := q.arts[key]; c != nil {
			return c
		}
	}
	for _, e := range b.Expect {
		if c := q.arts[FlightKey(e.Ref.Scope, e.Ref.ID)]; c != nil {
			return c
		}
	}
	for _, seen := range b.Context {
		if c := q.arts[FlightKey(seen.Scope, seen.ID)]; c != nil {
			return c
		}
	}
	return nil
}
