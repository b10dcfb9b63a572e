package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
)

// slowTail is a log whose tail is handed out when the test says so.
type slowTail struct {
	Log
	acquired chan struct{} // a goroutine waits for the tail
	answer   chan error    // what it gets
	taken    int           // how often the tail was given
	released func()        // called before Release
}

func (l *slowTail) Acquire(ctx context.Context) (Tail, error) {
	l.acquired <- struct{}{}
	if err := <-l.answer; err != nil {
		return nil, err
	}
	l.taken++
	tail, err := l.Log.Acquire(ctx)
	return slowRelease{tail, l}, err
}

type slowRelease struct {
	Tail
	l *slowTail
}

func (r slowRelease) Release() {
	if r.l.released != nil {
		r.l.released()
	}
	r.Tail.Release()
}

// newSlowTail is an engine over such a log, and commits of some batches: the first leads, the others wait in their order.
func newSlowTail(t *testing.T, ctxs ...context.Context) (m *memory, l *slowTail, batches []store.Batch, answers []chan error) {
	m = newMemory(t, time.Now)
	l = &slowTail{Log: m.host, acquired: make(chan struct{}, len(ctxs)), answer: make(chan error, len(ctxs))}
	m.Attach(l)
	m.opts.Combine = true
	for i, ctx := range ctxs {
		b := m.batch("acme", store.Artefact{ID: fmt.Sprint("a", i), Text: fmt.Sprint("words of ", i)})
		answer := make(chan error, 1)
		batches, answers = append(batches, b), append(answers, answer)
		go func() {
			_, err := m.Commit(ctx, b)
			answer <- err
		}()
		if i == 0 {
			<-l.acquired
			continue
		}
		require.Eventually(t, func() bool { return m.inQueue() == i }, time.Minute, time.Millisecond)
	}
	return m, l, batches, answers
}

func (m *memory) inQueue() int {
	m.seq.combiner.mu.Lock()
	defer m.seq.combiner.mu.Unlock()
	return len(m.seq.queue)
}

// TestCombined: the tail is taken once for all that wait for it. They are judged in the order in which they came, and nobody is
// answered before it is released.
func TestCombined(t *testing.T) {
	ctx := t.Context()
	m, l, batches, answers := newSlowTail(t, ctx, ctx, ctx, ctx)
	waits := slices.Clone(m.seq.queue)
	var ch []chan struct{}
	for _, w := range waits {
		ch = append(ch, w.answered)
	}
	judged, early := 0, 0
	l.released = func() {
		judged = len(m.host.flying)
		for _, w := range waits {
			select {
			case <-w.answered:
				early++
			default:
			}
		}
	}
	l.answer <- nil
	for i, b := range batches {
		require.NoError(t, <-answers[i])
		out, err := m.Outcome(ctx, b.ID)
		require.NoError(t, err)
		require.EqualValues(t, i+1, out.LSN)
	}
	require.Equal(t, 1, l.taken)
	require.Len(t, waits, 3)
	require.Equal(t, 4, judged)
	require.Zero(t, early)
}

// TestCombinedConflict: each of those that wait gets its own answer, also that of a batch that must wait for one judged just before.
func TestCombinedConflict(t *testing.T) {
	m := newMemory(t, time.Now)
	l := &slowTail{Log: m.host, acquired: make(chan struct{}, 9), answer: make(chan error, 9)}
	m.Attach(l)
	m.opts.Combine = true
	batches := []store.Batch{m.batch("acme", store.Artefact{ID: "other", Text: "x"}), m.batch("acme", store.Artefact{ID: "a", Text: "one"}), m.batch("acme", store.Artefact{ID: "a", Text: "two"})}
	batches[1].Expect, batches[2].Expect = expect(0), expect(0)
	answers := make([]chan error, len(batches))
	for i, b := range batches {
		answers[i] = make(chan error, 1)
		go func() {
			_, err := m.Commit(t.Context(), b)
			answers[i] <- err
		}()
		if i == 0 {
			<-l.acquired
		} else {
			require.Eventually(t, func() bool { return m.inQueue() == i }, time.Minute, time.Millisecond)
		}
	}
	for range 9 {
		l.answer <- nil
	}
	require.NoError(t, <-answers[0])
	require.NoError(t, <-answers[1])
	require.ErrorIs(t, <-answers[2], store.ErrConflict)
}

// TestWithdrawn: who waits for the tail may give up, and was not judged then. So may who leads; another one leads after it.
func TestWithdrawn(t *testing.T) {
	leader, endLeader := context.WithCancel(t.Context())
	waiter, endWaiter := context.WithCancel(t.Context())
	m, l, batches, answers := newSlowTail(t, leader, waiter, t.Context())
	endWaiter()
	err := <-answers[1]
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, store.ErrOutcomeUnknown)
	endLeader()
	l.answer <- context.Canceled
	require.ErrorIs(t, <-answers[0], context.Canceled)
	<-l.acquired
	l.answer <- nil
	require.NoError(t, <-answers[2])
	for _, b := range batches[:2] {
		_, err := m.Outcome(t.Context(), b.ID)
		require.ErrorIs(t, err, store.ErrNotFound)
	}
	require.EqualValues(t, 1, m.Position().LSN)
}

// TestEndedBeforeJudged: a batch whose context ended while it waited is not judged, even if it was taken from the queue.
func TestEndedBeforeJudged(t *testing.T) {
	m := newMemory(t, time.Now)
	ctx, end := context.WithCancel(t.Context())
	w := &waiting{ctx: ctx, b: Request{Batch: m.batch("acme", store.Artefact{ID: "a", Text: "words"})}}
	var err error
	w.pre, err = m.prepare(ctx, &w.b)
	require.NoError(t, err)
	end()
	tail, err := m.host.Acquire(t.Context())
	require.NoError(t, err)
	w.judge(m.Engine, tail)
	tail.Release()
	require.ErrorIs(t, w.err, context.Canceled)
	require.Nil(t, w.result.commit)
	require.Empty(t, m.host.flying)
}

// TestNoTail: what is wrong with the log is the answer to all that wait for it.
func TestNoTail(t *testing.T) {
	ctx := t.Context()
	_, l, _, answers := newSlowTail(t, ctx, ctx, ctx)
	away := errors.New("the server is away")
	l.answer <- away
	for _, answer := range answers {
		require.ErrorIs(t, <-answer, away)
	}
	require.Zero(t, l.taken)
}
