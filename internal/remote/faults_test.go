package remote_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/remote"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/storetest"
	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"
)

var ctx = context.Background()

func newMemory(t testing.TB) *storetest.Memory {
	t.Helper()
	return must(storetest.NewMemory(storetest.Config{}))(t)
}

// fact is a batch that puts one page.
func fact(t testing.TB, id, text string) store.Batch {
	t.Helper()
	p := store.Put{Artefact: store.Artefact{ID: id, Kind: store.KindFact, CurrentAsOf: time.Now()}, Counter: "words"}
	p.Artefact.KindDefaults()
	n := store.NewPage{Text: text, Tokens: 1, Hash: store.ContentHash(text)}
	n.Digest = store.SaltedDigest(n.Salt[:], text)
	p.Pages = []store.NewPage{n}
	return store.Batch{ID: ulid.Make(), Scope: "acme", Actor: "writer", Now: time.Now(), Puts: []store.Put{p}, Leaf: manifest.Record{Type: manifest.TypeCommit, By: "host"}}
}

// proxy stands between a client and a server, and cuts connections: the next ones when they are made, after bytes of the
// request went through, before any of the answer does, or after bytes of it.
type proxy struct {
	t      testing.TB
	to     atomic.Value // string
	cutAsk atomic.Int64 // bytes of requests that go through before the cut, below 0: no cut
	cutAns atomic.Int64 // bytes of answers, likewise
	cuts   atomic.Int64
	mu     sync.Mutex
	conns  map[net.Conn]bool
}

func newProxy(t testing.TB, to string) (*proxy, string) {
	p := &proxy{t: t, conns: map[net.Conn]bool{}}
	p.to.Store(to)
	p.cutAsk.Store(-1)
	p.cutAns.Store(-1)
	path := socket(t)
	l := must(remote.Listen(path))(t)
	t.Cleanup(func() { _ = l.Close(); p.cutAll() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go p.pass(c)
		}
	}()
	return p, path
}

func (p *proxy) pass(c net.Conn) {
	s, err := remote.Connect(context.Background(), p.to.Load().(string))
	if err != nil {
		_ = c.Close()
		return
	}
	p.mu.Lock()
	p.conns[c], p.conns[s] = true, true
	p.mu.Unlock()
	go p.copy(s, c, &p.cutAsk)
	p.copy(c, s, &p.cutAns)
}

// copy passes bytes on until a cut is due.
func (p *proxy) copy(to, from net.Conn, left *atomic.Int64) {
	defer func() { _ = to.Close(); _ = from.Close() }()
	b := make([]byte, 4096)
	for {
		n, err := from.Read(b)
		if err != nil {
			return
		}
		if at := left.Load(); at >= 0 && int64(n) > at {
			if left.CompareAndSwap(at, -1) { // once
				p.cuts.Add(1)
				_, _ = to.Write(b[:at])
				return
			}
		} else if at >= 0 {
			left.Add(-int64(n))
		}
		if _, err := to.Write(b[:n]); err != nil {
			return
		}
	}
}

func (p *proxy) cutAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
	clear(p.conns)
}

// counting counts what reaches a store, and how often a batch was applied.
type counting struct {
	store.Store
	commits, appends atomic.Int64
}

func (c *counting) Commit(ctx context.Context, b store.Batch) (store.Outcome, error) {
	c.commits.Add(1)
	return c.Store.Commit(ctx, b)
}

func (c *counting) Append(ctx context.Context, leaves []*manifest.Record, d store.Durability) error {
	c.appends.Add(1)
	return c.Store.Append(ctx, leaves, d)
}

// A connection that is cut anywhere in a request or its answer is not noticed: each commit is applied once, each leaf
// stands once, each answer is that of the first.
func TestCutsApplyOnce(t *testing.T) {
	t.Parallel()
	const asks, step, answers = 360, 9, 40
	mem := newMemory(t)
	st := &counting{Store: mem}
	path := socket(t)
	serve(t, st, path, remote.ServerOptions{})
	p, through := newProxy(t, path)
	c := dial(t, through, remote.ClientOptions{})
	n := int64(0)
	cut := func(which *atomic.Int64, at int64) {
		which.Store(at)
		batch := fact(t, fmt.Sprint("fact ", n), "zebra")
		out := must(c.Commit(ctx, batch))(t)
		n++
		require.EqualValues(t, n, out.LSN, "applied once")
		size := dbtest.SizeOf(mem.Audit())
		which.Store(at)
		leaf := &manifest.Record{Type: manifest.TypeGet, Trace: fmt.Sprint("read ", n), Time: 1}
		require.NoError(t, c.Append(ctx, []*manifest.Record{leaf}, store.Written))
		require.Equal(t, size, leaf.Index)
		require.Equal(t, size+1, dbtest.SizeOf(mem.Audit()), "appended once")
		which.Store(at)
		got := must(c.Outcome(ctx, batch.ID))(t)
		require.Equal(t, out, got)
		which.Store(-1)
	}
	for at := int64(0); at < asks; at += step {
		cut(&p.cutAsk, at)
		cut(&p.cutAns, at%answers)
	}
	require.Greater(t, p.cuts.Load(), int64(80), "the proxy cut")
	require.EqualValues(t, n, st.appends.Load(), "the server knew the repeated calls")
}

// The control: a caller that repeats an append whose answer was cut off, as a call of its own, has two leaves.
func TestCutsApplyOnceControl(t *testing.T) {
	t.Parallel()
	mem := newMemory(t)
	path := socket(t)
	serve(t, mem, path, remote.ServerOptions{})
	p, through := newProxy(t, path)
	c := dial(t, through, remote.ClientOptions{RetryFor: 1})
	must(c.Info(ctx))(t) // makes the stream
	leaf := &manifest.Record{Type: manifest.TypeGet, Trace: "read", Time: 1}
	p.cutAns.Store(0)
	p.to.Store(socket(t)) // nobody listens there: it is not answered when it is sent again, however coarse the clock is
	require.ErrorIs(t, c.Append(ctx, []*manifest.Record{leaf}, store.Written), store.ErrOutcomeUnknown)
	p.to.Store(path)
	require.NoError(t, c.Append(ctx, []*manifest.Record{leaf}, store.Written))
	require.EqualValues(t, 2, dbtest.SizeOf(mem.Audit()))
}

// A server that is replaced by another one on the same store: what was sent is known by its id, and holds go on.
func TestServerReplaced(t *testing.T) {
	t.Parallel()
	mem := newMemory(t)
	path := socket(t)
	end := serve(t, mem, path, remote.ServerOptions{})
	c := dial(t, path, remote.ClientOptions{RetryFor: time.Minute})
	batch := fact(t, "fact", "zebra")
	out := must(c.Commit(ctx, batch))(t)
	at := store.Moment{LSN: c.Mark().LSN, Time: time.Now()}
	ticket := must(c.Hold(ctx, at))(t)
	end()
	began := time.Now()
	back := make(chan struct{})
	go func() {
		defer close(back)
		time.Sleep(100 * time.Millisecond)
		serve(t, mem, path, remote.ServerOptions{})
	}()
	again := must(c.Commit(ctx, batch))(t)
	require.Equal(t, out, again, "the store knows the id")
	require.GreaterOrEqual(t, time.Since(began), 100*time.Millisecond)
	<-back
	second := must(c.Commit(ctx, fact(t, "fact", "okapi")))(t)
	gc := store.Job{Kind: store.JobGC, GC: &store.GCJob{KeepRecords: 4, KeepNames: 4}}
	rep := must(c.Maintain(ctx, gc, nil))(t)
	require.Zero(t, rep.GC.Dropped.Versions, "the client took its hold again")
	c.Release(ticket)
	rep = must(c.Maintain(ctx, gc, nil))(t)
	require.Equal(t, 1, rep.GC.Dropped.Versions)
	require.Greater(t, second.LSN, out.LSN)
}

// Another database at the same socket is no place to go on.
func TestOtherDatabase(t *testing.T) {
	t.Parallel()
	path := socket(t)
	end := serve(t, newMemory(t), path, remote.ServerOptions{})
	c := dial(t, path, remote.ClientOptions{RetryFor: time.Minute}) // it is refused at once: that it is another one will not pass
	end()
	serve(t, newMemory(t), path, remote.ServerOptions{})
	_, err := c.Stat(ctx)
	require.ErrorIs(t, err, store.ErrClosed)
	require.ErrorContains(t, err, "open it anew")
}

// lossy is a store whose next commits are made, and the answers of which never leave the server.
type lossy struct {
	store.Store
	lose atomic.Pointer[func()]
}

func (l *lossy) Commit(ctx context.Context, b store.Batch) (store.Outcome, error) {
	out, err := l.Store.Commit(ctx, b)
	if end := l.lose.Swap(nil); end != nil {
		(*end)()
	}
	return out, err
}

// When nobody answers any more after a commit was sent, its outcome is unknown, and Outcome tells it from whoever serves
// next. The server is asked by the id.
func TestOutcomeIsAskedFor(t *testing.T) {
	t.Parallel()
	mem := newMemory(t)
	st := &lossy{Store: mem}
	path := socket(t)
	end := serve(t, st, path, remote.ServerOptions{})
	p, through := newProxy(t, path)
	c := dial(t, through, remote.ClientOptions{RetryFor: 100 * time.Millisecond})
	gone := func() { p.to.Store("/nowhere"); p.cutAll() }
	st.lose.Store(&gone)
	batch := fact(t, "fact", "zebra")
	_, err := c.Commit(ctx, batch)
	require.ErrorIs(t, err, store.ErrOutcomeUnknown)
	var nobody *remote.UnavailableError
	require.ErrorAs(t, err, &nobody)
	require.ErrorAs(t, errOf(c.Outcome(ctx, batch.ID)), &nobody, "it does not guess")
	end()
	serve(t, mem, path, remote.ServerOptions{})
	p.to.Store(path)
	out := must(c.Outcome(ctx, batch.ID))(t)
	require.EqualValues(t, 1, out.LSN)
	require.ErrorIs(t, errOf(c.Outcome(ctx, ulid.Make())), store.ErrNotFound)

}

// A cancelled call ends in the store, too.
func TestCancelReachesStore(t *testing.T) {
	t.Parallel()
	st := &waiting{Store: newMemory(t), in: make(chan struct{}), out: make(chan error, 1)}
	path := socket(t)
	serve(t, st, path, remote.ServerOptions{})
	c := dial(t, path, remote.ClientOptions{})
	short, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { _, err := c.Changes(short, 0, time.Hour); done <- err }()
	<-st.in
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	require.ErrorIs(t, <-st.out, context.Canceled)
	go func() { _, err := c.Changes(ctx, 0, time.Hour); done <- err }()
	<-st.in
	require.NoError(t, c.Close())
	require.ErrorIs(t, <-done, store.ErrClosed)
}

// waiting waits in Changes for the end of its context, and in Maintain for ten steps.
type waiting struct {
	store.Store
	in  chan struct{}
	out chan error
}

func (w *waiting) Changes(ctx context.Context, _ uint64, _ time.Duration) (store.Changes, error) {
	w.in <- struct{}{}
	<-ctx.Done()
	w.out <- ctx.Err()
	return store.Changes{}, ctx.Err()
}

func (w *waiting) Maintain(ctx context.Context, _ store.Job, p store.Progress) (store.JobReport, error) {
	for i := range uint64(10) {
		time.Sleep(150 * time.Millisecond)
		p("pages", i+1, 10)
	}
	return store.JobReport{Rows: 10}, ctx.Err()
}

// A job tells how far it is, also one that takes longer than a silent server may.
func TestProgress(t *testing.T) {
	t.Parallel()
	inBubble(t, &waiting{Store: newMemory(t)}, remote.ClientOptions{Answer: time.Second}, func(t *testing.T, _ *pipes, c *remote.Client) {
		began := time.Now()
		var told []uint64
		rep := must(c.Maintain(ctx, store.Job{Kind: store.JobCheck}, func(what string, done, total uint64) {
			require.Equal(t, "pages", what)
			require.EqualValues(t, 10, total)
			told = append(told, done)
		}))(t)
		require.Greater(t, time.Since(began), time.Second, "the control: it took longer than a silence may")
		require.Equal(t, 10, rep.Rows)
		require.Greater(t, len(told), 5)
		require.EqualValues(t, 10, told[len(told)-1])
	})
}

// The holds of a client that dies end with its lease; those of one that lives stay. The clock is that of the test, so that
// load does not count: a client that renews too late for its lease has lost its holds, and should have.
func TestLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const lease = 10 * time.Second
		mem := newMemory(t)
		srv := must(remote.NewServer(t.Context(), mem, remote.ServerOptions{Lease: lease}))(t)
		p, done := newPipes(), make(chan error, 1)
		go func() { done <- srv.Serve(p) }()
		client := func() *remote.Client {
			return must(remote.Dial(t.Context(), "pipes", remote.Through(remote.ClientOptions{}, p.Dial)))(t)
		}
		dying, living, other := client(), client(), client()
		must(other.Commit(ctx, fact(t, "fact", "zebra")))(t)
		at := store.Moment{LSN: other.Mark().LSN, Time: time.Now()}
		for _, c := range []*remote.Client{dying, living} {
			must(c.Hold(ctx, at))(t)
		}
		must(other.Commit(ctx, fact(t, "fact", "okapi")))(t)
		dropped := func() int {
			rep := must(mem.Maintain(ctx, store.Job{Kind: store.JobGC, GC: &store.GCJob{KeepRecords: 4, KeepNames: 4}}, nil))(t)
			return rep.GC.Dropped.Versions
		}
		dying.Abandon()
		time.Sleep(4 * lease)
		require.Zero(t, dropped(), "a client that lives keeps its holds")
		living.Abandon()
		time.Sleep(lease / 2) // it renewed at most lease/3 before
		require.Zero(t, dropped(), "its lease is not over")
		time.Sleep(lease)
		require.Equal(t, 1, dropped())
		require.NoError(t, other.Close())
		require.NoError(t, srv.Close())
		require.NoError(t, <-done)
	})
}

// laterRenewal is a connection on which renewals, which tell of releases, take a time to be sent.
type laterRenewal struct {
	net.Conn
	sent *atomic.Int64
}

func (c laterRenewal) Write(p []byte) (int, error) {
	if callIn(p) == "Renew" {
		time.Sleep(time.Second)
		c.sent.Add(1)
	}
	return c.Conn.Write(p)
}

// A gc knows of each release before it, also of one that is being told at that moment. The controls: a version that a hold
// keeps is not dropped, and that release is on its way before the gc begins.
func TestReleaseComesBeforeJob(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mem := newMemory(t)
		srv := must(remote.NewServer(t.Context(), mem, remote.ServerOptions{}))(t)
		p, done := newPipes(), make(chan error, 1)
		go func() { done <- srv.Serve(p) }()
		var sent atomic.Int64
		c := must(remote.Dial(t.Context(), "pipes", remote.Through(remote.ClientOptions{}, func(ctx context.Context) (net.Conn, error) {
			conn, err := p.Dial(ctx)
			return laterRenewal{conn, &sent}, err
		})))(t)
		must(c.Commit(ctx, fact(t, "fact", "zebra")))(t)
		ticket := must(c.Hold(ctx, store.Moment{LSN: c.Mark().LSN, Time: time.Now()}))(t)
		must(c.Commit(ctx, fact(t, "fact", "okapi")))(t)
		dropped := func() int {
			rep := must(c.Maintain(ctx, store.Job{Kind: store.JobGC, GC: &store.GCJob{KeepRecords: 4, KeepNames: 4}}, nil))(t)
			return rep.GC.Dropped.Versions
		}
		require.Zero(t, dropped(), "the control")
		c.Release(ticket)
		time.Sleep(500 * time.Millisecond) // the client collects releases for less
		require.Zero(t, sent.Load(), "it is on its way")
		require.Equal(t, 1, dropped())
		require.NoError(t, c.Close())
		require.NoError(t, srv.Close())
		require.NoError(t, <-done)
	})
}

// heldUp is a connection on which the first call of a name waits before it is sent, or is answered with the end of the
// connection after it was made.
type heldUp struct {
	net.Conn
	is  *holdUp
	cut atomic.Bool
}

type holdUp struct {
	name       string
	cut        bool // the answer is lost; else the call is late
	met        atomic.Bool
	begun, may chan struct{}
}

func (c *heldUp) Write(p []byte) (int, error) {
	if callIn(p) == c.is.name && c.is.met.CompareAndSwap(false, true) {
		if c.cut.Store(c.is.cut); !c.is.cut {
			close(c.is.begun)
			<-c.is.may
		}
	}
	return c.Conn.Write(p)
}

func (c *heldUp) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.cut.Load() && n > 0 {
		close(c.is.begun)
		<-c.is.may
		c.Conn.Close()
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}

// A server remembers the last numbers of a client's calls. A call that hundreds of later ones overtake is made all the same, and
// once, whether it came late or its answer was lost. A job whose answer was lost is not made again.
func TestOvertakenCall(t *testing.T) {
	t.Parallel()
	calls := map[string]func(*testing.T, *remote.Client) error{
		"Commit": func(t *testing.T, c *remote.Client) error {
			_, err := c.Commit(ctx, fact(t, "late", "zebra"))
			return err
		},
		"Append": func(_ *testing.T, c *remote.Client) error {
			return c.Append(ctx, []*manifest.Record{{Type: manifest.TypeGet, Trace: "late", Time: 1}}, store.Written)
		},
		"Maintain": func(_ *testing.T, c *remote.Client) error {
			_, err := c.Maintain(ctx, store.Job{Kind: store.JobGC, GC: &store.GCJob{}}, nil)
			return err
		},
	}
	for name, call := range calls {
		for _, cut := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s cut %v", name, cut), func(t *testing.T) {
				t.Parallel()
				mem := newMemory(t)
				srv := must(remote.NewServer(t.Context(), mem, remote.ServerOptions{}))(t)
				p, served := newPipes(), make(chan error, 1)
				go func() { served <- srv.Serve(p) }()
				is := &holdUp{name: name, cut: cut, begun: make(chan struct{}), may: make(chan struct{})}
				c := must(remote.Dial(t.Context(), "pipes", remote.Through(remote.ClientOptions{Answer: time.Minute}, func(ctx context.Context) (net.Conn, error) {
					conn, err := p.Dial(ctx)
					return &heldUp{Conn: conn, is: is}, err
				})))(t)
				done := make(chan error, 1)
				go func() { done <- call(t, c) }()
				<-is.begun
				const others = 600
				for n := range others {
					must(c.Commit(ctx, fact(t, fmt.Sprint("other-", n), "okapi")))(t)
				}
				close(is.may)
				if err := <-done; name == "Maintain" && cut {
					require.ErrorIs(t, err, store.ErrOutcomeUnknown)
				} else {
					require.NoError(t, err)
				}
				switch name {
				case "Commit":
					require.EqualValues(t, others+1, mem.Mark().LSN)
					at := must(mem.Resolve(ctx, store.Scopes{"acme"}, store.Ref{ID: "late", Version: 1}))(t)
					require.Len(t, at.Pages, 1)
				case "Append":
					leaves := must(mem.Audit().ByTrace(ctx, "late"))(t)
					require.Len(t, leaves, 1)
				}
				require.NoError(t, c.Close())
				require.NoError(t, srv.Close())
				require.NoError(t, <-served)
			})
		}
	}
}

// A server that is stopped is named in time, and nothing is taken from it.
func TestSilentServer(t *testing.T) {
	t.Parallel()
	path := socket(t)
	serve(t, newMemory(t), path, remote.ServerOptions{Program: "owner"})
	stuck, through := newStuck(t, path)
	var c *remote.Client
	require.Eventually(t, func() bool { // on a busy machine a server that answers may take longer than this client waits
		var err error
		c, err = remote.Dial(ctx, through, remote.ClientOptions{Answer: 400 * time.Millisecond})
		return err == nil
	}, time.Minute, time.Millisecond)
	t.Cleanup(func() { _ = c.Close() })
	var err error
	var took time.Duration
	for sent := false; !sent; sent = !strings.Contains(err.Error(), "nothing was sent") { // by a client that waited for a processor as long
		stuck.Store(false)
		require.Eventually(t, func() bool { _, err := c.Info(ctx); return err == nil }, time.Minute, time.Millisecond, "it makes the stream")
		stuck.Store(true)
		began := time.Now()
		_, err = c.Commit(ctx, fact(t, "fact", "zebra"))
		took = time.Since(began)
		require.Error(t, err)
	}
	var silent *remote.UnavailableError
	require.ErrorAs(t, err, &silent)
	require.ErrorIs(t, err, store.ErrOutcomeUnknown)
	require.ErrorIs(t, err, store.ErrLocked)
	require.Equal(t, "owner", silent.Program)
	require.NotZero(t, silent.PID)
	require.ErrorContains(t, err, fmt.Sprintf("held by pid %d (owner, since ", silent.PID))
	require.ErrorContains(t, err, "not answering")
	require.GreaterOrEqual(t, took, 400*time.Millisecond, "it was given its time; TestSilentServerTime has the upper bound")
	require.ErrorAs(t, errOf(remote.Dial(ctx, through, remote.ClientOptions{Answer: time.Second})), &silent)
	require.NotZero(t, silent.PID, "the kernel knows whose socket it is")
}

// newStuck passes everything on until it is told to be stuck.
func newStuck(t testing.TB, to string) (*atomic.Bool, string) {
	var stuck atomic.Bool
	path := socket(t)
	l := must(remote.Listen(path))(t)
	ended := make(chan struct{})
	t.Cleanup(func() { close(ended); _ = l.Close() })
	pass := func(to, from net.Conn) {
		b := make([]byte, 4096)
		for {
			n, err := from.Read(b)
			if stuck.Load() {
				<-ended
			}
			if err != nil {
				_ = to.Close()
				return
			}
			_, _ = to.Write(b[:n])
		}
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s, err := remote.Connect(context.Background(), to)
			if err != nil {
				_ = c.Close()
				continue
			}
			t.Cleanup(func() { _ = c.Close(); _ = s.Close() })
			go pass(s, c)
			go pass(c, s)
		}
	}()
	return &stuck, path
}

// A caller who waits for the audit is answered when it grows, or when its time is over.
func TestAuditWait(t *testing.T) {
	t.Parallel()
	mem := newMemory(t)
	path := socket(t)
	serve(t, mem, path, remote.ServerOptions{})
	c := dial(t, path, remote.ClientOptions{})
	size := must(c.Audit().Size(ctx))(t)
	now := must(c.Audit().Wait(ctx, size, time.Millisecond))(t)
	require.Equal(t, size, now, "nothing came")
	told := make(chan uint64, 1)
	go func() {
		now, _ := c.Audit().Wait(ctx, size, time.Hour)
		told <- now
	}()
	must(mem.Commit(ctx, fact(t, "fact", "zebra")))(t)
	require.Greater(t, <-told, size)
	now = must(c.Audit().Wait(ctx, size, time.Hour))(t)
	require.Greater(t, now, size, "it is there already")
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	require.ErrorIs(t, errOf(c.Audit().Wait(short, now, time.Hour)), context.DeadlineExceeded)
	cancel()
}

// must returns a check that fails the test unless err is nil, and returns v: v := must(s.Get(ctx, id))(t).
func must[T any](v T, err error) func(require.TestingT) T { return dbtest.Must(v, err) }

// errOf returns the error of a call.
func errOf[T any](_ T, err error) error { return err }
