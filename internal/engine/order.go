package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/ctxpage/ctxpage/internal/archive"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/store"
	"github.com/oklog/ulid/v2"
)

// sequencer judges and numbers commits. It is the one place where an order is made. With the tail
// of the log in hand, a batch is judged against the catalogue and against the batches in flight,
// gets its LSN and numbers, and enters the log. So the order of the log is the order of LSNs, of
// leaves, and of installs. Judging outside would lose updates: two batches that read x@5 would both
// pass before either is installed.
//
//	state        meaning                                              left by
//
//	prepared     old heads are read and cold fields encoded, no lock  prepare
//	blocked      a batch in flight has its id or an artefact that     waits for that batch, then starts over
//	             it judges
//	known        its id already has an outcome                        answered with that outcome
//	refused      conflict or stale context                            a leaf says so; the id stays free
//	in flight    numbered, in the log, not durable                    enter
//	installed    durable, visible, answered                           installer
//	lost         the log will never have it                           Lost; as if it had not been judged
//
// A batch waits for a batch in flight on the same artefacts instead of being judged against it.
// Judging against the catalogue plus the effects of batches in flight would need a second
// catalogue, and a commit taken back (Lost) would take back every commit that was judged on top of
// it.
//
// Locks: the tail of the log comes after ckptMu in the lock order (db.go). flight comes after the
// tail, and the installer takes it too, without the tail. The maps hold commits in flight, so they
// are short.
//
// Crash: everything here is memory. A batch in flight at a crash is either in the log as a whole,
// and redo installs it, or not at all. Its caller never got an answer, and learns the outcome by
// sending the same id again.
type sequencer struct {
	watch *names // while gc runs: collects what new commits name; guarded by the tail

	flight sync.Mutex // guards the following
	line   []*Commit  // in their order
	arts   map[string]*Commit
	states map[string]*Commit // by the key of a state row that it writes
	ids    map[ulid.ULID]*Commit
	traces [traceSlots]int // leaves in flight, counted by their trace and their parent; traces share slots
	leaves int             // leaves in flight, also those of commits
	broken bool            // abandoned: nothing is taken into flight any more
}

// traceSlots is the number of counters of leaves in flight. Two traces that share one cost a
// reader of the audit a sync that it did not need. A map of the traces themselves was a fourteenth
// of a read.
const traceSlots = 256

func (q *sequencer) init() {
	q.arts, q.states, q.ids = map[string]*Commit{}, map[string]*Commit{}, map[ulid.ULID]*Commit{}
}

// scopeNumber returns the number of a scope, by the catalogue and then by the commits in flight; 0: there is none. A commit that
// was installed may still be in flight, which changes nothing: each sets or removes a name as a whole.
func (s *Engine) scopeNumber(name string) (num uint32) {
	s.seq.flight.Lock()
	defer s.seq.flight.Unlock()
	s.cat.mu.RLock()
	num = s.cat.byName[name]
	s.cat.mu.RUnlock()
	for _, c := range s.seq.line {
		for _, n := range c.record.Scopes {
			if n.Name == name {
				num = n.Num
			}
		}
		if goneScopes(c.record.State)[num] == name {
			num = 0
		}
	}
	return num
}

// nextScope returns the number of the next new scope: numbers are given once.
func (s *Engine) nextScope() uint32 {
	s.seq.flight.Lock()
	defer s.seq.flight.Unlock()
	s.cat.mu.RLock()
	last := uint32(len(s.cat.scopes.cols))
	s.cat.mu.RUnlock()
	for _, c := range s.seq.line {
		for _, n := range c.record.Scopes {
			last = max(last, n.Num)
		}
	}
	return last + 1
}

// groupNumber is scopeNumber for a group.
func (s *Engine) groupNumber(k artKey) (num uint64) {
	s.seq.flight.Lock()
	defer s.seq.flight.Unlock()
	s.cat.mu.RLock()
	num = s.cat.named[k]
	scope := s.cat.scopeName(k.scope)
	s.cat.mu.RUnlock()
	for _, c := range s.seq.line {
		for _, g := range c.record.Groups {
			if g.Scope == k.scope && g.Name == k.id {
				num = g.Num
			}
		}
		for i := range c.record.Heads {
			if h := c.record.Heads[i].Head; h.Forgotten && h.Scope == scope && "\x00"+h.ID == k.id {
				num = 0
			}
		}
		for i := range c.record.State {
			gone, ok := goneGroup(c.record.State[i].Key)
			of, _, all := goneScope(c.record.State[i].Key)
			if ok && gone == num || all && of == k.scope {
				num = 0
			}
		}
	}
	return num
}

// abandon wakes the callers that wait for batches that will never be installed. Batches that the
// installer has taken are left to it: only one of the two may close done.
func (q *sequencer) abandon() {
	q.flight.Lock()
	defer q.flight.Unlock()
	q.broken = true
	for id, c := range q.ids {
		if !c.installing { // otherwise the installer does
			close(c.done)
			delete(q.ids, id)
		}
	}
}

// Commit implements store.Store: the batch is durable, then visible, then answered.
func (s *Engine) Commit(ctx context.Context, b store.Batch) (store.Outcome, error) {
	if err := format.CheckCommit(&b); err != nil {
		return store.Outcome{}, err
	}
	return s.Submit(ctx, Request{Batch: b})
}

// Request is a batch, with instructions that only this package adds.
type Request struct {
	store.Batch
	// Carried: the batch was held in another database. Its preconditions are LSNs of that database,
	// so they are not compared.
	Carried bool

	extra *extra // what gc or an erase takes away; nil for the batch of a caller
}

// extra says what a batch of gc or of an erase takes away.
type extra struct {
	// drops are the versions that gc takes away. A version that is named by now stays, and its drop
	// says why.
	drops []*drop
	// forget are head rows that make gc remove the rows of dropped versions.
	forget []*store.Head
	// unname are scopes whose names gc takes away, if nothing is in them by then.
	unname []string
	// ungroup are groups, by scope and name, whose names an erase takes away, if nothing is in them
	// by then.
	ungroup []store.Ref
	grouped pastGroups
	// erase leaves the database for good; nil: nothing does.
	erase *erasure
}

// Submit commits a batch, like Commit, with the instructions of a Request. Each round of its loop
// ends in an outcome, in an error, or in the reason for another round: what prepare read is out of
// date, a batch in flight must go first, or the log was full and space was freed. Space is freed
// once only; a log that is full again is an error of the caller's batch.
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
			return store.Outcome{}, s.opts.Space.NoSpace(err, format.BatchBytes(&b.Batch))
		case r.known != nil:
			return *r.known, nil
		case r.commit != nil:
			out, err := s.awaitInstall(ctx, r.commit)
			if s.opts.Repeat && errors.Is(err, ErrNothing) && ctx.Err() == nil {
				continue
			}
			return out, err
		case r.behind != nil:
			if err := s.wait(ctx, r.behind); err != nil {
				return store.Outcome{}, err
			}
		}
	}
}

// admit makes the checks that need no order, and waits while the file is far behind the log or the
// disk is full. The caller calls done when the batch has ended.
func (s *Engine) admit(ctx context.Context, b *Request) (done func(), err error) {
	if err := s.Writable(); err != nil {
		return nil, err
	}
	if err := format.Admit(&b.Batch); err != nil {
		return nil, err
	}
	if err := s.throttle(ctx, &b.Batch); err != nil {
		return nil, err
	}
	return s.opts.Space.Admit(ctx, format.BatchBytes(&b.Batch), len(b.Puts) > 0)
}

// awaitInstall waits until a commit is installed. The caller syncs the log itself: there is no
// background goroutine that syncs, so a lone writer pays no goroutine switch. After an error of
// Sync other than ErrNothing it is unknown whether the commit is on disk, and the engine takes no
// more commits (Fail).
func (s *Engine) awaitInstall(ctx context.Context, c *Commit) (store.Outcome, error) {
	if c.large {
		go s.prebuild(c)
	}
	err := s.log.Sync(ctx, c.Seq, c.done)
	switch {
	case err != nil:
		return store.Outcome{}, s.syncError(ctx, err)
	case c.lost:
		return store.Outcome{}, fmt.Errorf("ctxpage: log: %w", ErrNothing)
	case !c.installed: // the store failed during the wait, or its log was closed: never visible here
		return store.Outcome{}, cmp.Or(s.Failure(), store.ErrOutcomeUnknown)
	}
	return c.outcome, nil
}

// Writable returns why the store takes no commits: ErrClosed, ErrReadOnly, or an earlier failure;
// nil: it takes them.
func (s *Engine) Writable() error {
	switch {
	case s.closed.Load():
		return store.ErrClosed
	case s.opts.ReadOnly:
		return store.ErrReadOnly
	}
	if p := s.failed.Load(); p != nil {
		return *p
	}
	return nil
}

// syncError turns an error of Log.Sync into the error for the caller that waited.
//
//	error of Sync                the commit                      the engine
//	of ctx                       may still become durable        goes on; the caller repeats the same id
//	ErrNothing                   the log will never have it      goes on
//	ErrOutcomeUnknown, closed    the log knows later             goes on
//	any other                    unknown                         fails (Fail)
func (s *Engine) syncError(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return fmt.Errorf("%w: %w; it may still happen: repeat with the same id", store.ErrOutcomeUnknown, err)
	case errors.Is(err, ErrNothing):
		return fmt.Errorf("ctxpage: log: %w", err)
	case errors.Is(err, store.ErrOutcomeUnknown), errors.Is(err, store.ErrClosed): // the log goes on and will know
		return fmt.Errorf("ctxpage: log: %w", err)
	}
	return s.Fail(err)
}

// wait waits for a batch in flight. We sync here because the goroutine that entered the batch may
// have given up (its context ended), and then no other caller would sync it. If the log lost the
// batch, it no longer stands in the way either.
func (s *Engine) wait(ctx context.Context, c *Commit) error {
	err := s.log.Sync(ctx, 0, c.done) // record 0: c may not have its record yet
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

// sequenced is the end of a round of Submit: one field is set, or none. Then the reads of prepare are out of date, and another
// round is due.
type sequenced struct {
	commit *Commit        // in flight
	behind *Commit        // this batch in flight must be installed first
	known  *store.Outcome // the outcome that the id already has
}

// sequence prepares a batch, then judges and numbers it at the tail of the log. The leaf of a
// refusal is written after the tail is released: it needs no place among commits.
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

// atTail is the part of sequence that makes the order. If no is set, the batch is refused and the
// caller still has to write a leaf that says so.
//
// The order of its steps matters. The failure of the engine is read first, because a failed log
// would take the commit and never sync it. blocker comes before overlayOutcome: an outcome that is
// in flight must be waited for. overlayOutcome comes before releases: a checkpoint takes no turn at
// the tail, so it may move an outcome into the rows between the two, and prepare looked there before.
// judge looks at releases once more under the lock that a release takes.
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
	if row := s.overlayOutcome(b.ID); row != nil { // installed since prepare looked
		r.known, err = s.answer(row, &b.Batch)
		return r, nil, err
	}
	if pre.releases != s.releases.Load() {
		return r, nil, nil
	}
	if pre.spent {
		return r, nil, fmt.Errorf("%w: %s was used, and its outcome is no longer kept; the manifest has it under that trace", store.ErrTxnExpired, b.ID)
	}
	if b.From != (ulid.ULID{}) {
		if h, err := s.Held(ctx, b.From); h.Decided != "" || err != nil { // decided since prepare, which must see it
			return r, nil, err
		}
	}
	v := s.judge(b, pre)
	switch {
	case v.retry:
		return r, nil, nil
	case v.conflict != nil, v.err != nil:
		v.at = tail.Next().LSN - 1
		return r, &v, nil
	}
	if r.commit, err = s.build(b, pre, v, tail.Next()); err != nil {
		return r, nil, err
	}
	if v.limited {
		if exceeded, behind, known := s.exceededQuota(r.commit, pre); exceeded != nil {
			v.err, v.at = exceeded, tail.Next().LSN-1
			return sequenced{}, &v, nil
		} else if behind != nil || !known {
			return sequenced{behind: behind}, nil, nil
		}
	}
	return r, nil, s.enter(tail, r.commit)
}

// blocker returns a batch in flight that this one must wait for: one with the same id, or one that
// writes an artefact or a state row that this one writes or judges, or a quota above its scope. nil:
// there is none.
func (q *sequencer) blocker(b *Request, writes []string) *Commit {
	q.flight.Lock()
	defer q.flight.Unlock()
	if c := q.ids[b.ID]; c != nil {
		return c
	}
	if c := q.quota(b.Scope); c != nil {
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
		if c := q.arts[flightKey(e.Ref.Scope, e.Ref.ID)]; c != nil {
			return c
		}
	}
	for _, seen := range b.Context {
		if c := q.arts[flightKey(seen.Scope, seen.ID)]; c != nil {
			return c
		}
	}
	return nil
}

// Commit is a batch that was judged and numbered, on its way through the log. done is closed at its
// end; outcome, installed and lost may be read from then on.
//
// Ownership of the record moves once. Until Tail.Commit has returned it belongs to the caller of
// sequence. From then on the log reads it (Append) and the installer changes it: analyses and the
// index that is built go to the index, and are cleared because the record is kept for a while.
// Exactly one of installer, Lost, enter and abandon closes done; installing and broken, both under
// flight, decide which.
type Commit struct {
	Seq   uint64   // its record in the log; set by the Log before anyone else sees the commit
	After Counters // the numbers for the next commit

	record  format.Commit
	leaf    archive.Leaf // record.body
	trace   string       // id of the batch, by which the audit finds the leaf
	parent  string       // trace that the leaf names
	keys    []string     // see writeKeys
	outcome store.Outcome
	scope   string
	use     use // what it adds to its quotas
	held    int // how many batches it adds to those that wait for review
	done    chan struct{}
	large   bool      // its texts are inverted before it is installed
	built   sync.Once // prebuild

	installing bool // the installer has it and will close done; under flight
	installed  bool
	lost       bool // taken back
}

// Frees reports whether the commit only removes data. Such commits (deletes, gc) must succeed on a
// full disk.
func (c *Commit) Frees() bool { return c.record.Frees() }

// Append appends the body of the commit's record to b. Only Tail.Commit may call it: later the
// engine changes the record.
func (c *Commit) Append(b []byte) []byte { return c.record.Encode(b) }

// enter puts a commit into flight and into the log. Its names count as taken from here on, its
// numbers from Tail.Commit on. If the log refuses the record, everything is put back; the numbers
// were never moved.
func (s *Engine) enter(tail Tail, c *Commit) error {
	q := &s.seq
	if !q.take(c) {
		return s.Failure()
	}
	if err := tail.Commit(c); err != nil {
		q.flight.Lock()
		defer q.flight.Unlock()
		q.drop(c)
		c.lost = true
		if !q.broken { // otherwise abandon closed it
			close(c.done)
		}
		return enqueueError(err)
	}
	return nil
}

// take puts a commit into flight before the log has it. The other order would let the log report it
// Durable before it is in flight.
func (q *sequencer) take(c *Commit) bool {
	q.flight.Lock()
	defer q.flight.Unlock()
	if q.broken { // since the caller looked: its done would never be closed
		return false
	}
	q.ids[c.record.Batch] = c
	for _, k := range c.keys {
		q.arts[k] = c
	}
	for i := range c.record.State {
		q.states[c.record.State[i].Key] = c
	}
	q.line = append(q.line, c)
	q.trace(c.trace, c.parent, 1)
	return true
}

// drop takes a commit out of flight. The caller holds flight. A later commit may write the same
// artefact and stand in the map by now; then its entry stays.
func (q *sequencer) drop(c *Commit) {
	delete(q.ids, c.record.Batch)
	q.line = slices.DeleteFunc(q.line, func(x *Commit) bool { return x == c })
	for _, k := range c.keys {
		if q.arts[k] == c {
			delete(q.arts, k)
		}
	}
	for i := range c.record.State {
		if k := c.record.State[i].Key; q.states[k] == c {
			delete(q.states, k)
		}
	}
	q.trace(c.trace, c.parent, -1)
}

// trace counts a leaf in flight under what the audit finds it by. Most reads have no parent. The
// caller holds flight.
func (q *sequencer) trace(trace, parent string, n int) {
	q.leaves += n
	for _, t := range [...]string{trace, parent} {
		if t == "" { // flying counts leaves then
			continue
		}
		q.traces[archive.HashTrace(t)%traceSlots] += n
	}
}

// leaf is trace for a leaf without a commit, which has the hashes of both. The caller holds flight.
func (q *sequencer) leaf(l *Leaf, n int) {
	q.leaves += n
	q.traces[l.leaf.Trace()%traceSlots] += n
	if parent, ok := l.leaf.Parent(); ok {
		q.traces[parent%traceSlots] += n
	}
}

// Lost implements Follower. It takes back commits that the log will never have. No reader has seen
// them, and the next commits get their numbers.
func (s *Engine) Lost(entries []Entry) {
	q := &s.seq
	q.flight.Lock()
	defer q.flight.Unlock()
	for _, e := range entries {
		if e.Commit == nil {
			q.leaf(e.Leaf, -1)
			continue
		}
		q.drop(e.Commit)
		e.Commit.lost = true
		close(e.Commit.done)
	}
}

// inFlight counts leaves without a commit into flight (n = 1) or out of it (n = -1).
func (q *sequencer) inFlight(leaves []*Leaf, n int) {
	q.flight.Lock()
	defer q.flight.Unlock()
	for _, l := range leaves {
		q.leaf(l, n)
	}
}
