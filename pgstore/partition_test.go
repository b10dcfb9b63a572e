package pgstore

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"
)

// A partition: what a host sends to the server, or the server to it, vanishes. No connection is refused or closed, as a killed server
// or a cut would do. When the network is back, what vanished arrives after all, because TCP sends it again.

// network is the way from a process to the server.
type network struct {
	dsn      string   // of the server, as that process reaches it
	through  []string // see fleet
	down, up func()
}

// swallower passes connections on to the server. While it swallows, it passes nothing on, in either direction, and closes nothing.
type swallower struct {
	server string
	mu     sync.Mutex
	open   chan struct{} // closed unless it swallows
}

func newSwallower(t *testing.T, server string) network {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &swallower{server: server, open: make(chan struct{})}
	close(s.open)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go s.serve(conn)
		}
	}()
	return network{
		dsn:  fmt.Sprintf("postgres://postgres@%s/postgres?sslmode=disable", l.Addr()),
		down: func() { s.mu.Lock(); s.open = make(chan struct{}); s.mu.Unlock() },
		up:   func() { s.mu.Lock(); close(s.open); s.mu.Unlock() },
	}
}

// wait waits until the network is there.
func (s *swallower) wait() {
	s.mu.Lock()
	open := s.open
	s.mu.Unlock()
	<-open
}

func (s *swallower) serve(client net.Conn) {
	defer client.Close()
	s.wait()
	server, err := net.Dial("tcp", s.server)
	if err != nil {
		return
	}
	defer server.Close()
	go s.pass(client, server)
	s.pass(server, client)
}

// pass passes on what one end sends, and its end.
func (s *swallower) pass(to, from net.Conn) {
	defer to.Close()
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		s.wait()
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

// namespace is a network of its own that reaches this one by a link. Its packets vanish in the kernel.
func namespace(t *testing.T, server string) network {
	if !long {
		t.Skip("skipped: CTXPAGE_LONG=1 makes network namespaces")
	}
	name, link := fmt.Sprintf("ctxpage%d", os.Getpid()%10000), fmt.Sprintf("ctx%d", os.Getpid()%10000)
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", name).Run() })
	for _, line := range []string{
		"netns add " + name,
		"link add " + link + " type veth peer name eth0 netns " + name,
		"addr add 10.213.77.1/30 dev " + link,
		"link set " + link + " up",
		"netns exec " + name + " ip addr add 10.213.77.2/30 dev eth0",
		"netns exec " + name + " ip link set eth0 up",
	} {
		if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
			t.Skipf("skipped: ip %s: %v: %s", line, err, out)
		}
	}
	set := func(state string) func() {
		return func() {
			out, err := exec.Command("ip", "netns", "exec", name, "ip", "link", "set", "eth0", state).CombinedOutput()
			require.NoError(t, err, string(out))
		}
	}
	return network{newRouter(t, "10.213.77.1:0", server).dsn(), []string{"ip", "netns", "exec", name}, set("down"), set("up")}
}

// holds waits until a process has the lock and tells so.
func (f *fleet) holds(process int) {
	f.t.Helper()
	begun := time.Now().UnixNano()
	require.Eventually(f.t, func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		for i := len(f.seen) - 1; i >= 0 && f.seen[i].At > begun; i-- {
			if f.seen[i].Holds && f.seen[i].Process == process {
				return true
			}
		}
		return false
	}, time.Minute, 5*time.Millisecond, "the process does not get the lock")
}

// answered counts what a process was answered for certain between two moments.
func (f *fleet) answered(process int, from, to time.Time) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range f.seen {
		if e.Process == process && e.Answer != nil && !e.Answer.Unknown && e.At > from.UnixNano() && e.At < to.UnixNano() {
			n++
		}
	}
	return n
}

// parted is what came of a partition.
type parted struct {
	within  int           // operations that the host behind the network was answered meanwhile
	longest time.Duration // that another host waited for a commit
	result  porcupine.CheckResult
}

// partition has two processes at work, one of them behind a network that is down a few times, each time from a moment at which that
// process has the lock and is about to write. wait: the process must go on afterwards.
func partition(t *testing.T, net network, j job, wait bool) (p parted) {
	rounds, lasting := 2, idleTimeout+time.Second
	if long {
		rounds, lasting = 3, idleTimeout+lockTimeout
	}
	direct, own := onServer(t), fmt.Sprint(ownName(t), time.Now().UnixNano())
	other := onHost(t, direct, own, nil)
	j.Name, j.DSN, j.Hold = own, net.dsn, 40
	f := &fleet{t: t, job: j, through: net.through}
	behind := f.spawn()
	f.job, f.through = job{DSN: direct, Name: own}, nil
	beside := f.spawn()
	for range rounds {
		f.holds(1)
		net.down()
		cut := time.Now()
		for n := 0; time.Since(cut) < lasting; n++ {
			begun := time.Now()
			mustPut(t, other, fmt.Sprint("of the other host ", n), "words")
			p.longest = max(p.longest, time.Since(begun))
			time.Sleep(20 * time.Millisecond)
		}
		p.within += f.answered(1, cut.Add(time.Second), time.Now())
		net.up()
		healed := time.Now()
		if wait {
			require.Eventually(t, func() bool { return f.answered(1, healed, time.Now()) > 50 }, time.Minute, 20*time.Millisecond, "it does not go on")
		} else {
			time.Sleep(2 * time.Second)
			break
		}
	}
	_, _ = behind.in.Close(), beside.in.Close()
	f.all.Wait()
	ops, unknown := f.history()
	p.result, _ = porcupine.CheckOperationsVerbose(register, ops, time.Minute)
	t.Logf("%d operations, %d of unknown outcome, %v; %d answered without a network; another host waited at most %v", len(ops), unknown, p.result, p.within, p.longest.Round(time.Millisecond))
	return p
}

// A host whose network swallows everything while it has the lock. The other hosts go on after at most the time that the server waits
// for it; it acknowledges nothing meanwhile, and goes on when the network is back. All of it is one order.
func TestPartition(t *testing.T) {
	t.Parallel()
	for name, make := range map[string]func(*testing.T, string) network{"swallowed": newSwallower, "namespace": namespace} {
		t.Run(name, func(t *testing.T) {
			onServer(t)
			p := partition(t, make(t, shared.s.address()), job{}, true)
			require.Less(t, p.longest, idleTimeout+lockTimeout)
			require.Greater(t, p.longest, idleTimeout-holdFor-time.Second, "the host did not have the lock")
			require.Zero(t, p.within, "it acknowledged something without a network")
			require.Equal(t, porcupine.Ok, p.result)
		})
	}
}

// The controls: a host that takes a commit without an answer for done has told what never happened; and a host whose network is never
// down is answered, so the count of answers without a network counts something.
func TestPartitionControl(t *testing.T) {
	t.Parallel()
	onServer(t)
	t.Run("credulous", func(t *testing.T) {
		for range 5 { // on a busy machine the process may have written before the network is down
			if partition(t, newSwallower(t, shared.s.address()), job{Credulous: true}, false).result == porcupine.Illegal {
				return
			}
		}
		t.Fatal("the test of a partition proves nothing")
	})
	t.Run("never down", func(t *testing.T) {
		there := newSwallower(t, shared.s.address())
		there.down, there.up = func() {}, func() {}
		require.NotZero(t, partition(t, there, job{}, true).within, "the test of a partition proves nothing")
	})
}
