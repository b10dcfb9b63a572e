package pgstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/internal/engine"
	"github.com/ctxpage/ctxpage/store"
)

// as returns a data source name whose connections can be told from others on the server.
func as(dsn, program string) string { return dsn + "&application_name=" + program }

// untilItWaits waits until a connection of a program waits for a lock of the server.
func untilItWaits(t *testing.T, dsn, program string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer conn.Close(context.Background())
	require.Eventually(t, func() bool {
		var n int
		err := conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1 AND wait_event_type = 'Lock'", program).Scan(&n)
		return err == nil && n > 0
	}, time.Minute, 5*time.Millisecond)
}

// Two hosts find the same leaf in the inbox, so their groups begin with the same record. The one that gets no answer must not take the
// group of the other for its own: its commit would be acknowledged and nowhere.
func TestSameFirstRecord(t *testing.T) {
	t.Parallel()
	dsn, name := onServer(t), ownName(t)
	behind := strings.NewReplacer(" ", "_").Replace(name) + "_behind"
	reader := quiet(t, dsn, name, func(o *Options) {
		o.hook = func(step string) error {
			if step == "begin" {
				return errors.New("it takes no turn")
			}
			return nil
		}
	})
	second := quiet(t, as(dsn, behind), name, nil)
	var done sync.WaitGroup
	var cut atomic.Bool
	first := quiet(t, dsn, name, func(o *Options) {
		o.hook = func(step string) error {
			if step != "write" || cut.Swap(true) {
				return nil
			}
			done.Go(func() { mustPut(t, second, "of the second", "words") })
			untilItWaits(t, dsn, behind)
			return errors.New("the network is gone")
		}
	})
	// Both are open by now: Open takes a turn for what is in the inbox.
	require.NoError(t, reader.Append(t.Context(), read("of the reader"), store.Written))
	inbox := func() (n int) {
		require.NoError(t, reader.pool.QueryRow(t.Context(), "SELECT count(*) FROM ctxpage_inbox WHERE db = $1", reader.db.num).Scan(&n))
		return n
	}
	require.Eventually(t, func() bool { return inbox() == 1 }, time.Minute, 5*time.Millisecond)
	reader.kill()
	mustPut(t, first, "of the first", "words")
	done.Wait()
	require.True(t, cut.Load())
	refresh(t, first, second)
	for _, st := range []*Store{first, second, onHost(t, dsn, name, nil)} {
		mustFind(t, st, "of the first")
		mustFind(t, st, "of the second")
		found, err := st.Audit().ByTrace(t.Context(), "of the reader")
		require.NoError(t, err)
		require.Len(t, found, 1)
	}
}

// What the records tell of a group.
func TestFate(t *testing.T) {
	leaf, commit, other := []byte("leaf"), []byte("commit"), []byte("other")
	base := position{seq: 7}.next(engine.KindCommit, []byte("before"))
	group := &turn{base: base, end: base}
	group.add(item{kind: engine.KindLeaf, body: leaf})
	group.add(item{kind: engine.KindCommit, body: commit})
	first, rival := base.next(engine.KindLeaf, leaf), base.next(engine.KindLeaf, leaf).next(engine.KindCommit, other)
	require.Equal(t, first, group.items[0].end, "the groups do not begin with the same record, so the test proves nothing")
	for name, c := range map[string]struct {
		chains []position
		want   fate
	}{
		"nothing":           {[]position{base}, fateNothing},
		"there":             {[]position{base, first, group.end}, fateThere},
		"the same first":    {[]position{base, first}, fateOther},
		"the same but last": {[]position{base, first, rival}, fateOther},
		"another":           {[]position{base, base.next(engine.KindCommit, other)}, fateOther},
	} {
		chains := map[uint64][]byte{}
		for _, p := range c.chains {
			chains[p.seq] = p.chain[:]
		}
		got, err := group.fate(chains)
		require.NoError(t, err, name)
		require.Equal(t, c.want, got, name)
	}
	_, err := group.fate(map[uint64][]byte{first.seq: first.chain[:]})
	require.ErrorIs(t, err, ErrForked, "the record before the group is gone")
	only, err := (&turn{base: base, end: base, inbox: []int64{1}}).fate(map[uint64][]byte{base.seq: base.chain[:], first.seq: first.chain[:]})
	require.NoError(t, err)
	require.Equal(t, fateOther, only, "a group that only tidies the inbox")
}

// holder passes connections on to the server. When it is told to, it keeps back what the server answers on the next connection that
// asks something, until it is let go.
type holder struct {
	mu   sync.Mutex
	next bool
	free chan struct{} // closed when nothing is kept back
}

func newHolder(t *testing.T, server string) (h *holder, dsn string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	h = &holder{}
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go h.serve(client, server)
		}
	}()
	return h, fmt.Sprintf("postgres://postgres@%s/postgres?sslmode=disable", l.Addr())
}

// hold keeps back the answers on the connection that asks next. It gives what lets them go.
func (h *holder) hold() (let func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	free := make(chan struct{})
	h.next, h.free = true, free
	return sync.OnceFunc(func() { close(free) })
}

func (h *holder) serve(client net.Conn, to string) {
	defer client.Close()
	server, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer server.Close()
	var held atomic.Pointer[chan struct{}]
	go func() {
		defer client.Close()
		pass(client, server, func() {
			if free := held.Load(); free != nil {
				<-*free
			}
		})
	}()
	pass(server, client, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.next {
			free := h.free
			h.next = false
			held.Store(&free)
		}
	})
}

// pass passes on what one end sends. It calls before with each part of it.
func pass(to, from net.Conn, before func()) {
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		before()
		if n > 0 {
			if _, err := to.Write(b[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// said notes the errors that a store logs.
type said struct {
	slog.Handler
	mu  sync.Mutex
	all []error
}

func (s *said) Enabled(context.Context, slog.Level) bool { return true }

func (s *said) Handle(_ context.Context, r slog.Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.Attrs(func(a slog.Attr) bool {
		if err, is := a.Value.Any().(error); is {
			s.all = append(s.all, err)
		}
		return true
	})
	return nil
}

func (s *said) has(err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.all {
		if errors.Is(e, err) {
			return true
		}
	}
	return false
}

// The answer to the first trip is long on its way. The server takes the lock back, others commit, and the host follows them over another
// connection. When the answer comes, it ends before what the host has; that is no log that lost records.
func TestTurnEndedBeforeItsAnswer(t *testing.T) {
	t.Parallel()
	direct, name := onServer(t), ownName(t)
	h, through := newHolder(t, shared.s.address())
	log := &said{Handler: slog.DiscardHandler}
	st := quiet(t, through, name, func(o *Options) {
		o.Poll, o.Logger = 10*time.Millisecond, slog.New(log)
		o.hook = func(step string) error {
			if step == "look" {
				return errors.New("only a host that waits for the turn follows")
			}
			return nil
		}
	})
	other := quiet(t, direct, name, nil)
	for n := 0; !log.has(errTurnEnded); n++ {
		require.Less(t, n, 200, "the answer is never older than what the host has, so the test proves nothing")
		mustPut(t, st, "own", fmt.Sprint("before ", n)) // so that the connection of the next turn is there
		let := h.hold()
		done := make(chan error, 1)
		go func() {
			_, err := st.Commit(t.Context(), fact(t, st, "own", fmt.Sprint("words ", n)))
			done <- err
		}()
		mustPut(t, other, "of the other", fmt.Sprint("words ", n)) // after idleTimeout
		last := other.log.applied.Load().seq
		for begun := time.Now(); st.log.applied.Load().seq < last && time.Since(begun) < replyTimeout/2; {
			time.Sleep(time.Millisecond)
		}
		let()
		require.NoError(t, <-done)
	}
	require.NoError(t, st.whyDead())
	refresh(t, st, other)
	require.Equal(t, mustFind(t, other, "own"), mustFind(t, st, "own"))
}

// A turn that is given up after it took leaves gives them back: the next turn takes them.
func TestLeavesGivenBack(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"placed", "behind"} {
		t.Run(step, func(t *testing.T) {
			dsn, name := onServer(t), ownName(t)
			var met atomic.Bool
			st := quiet(t, dsn, name, func(o *Options) {
				o.hook = func(s string) error {
					if s == step && !met.Swap(true) {
						return errors.New("the connection broke")
					}
					if s == "inbox" {
						return errors.New("leaves go by the turn")
					}
					return nil
				}
			})
			other := quiet(t, dsn, name, nil)
			for n := range beginRows + 10 {
				mustPut(t, other, fmt.Sprint("page ", n), "words")
			}
			require.NoError(t, st.Append(t.Context(), read("read"), store.Synced))
			require.True(t, met.Load(), "the turn was not given up, so the test proves nothing")
			found, err := st.Audit().ByTrace(t.Context(), "read")
			require.NoError(t, err)
			require.Len(t, found, 1)
		})
	}
}

// A checkpoint that comes just as a host has followed a commit of another one finds the chain of its record.
func TestCheckpointBehindFollowed(t *testing.T) {
	t.Parallel()
	dsn, name := onServer(t), ownName(t)
	var st *Store
	followed := 0
	st = quiet(t, dsn, name, func(o *Options) {
		o.hook = func(step string) error {
			if step != "followed" {
				return nil
			}
			followed++
			_, err := st.checkpoint(t.Context())
			return err
		}
	})
	other := quiet(t, dsn, name, nil)
	for n := range 3 {
		mustPut(t, other, fmt.Sprint("page ", n), "words")
	}
	refresh(t, st)
	require.Equal(t, 3, followed)
	require.NoError(t, st.whyDead())
	require.Equal(t, other.eng.Position(), st.eng.Position())
}
