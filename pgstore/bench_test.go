package pgstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// size is what a commit of these benchmarks has, about what a turn of a conversation has.
var words = strings.Repeat("refunds above the limit need an approval of the owner ", 30)

// inTurns runs b.N operations by some goroutines.
func inTurns(b *testing.B, writers int, do func(w, n int) error) {
	b.ResetTimer()
	begun, cpu := time.Now(), cpuTime()
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for n := w; n < b.N; n += writers {
				if err := do(w, n); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	b.ReportMetric(float64(b.N)/time.Since(begun).Seconds(), "commits/s")
	b.ReportMetric(float64((cpuTime()-cpu).Microseconds())/float64(b.N), "cpu-µs/op")
}

// BenchmarkCommit is a commit of one page of 1.6 KB: by this store, and, beside it, bare inserts of the same bytes with the writers
// that wait sharing one transaction: what the server gives at best without any order.
func BenchmarkCommit(b *testing.B) {
	dsn := onServer(b)
	for _, writers := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("writers=%d/v=pgstore", writers), func(b *testing.B) {
			st := benchStore(b, dsn, fmt.Sprint(b.Name(), time.Now().UnixNano()))
			inTurns(b, writers, func(w, n int) error {
				_, err := st.Commit(context.Background(), fact(b, st, fmt.Sprint("a", n), words))
				return err
			})
		})
		b.Run(fmt.Sprintf("writers=%d/v=inserts", writers), func(b *testing.B) {
			g := newGrouped(b, dsn)
			inTurns(b, writers, func(int, int) error { return g.insert([]byte(words)) })
		})
	}
}

// BenchmarkCommitHosts is the same from four hosts at once, 16 writers each, and from four programs that insert, each with its own
// connections and groups: without any order, and in the order of a lock, as the store does, with the rows of the others read, and with
// nothing judged, checked or indexed.
func BenchmarkCommitHosts(b *testing.B) {
	dsn := onServer(b)
	b.Run("v=pgstore", func(b *testing.B) {
		name := fmt.Sprint(b.Name(), time.Now().UnixNano())
		var hosts []*Store
		var turns atomic.Int64
		for range 4 {
			st, err := Open(b.Context(), dsn, Options{Name: name, hook: func(step string) error {
				if step == "write" {
					turns.Add(1)
				}
				return nil
			}})
			require.NoError(b, err)
			b.Cleanup(func() { _ = st.Close() })
			hosts = append(hosts, st)
		}
		inTurns(b, 64, func(w, n int) error {
			st := hosts[w%4]
			_, err := st.Commit(context.Background(), fact(b, st, fmt.Sprint("a", n), words))
			return err
		})
		b.ReportMetric(float64(b.N)/float64(turns.Load()), "commits/turn")
	})
	for _, ordered := range []bool{false, true} {
		b.Run(map[bool]string{false: "v=inserts", true: "v=ordered-inserts"}[ordered], func(b *testing.B) {
			hosts := []*grouped{newGrouped(b, dsn)}
			for range 3 {
				hosts = append(hosts, &grouped{pool: newPool(b, dsn), turn: make(chan struct{}, 1)})
			}
			turns := 0
			for _, h := range hosts {
				h.ordered = ordered
			}
			inTurns(b, 64, func(w, n int) error { return hosts[w%4].insert([]byte(words)) })
			for _, h := range hosts {
				turns += h.turns
			}
			b.ReportMetric(float64(b.N)/float64(turns), "commits/turn")
		})
	}
}

// BenchmarkOrder compares four hosts with 16 writers each with inserts in the order of a lock, as in BenchmarkCommitHosts, by turns of 64 × 8
// commits, so that both meet the same machine. It reports the median of the rounds' ratios, the worst, what a turn of each spends
// while it has the lock (until what others committed is installed, until its commits are judged, and until they are written), and the
// CPU of a commit in this process and in the server.
func BenchmarkOrder(b *testing.B) {
	dsn := onServer(b)
	const round = 512
	name := fmt.Sprint(b.Name(), time.Now().UnixNano())
	var spans [2]turnSpans
	var hosts []*Store
	for range 4 {
		st, err := Open(b.Context(), dsn, Options{Name: name, hook: spans[0].watch()})
		require.NoError(b, err)
		b.Cleanup(func() { _ = st.Close() })
		hosts = append(hosts, st)
	}
	inserters := []*grouped{newGrouped(b, dsn)}
	for range 3 {
		inserters = append(inserters, &grouped{pool: newPool(b, dsn), turn: make(chan struct{}, 1)})
	}
	for _, g := range inserters {
		g.ordered, g.hook = true, spans[1].watch()
	}
	var ratios []float64
	var clock, cpu, served [2]time.Duration
	var n atomic.Int64
	for range max(3, b.N/round) {
		var took [2]time.Duration
		for i, do := range []func(w int) error{
			func(w int) error {
				st := hosts[w%4]
				_, err := st.Commit(context.Background(), fact(b, st, fmt.Sprint("a", n.Add(1)), words))
				return err
			},
			func(w int) error { return inserters[w%4].insert([]byte(words)) },
		} {
			server, before, begun := serverCPU(), cpuTime(), time.Now() // in this order: reading what the server used takes milliseconds
			var all sync.WaitGroup
			for w := range 64 {
				all.Go(func() {
					for range round / 64 {
						if err := do(w); err != nil {
							b.Error(err)
						}
					}
				})
			}
			all.Wait()
			took[i] = time.Since(begun)
			cpu[i] += cpuTime() - before
			clock[i] += took[i]
			served[i] += serverCPU() - server
		}
		ratios = append(ratios, float64(took[1])/float64(took[0]))
	}
	slices.Sort(ratios)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(ratios[len(ratios)/2], "median-ratio")
	b.ReportMetric(ratios[0], "worst-ratio")
	b.ReportMetric(float64(n.Load())/clock[0].Seconds(), "commits/s")
	for i, who := range []string{"", "inserts-"} {
		turns := float64(spans[i].turns.Load())
		b.ReportMetric(float64(n.Load())/turns, who+"commits/turn")
		for k, what := range []string{"install", "judge", "write"} {
			b.ReportMetric(float64(spans[i].took[k].Load())/turns/1000, who+what+"-µs")
		}
		b.ReportMetric(float64(cpu[i].Microseconds())/float64(n.Load()), who+"cpu-µs/op")
		b.ReportMetric(float64(served[i].Microseconds())/float64(n.Load()), who+"server-cpu-µs/op")
	}
}

// turnSpans adds up what turns spend between their steps.
type turnSpans struct {
	took  [3]atomic.Int64
	turns atomic.Int64
}

// watch returns the hook of one host.
func (s *turnSpans) watch() func(step string) error {
	var at time.Time
	return func(step string) error {
		i := slices.Index([]string{"locked", "placed", "write", "written"}, step)
		now := time.Now()
		if i > 0 {
			s.took[i-1].Add(int64(now.Sub(at)))
		}
		if i == 3 {
			s.turns.Add(1)
		}
		if i >= 0 {
			at = now
		}
		return nil
	}
}

// serverCPU is what the servers that this process started have used, in steps of 10 ms.
func serverCPU() time.Duration {
	type process struct {
		parent string
		ticks  int64
	}
	all := map[string]process{}
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range files {
		raw, _ := os.ReadFile(name)
		pid, _, _ := strings.Cut(string(raw), " ")
		f := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))
		if len(f) < 13 {
			continue // it has ended
		}
		user, _ := strconv.ParseInt(f[11], 10, 64)
		system, _ := strconv.ParseInt(f[12], 10, 64)
		all[pid] = process{f[1], user + system}
	}
	var ticks int64
	self := strconv.Itoa(os.Getpid())
	for _, p := range all {
		if p.parent == self || all[p.parent].parent == self {
			ticks += p.ticks
		}
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

func benchStore(b *testing.B, dsn, name string) *Store {
	st, err := Open(b.Context(), dsn, Options{Name: name})
	require.NoError(b, err)
	b.Cleanup(func() { _ = st.Close() })
	return st
}

// grouped inserts rows; those who wait share a transaction.
type grouped struct {
	pool    *pgxpool.Pool
	turn    chan struct{}
	ordered bool // with the lock of an order, and two trips
	seen    int64
	turns   int
	hook    func(step string) error // nil: none
	mu      sync.Mutex
	wait    []chan error
	rows    [][]byte
}

func newPool(b *testing.B, dsn string) *pgxpool.Pool {
	pool, err := pgxpool.New(b.Context(), dsn)
	require.NoError(b, err)
	b.Cleanup(pool.Close)
	return pool
}

func newGrouped(b *testing.B, dsn string) *grouped {
	pool := newPool(b, dsn)
	_, err := pool.Exec(b.Context(), `DROP TABLE IF EXISTS bare, bare_turn; CREATE TABLE bare (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body bytea);
		CREATE TABLE bare_turn (db int); INSERT INTO bare_turn VALUES (1)`)
	require.NoError(b, err)
	return &grouped{pool: pool, turn: make(chan struct{}, 1)}
}

func (g *grouped) insert(row []byte) error {
	done := make(chan error, 1)
	g.mu.Lock()
	g.rows, g.wait = append(g.rows, row), append(g.wait, done)
	g.mu.Unlock()
	select {
	case err := <-done:
		return err
	case g.turn <- struct{}{}:
	}
	conn, err := g.begin()
	g.mu.Lock()
	rows, wait := g.rows, g.wait
	g.rows, g.wait = nil, nil
	g.mu.Unlock()
	if len(rows) > 0 && err == nil {
		g.turns++
		g.step("placed")
		g.step("write") // nothing is judged
		err = g.write(conn, rows)
		g.step("written")
	}
	for _, w := range wait {
		w <- err
	}
	if conn != nil {
		conn.Release()
	}
	<-g.turn
	return <-done
}

// begin is the first trip of a turn; none without an order.
func (g *grouped) begin() (*pgxpool.Conn, error) {
	conn, err := g.pool.Acquire(context.Background())
	if err != nil || !g.ordered {
		return conn, err
	}
	var b pgx.Batch
	b.Queue("BEGIN")
	b.Queue("SELECT FROM bare_turn FOR UPDATE").Exec(func(pgconn.CommandTag) error {
		g.step("locked")
		return nil
	})
	b.Queue("SELECT id, body FROM bare WHERE id > $1 ORDER BY id", g.seen).Query(func(rows pgx.Rows) error {
		var body []byte
		_, err := pgx.ForEachRow(rows, []any{&g.seen, &body}, func() error { return nil })
		return err
	})
	return conn, conn.SendBatch(context.Background(), &b).Close()
}

func (g *grouped) step(name string) {
	if g.hook != nil {
		_ = g.hook(name)
	}
}

func (g *grouped) write(conn *pgxpool.Conn, rows [][]byte) error {
	var b pgx.Batch
	if !g.ordered {
		b.Queue("BEGIN")
	}
	b.Queue("INSERT INTO bare (body) SELECT * FROM unnest($1::bytea[])", rows)
	b.Queue("COMMIT")
	return conn.SendBatch(context.Background(), &b).Close()
}

// BenchmarkSearch is a search and an assembly with their manifests, of 5,000 pages: on a follower, and on a file, by one reader and by
// eight; with manifests that are handed over before the answer (the default), and with manifests that are on the disk before it.
func BenchmarkSearch(b *testing.B) {
	dsn := onServer(b)
	for _, audit := range []struct {
		name string
		sync bool
	}{{"written", false}, {"synced", true}} {
		file, err := ctxpage.Open(filepath.Join(b.TempDir(), "agent.ctx"), ctxpage.Options{Exclusive: true, AuditSync: audit.sync})
		require.NoError(b, err)
		defer file.Close()
		st := benchStore(b, dsn, fmt.Sprint(b.Name(), time.Now().UnixNano()))
		follower, err := ctxpage.Open("follower", ctxpage.Options{Store: st, AuditSync: audit.sync})
		require.NoError(b, err)
		defer follower.Close()
		scopes := []*ctxpage.Scope{file.Scope("acme"), follower.Scope("acme")}
		for _, s := range scopes {
			orders(b, s)
		}
		for _, op := range []struct {
			name string
			do   func(s *ctxpage.Scope, n int) error
		}{{"search", searchOrders}, {"assemble", assembleOrders}} {
			for _, readers := range []int{1, 8} {
				b.Run(fmt.Sprintf("audit=%s/op=%s/readers=%d", audit.name, op.name, readers), func(b *testing.B) { byTurns(b, scopes, readers, op.do) })
			}
		}
	}
}

// orders puts 5,000 pages.
func orders(b *testing.B, s *ctxpage.Scope) {
	for n := range 50 {
		err := s.Update(b.Context(), func(tx *ctxpage.Txn) error {
			for i := range 100 {
				if err := tx.Put(b.Context(), ctxpage.Artefact{ID: fmt.Sprint("a", n*100+i), Text: fmt.Sprintf("Order %d of customer %d was refunded by agent %d.", n*100+i, i%37, i%7)}); err != nil {
					return err
				}
			}
			return nil
		})
		require.NoError(b, err)
	}
}

func searchOrders(s *ctxpage.Scope, n int) error {
	hits, err := s.Search(context.Background(), fmt.Sprintf("refunded customer %d", n%37), 10)
	if err == nil && len(hits.Hits) == 0 {
		err = errors.New("nothing was found")
	}
	return err
}

func assembleOrders(s *ctxpage.Scope, n int) error {
	_, err := s.Assemble(context.Background(), ctxpage.Query{Text: fmt.Sprintf("refunded customer %d", n%37), Budget: 1000})
	return err
}

// byTurns runs an operation on a file and on a follower by turns, so that both meet the same machine. It reports the medians, and the
// ratios of the medians, of the whole time, and of the CPU time of this process, which has the client's side of the server's work and
// not the server's. Of several readers the whole time tells more: those of a file wait for a processor before they begin, those of a
// follower in the middle of an operation as well.
func byTurns(b *testing.B, scopes []*ctxpage.Scope, readers int, do func(*ctxpage.Scope, int) error) {
	const turn = 24
	var mu sync.Mutex
	var took [2][]time.Duration
	var cpu, clock [2]time.Duration
	for n := 0; n < b.N; n += turn {
		for i, s := range scopes {
			before, from := cpuTime(), time.Now()
			var all sync.WaitGroup
			for r := range readers {
				all.Go(func() {
					for k := r; k < turn; k += readers {
						begun := time.Now()
						err := do(s, n+k)
						d := time.Since(begun)
						if err != nil {
							b.Error(err)
							return
						}
						mu.Lock()
						took[i] = append(took[i], d)
						mu.Unlock()
					}
				})
			}
			all.Wait()
			cpu[i] += cpuTime() - before
			clock[i] += time.Since(from)
		}
	}
	var p50 [2]float64
	for i := range took {
		slices.Sort(took[i])
		p50[i] = float64(took[i][len(took[i])/2].Microseconds())
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(p50[0], "file-p50-µs")
	b.ReportMetric(p50[1], "follower-p50-µs")
	b.ReportMetric(p50[1]/p50[0], "p50-ratio")
	b.ReportMetric(float64(clock[1])/float64(clock[0]), "clock-ratio")
	b.ReportMetric(float64(cpu[1])/float64(cpu[0]), "cpu-ratio")
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkSeen is how long after the answer another host sees a commit.
func BenchmarkSeen(b *testing.B) {
	dsn := onServer(b)
	for _, notify := range []bool{true, false} {
		b.Run(fmt.Sprintf("notify=%v", notify), func(b *testing.B) {
			name := fmt.Sprint(b.Name(), time.Now().UnixNano())
			var hosts [2]*Store
			for i := range hosts {
				st, err := Open(b.Context(), dsn, Options{Name: name, NoNotify: !notify})
				require.NoError(b, err)
				defer st.Close()
				hosts[i] = st
			}
			var took []time.Duration
			for n := 0; n < b.N; n++ {
				out, err := hosts[0].Commit(b.Context(), fact(b, hosts[0], fmt.Sprint("a", n), "words"))
				require.NoError(b, err)
				answered := time.Now()
				for hosts[1].Mark().LSN < out.LSN {
					time.Sleep(100 * time.Microsecond)
				}
				took = append(took, time.Since(answered))
				time.Sleep(time.Duration(n%50) * time.Millisecond)
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
		})
	}
}

// BenchmarkSyncedBesideWriters is a manifest that is on the disk before the answer, while two other hosts with 16 writers each hand the
// turn to each other.
func BenchmarkSyncedBesideWriters(b *testing.B) {
	dsn := onServer(b)
	name := fmt.Sprint(b.Name(), time.Now().UnixNano())
	reader := benchStore(b, dsn, name)
	ctx, end := context.WithCancel(context.Background())
	done := make(chan struct{}, 64)
	for h := range 2 {
		st := benchStore(b, dsn, name)
		for w := range 16 {
			go func() {
				for n := 0; ctx.Err() == nil; n++ {
					_, _ = st.Commit(context.Background(), fact(b, st, fmt.Sprint("a", h, w, n), words))
				}
				done <- struct{}{}
			}()
		}
	}
	time.Sleep(500 * time.Millisecond)
	b.ResetTimer()
	var took []time.Duration
	for n := 0; n < b.N; n++ {
		at := time.Now()
		if err := reader.Append(ctx, []*manifest.Record{{Type: manifest.TypeGet, Trace: fmt.Sprint("t", n), Scope: "acme", Time: 1}}, store.Synced); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(at))
	}
	end()
	for range 32 {
		<-done
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*95/100].Microseconds())/1000, "p95-ms")
}
