package bench

import (
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/ctxpage/ctxpage"
)

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
