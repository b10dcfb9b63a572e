package bench

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/ops"
	"go.etcd.io/bbolt"
)

// BenchmarkSpace says what a page or a turn takes on the disk when the log is cut, and where: for each bucket of the
// file what its keys, its values, its elements of 16 bytes and its unused space take, then the archive by file, and the snapshot of
// the columns. One round fills, the next compacts the file as well.
func BenchmarkSpace(b *testing.B) {
	for _, size := range []int{shortPage, longPage} {
		for _, pages := range []int{10_000, 100_000, 1_000_000} {
			if pages == 1_000_000 && !*big || size == longPage && pages == 100_000 && !*big {
				continue
			}
			spaceOf(b, fmt.Sprintf("page=%d/pages=%s", size, named(pages)), pages, func(s *ctxpage.Scope) { fill(b, s, pages, size) })
		}
	}
	for _, turns := range []int{5_000, 20_000} {
		spaceOf(b, fmt.Sprintf("turn=150/turns=%s", named(turns)), turns, func(s *ctxpage.Scope) { chat(b, s, turns) })
	}
}

// chat appends turns of 150 bytes to eight conversations, one by one.
func chat(tb testing.TB, s *ctxpage.Scope, turns int) {
	w := newWords(4)
	for i := range turns {
		_, err := s.Session(fmt.Sprint("chat-", i%8)).Append(ctx, ctxpage.Turn{Role: "user", Text: w.page(150)})
		must(tb, err)
	}
}

func spaceOf(b *testing.B, name string, units int, fill func(*ctxpage.Scope)) {
	b.Run(name, func(b *testing.B) {
		path := fresh(b)
		defer os.RemoveAll(filepath.Dir(path))
		for _, state := range []string{"filled", "compacted"} {
			b.Run(state, func(b *testing.B) {
				once(b, func() figures {
					db := open(b, path, ctxpage.Options{})
					if state == "compacted" {
						_, err := db.Admin().Compact(ctx, false, nil)
						must(b, err)
					} else {
						fill(db.Scope("acme/bench"))
					}
					for range 2 {
						_, err := db.Admin().Checkpoint(ctx)
						must(b, err)
					}
					must(b, db.Close())
					return space(b, path, float64(units))
				})
			})
		}
	})
}

// space is what the files of a closed database take without its log, bytes a unit.
func space(tb testing.TB, path string, units float64) figures {
	out := figures{}
	add := func(name string, n int64) { out[name+"-B"] += float64(n) / units }
	must(tb, filepath.WalkDir(filepath.Dir(path), func(p string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || strings.Contains(p, "-wal/") {
			return err
		}
		info, err := e.Info()
		name, _, _ := strings.Cut(filepath.Base(p), "-0")
		add("all", info.Size())
		if p != path {
			add(name, info.Size())
		}
		return err
	}))
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true})
	must(tb, err)
	defer db.Close()
	must(tb, db.View(func(tx *bbolt.Tx) error {
		left := tx.Size()
		err := tx.ForEach(func(name []byte, bucket *bbolt.Bucket) error {
			keys, values, rows := int64(0), int64(0), int64(0)
			err := bucket.ForEach(func(k, v []byte) error {
				keys, values, rows = keys+int64(len(k)), values+int64(len(v)), rows+1
				return nil
			})
			st := bucket.Stats()
			all := int64(st.BranchPageN+st.BranchOverflowN+st.LeafPageN+st.LeafOverflowN) * int64(db.Info().PageSize)
			add(string(name)+"-keys", keys)
			add(string(name)+"-values", values)
			add(string(name)+"-elements", 16*rows)
			add(string(name)+"-unused", all-keys-values-16*rows)
			add(string(name), all)
			left -= all
			return err
		})
		add("free", left)
		return err
	}))
	return out
}

// contextsAudited is how many contexts BenchmarkAudit asks for.
const contextsAudited = 500

// BenchmarkAudit says what a context of 50 pages leaves on the disk: its leaf, its hashes, its row and the text of its
// question, with the log cut. Then 400 days pass, and a retention of a year takes its body and its question.
func BenchmarkAudit(b *testing.B) {
	once(b, func() figures {
		path := fresh(b)
		defer os.RemoveAll(filepath.Dir(path))
		opts, day := tenantOptions, time.Unix(1_800_000_000, 0)
		opts.Clock = func() time.Time { return day }
		with := func(do func(db *ctxpage.DB)) float64 {
			db := open(b, path, opts)
			do(db)
			must(b, closed(db))
			return auditBytes(b, path)
		}
		before := with(func(db *ctxpage.DB) { fill(b, db.Scope("acme/bench"), 10_000, shortPage) })
		pages, w := 0, newWords(9)
		young := with(func(db *ctxpage.DB) {
			for range contextsAudited {
				a, err := db.Scope("acme/bench").Assemble(ctx, ctxpage.Query{Text: w.question(8), Budget: 6000, TopK: 50})
				must(b, err)
				pages += len(a.Blocks)
			}
		})
		day = day.AddDate(0, 0, 400)
		old := with(func(db *ctxpage.DB) {
			must(b, db.Admin().Retention().Set(ctx, "", ops.Presets()["year"], "bench"))
			_, err := db.Admin().Retention().Run(ctx, ops.RunOptions{By: "bench"})
			must(b, err)
		})
		return figures{"blocks": float64(pages) / contextsAudited, "context-B": (young - before) / contextsAudited, "after-a-year-B": (old - before) / contextsAudited}
	})
}

// auditBytes is the size of the archive and of the bucket of questions.
func auditBytes(tb testing.TB, path string) float64 {
	all := space(tb, path, 1)
	return all["leaves-B"] + all["index-B"] + all["hashes-B"] + all["question-B"]
}

// BenchmarkHeap tells what an idle database holds in memory and where, in bytes a page: in the process that filled it,
// and after an open and twenty searches. The working set keeps no page, so what is left is what grows with the pages
// that there are. The goal is about what a page takes beside its key (key-B/page).
//
// Every allocation is recorded, so the places add up; sizes are those of the allocator, which rounds up.
func BenchmarkHeap(b *testing.B) {
	sizes := []int{10_000, 100_000}
	if *big {
		sizes = append(sizes, 1_000_000)
	}
	was := runtime.MemProfileRate
	runtime.MemProfileRate = 1
	defer func() { runtime.MemProfileRate = was }()
	for _, pages := range sizes {
		b.Run("pages="+named(pages), func(b *testing.B) {
			path := fresh(b)
			opts := ctxpage.Options{WorkingSet: -1}
			newWords(1).page(shortPage) // the lexicon is not the database's
			heapOf(b, "fill", pages, func() *ctxpage.DB {
				db := open(b, path, opts)
				fill(b, db.Scope("acme/bench"), pages, shortPage)
				_, err := db.Admin().Checkpoint(ctx)
				must(b, err)
				return db
			})
			heapOf(b, "open", pages, func() *ctxpage.DB {
				db := open(b, path, opts)
				w := newWords(21)
				for range 20 {
					found, err := db.Scope("acme/bench").Search(ctx, w.question(asked(pages)), 10)
					must(b, err)
					if len(found.Hits) == 0 {
						b.Fatal("a search found nothing")
					}
				}
				return db
			})
			keys := 0
			for i := range pages {
				keys += len(pageID(i))
			}
			b.ReportMetric(float64(keys)/float64(pages), "key-B/page")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// heapOf reports what a database holds that make opens, and closes it. It returns the bytes.
func heapOf(b *testing.B, after string, pages int, make func() *ctxpage.DB) float64 {
	held, base := heapBySite()
	db := make()
	now, total := heapBySite()
	must(b, db.Close())
	for site, n := range held {
		now[site] -= n
	}
	b.ReportMetric(float64(total-base)/float64(pages), after+"-B/page")
	sites := slices.Collect(maps.Keys(now))
	slices.SortFunc(sites, func(x, y string) int { return int(now[y] - now[x]) })
	var t strings.Builder
	for _, site := range sites {
		if 200*now[site] > total-base {
			fmt.Fprintf(&t, "\n%8.2f  %s", float64(now[site])/float64(pages), site)
		}
	}
	// b.Log would cut it short.
	fmt.Fprintf(os.Stderr, "%s pages, after %s: %.1f bytes a page%s\n", named(pages), after, float64(total-base)/float64(pages), t.String())
	return float64(total - base)
}

// heapBySite returns the bytes in use by the function and line of this module, or of one that it uses, that allocated
// them.
func heapBySite() (by map[string]int64, total int64) {
	for range 3 { // pools let go of what they have in the second collection, and a profile is that of the last but one
		runtime.GC()
	}
	records := make([]runtime.MemProfileRecord, 50_000)
	n, ok := runtime.MemProfile(records, false)
	if !ok {
		panic("more places than expected")
	}
	by = map[string]int64{}
	for i := range records[:n] {
		r := &records[i]
		by[siteOf(r.Stack())] += r.InUseBytes()
		total += r.InUseBytes()
	}
	return by, total
}

// siteOf names the first function on a stack that is no helper of the runtime or the standard library.
func siteOf(stack []uintptr) string {
	frames := runtime.CallersFrames(stack)
	for {
		f, more := frames.Next()
		at := strings.LastIndex(f.Function, "/") + 1
		if strings.Contains(f.Function[:at], ".") || !more { // a module's path begins with a domain
			return fmt.Sprintf("%s:%d", f.Function[at:], f.Line)
		}
	}
}
