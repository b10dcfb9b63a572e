package engine

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/ctxpage/ctxpage/store"
	"github.com/oklog/ulid/v2"
)

// combiner lets one goroutine judge the batches of all that wait for the tail (flat combining). The
// goroutine that has the lead acquires the tail, judges what waits in the order it came, and answers
// when it has released the tail.
//
// Why: otherwise the tail passes through as many goroutines as there are writers, and each must be
// scheduled while the others wait. In a log on a server other hosts wait too, because the tail is a
// lock there. A log in a file does without (Options.Combine): its tail is a mutex, held for the 10 µs
// that judging takes, and with 8 and 64 writers a put took 1.03 of the CPU with a combiner.
//
//	waits       its batch is in queue
//	leads       it has the token
//	taken       the goroutine that leads judges the batch, and closes answered
//	withdrawn   its context ended while it waited: the batch was never judged
//
// Lock order: the lead comes before the tail. mu is a leaf.
type combiner struct {
	lead chan struct{} // a token

	mu    sync.Mutex
	queue []*waiting
	spare []*waiting // memory for the next queue; only the goroutine that leads uses it
}

// waiting is a prepared batch in the queue, and its answer. The answer is written by the goroutine
// that leads, and may be read when answered is closed.
type waiting struct {
	ctx context.Context
	b   Request // a copy: a batch that finds the lead free stays out of the heap
	pre *prepared

	answered chan struct{}
	result   sequenced
	refused  *judgement
	err      error
}

func (q *combiner) init() {
	q.lead = make(chan struct{}, 1)
	q.lead <- struct{}{}
}

// add puts a batch at the end of the queue.
func (q *combiner) add(w *waiting) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.queue = append(q.queue, w)
}

// waits reports whether a batch is still in the queue.
func (q *combiner) waits(w *waiting) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Contains(q.queue, w)
}

// withdraw takes a batch out of the queue. False: it was taken, and will be answered.
func (q *combiner) withdraw(w *waiting) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := len(q.queue)
	q.queue = slices.DeleteFunc(q.queue, func(x *waiting) bool { return x == w })
	return len(q.queue) < n
}

// take appends the queue to some and empties it. The lead is held.
func (q *combiner) take(some []*waiting) []*waiting {
	q.mu.Lock()
	defer q.mu.Unlock()
	some = append(some, q.queue...)
	clear(q.queue)
	q.queue = q.queue[:0]
	return some
}

// atTail is the part of sequence that makes the order. If no is set, the batch is refused and the
// caller still has to write a leaf that says so.
func (s *Engine) atTail(ctx context.Context, b *Request, pre *prepared) (r sequenced, no *judgement, err error) {
	if !s.opts.Combine {
		tail, err := s.log.Acquire(ctx)
		if err != nil {
			return r, nil, fmt.Errorf("ctxpage: log: %w", err)
		}
		defer tail.Release()
		return s.place(ctx, tail, b, pre)
	}
	select {
	case <-s.seq.lead:
		s.combine(ctx, func(tail Tail, terr error) {
			if err = terr; err == nil {
				r, no, err = s.place(ctx, tail, b, pre)
			}
		})
		return r, no, err
	default:
		return s.waitForTail(ctx, b, pre)
	}
}

// waitForTail is atTail while another goroutine leads: that one judges the batch, or this one does
// when it gets the lead first.
func (s *Engine) waitForTail(ctx context.Context, b *Request, pre *prepared) (sequenced, *judgement, error) {
	q, w := &s.seq.combiner, &waiting{ctx: ctx, b: *b, pre: pre, answered: make(chan struct{})}
	q.add(w)
	select {
	case <-w.answered:
	case <-q.lead:
		if !q.waits(w) { // it was answered at the same moment
			q.lead <- struct{}{}
			break
		}
		s.combine(ctx, func(_ Tail, err error) {
			if err != nil && q.withdraw(w) {
				w.err = err
				close(w.answered)
			}
		})
	case <-ctx.Done():
		if q.withdraw(w) {
			return sequenced{}, nil, fmt.Errorf("ctxpage: log: %w", context.Cause(ctx))
		}
	}
	<-w.answered
	return w.result, w.refused, w.err
}

// combine acquires the tail, calls own, judges what waits, and puts the lead back.
//
// Nobody is answered before the tail is released: in a log on a server a commit has its group only
// then, and Sync would not find it. An error of Acquire goes to all that wait, because it is about
// the log. Only the end of ctx concerns the caller alone.
func (s *Engine) combine(ctx context.Context, own func(Tail, error)) {
	q := &s.seq.combiner
	some := q.spare[:0]
	defer func() {
		for _, w := range some {
			close(w.answered)
		}
		clear(some)
		q.spare = some[:0]
		q.lead <- struct{}{}
	}()
	tail, err := s.log.Acquire(ctx)
	if err != nil {
		err = fmt.Errorf("ctxpage: log: %w", err)
		if own(nil, err); ctx.Err() == nil {
			some = q.take(some)
		}
		for _, w := range some {
			w.err = err
		}
		return
	}
	defer tail.Release()
	own(tail, nil)
	some = q.take(some)
	for n := 0; n < len(some); some = q.take(some) {
		for ; n < len(some); n++ {
			some[n].judge(s, tail)
		}
	}
}

// judge makes the answer. A batch whose context ended while it waited is not judged.
func (w *waiting) judge(s *Engine, tail Tail) {
	if w.ctx.Err() != nil {
		w.err = fmt.Errorf("ctxpage: log: %w", context.Cause(w.ctx))
		return
	}
	w.result, w.refused, w.err = s.place(w.ctx, tail, &w.b, w.pre)
}

// place judges one batch and enters it into the log.
//
// The order of its steps matters. The failure of the engine is read first, because a failed log
// would take the commit and never sync it. blocker comes before overlayOutcome: an outcome that is
// in flight must be waited for. releases comes before it as well: if a checkpoint has moved an
// overlay into the rows since prepare read them, an outcome may be in neither of the places.
func (s *Engine) place(ctx context.Context, tail Tail, b *Request, pre *prepared) (r sequenced, no *judgement, err error) {
	if err := s.Writable(); err != nil {
		return r, nil, err
	}
	if c := s.seq.blocker(b, pre.keys); c != nil {
		return sequenced{behind: c}, nil, nil
	}
	if pre.releases != s.releases.Load() {
		return r, nil, nil
	}
	if row := s.overlayOutcome(b.ID); row != nil { // installed since prepare looked
		r.known, err = s.answer(row, &b.Batch)
		return r, nil, err
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
		if exceeded, behind := s.exceededQuota(r.commit, pre); exceeded != nil {
			v.err, v.at = exceeded, tail.Next().LSN-1
			return sequenced{}, &v, nil
		} else if behind != nil {
			return sequenced{behind: behind}, nil, nil
		}
	}
	return r, nil, s.enter(tail, r.commit)
}
