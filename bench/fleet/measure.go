package main

import (
	"context"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
)

// Measured is what a sample showed. Times of the clock are seconds, sizes bytes.
type Measured struct {
	Tenants     int     `json:"tenants"`
	Pages       int     `json:"pages"`
	Put         float64 `json:"put_p50"`
	Context     float64 `json:"context_p50"`
	Cold        float64 `json:"cold_p50"` // a tenant's first context
	Open        float64 `json:"open"`     // of a database
	OpenCPU     float64 `json:"open_cpu"`
	CloseCPU    float64 `json:"close_cpu"`
	Heap        float64 `json:"heap"` // of all that is open
	DiskPage    float64 `json:"disk_page"`
	DiskOpen    float64 `json:"disk_open"` // of an open database
	DiskClosed  float64 `json:"disk_closed"`
	Goroutines  float64 `json:"goroutines"`  // of a database
	Descriptors float64 `json:"descriptors"` // likewise; 0: not known on this system
}

// Sample says how much is measured.
type Sample struct {
	Scopes  int    `json:"scopes"` // tenants in one database
	Files   int    `json:"files"`  // databases in one process
	Ops     int    `json:"ops"`    // puts, and contexts
	Writers int    `json:"writers"`
	Bytes   int    `json:"bytes"` // of a page
	dir     string // databases are made below it
}

// tenants are the sample, and where each of them is.
type tenants struct {
	fleet  *Fleet
	sample *Sample
	which  []int
	scope  func(i int) *ctxpage.Scope
}

// words makes texts that differ, of 20,000 words that exist nowhere.
type words struct{ *rand.Rand }

func (w words) text(size int) string {
	var b strings.Builder
	for b.Len() < size {
		n := w.IntN(20_000)
		for range 3 {
			b.WriteByte("bdfgklmnprstvz"[n%14])
			b.WriteByte("aeiou"[n/14%5])
			n /= 28
		}
		b.WriteByte(' ')
	}
	return b.String()
}

func (t *tenants) words(i int) words {
	return words{rand.New(rand.NewPCG(t.fleet.Seed, uint64(i)+100))}
}

// fill writes the pages of tenants from..to.
func (t *tenants) fill(ctx context.Context, from, to int) error {
	for i := from; i < to; i++ {
		w, n := t.words(i), t.fleet.pages(t.which[i])
		for at := 0; at < n; at += 1000 {
			err := t.scope(i).Update(ctx, func(tx *ctxpage.Txn) error {
				for p := at; p < min(n, at+1000); p++ {
					if err := tx.Put(ctx, ctxpage.Artefact{ID: fmt.Sprintf("page-%d", p), Text: w.text(t.sample.Bytes)}); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *tenants) pages() (n int) {
	for _, i := range t.which {
		n += t.fleet.pages(i)
	}
	return n
}

// contexts asks for n contexts by turns, and returns their median and the CPU of one.
func (t *tenants) contexts(ctx context.Context, n int) (p50, cpu float64, err error) {
	questions := make([]string, len(t.which)) // words of the tenant's first page
	for i := range questions {
		questions[i] = t.words(i).text(20)
	}
	return timed(n, 1, func(i int) error {
		a, err := t.scope(i%len(t.which)).Assemble(ctx, ctxpage.Query{Text: questions[i%len(t.which)], Budget: 4000, TopK: 50})
		if err == nil && len(a.Blocks) == 0 {
			err = fmt.Errorf("the context of tenant %d is empty", t.which[i%len(t.which)])
		}
		return err
	})
}

// puts writes new versions, durably, by several writers.
func (t *tenants) puts(ctx context.Context, n int) (p50, cpu float64, err error) {
	texts := make([]string, n)
	w := t.words(-60)
	for i := range texts {
		texts[i] = w.text(t.sample.Bytes)
	}
	return timed(n, t.sample.Writers, func(i int) error {
		_, err := t.scope(i*7919%len(t.which)).Put(ctx, ctxpage.Artefact{ID: fmt.Sprintf("page-%d", i%8), Text: texts[i]})
		return err
	})
}

// timed calls fn n times, from several goroutines.
func timed(n, by int, fn func(i int) error) (p50, cpu float64, err error) {
	took, errs := make([]float64, n), make([]error, by)
	before := dbtest.CPUTime()
	var wg sync.WaitGroup
	for g := range by {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := g; i < n && errs[g] == nil; i += by {
				start := time.Now()
				errs[g] = fn(i)
				took[i] = time.Since(start).Seconds()
			}
		}()
	}
	wg.Wait()
	cpu = (dbtest.CPUTime() - before).Seconds() / float64(n)
	for _, e := range errs {
		if e != nil {
			return 0, 0, e
		}
	}
	slices.Sort(took)
	return took[n/2], cpu, nil
}

// heap is what is in use after two collections.
func heap() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// disk is what all files below a directory take.
func disk(dir string) (sum float64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			sum += taken(info)
		}
		return err
	})
	return sum, err
}

// descriptors counts the open files of this process; 0: this system does not tell.
func descriptors() float64 {
	list, _ := os.ReadDir("/proc/self/fd")
	return float64(len(list))
}

// openAll opens the databases at paths.
func openAll(paths []string, opts ctxpage.Options) (dbs []*ctxpage.DB, err error) {
	opts.Exclusive, opts.NoWatch = true, true
	for _, path := range paths {
		db, err := ctxpage.Open(path, opts)
		if err != nil {
			return dbs, closeAll(dbs, err)
		}
		dbs = append(dbs, db)
	}
	return dbs, nil
}

func closeAll(dbs []*ctxpage.DB, err error) error {
	for _, db := range dbs {
		if e := db.Close(); err == nil {
			err = e
		}
	}
	return err
}

// scopes measures tenants that are scopes of one database: a quarter of them first, so that what grows with the pages is
// known apart from what a database takes.
func scopes(ctx context.Context, f *Fleet, s *Sample) (m Measured, c Cost, err error) {
	dir := filepath.Join(s.dir, "scopes")
	if err = os.Mkdir(dir, 0o700); err != nil {
		return m, c, err
	}
	t := &tenants{fleet: f, sample: s, which: f.chosen(s.Scopes)}
	type point struct{ pages, heap, disk, open float64 }
	var points []point
	for _, part := range [][2]int{{0, len(t.which) / 4}, {len(t.which) / 4, len(t.which)}} {
		err = t.with(dir, ctxpage.Options{}, func(db *ctxpage.DB) error {
			err := t.fill(ctx, part[0], part[1])
			if err == nil {
				_, err = db.Admin().Compact(ctx, false, nil) // what the fill left behind says nothing of a fleet
			}
			return err
		})
		if err != nil {
			return m, c, err
		}
		p := point{pages: float64((&tenants{fleet: f, which: t.which[:part[1]]}).pages())}
		if p.disk, err = disk(dir); err != nil {
			return m, c, err
		}
		for n := range 3 { // the least: the rest is the collector's
			cpu := dbtest.CPUTime()
			err = t.with(dir, ctxpage.Options{}, func(*ctxpage.DB) error {
				if took := (dbtest.CPUTime() - cpu).Seconds(); n == 0 || took < p.open {
					p.open = took
				}
				return nil
			})
			if err != nil {
				return m, c, err
			}
		}
		before := heap()
		some := *t
		some.which = t.which[:part[1]]
		err = some.with(dir, ctxpage.Options{WorkingSet: -1}, func(*ctxpage.DB) error { // frames are bounded: they do not grow with the pages
			_, _, err := some.contexts(ctx, len(some.which))
			p.heap = heap() - before
			return err
		})
		if err != nil {
			return m, c, err
		}
		points = append(points, p)
	}
	less, more := points[0], points[1]
	m = Measured{Tenants: len(t.which), Pages: int(more.pages), Heap: more.heap, DiskPage: more.disk / more.pages, DiskClosed: more.disk}
	c.PageMem = max(0, (more.heap-less.heap)/(more.pages-less.pages))
	c.PageDisk = max(0, (more.disk-less.disk)/(more.pages-less.pages))
	c.PageOpenCPU = max(0, (more.open-less.open)/(more.pages-less.pages))
	c.ProcessMem = 64<<20 + max(0, more.heap-c.PageMem*more.pages) // Options.WorkingSet, and what an empty database takes

	start, cpu, files, routines := time.Now(), dbtest.CPUTime(), descriptors(), runtime.NumGoroutine()
	dbs, err := openAll([]string{filepath.Join(dir, "agent.ctx")}, ctxpage.Options{})
	if err != nil {
		return m, c, err
	}
	m.Open, m.OpenCPU = time.Since(start).Seconds(), (dbtest.CPUTime() - cpu).Seconds()
	m.Descriptors, m.Goroutines = descriptors()-files, float64(runtime.NumGoroutine()-routines)
	t.scope = func(i int) *ctxpage.Scope { return dbs[0].Scope(tenantName(t.which[i])) }
	err = t.work(ctx, &m, &c)
	if err == nil {
		m.DiskOpen, err = disk(dir)
	}
	cpu = dbtest.CPUTime()
	err = closeAll(dbs, err)
	m.CloseCPU = (dbtest.CPUTime() - cpu).Seconds()
	return m, c, err
}

func tenantName(n int) string { return fmt.Sprintf("tenant-%07d", n) }

// with opens the one database of all tenants while fn runs.
func (t *tenants) with(dir string, opts ctxpage.Options, fn func(db *ctxpage.DB) error) error {
	dbs, err := openAll([]string{filepath.Join(dir, "agent.ctx")}, opts)
	if err != nil {
		return err
	}
	t.scope = func(i int) *ctxpage.Scope { return dbs[0].Scope(tenantName(t.which[i])) }
	return closeAll(dbs, fn(dbs[0]))
}

// work measures cold contexts, hot ones and puts.
func (t *tenants) work(ctx context.Context, m *Measured, c *Cost) (err error) {
	var cold float64
	if m.Cold, cold, err = t.contexts(ctx, len(t.which)); err != nil {
		return err
	}
	if m.Context, c.ContextCPU, err = t.contexts(ctx, t.sample.Ops); err != nil {
		return err
	}
	c.ArriveCPU = max(0, cold-c.ContextCPU)
	m.Put, c.PutCPU, err = t.puts(ctx, t.sample.Ops)
	return err
}

// files measures tenants that have a database each.
func files(ctx context.Context, f *Fleet, s *Sample) (m Measured, c Cost, err error) {
	dir := filepath.Join(s.dir, "files")
	t := &tenants{fleet: f, sample: s, which: f.chosen(s.Files)}
	var paths []string
	for _, n := range t.which {
		path := filepath.Join(dir, tenantName(n))
		if err = os.MkdirAll(path, 0o700); err != nil {
			return m, c, err
		}
		paths = append(paths, filepath.Join(path, "agent.ctx"))
	}
	for i, path := range paths { // one after the other, as tenants come
		dbs, err := openAll([]string{path}, ctxpage.Options{})
		if err != nil {
			return m, c, err
		}
		t.scope = func(int) *ctxpage.Scope { return dbs[0].Scope("acme") }
		if err := closeAll(dbs, t.fill(ctx, i, i+1)); err != nil {
			return m, c, err
		}
	}
	n := float64(len(paths))
	m.Tenants, m.Pages = len(paths), t.pages()
	if m.DiskClosed, err = disk(dir); err != nil {
		return m, c, err
	}
	m.DiskPage = m.DiskClosed / float64(m.Pages)
	m.DiskClosed /= n

	before, open, routines := heap(), descriptors(), runtime.NumGoroutine()
	start, cpu := time.Now(), dbtest.CPUTime()
	dbs, err := openAll(paths, ctxpage.Options{})
	if err != nil {
		return m, c, err
	}
	m.Open, m.OpenCPU = time.Since(start).Seconds()/n, (dbtest.CPUTime()-cpu).Seconds()/n
	m.Descriptors, m.Goroutines = (descriptors()-open)/n, float64(runtime.NumGoroutine()-routines)/n
	t.scope = func(i int) *ctxpage.Scope { return dbs[i].Scope("acme") }
	if err = t.work(ctx, &m, &c); err == nil {
		m.Heap = heap() - before
		m.DiskOpen, err = disk(dir)
	}
	m.DiskOpen /= n
	cpu = dbtest.CPUTime()
	err = closeAll(dbs, err)
	m.CloseCPU = (dbtest.CPUTime() - cpu).Seconds() / n
	c.ArriveCPU += m.OpenCPU + m.CloseCPU // another one is closed for it
	c.TenantOpenCPU = m.OpenCPU
	c.ProcessMem, c.TenantMem = 16<<20, m.Heap/n
	c.TenantDisk, c.OpenDisk = m.DiskClosed, max(0, m.DiskOpen-m.DiskClosed)
	return m, c, err
}
