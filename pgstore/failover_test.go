package pgstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/jackc/pgx/v5"
	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// A fail-over: the primary is killed with all its processes while hosts write, its standby is promoted, and the hosts find it by
// themselves, because their data source name has both servers. The fail-over is repeated with a new standby of the new primary; the
// hosts are the same all the time.

const (
	failoverHosts   = 4
	failoverWriters = 16 // of each host
)

// pair is a primary and its standby, which change places.
type pair struct {
	t       *testing.T
	ports   [2]int
	primary *server
	standby *server
}

// dsn names both servers; the hosts look for the one that takes writes.
func (p *pair) dsn() string {
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d,127.0.0.1:%d/postgres?sslmode=disable&target_session_attrs=read-write", p.ports[0], p.ports[1])
}

func newPair(t *testing.T) *pair {
	a := ownServer(t)
	return &pair{t: t, ports: [2]int{a.port, freePort(t)}, primary: a}
}

// on runs a statement on a server.
func on(t *testing.T, s *server, sql string, args ...any) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.dsn("postgres"))
	require.NoError(t, err)
	defer conn.Close(context.Background())
	_, err = conn.Exec(t.Context(), sql, args...)
	require.NoError(t, err)
}

// follow gives the primary a standby on the other port, and returns when it follows. synchronous: commits wait for it from then on.
func (p *pair) follow(synchronous bool) {
	p.t.Helper()
	b := p.primary.standbyOn(p.t, p.ports[0]+p.ports[1]-p.primary.port)
	p.standby = b
	want := "async"
	if synchronous {
		on(p.t, p.primary, "ALTER SYSTEM SET synchronous_standby_names = '*'")
		on(p.t, p.primary, "SELECT pg_reload_conf()")
		want = "sync"
	}
	conn := connectTo(p.t, p.primary)
	require.Eventually(p.t, func() bool {
		var state string
		return conn.QueryRow(p.t.Context(), "SELECT sync_state FROM pg_stat_replication WHERE state = 'streaming'").Scan(&state) == nil && state == want
	}, time.Minute, 10*time.Millisecond, "the standby does not follow")
	_ = conn.Close(p.t.Context())
}

// kill ends a server and all its processes at once, as the loss of its machine would.
func (s *server) kill(t *testing.T) {
	t.Helper()
	parent := s.cmd.Process.Pid
	require.NoError(t, syscall.Kill(parent, syscall.SIGSTOP)) // it starts no more processes, and sees none of them end
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	killed := 0
	for _, path := range stats {
		b, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
		if len(fields) > 1 && fields[1] == strconv.Itoa(parent) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			if syscall.Kill(pid, syscall.SIGKILL) == nil {
				killed++
			}
		}
	}
	require.Greater(t, killed, failoverHosts, "the server had no processes")
	require.NoError(t, syscall.Kill(parent, syscall.SIGKILL))
	_ = s.cmd.Wait()
}

// fail kills the primary and promotes its standby. It returns when the new primary takes writes, and says when it was told to.
func (p *pair) fail() (told time.Time) {
	p.t.Helper()
	p.primary.kill(p.t)
	told = time.Now()
	out, err := p.standby.command("pg_ctl", "promote", "-D", p.standby.data(), "-w", "-t", "60").CombinedOutput()
	require.NoError(p.t, err, string(out))
	p.primary, p.standby = p.standby, nil
	return told
}

// crew is the hosts at work, and what they were answered.
type crew struct {
	t       *testing.T
	hosts   []*Store
	history atomic.Int32 // number of the current one: each has keys of its own. Negative: they rest
	stop    chan struct{}
	all     sync.WaitGroup

	mu       sync.Mutex
	ops      map[int32][]porcupine.Operation
	acked    map[ulid.ULID]uint64 // LSN by batch id
	repeated int                  // calls that ended without an outcome and were made again with their id
	last     [failoverHosts]time.Time
	answers  []time.Time // of the acknowledged commits
	failed   []string    // calls that a host never had answered
	client   int
}

func newCrew(t *testing.T, dsn string) *crew {
	c := &crew{t: t, stop: make(chan struct{}), ops: map[int32][]porcupine.Operation{}, acked: map[ulid.ULID]uint64{}}
	for n := range failoverHosts {
		c.hosts = append(c.hosts, onHost(t, dsn, "main", func(o *Options) {
			o.Host = fmt.Sprint("host ", n)
			o.Patience = 100 * time.Millisecond // shorter than a fail-over takes: outcomes are unknown, and the writers repeat
			o.MaxLag = -1
			if n%2 == 1 {
				o.SynchronousCommit = "remote_apply"
			}
		}))
	}
	return c
}

func (c *crew) start() {
	for h, st := range c.hosts {
		for w := range failoverWriters {
			c.all.Go(func() { c.work(h, w, st) })
		}
	}
}

func (c *crew) end() {
	close(c.stop)
	c.all.Wait()
}

func (c *crew) ended() bool {
	select {
	case <-c.stop:
		return true
	default:
		return false
	}
}

// work reads and writes registers. One operation of three is a read.
func (c *crew) work(h, w int, st *Store) {
	r := rand.New(rand.NewPCG(uint64(h), uint64(w)))
	by := worker{st: st}
	for n := 0; !c.ended(); n++ {
		history := c.history.Load()
		if history < 0 {
			time.Sleep(5 * time.Millisecond)
			continue
		}
		key := fmt.Sprintf("key %d of history %d", r.IntN(keys), history)
		called := time.Now()
		old, lsn, err := by.read(key)
		if err != nil {
			continue // it says nothing
		}
		if r.IntN(3) == 0 {
			c.saw(h, history, porcupine.Operation{Input: call{Key: key}, Output: answer{Value: old}, Call: called.UnixNano(), Return: time.Now().UnixNano()})
			continue
		}
		value := fmt.Sprintf("%d-%d-%d", h, w, n)
		b, err := factBatch(st, key, value)
		if err != nil {
			panic(err)
		}
		b.Expect = []store.Precondition{{Ref: store.Ref{Scope: "acme", ID: key}, LSN: lsn}}
		c.write(h, history, st, b, call{Key: key, Write: true, Old: old, New: value})
	}
}

// write commits a batch, and repeats it with its id until the answer is certain.
func (c *crew) write(h int, history int32, st *Store, b store.Batch, w call) {
	called := time.Now()
	for {
		out, err := st.Commit(context.Background(), b)
		done := time.Now()
		switch {
		case err == nil:
			c.mu.Lock()
			c.acked[b.ID] = out.LSN
			c.last[h] = done
			c.answers = append(c.answers, done)
			c.mu.Unlock()
		case errors.Is(err, store.ErrConflict):
		case st.whyDead() != nil:
			c.mu.Lock()
			c.failed = append(c.failed, err.Error())
			c.mu.Unlock()
			return
		default: // unknown, or the server did not answer
			c.mu.Lock()
			c.repeated++
			c.mu.Unlock()
			continue
		}
		c.saw(h, history, porcupine.Operation{Input: w, Output: answer{Done: err == nil}, Call: called.UnixNano(), Return: done.UnixNano()})
		return
	}
}

func (c *crew) saw(h int, history int32, op porcupine.Operation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.client++
	op.ClientId = c.client
	c.ops[history] = append(c.ops[history], op)
}

// writes counts the acknowledged commits.
func (c *crew) writes() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.acked)
}

// first is how long after a moment the first commit was acknowledged.
func (c *crew) first(after time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, at := range c.answers {
		if at.After(after) {
			return at.Sub(after)
		}
	}
	return 0
}

// since reports whether each host had a commit acknowledged after a moment.
func (c *crew) since(at time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, last := range c.last {
		if last.Before(at) {
			return false
		}
	}
	return true
}

// wrong compares what was acknowledged with the audit of a host that opens the database anew: commits that are lost, and commits that
// nobody was answered or that are there twice. Outcomes by id are kept for the newest 10,000 commits only, the leaf of a commit for good.
func (c *crew) wrong(dsn string) (lost, tooMany int) {
	st := onHost(c.t, dsn, "main", nil)
	defer st.Close()
	there := map[string][]uint64{}
	commits := 0
	for r, err := range store.Records(c.t.Context(), st.Audit(), 0, math.MaxUint64, false) {
		require.NoError(c.t, err)
		if r.Type == manifest.TypeCommit {
			commits++
			there[r.Trace] = append(there[r.Trace], r.LSN)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, lsn := range c.acked {
		if at := there[id.String()]; len(at) != 1 || at[0] != lsn {
			lost++
		}
	}
	require.EqualValues(c.t, commits, st.Mark().LSN)
	return lost, commits - (len(c.acked) - lost)
}

// TestFailover: the primary is killed under four hosts with 16 writers each, again and again, and its synchronous standby promoted. No
// acknowledged commit is lost, none is made twice, the heads that were kept verify, and each history is linearizable.
func TestFailover(t *testing.T) {
	histories := dbtest.Size(3, 20)
	p := newPair(t)
	c := newCrew(t, p.dsn())
	c.history.Store(-1)
	c.start()
	var heads []manifest.Head
	for n := range histories {
		p.follow(true)
		before := c.writes()
		c.history.Store(int32(n))
		require.Eventually(t, func() bool { return c.writes() >= before+300 }, time.Minute, 5*time.Millisecond, "the hosts do not write")
		var head manifest.Head
		require.Eventually(t, func() bool { // the patience of the hosts is short
			var err error
			head, err = c.hosts[n%failoverHosts].Head(t.Context())
			return err == nil
		}, time.Minute, time.Millisecond)
		heads = append(heads, head)
		told := p.fail()
		ready := time.Since(told)
		require.Eventually(t, func() bool { return c.since(told) }, time.Minute, time.Millisecond, "a host does not find the new primary")
		t.Logf("history %d: after the standby was told: promoted %v, first commit %v, a commit of every host %v", n, ready.Round(time.Millisecond),
			c.first(told).Round(time.Millisecond), time.Since(told).Round(time.Millisecond))
		c.history.Store(-1)
		p.returned(c.hosts, told)
	}
	c.end()
	require.Empty(t, c.failed)
	lost, tooMany := c.wrong(p.dsn())
	require.Zero(t, lost, "acknowledged commits are lost")
	require.Zero(t, tooMany, "commits are there twice")
	for i := range heads {
		_, err := c.hosts[(i+1)%failoverHosts].Audit().Verify(t.Context(), &heads[i], nil) // not the host that made it
		require.NoError(t, err)
	}
	operations := 0
	for n, ops := range c.ops {
		require.Greater(t, len(ops), 300)
		operations += len(ops)
		result, _ := porcupine.CheckOperationsVerbose(register, ops, time.Minute)
		require.Equal(t, porcupine.Ok, result, "history %d", n)
	}
	t.Logf("%d fail-overs, %d operations, %d acknowledged commits, %d calls repeated with their id", histories, operations, len(c.acked), c.repeated)
	require.NotZero(t, c.repeated, "no commit was in flight at a fail-over")

	// The control: a history that lacks one acknowledged commit, on which another was built, is not linearizable.
	require.Equal(t, porcupine.Illegal, checkWithout(t, c.ops[0]), "the test of a fail-over proves nothing")
}

// checkWithout judges a history without the first write whose value another write replaced.
func checkWithout(t *testing.T, ops []porcupine.Operation) porcupine.CheckResult {
	t.Helper()
	replaced := map[string]bool{}
	for _, op := range ops {
		if w := op.Input.(call); w.Write && op.Output.(answer).Done {
			replaced[w.Old] = true
		}
	}
	for i, op := range ops {
		if w := op.Input.(call); w.Write && op.Output.(answer).Done && replaced[w.New] {
			less := append(append([]porcupine.Operation{}, ops[:i]...), ops[i+1:]...)
			result, _ := porcupine.CheckOperationsVerbose(register, less, time.Minute)
			return result
		}
	}
	t.Fatal("no write was replaced")
	return porcupine.Unknown
}

// returned waits until every host listens on the new primary, and has said there that it is alive.
func (p *pair) returned(hosts []*Store, told time.Time) {
	p.t.Helper()
	conn := connectTo(p.t, p.primary)
	defer conn.Close(context.Background())
	require.Eventually(p.t, func() bool {
		var listen, alive int
		err := conn.QueryRow(p.t.Context(), `SELECT (SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN %'),
			(SELECT count(*) FROM ctxpage_hosts WHERE seen > $1)`, told).Scan(&listen, &alive)
		return err == nil && listen == len(hosts) && alive >= len(hosts)
	}, time.Minute, 10*time.Millisecond, "the hosts do not listen, or their heartbeats do not arrive")
}

// behindStandby is a pair whose asynchronous standby stops following, with two hosts that have commits it will never get: one keeps its
// cache. It returns them, and the database's newest commit on the standby.
func behindStandby(t *testing.T, lost int) (p *pair, kept, other *Store, dir string) {
	p = newPair(t)
	dir = t.TempDir()
	kept = onHost(t, p.dsn(), "main", func(o *Options) { o.CacheDir = dir })
	other = onHost(t, p.dsn(), "main", nil)
	for n := range 10 {
		mustPut(t, kept, fmt.Sprint("both ", n), "words")
	}
	p.follow(false)
	conn, from := connectTo(t, p.standby), connectTo(t, p.primary)
	var at string
	require.NoError(t, from.QueryRow(t.Context(), "SELECT pg_current_wal_flush_lsn()::text").Scan(&at))
	require.Eventually(t, func() bool {
		var there bool
		return conn.QueryRow(t.Context(), "SELECT pg_last_wal_replay_lsn() >= $1::pg_lsn", at).Scan(&there) == nil && there
	}, time.Minute, 10*time.Millisecond)
	_, _ = conn.Close(t.Context()), from.Close(t.Context())
	require.NoError(t, p.standby.stop(syscall.SIGINT)) // it receives nothing more
	for n := range lost {
		mustPut(t, kept, fmt.Sprint("lost ", n), "words")
	}
	refresh(t, other)
	return p, kept, other, dir
}

// promoteBehind kills the primary and promotes the standby that was down.
func (p *pair) promoteBehind() {
	p.t.Helper()
	p.primary.kill(p.t)
	require.NoError(p.t, p.standby.start())
	out, err := p.standby.command("pg_ctl", "promote", "-D", p.standby.data(), "-w", "-t", "60").CombinedOutput()
	require.NoError(p.t, err, string(out))
	p.primary = p.standby
}

// says checks that an error has the numbers of a loss and what to do.
func says(t *testing.T, err error, have, newest, lsn uint64) *ForkedError {
	t.Helper()
	require.ErrorIs(t, err, ErrForked)
	var forked *ForkedError
	require.ErrorAs(t, err, &forked)
	require.Equal(t, [...]uint64{have, newest, lsn}, [...]uint64{forked.Have, forked.Newest, forked.LSN})
	require.Contains(t, err.Error(), fmt.Sprintf("record %d of the log (LSN %d)", have, lsn))
	return forked
}

// An asynchronous standby that was behind is promoted. Every host that has lost commits says so with the numbers, also if it only
// reads; so does an Open that finds them in a kept cache, each time, until the operator removes that cache. A head that was kept
// elsewhere does not verify.
func TestFailoverLoses(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	p, kept, other, _ := behindStandby(t, 3)
	head, err := kept.Head(ctx)
	require.NoError(t, err)
	p.promoteBehind()
	for _, st := range []*Store{kept, other} { // nobody calls them: their polls find it
		require.Eventually(t, func() bool { return st.whyDead() != nil }, time.Minute, 10*time.Millisecond, "a host does not notice")
		_, err := st.Resolve(ctx, acme, store.Ref{ID: "both 1"})
		forked := says(t, err, 13, 10, 13)
		require.Contains(t, err.Error(), "the server's newest record is 10")
		_, err = st.Commit(ctx, fact(t, st, "more", "words"))
		require.ErrorIs(t, err, ErrForked)
		require.Equal(t, st == kept, forked.Cache != "")
	}
	require.NoError(t, errors.Join(kept.Close(), other.Close()))

	// An Open that remembers nothing cannot tell; a head tells.
	now := onHost(t, p.dsn(), "main", nil)
	_, err = now.Audit().Verify(ctx, &head, nil)
	require.ErrorIs(t, err, manifest.ErrHead)
	mustFind(t, now, "both 9")
	_, err = now.Resolve(ctx, acme, store.Ref{ID: "lost 0"})
	require.ErrorIs(t, err, store.ErrNotFound)
}

// A kept cache is all that remembers the lost commits: Open refuses it, names it, and leaves it as it is.
func TestFailoverKeptCache(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for _, lost := range []int{0, 3} { // the control: a standby that has everything
		t.Run(fmt.Sprint("lost ", lost), func(t *testing.T) {
			p, kept, other, dir := behindStandby(t, lost)
			require.NoError(t, errors.Join(kept.Close(), other.Close()))
			p.promoteBehind()
			open := func() (*Store, error) {
				return Open(ctx, p.dsn(), Options{Name: "main", CacheDir: dir})
			}
			if lost == 0 {
				st, err := open()
				require.NoError(t, err)
				require.NoError(t, st.Close())
				return
			}
			_, err := open()
			says(t, err, 13, 10, 13)
			require.Contains(t, err.Error(), filepath.Join(dir, rowsFile))
			between := onHost(t, p.dsn(), "main", nil) // another host goes on, past the lost numbers
			for n := range 5 {
				mustPut(t, between, fmt.Sprint("new ", n), "words")
			}
			_, err = open()
			says(t, err, 13, 15, 13)
			require.Contains(t, err.Error(), "another record 13 and goes on to 15")
			require.NoError(t, errors.Join(os.Remove(filepath.Join(dir, rowsFile)), os.RemoveAll(filepath.Join(dir, archiveDir))))
			st, err := open()
			require.NoError(t, err)
			mustFind(t, st, "new 4")
			require.NoError(t, st.Close())
		})
	}
}

// A server that lost records and got as many others has as many records as a host that only reads. The host notices all the same.
func TestForkedAtTheSameNumber(t *testing.T) {
	t.Parallel()
	ctx, dsn := t.Context(), onServer(t)
	for _, lost := range []bool{true, false} { // false: the control, the same record again
		t.Run(fmt.Sprint("lost ", lost), func(t *testing.T) {
			a := onHost(t, dsn, ownName(t), func(o *Options) { o.NoNotify = true })
			for i := range 5 {
				mustPut(t, a, fmt.Sprint("page ", i), "words")
			}
			change := "UPDATE ctxpage_records SET chain = chain WHERE db = $1 AND seq = 5"
			if lost {
				change = "UPDATE ctxpage_records SET chain = sha256(chain) WHERE db = $1 AND seq = 5"
			}
			_, err := a.pool.Exec(ctx, change, a.db.num)
			require.NoError(t, err)
			if lost {
				require.Eventually(t, func() bool { return a.whyDead() != nil }, time.Minute, 5*time.Millisecond, "the poll takes another record for its own")
				says(t, a.whyDead(), 5, 5, 5)
				return
			}
			for range 3 {
				require.NoError(t, a.log.look(ctx))
			}
			mustFind(t, a, "page 4")
		})
	}
}

// TestFailoverOf is a fail-over of a cluster that a tool or a service runs: CTXPAGE_FAILOVER_DSN leads to its primary, and the shell
// command CTXPAGE_FAILOVER_RUN makes the primary fail. It makes the schema and the database "main", which must be empty.
func TestFailoverOf(t *testing.T) {
	dsn, run := os.Getenv("CTXPAGE_FAILOVER_DSN"), os.Getenv("CTXPAGE_FAILOVER_RUN")
	if dsn == "" || run == "" {
		t.Skip("skipped: CTXPAGE_FAILOVER_DSN and CTXPAGE_FAILOVER_RUN name no cluster")
	}
	_, err := Migrate(t.Context(), dsn, false)
	require.NoError(t, err)
	c := newCrew(t, dsn)
	require.Zero(t, c.hosts[0].Mark().LSN, "the database is not empty")
	c.start()
	require.Eventually(t, func() bool { return c.writes() >= 300 }, time.Minute, 5*time.Millisecond, "the hosts do not write")
	failed := time.Now()
	out, err := exec.Command("sh", "-c", run).CombinedOutput()
	require.NoError(t, err, string(out))
	var pause time.Duration
	require.Eventually(t, func() bool { // the old primary may answer for a while
		pause = c.pause(failed)
		return pause > 500*time.Millisecond && c.since(time.Now().Add(-200*time.Millisecond))
	}, 3*time.Minute, time.Millisecond, "there was no fail-over, or a host does not find the new primary")
	c.end()
	require.Empty(t, c.failed)
	lost, tooMany := c.wrong(dsn)
	require.Zero(t, lost, "acknowledged commits are lost")
	require.Zero(t, tooMany, "commits are there twice")
	result, _ := porcupine.CheckOperationsVerbose(register, c.ops[0], time.Minute)
	require.Equal(t, porcupine.Ok, result)
	t.Logf("%d operations, %d acknowledged commits, %d calls repeated with their id; no commit for %v", len(c.ops[0]), len(c.acked), c.repeated, pause.Round(time.Millisecond))
}

// pause is the longest time without an acknowledged commit since a moment.
func (c *crew) pause(since time.Time) (longest time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := since
	for _, at := range c.answers {
		if at.After(last) {
			longest = max(longest, at.Sub(last))
			last = at
		}
	}
	return longest
}

// A host that is led to a server that takes no writes, as a name does that still points to the old primary, waits for one that does.
func TestFailoverReadOnly(t *testing.T) {
	t.Parallel()
	s := ownServer(t)
	st := onHost(t, s.dsn("postgres"), "main", nil)
	mustPut(t, st, "before", "words")
	on(t, s, "ALTER DATABASE postgres SET default_transaction_read_only = on")
	terminate(t, s.dsn("postgres"))
	done := make(chan error, 1)
	go func() {
		_, err := st.Commit(context.Background(), fact(t, st, "after", "words"))
		done <- err
	}()
	select {
	case err := <-done:
		t.Fatal("the commit did not wait: ", err)
	case <-time.After(time.Second):
	}
	on(t, s, "BEGIN READ WRITE; ALTER DATABASE postgres RESET default_transaction_read_only; COMMIT")
	require.NoError(t, <-done)
	mustFind(t, st, "after")
}
