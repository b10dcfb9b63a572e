package bench

import (
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/store"
)

// BenchmarkGet reads single artefacts of 1 KiB at random: hot ones from the working set, cold ones with no working set
// at all, from the file's mapped pages. A Get also appends its manifest; the baseline copies the value out.
func BenchmarkGet(b *testing.B) {
	const pages = 10_000
	for _, set := range []string{"hot", "cold"} {
		variants(b, "set="+set+"/pages=10k", 1, func(b *testing.B) (op, op) {
			d := filled(b, pages, longPage)
			s, span := d.scope(), 1000
			if set == "cold" {
				s, span = coldCopy(b, d).Scope("acme/bench"), pages
			}
			o := boltOf(b, pages, longPage)
			checkGet(b, s, o, span)
			r := rand.New(rand.NewSource(1))
			return func(int, uint64) error {
					v, err := s.Get(ctx, pageID(r.Intn(span)))
					if err == nil && len(v.Text) != longPage {
						err = fmt.Errorf("got %d bytes", len(v.Text))
					}
					return err
				}, func(int, uint64) error {
					v, err := o.get([]byte(pageID(r.Intn(span))))
					if err == nil && len(v) != longPage {
						err = fmt.Errorf("got %d bytes", len(v))
					}
					return err
				}
		})
	}
}

var bolts = map[string]*plain{}

func boltOf(b *testing.B, pages, size int) *plain {
	name := fmt.Sprintf("%d-%d", pages, size)
	if bolts[name] == nil {
		db, err := bbolt.Open(fresh(b), 0o600, &bbolt.Options{FreelistType: bbolt.FreelistMapType})
		must(b, err)
		must(b, db.Update(func(tx *bbolt.Tx) error {
			_, err := tx.CreateBucket(bucket)
			return err
		}))
		bolts[name] = &plain{db}
		bolts[name].fill(b, pages, size)
	}
	return bolts[name]
}

// coldCopy is a backup of a database, opened with no working set.
func coldCopy(b *testing.B, d *database) *ctxpage.DB {
	path := fresh(b)
	_, err := d.db.Admin().Backup(ctx, path, nil)
	must(b, err)
	db := open(b, path, ctxpage.Options{WorkingSet: -1})
	b.Cleanup(func() { must(b, db.Close()) })
	return db
}

// checkGet compares what both databases give, and warms the working set.
func checkGet(b *testing.B, s *ctxpage.Scope, o *plain, span int) {
	for i := range span {
		v, err := s.Get(ctx, pageID(i))
		must(b, err)
		want, err := o.get([]byte(pageID(i)))
		must(b, err)
		if v.Text != want || want == "" {
			b.Fatalf("%s: %d bytes and %d differ", v.ID, len(v.Text), len(want))
		}
	}
}

// BenchmarkAssemble makes contexts of 50 pages for ever new questions, hot, with their manifests.
func BenchmarkAssemble(b *testing.B) {
	type shape struct{ pages, size int }
	shapes := []shape{{1000, shortPage}, {10_000, shortPage}, {100_000, shortPage}, {10_000, longPage}, {100_000, longPage}}
	if *big {
		shapes = append(shapes, shape{1_000_000, shortPage})
	}
	for _, c := range shapes {
		b.Run(fmt.Sprintf("pages=%s/size=%d", named(c.pages), c.size), func(b *testing.B) {
			d := filled(b, c.pages, c.size)
			s := d.scope()
			checkAssemble(b, d)
			w := newWords(9)
			measure(b, 1, func(int, uint64) error {
				_, err := s.Assemble(ctx, assembly(w.question(asked(c.pages))))
				return err
			})
		})
	}
}

// asked is how many words a question has: six, but more where six would not find 50 pages.
func asked(pages int) int {
	if pages < 10_000 {
		return 24
	}
	return 6
}

func assembly(question string) ctxpage.Query {
	return ctxpage.Query{Text: question, Budget: 40_000, TopK: 50}
}

// checkAssemble makes sure that a context has its 50 pages and that no more pages were read for it: at most those that
// won. It leaves the working set warm.
func checkAssemble(b *testing.B, d *database) {
	s, w := d.scope(), newWords(9)
	for range 100 {
		before, err := d.db.Stats(ctx)
		must(b, err)
		a, err := s.Assemble(ctx, assembly(w.question(asked(d.pages))))
		must(b, err)
		after, err := d.db.Stats(ctx)
		must(b, err)
		if len(a.Blocks) != 50 || a.Tokens > a.Limit || a.Manifest == nil {
			b.Fatalf("%d blocks of %d tokens", len(a.Blocks), a.Tokens)
		}
		if read := after.Table.Hits + after.Table.Faults - before.Table.Hits - before.Table.Faults; read > 50 {
			b.Fatalf("%d pages were read for a context of 50", read)
		}
	}
}

// BenchmarkSources makes the same contexts twice, of pages that are files whose state is looked at for every context, and
// of pages without a source, by turns. The difference of the medians is what it costs to look.
func BenchmarkSources(b *testing.B) {
	const pages = 1000
	b.Run("pages=1k/size=130", func(b *testing.B) {
		once(b, func() figures {
			files := b.TempDir()
			texts, old := texts(pages, shortPage), time.Now().Add(-time.Hour)
			for i, t := range texts {
				path := filepath.Join(files, pageID(i))
				must(b, os.WriteFile(path, []byte(t), 0o600))
				must(b, os.Chtimes(path, old, old)) // else the stamp of one just written would prove nothing
			}
			var scopes [2]*ctxpage.Scope
			for n := range scopes {
				db := open(b, fresh(b), ctxpage.Options{FileRoots: []string{files}})
				b.Cleanup(func() { must(b, db.Close()) })
				scopes[n] = db.Scope("acme/bench")
				must(b, scopes[n].Update(ctx, func(tx *ctxpage.Txn) error {
					for i, t := range texts {
						a := ctxpage.Artefact{ID: pageID(i), Kind: store.KindChunk, Text: t}
						if n == 1 {
							a.Text, a.Source = "", "file:"+filepath.Join(files, pageID(i))
						}
						if err := tx.Put(ctx, a); err != nil {
							return err
						}
					}
					return nil
				}))
			}
			checkSources(b, scopes[0], scopes[1], files)
			var t [2]times
			w := newWords(9)
			for range 2000 {
				q := assembly(w.question(asked(pages)))
				for n, s := range scopes {
					start := time.Now()
					a, err := s.Assemble(ctx, q)
					t[n].add([]time.Duration{time.Since(start)})
					must(b, err)
					if len(a.Blocks) != 50 {
						b.Fatalf("%d blocks", len(a.Blocks))
					}
				}
			}
			slices.Sort(t[0].all)
			slices.Sort(t[1].all)
			ms := func(n int, q float64) float64 { return micros(t[n].at(q)) / 1000 }
			return figures{
				"more-ms": ms(1, .5) - ms(0, .5), "plain-p50-ms": ms(0, .5), "p50-ms": ms(1, .5), "p99-ms": ms(1, .99),
			}
		})
	})
}

// checkSources makes sure that both give the same pages, and that a file that changes is seen by the next context.
func checkSources(b *testing.B, plain, files *ctxpage.Scope, dir string) {
	q := assembly(newWords(9).question(asked(1000)))
	for range 100 { // warm
		_, err := plain.Assemble(ctx, q)
		must(b, err)
		_, err = files.Assemble(ctx, q)
		must(b, err)
	}
	want, err := plain.Assemble(ctx, q)
	must(b, err)
	got, err := files.Assemble(ctx, q)
	must(b, err)
	if len(got.Blocks) != 50 || len(want.Blocks) != 50 {
		b.Fatalf("%d blocks and %d", len(got.Blocks), len(want.Blocks))
	}
	first := got.Blocks[0]
	if first.Source == "" || !slices.ContainsFunc(want.Blocks, func(w ctxpage.Block) bool { return w.Text == first.Text }) {
		b.Fatalf("%s of %q is not among the pages without a source", first.Ref, first.Source)
	}
	path := filepath.Join(dir, first.Ref.ID)
	must(b, os.WriteFile(path, []byte(first.Text+" changed"), 0o600))
	again, err := files.Assemble(ctx, q)
	must(b, err)
	if !strings.Contains(again.Text(), first.Text+" changed") {
		b.Fatal("a changed file was not fetched anew")
	}
	must(b, os.WriteFile(path, []byte(first.Text), 0o600))
	old := time.Now().Add(-time.Hour)
	must(b, os.Chtimes(path, old, old))
	_, err = files.Assemble(ctx, q)
	must(b, err)
}

// BenchmarkSearch finds ten pages.
func BenchmarkSearch(b *testing.B) {
	for _, pages := range []int{1000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("pages=%s/size=%d", named(pages), shortPage), func(b *testing.B) {
			d := filled(b, pages, shortPage)
			s, w := d.scope(), newWords(11)
			found, err := s.Search(ctx, w.question(asked(pages)), 10)
			must(b, err)
			if len(found.Hits) != 10 {
				b.Fatalf("%d hits", len(found.Hits))
			}
			measure(b, 1, func(int, uint64) error {
				_, err := s.Search(ctx, w.question(asked(pages)), 10)
				return err
			})
		})
	}
}

// BenchmarkManifest is the append of a manifest: the read of a page of one byte, which does hardly anything else.
// AuditSync waits for the disk; its baseline is a bbolt Update of as many bytes as the leaf has.
func BenchmarkManifest(b *testing.B) {
	for _, m := range []struct {
		name string
		sync bool
	}{{"async", false}, {"sync", true}} {
		for _, workers := range []int{1, 8} {
			variants(b, fmt.Sprintf("audit=%s/readers=%d", m.name, workers), workers, func(b *testing.B) (op, op) {
				db := open(b, fresh(b), ctxpage.Options{AuditSync: m.sync})
				b.Cleanup(func() { must(b, db.Close()) })
				s := db.Scope("acme/bench")
				_, err := s.Put(ctx, ctxpage.Artefact{ID: "x", Text: "x"})
				must(b, err)
				checkManifest(b, db, s)
				o := openBolt(b)
				return func(int, uint64) error {
						_, err := s.Get(ctx, "x")
						return err
					}, func(_ int, n uint64) error {
						return o.put(n, make([]byte, 120))
					}
			})
		}
	}
}

// checkManifest makes sure that a read leaves exactly one leaf.
func checkManifest(b *testing.B, db *ctxpage.DB, s *ctxpage.Scope) {
	before := dbtest.SizeOf(db.Manifests())
	_, err := s.Get(ctx, "x")
	must(b, err)
	if n := dbtest.SizeOf(db.Manifests()) - before; n != 1 {
		b.Fatalf("a read left %d leaves", n)
	}
}

// BenchmarkOpen opens a database that was closed, and reads one page. The baseline opens a plain bbolt file with as
// many pages and looks at each once, as any index in memory must.
func BenchmarkOpen(b *testing.B) {
	sizes := []int{10_000, 100_000}
	if *big {
		sizes = append(sizes, 1_000_000)
	}
	for _, pages := range sizes {
		name := "pages=" + named(pages)
		b.Run(name+"/v=ctxpage", func(b *testing.B) {
			path := closedCopy(b, filled(b, pages, shortPage))
			measure(b, 1, func(int, uint64) error { return openOnce(path, pages) })
		})
		b.Run(name+"/v=bbolt", func(b *testing.B) {
			path := boltOf(b, pages, shortPage).db.Path()
			must(b, bolts[fmt.Sprintf("%d-%d", pages, shortPage)].db.Close())
			delete(bolts, fmt.Sprintf("%d-%d", pages, shortPage))
			measure(b, 1, func(int, uint64) error { return scanBolt(path, pages) })
		})
	}
}

// BenchmarkOpenAfterKill opens copies of the files of a database that is open, which is what a kill leaves: with the snapshot of
// the columns that was written beside commits, and without it. 1,000 puts came after it.
func BenchmarkOpenAfterKill(b *testing.B) {
	pages := 100_000
	if *big {
		pages = 1_000_000
	}
	path := fresh(b)
	db := open(b, path, ctxpage.Options{Exclusive: true}) // no socket, which cannot be copied
	defer db.Close()
	fill(b, db.Scope("acme/bench"), pages, shortPage)
	_, err := db.Admin().Checkpoint(ctx)
	must(b, err)
	for _, err := os.Stat(path + ".columns"); err != nil; _, err = os.Stat(path + ".columns") {
		time.Sleep(time.Second) // it comes some ten seconds after the open
	}
	for i := range 1000 {
		_, err := db.Scope("acme/bench").Put(ctx, ctxpage.Artefact{ID: fmt.Sprint("late-", i), Text: fmt.Sprint("words of late page ", i)})
		must(b, err)
	}
	const rounds = 7
	took := map[string][]time.Duration{}
	for range b.N * rounds {
		for _, v := range []string{"snapshot", "rows"} {
			killed := fresh(b)
			must(b, os.CopyFS(filepath.Dir(killed)+"/copy", os.DirFS(filepath.Dir(path))))
			killed = filepath.Dir(killed) + "/copy/" + filepath.Base(path)
			if v == "rows" {
				must(b, os.Remove(killed+".columns"))
			}
			cpu, at := cpuTime(), time.Now()
			again, err := ctxpage.Open(killed, ctxpage.Options{})
			must(b, err)
			took[v+"-cpu-ms"], took[v+"-ms"] = append(took[v+"-cpu-ms"], cpuTime()-cpu), append(took[v+"-ms"], time.Since(at))
			if _, err := again.Scope("acme/bench").Get(ctx, "late-999"); err != nil {
				b.Fatal(err)
			}
			cpu, at = cpuTime(), time.Now()
			must(b, again.Close())
			took[v+"-close-cpu-ms"], took[v+"-close-ms"] = append(took[v+"-close-cpu-ms"], cpuTime()-cpu), append(took[v+"-close-ms"], time.Since(at))
			must(b, os.RemoveAll(filepath.Dir(killed)))
		}
	}
	for name, all := range took {
		slices.Sort(all)
		b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, name)
	}
}

func closedCopy(b *testing.B, d *database) string {
	path := fresh(b)
	_, err := d.db.Admin().Backup(ctx, path, nil)
	must(b, err)
	must(b, openOnce(path, d.pages))
	return path
}

func openOnce(path string, pages int) error {
	db, err := ctxpage.Open(path, ctxpage.Options{})
	if err != nil {
		return err
	}
	if _, err := db.Scope("acme/bench").Get(ctx, pageID(pages-1)); err != nil {
		return err
	}
	return db.Close()
}

func scanBolt(path string, pages int) error {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{FreelistType: bbolt.FreelistMapType, Timeout: time.Second})
	if err != nil {
		return err
	}
	n := 0
	err = db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket(bucket).ForEach(func(_, v []byte) error {
			if len(v) > 0 {
				n++
			}
			return nil
		})
	})
	if err == nil && n != pages {
		err = fmt.Errorf("%d pages, expected %d", n, pages)
	}
	if cerr := db.Close(); err == nil {
		err = cerr
	}
	return err
}
