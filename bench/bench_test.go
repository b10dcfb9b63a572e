// Package bench measures ctxpage over its public API, beside plain bbolt where that makes sense. README.md has the
// figures, what they mean, and the command for each.
package bench

import (
	"bytes"
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
)

var (
	big       = flag.Bool("big", false, "also measure databases of 1M pages; making one takes minutes")
	sustained = flag.Duration("sustained", 5*time.Second, "length of the sustained run of 64 writers")
)

var ctx = context.Background()

// dir holds every database of the run. It lies below the working directory's file system, not in a tmpfs: a sync must
// cost what it costs.
var dir string

func TestMain(m *testing.M) {
	if path := os.Getenv(floorOwner); path != "" {
		if err := ownForOthers(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	flag.Parse()
	var err error
	if dir, err = os.MkdirTemp(os.Getenv("BENCHDIR"), "ctxpage-bench-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	for _, s := range stored {
		s.db.Close()
	}
	os.RemoveAll(dir)
	os.Exit(code)
}

// fresh is a path where nothing is yet.
func fresh(tb testing.TB) string {
	d, err := os.MkdirTemp(dir, "db-")
	must(tb, err)
	return filepath.Join(d, "agent.ctx")
}

func must(tb testing.TB, err error) {
	if err != nil {
		tb.Helper()
		tb.Fatal(err)
	}
}

func open(tb testing.TB, path string, opts ctxpage.Options) *ctxpage.DB {
	db, err := ctxpage.Open(path, opts)
	must(tb, err)
	return db
}

// words is a lexicon of invented words whose frequencies fall as those of a text without its stop words do: the
// most frequent one stands in about one short page of ten.
type words struct {
	r    *rand.Rand
	zipf *rand.Zipf
}

var lexicon = func() []string {
	r := rand.New(rand.NewSource(7))
	seen := map[string]bool{}
	var out []string
	for len(out) < 20_000 {
		var b strings.Builder
		for range 2 + r.Intn(3) {
			b.WriteByte("bcdfghklmnprstvz"[r.Intn(16)])
			b.WriteByte("aeiou"[r.Intn(5)])
		}
		if w := b.String(); !seen[w] {
			seen[w] = true
			out = append(out, w)
		}
	}
	return out
}()

func newWords(seed int64) *words {
	r := rand.New(rand.NewSource(seed))
	return &words{r: r, zipf: rand.NewZipf(r, 1.1, 50, uint64(len(lexicon)-1))}
}

func (w *words) word() string { return lexicon[w.zipf.Uint64()] }

// page is a text of about so many bytes, in sentences.
func (w *words) page(size int) string {
	b := make([]byte, 0, size+16)
	for n := 1; len(b) < size; n++ {
		b = append(b, w.word()...)
		if n%12 == 0 {
			b = append(b, '.')
		}
		b = append(b, ' ')
	}
	return string(b[:size])
}

// question asks for some words, as often asked for as they are used.
func (w *words) question(n int) string {
	var q []string
	for range n {
		q = append(q, w.word())
	}
	return strings.Join(q, " ")
}

const (
	shortPage = 130  // bytes; a turn of a conversation
	longPage  = 1024 // bytes
)

// database is one that is really there, made once in a process and kept open.
type database struct {
	db    *ctxpage.DB
	path  string
	pages int
	took  time.Duration // to put and checkpoint it
	cpu   time.Duration // of all cores meanwhile
	wrote int64         // bytes handed to the operating system meanwhile
}

var stored = map[string]*database{}

// scope is where the pages of the benchmarks live.
func (d *database) scope() *ctxpage.Scope { return d.db.Scope("acme/bench") }

// filled returns the database of so many pages of a size, putting them in transactions of 500 when it is not there yet.
func filled(tb testing.TB, pages, size int) *database {
	name := fmt.Sprintf("%d-%d", pages, size)
	if d := stored[name]; d != nil {
		return d
	}
	d := &database{path: fresh(tb), pages: pages}
	d.db = open(tb, d.path, ctxpage.Options{})
	start, cpu, before := time.Now(), cpuTime(), written(tb)
	fill(tb, d.scope(), pages, size)
	_, err := d.db.Admin().Checkpoint(ctx)
	must(tb, err)
	d.took, d.cpu, d.wrote = time.Since(start), cpuTime()-cpu, written(tb)-before
	st, err := d.db.Stats(ctx)
	must(tb, err)
	if st.Pages != pages {
		tb.Fatalf("%d pages in the database, expected %d", st.Pages, pages)
	}
	stored[name] = d
	return d
}

func fill(tb testing.TB, s *ctxpage.Scope, pages, size int) {
	w := newWords(1)
	for at := 0; at < pages; at += 500 {
		must(tb, s.Update(ctx, func(tx *ctxpage.Txn) error {
			for i := at; i < min(at+500, pages); i++ {
				if err := tx.Put(ctx, ctxpage.Artefact{ID: pageID(i), Text: w.page(size)}); err != nil {
					return err
				}
			}
			return nil
		}))
	}
}

func pageID(i int) string { return "page-" + strconv.Itoa(i) }

// written is how many bytes this process has handed to write calls.
func written(tb testing.TB) int64 {
	b, err := os.ReadFile("/proc/self/io")
	if err != nil {
		return 0 // not Linux: the metric is left out
	}
	for line := range bytes.Lines(b) {
		if v, ok := bytes.CutPrefix(line, []byte("wchar: ")); ok {
			n, err := strconv.ParseInt(string(bytes.TrimSpace(v)), 10, 64)
			must(tb, err)
			return n
		}
	}
	return 0
}

// cpuTime is what this process has used of all cores; on a machine that others use too it says more than the clock.
func cpuTime() time.Duration {
	return dbtest.CPUTime()
}

// times collects how long single operations took.
type times struct {
	mu  sync.Mutex
	all []time.Duration
}

func (t *times) add(d []time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all = append(t.all, d...)
}

func (t *times) report(b *testing.B) {
	slices.Sort(t.all)
	for _, q := range []struct {
		name string
		at   float64
	}{{"p50-µs", .5}, {"p99-µs", .99}} {
		b.ReportMetric(micros(t.at(q.at)), q.name)
	}
}

func (t *times) at(q float64) time.Duration {
	if len(t.all) == 0 {
		return 0
	}
	return t.all[min(int(q*float64(len(t.all))), len(t.all)-1)]
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// op is one operation by one of several workers; n counts them all and never repeats within a process.
type op func(worker int, n uint64) error

var serial atomic.Uint64

// run lets workers repeat an operation until limit of them are done, or until a time when limit is 0.
func run(tb testing.TB, workers, limit int, until time.Duration, do op) (n int, t *times) {
	t = &times{}
	var left atomic.Int64
	left.Store(int64(limit))
	end := time.Now().Add(until)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			var own []time.Duration
			defer func() { t.add(own) }()
			for {
				start := time.Now()
				if limit > 0 && left.Add(-1) < 0 || limit == 0 && start.After(end) {
					return
				}
				if err := do(w, serial.Add(1)); err != nil {
					tb.Error(err)
					return
				}
				own = append(own, time.Since(start))
			}
		})
	}
	wg.Wait()
	return len(t.all), t
}

// measure is one variant alone, for benchstat.
func measure(b *testing.B, workers int, do op) {
	b.ReportAllocs()
	b.ResetTimer()
	before, cpu := written(b), cpuTime()
	_, t := run(b, workers, b.N, 0, do)
	b.StopTimer()
	b.ReportMetric(micros(cpuTime()-cpu)/float64(b.N), "cpu-µs/op")
	if n := written(b) - before; n > int64(b.N) {
		b.ReportMetric(float64(n)/float64(b.N), "written-B/op")
	}
	t.report(b)
}

// Rounds and their length in a comparison.
const (
	rounds   = 9
	roundFor = 60 * time.Millisecond
)

// compare lets two variants take turns on the same machine and reports how many times more of ours go through in the
// same time: the median of the rounds, and the worst of them.
func compare(b *testing.B, workers int, ours, theirs op) figures {
	var ratios []float64
	for range rounds {
		ratios = append(ratios, rate(b, workers, ours)/rate(b, workers, theirs))
	}
	slices.Sort(ratios)
	return figures{"×bolt": ratios[len(ratios)/2], "×bolt-worst": ratios[0]}
}

// rate is operations a second over one round. What was begun within it is waited for, and so is its time.
func rate(b *testing.B, workers int, do op) float64 {
	start := time.Now()
	n, _ := run(b, workers, 0, roundFor, do)
	return float64(n) / time.Since(start).Seconds()
}

// figures are metrics by unit.
type figures map[string]float64

var measured = map[string]figures{}

// once does what takes its time in one go, whatever the framework asks for, and reports what it found.
func once(b *testing.B, do func() figures) {
	if b.N == 1 {
		measured[b.Name()] = do()
	}
	b.ReportMetric(0, "ns/op")
	for unit, v := range measured[b.Name()] {
		b.ReportMetric(v, unit)
	}
}

// plain is a plain bbolt database with one bucket, as an application without ctxpage would have.
type plain struct{ db *bbolt.DB }

var bucket = []byte("pages")

func openBolt(tb testing.TB) *plain {
	db, err := bbolt.Open(fresh(tb), 0o600, &bbolt.Options{FreelistType: bbolt.FreelistMapType})
	must(tb, err)
	must(tb, db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucket(bucket)
		return err
	}))
	tb.Cleanup(func() { db.Close() })
	return &plain{db}
}

func (o *plain) put(n uint64, text []byte) error {
	return o.db.Update(func(tx *bbolt.Tx) error {
		return tx.Bucket(bucket).Put(binary.BigEndian.AppendUint64(nil, n), text)
	})
}

func (o *plain) get(key []byte) (text string, err error) {
	err = o.db.View(func(tx *bbolt.Tx) error {
		text = string(tx.Bucket(bucket).Get(key))
		return nil
	})
	return text, err
}

// fill puts the pages that fill puts.
func (o *plain) fill(tb testing.TB, pages, size int) {
	w := newWords(1)
	for at := 0; at < pages; at += 5000 {
		must(tb, o.db.Update(func(tx *bbolt.Tx) error {
			for i := at; i < min(at+5000, pages); i++ {
				if err := tx.Bucket(bucket).Put([]byte(pageID(i)), []byte(w.page(size))); err != nil {
					return err
				}
			}
			return nil
		}))
	}
}

func named(pages int) string {
	switch {
	case pages >= 1_000_000:
		return strconv.Itoa(pages/1_000_000) + "M"
	case pages >= 1000:
		return strconv.Itoa(pages/1000) + "k"
	}
	return strconv.Itoa(pages)
}
