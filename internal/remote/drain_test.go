package remote_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage/internal/remote"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
)

// watched tells when a client waits for changes.
type watched struct {
	store.Store
	asked chan struct{}
}

func (w *watched) Changes(ctx context.Context, after uint64, wait time.Duration) (store.Changes, error) {
	w.asked <- struct{}{}
	return w.Store.Changes(ctx, after, wait)
}

// A server that drains ends the calls that wait at it. The client makes them again, at whoever serves then: the caller must not see
// that the server was closing. The control: an error of the store itself is no reason to ask again.
func TestWaitingCallOutlivesItsServer(t *testing.T) {
	t.Parallel()
	path := socket(t)
	st := &watched{newMemory(t), make(chan struct{}, 100)}
	srv := must(remote.NewServer(context.Background(), st, remote.ServerOptions{}))(t)
	l := must(remote.Listen(path))(t)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	c := dial(t, path, remote.ClientOptions{RetryFor: time.Minute})
	type result struct {
		store.Changes
		err error
	}
	got := make(chan result, 1)
	go func() {
		ch, err := c.Changes(ctx, 0, time.Minute)
		got <- result{ch, err}
	}()
	<-st.asked
	srv.Drain()
	require.NoError(t, errors.Join(srv.Close(), <-served))
	must(st.Commit(ctx, fact(t, "a", "words")))(t)
	serve(t, st, path, remote.ServerOptions{})
	r := <-got
	require.NoError(t, r.err)
	require.EqualValues(t, 1, r.LSN)

	begun := len(st.asked)
	require.NoError(t, st.Close())
	require.ErrorIs(t, errOf(c.Changes(ctx, 0, 0)), store.ErrClosed)
	require.Equal(t, begun+1, len(st.asked))
}

// talkative reports more than a socket holds, says so, and works until it is ended.
type talkative struct {
	store.Store
	told  chan struct{}
	count atomic.Int64 // of reports that returned
}

func (s *talkative) Maintain(ctx context.Context, _ store.Job, progress store.Progress) (store.JobReport, error) {
	what := strings.Repeat("x", 64<<10)
	for i := range uint64(200) {
		progress(what, i, i)
		s.count.Add(1)
	}
	close(s.told)
	<-ctx.Done()
	return store.JobReport{}, ctx.Err()
}

// A client that was stopped does not hold up the job whose progress it is told, nor the server that drains: its answers wait for
// the client, and nobody else does.
func TestStoppedListenerHoldsUpNobody(t *testing.T) {
	t.Parallel()
	path := socket(t)
	st := &talkative{Store: newMemory(t), told: make(chan struct{})}
	srv := must(remote.NewServer(ctx, st, remote.ServerOptions{}))(t)
	l := must(remote.Listen(path))(t)
	go srv.Serve(l)
	defer srv.Close()
	c := must(remote.Connect(context.Background(), path))(t)
	defer c.Close()
	session := must(remote.HelloOn(c))(t)
	must(c.Write(remote.Call(1, session, "Maintain", []byte{0x80})))(t)
	soon := time.After(20 * time.Second) // a write of the server waits 30 s for its reader
	select {
	case <-st.told:
	case <-soon:
		t.Fatalf("the job waits for its client after %d reports", st.count.Load())
	}
	drained := make(chan struct{})
	go func() { srv.Drain(); close(drained) }()
	select {
	case <-drained:
	case <-soon:
		t.Fatal("the server waits for a client that does not read")
	}
}

// halfway is a store whose jobs and listings give something beside an error.
type halfway struct {
	store.Store
	begun chan struct{}
	deaf  chan struct{} // of jobs that do not end with their caller; nil: they do
}

func (s *halfway) Maintain(ctx context.Context, _ store.Job, _ store.Progress) (store.JobReport, error) {
	s.begun <- struct{}{}
	if s.deaf != nil {
		<-s.deaf
		return store.JobReport{}, nil
	}
	<-ctx.Done()
	return store.JobReport{Bytes: 7}, ctx.Err()
}

func (s *halfway) Stat(context.Context) (store.StoreStats, error) {
	return store.StoreStats{Held: 5}, store.ErrCorrupt
}

// late is a context whose deadline passes when the test says so.
type late struct {
	context.Context
	over chan struct{}
}

func (c late) Done() <-chan struct{} { return c.over }

func (c late) Err() error {
	select {
	case <-c.over:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// What a call gives beside an error, a client gets, too. A job that its caller ended says what it had done, and its outcome is
// known. The controls: a call without an error; a job that does not end, whose outcome is unknown soon.
func TestValueBesideAnError(t *testing.T) {
	t.Parallel()
	st := &halfway{Store: newMemory(t), begun: make(chan struct{}, 1)}
	path := socket(t)
	serve(t, st, path, remote.ServerOptions{})
	c := dial(t, path, remote.ClientOptions{})
	stats, err := c.Stat(ctx)
	require.ErrorIs(t, err, store.ErrCorrupt)
	require.Equal(t, 5, stats.Held)
	head := must(c.Head(ctx))(t)
	require.NotZero(t, head)

	gc := store.Job{Kind: store.JobGC, GC: &store.GCJob{By: "ann"}}
	run, cancel := context.WithCancel(ctx)
	go func() { <-st.begun; cancel() }()
	rep, err := c.Maintain(run, gc, nil)
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, store.ErrOutcomeUnknown)
	require.EqualValues(t, 7, rep.Bytes)
	over := make(chan struct{})
	go func() { <-st.begun; close(over) }()
	rep, err = c.Maintain(late{ctx, over}, gc, nil)
	require.ErrorIs(t, err, context.DeadlineExceeded, "the error is that of the caller's context")
	require.NotErrorIs(t, err, store.ErrOutcomeUnknown)
	require.EqualValues(t, 7, rep.Bytes)

	deaf := &halfway{Store: newMemory(t), begun: make(chan struct{}, 1), deaf: make(chan struct{})}
	path = socket(t)
	serve(t, deaf, path, remote.ServerOptions{})
	defer close(deaf.deaf)
	c = dial(t, path, remote.ClientOptions{Answer: 4 * time.Second})
	run, cancel = context.WithCancel(ctx)
	go func() { <-deaf.begun; cancel() }()
	_, err = c.Maintain(run, gc, nil)
	require.ErrorIs(t, err, store.ErrOutcomeUnknown)
	require.ErrorIs(t, err, context.Canceled)
}

// A time that its zone puts into the year 10000 is refused by a client as by the store: it travels without its zone.
func TestClockOfAClient(t *testing.T) {
	t.Parallel()
	path := socket(t)
	serve(t, newMemory(t), path, remote.ServerOptions{})
	b := fact(t, "a", "words")
	b.Now = time.Date(9999, 12, 31, 23, 0, 0, 0, time.UTC).In(time.FixedZone("east", 14*3600))
	require.ErrorIs(t, errOf(dial(t, path, remote.ClientOptions{}).Commit(ctx, b)), store.ErrInvalid)
}

// Owners that end one after the other in the middle of a call are no reason to give it up: the time for which it is tried again is
// that of one owner. The control: one that cuts every connection is given up.
func TestManyOwnersEnd(t *testing.T) {
	t.Parallel()
	const retryFor = time.Second
	for _, another := range []int64{1, 0} {
		path := socket(t)
		serve(t, newMemory(t), path, remote.ServerOptions{})
		through := socket(t)
		l := must(remote.Listen(through))(t)
		defer l.Close()
		var until atomic.Pointer[time.Time] // connections are cut
		until.Store(new(time.Time))
		var pid atomic.Int64
		pid.Store(1)
		var mu sync.Mutex
		var conns []net.Conn
		cut := func() {
			mu.Lock()
			defer mu.Unlock()
			for _, c := range conns {
				_ = c.Close()
			}
		}
		defer cut()
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				if time.Now().Before(*until.Load()) {
					_ = c.Close()
					continue
				}
				s, err := remote.Connect(context.Background(), path)
				if err != nil {
					_ = c.Close()
					continue
				}
				mu.Lock()
				conns = append(conns, c, s)
				mu.Unlock()
				go func() { _, _ = io.Copy(s, c); _ = s.Close() }()
				go func() { _, _ = io.Copy(c, s); _ = c.Close() }()
			}
		}()
		c := dial(t, through, remote.SeesProcess(remote.ClientOptions{RetryFor: retryFor}, func() int { return int(pid.Add(another)) }))
		must(c.Head(ctx))(t)
		then := time.Now().Add(3 * retryFor)
		if another == 0 {
			then = then.Add(time.Hour)
		}
		until.Store(&then)
		cut()
		_, err := c.Head(ctx)
		if another != 0 {
			require.NoError(t, err)
			continue
		}
		var un *remote.UnavailableError
		require.ErrorAs(t, err, &un)
	}
}
