package pgstore

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/store"
)

// router passes connections on to the server that is the primary now, and cuts them when it is told to.
type router struct {
	listen net.Listener
	mu     sync.Mutex
	to     string
	conns  map[net.Conn]bool
}

func newRouter(t *testing.T, at, to string) *router {
	l, err := net.Listen("tcp", at)
	require.NoError(t, err)
	r := &router{listen: l, to: to, conns: map[net.Conn]bool{}}
	t.Cleanup(func() { _ = l.Close(); r.cut("") })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go r.serve(conn)
		}
	}()
	return r
}

func (r *router) serve(client net.Conn) {
	defer client.Close()
	r.mu.Lock()
	to := r.to
	r.conns[client] = true
	r.mu.Unlock()
	defer func() { r.mu.Lock(); delete(r.conns, client); r.mu.Unlock() }()
	server, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer server.Close()
	go func() { _, _ = io.Copy(client, server); _ = client.Close() }()
	_, _ = io.Copy(server, client)
}

// cut ends all connections. The next ones lead to another server, unless to is "".
func (r *router) cut(to string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if to != "" {
		r.to = to
	}
	for c := range r.conns {
		_ = c.Close()
	}
}

func (r *router) dsn() string {
	return fmt.Sprintf("postgres://postgres@%s/postgres?sslmode=disable", r.listen.Addr())
}

func (s *server) address() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }

// haul is a primary with a standby, and a fleet that works through kills, cuts and a failover until it has seen enough.
type haul struct {
	*fleet
	a, b *server
	r    *router
	ps   []*process
	rand *rand.Rand
	done map[string]int // faults by name
}

// strike does one fault.
func (h *haul) strike() {
	at, name := h.rand.IntN(len(h.ps)), ""
	switch n := h.rand.IntN(10); {
	case n < 3:
		name = "kill -9"
		_ = h.ps[at].cmd.Process.Kill()
		h.ps[at] = h.spawn()
	case n < 5:
		name = "SIGSTOP for longer than the server waits"
		_ = h.ps[at].cmd.Process.Signal(syscall.SIGSTOP)
		time.Sleep(idleTimeout + 300*time.Millisecond)
		_ = h.ps[at].cmd.Process.Signal(syscall.SIGCONT)
	case n < 9:
		name = "all connections cut"
		h.r.cut("")
	default:
		name = "server stopped -m immediate"
		if h.done["failover"] > 0 { // it has no standby any more, and goes on by its own disk
			require.NoError(h.t, h.b.stop(syscall.SIGQUIT))
			require.NoError(h.t, h.b.start())
		} else {
			require.NoError(h.t, h.a.stop(syscall.SIGQUIT))
			require.NoError(h.t, h.a.start())
		}
	}
	h.done[name]++
}

// failOver ends the primary as a power cut does and promotes the standby.
func (h *haul) failOver() {
	require.NoError(h.t, h.a.stop(syscall.SIGQUIT))
	h.promote()
	h.done["failover"]++
}

// promote makes the standby of a primary that has ended the primary.
func (h *haul) promote() {
	conn := connectTo(h.t, h.b)
	_, err := conn.Exec(context.Background(), "SELECT pg_promote(true, 60)")
	require.NoError(h.t, err)
	require.NoError(h.t, conn.Close(context.Background()))
	h.r.cut(h.b.address())
}

func (f *fleet) count() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range f.seen {
		if e.Answer != nil && !e.Answer.Unknown { // a read that failed is no operation that anything is known of
			n++
		}
	}
	return n
}

// until waits until so many operations were answered, or nothing was for as long as a busy machine takes to start a server again.
func (h *haul) until(n int) {
	for begun, seen := time.Now(), h.count(); seen < n && time.Since(begun) < 3*time.Minute; time.Sleep(50 * time.Millisecond) {
		if now := h.count(); now > seen {
			begun, seen = time.Now(), now
		}
	}
}

// end stops the fleet and closes its history.
func (h *haul) end() (result porcupine.CheckResult, ops, unknown int) {
	for _, p := range h.ps {
		_ = p.in.Close()
	}
	h.all.Wait()
	history, unknown := h.history()
	result, _ = porcupine.CheckOperationsVerbose(register, history, 2*time.Minute)
	return result, len(history), unknown
}

// values counts, for each key, how many versions have each value.
func values(t *testing.T, st *Store) map[string]map[string]int {
	out := map[string]map[string]int{}
	for n := range keys {
		key := fmt.Sprint("key ", n)
		out[key] = map[string]int{}
		newest, err := st.Resolve(t.Context(), acme, store.Ref{ID: key})
		require.NoError(t, err)
		for v := uint32(1); v <= newest.Version; v++ {
			at, err := st.Resolve(t.Context(), acme, store.Ref{ID: key, Version: v})
			require.NoError(t, err)
			got, err := st.Load(t.Context(), acme, at.Pages, store.WantText)
			require.NoError(t, err)
			require.NoError(t, got[0].Err)
			out[key][got[0].Text]++
		}
	}
	return out
}

// lostAndTwice holds what writers were told against what is there.
func (f *fleet) lostAndTwice(have map[string]map[string]int) (lost, twice, acknowledged int) {
	calls := map[[2]int]*call{}
	for _, e := range f.seen {
		if e.Call != nil && e.Call.Write {
			calls[[2]int{e.Process, e.Op}] = e.Call
		}
	}
	for _, e := range f.seen {
		c := calls[[2]int{e.Process, e.Op}]
		if e.Answer == nil || c == nil || !e.Answer.Done {
			continue
		}
		acknowledged++
		if have[c.Key][c.New] == 0 {
			lost++
		}
	}
	for _, of := range have {
		for _, n := range of {
			twice += n - 1
		}
	}
	return lost, twice, acknowledged
}

func newHaul(t *testing.T, synchronous bool) *haul {
	a := ownServer(t)
	b := a.standby(t)
	if synchronous {
		a.args = []string{"-c", "synchronous_standby_names=*"}
		require.NoError(t, a.stop(syscall.SIGINT))
		require.NoError(t, a.start())
	}
	r := newRouter(t, "127.0.0.1:0", a.address())
	h := &haul{fleet: &fleet{t: t, job: job{DSN: r.dsn(), Name: "main"}}, a: a, b: b, r: r, rand: rand.New(rand.NewPCG(3, 4)), done: map[string]int{}}
	for range 4 {
		h.ps = append(h.ps, h.spawn())
	}
	return h
}

// TestHaul: four processes of several writers and readers work while processes are killed and stopped, connections cut, the server
// stopped as by a power cut, and its synchronous standby promoted. Nothing that was acknowledged is lost, nothing is there twice, and
// there is one order of all operations. CTXPAGE_LONG=1 goes on for 20,000 operations.
func TestHaul(t *testing.T) {
	t.Parallel()
	total := 300
	if long {
		total = 20_000
	}
	h := newHaul(t, true)
	h.until(1)
	for h.count() < total {
		seen := h.count()
		if seen > total/2 && h.done["failover"] == 0 {
			h.failOver()
		} else {
			h.strike()
		}
		h.until(min(total, seen+max(60, total/40)))
		require.Greater(t, h.count(), seen, "nobody works any more")
	}
	result, ops, unknown := h.end()
	st := onHost(t, h.b.dsn("postgres"), "main", nil)
	lost, twice, acknowledged := h.lostAndTwice(values(t, st))
	t.Logf("%d operations, %d writes acknowledged, %d of unknown outcome; %v: %d lost, %d twice, %v", ops, acknowledged, unknown, h.done, lost, twice, result)
	require.Equal(t, 1, h.done["failover"])
	require.Zero(t, lost)
	require.Zero(t, twice)
	require.Equal(t, porcupine.Ok, result)
	_, err := st.Audit().Verify(t.Context(), nil, nil)
	require.NoError(t, err)
}

// The control: a standby that is not synchronous and was down misses acknowledged writes when it is promoted.
func TestHaulControl(t *testing.T) {
	t.Parallel()
	with, without := 40, 100
	if long {
		with, without = 100, 300
	}
	h := newHaul(t, false)
	h.until(with)
	require.NoError(t, h.b.stop(syscall.SIGINT))
	h.until(with + without)
	h.r.cut("")
	require.NoError(t, h.a.stop(syscall.SIGQUIT))
	require.NoError(t, h.b.start())
	h.promote()
	_, _, _ = h.end() // every host has what is lost, so none goes on
	lost, _, _ := h.lostAndTwice(values(t, onHost(t, h.b.dsn("postgres"), "main", nil)))
	require.NotZero(t, lost, "the test of a long haul proves nothing")
}

// unanswered is which writes of a process have no answer yet.
func (f *fleet) unanswered(process int) map[int]bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	open := map[int]bool{}
	for _, e := range f.seen {
		switch {
		case e.Process != process:
		case e.Call == nil:
			delete(open, e.Op)
		case e.Call.Write:
			open[e.Op] = true
		}
	}
	return open
}

// stopped waits until a process stands still.
func stopped(t *testing.T, p *process) {
	t.Helper()
	require.Eventually(t, func() bool {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
		_, rest, _ := strings.Cut(string(b), ") ")
		return err == nil && strings.HasPrefix(rest, "T")
	}, time.Minute, 5*time.Millisecond, "the process did not stop")
}

// holderStopped stops a process in the middle of a turn, when it has the lock, for longer than the server waits.
func holderStopped(t *testing.T, credulous bool) porcupine.CheckResult {
	dsn := onServer(t)
	name := ownName(t)
	other := onHost(t, dsn, name, nil)
	var stood time.Duration
	result, _ := fleetRun(t, job{DSN: dsn, Name: name, StopAt: 40, Credulous: credulous}, 1, func(f *fleet, ps []*process) {
		stopped(t, ps[0])
		begun := time.Now()
		mustPut(t, other, "of the other host", "words")
		stood = time.Since(begun)
		f.job.StopAt = 0
		more := f.spawn()
		seen := f.count()
		require.Eventually(t, func() bool { return f.count() > seen+50 }, time.Minute, 20*time.Millisecond, "the others do not go on, over what the stopped one was writing")
		seen = f.count()
		waiting := f.unanswered(1)
		require.NotEmpty(t, waiting, "it stopped while nobody waited for its commit")
		require.NoError(t, ps[0].cmd.Process.Signal(syscall.SIGCONT))
		require.Eventually(t, func() bool {
			open := f.unanswered(1)
			for op := range waiting {
				if open[op] {
					return false // a process that ends before it tells its answer shows nothing
				}
			}
			return f.count() > seen+50
		}, time.Minute, 20*time.Millisecond)
		_ = more.in.Close()
	})
	t.Logf("another host waited %v for the turn of a host that stood still", stood.Round(time.Millisecond))
	require.Less(t, stood, idleTimeout+lockTimeout)
	return result
}

// A host that is stopped while it has the lock holds up the others for as long as the server waits, about 2 s. When it goes on, its
// commit, which the server has ended, is neither lost nor made over what others wrote.
func TestHolderStopped(t *testing.T) {
	t.Parallel()
	require.Equal(t, porcupine.Ok, holderStopped(t, false))
}

// The control: a host that takes its commit for done.
func TestHolderStoppedControl(t *testing.T) {
	t.Parallel()
	require.Equal(t, porcupine.Illegal, holderStopped(t, true), "the test of a stopped holder proves nothing")
}
