package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage"
)

// tenants is how many scopes BenchmarkTenants makes, and tenantPages how many pages each of them has.
const (
	manyTenants = 100_000
	tenantPages = 10
	tenantsUsed = 2000
)

// BenchmarkTenants measures many small scopes in one database: what a page takes on the disk and where, what an open
// takes, the first context of 2,000 scopes, and the heap after those. Without -big there are a tenth of the scopes.
//
// A tenant's pages come in one transaction. Each open is in the state that a clean close leaves.
func BenchmarkTenants(b *testing.B) {
	scopes := manyTenants / 10
	if *big {
		scopes = manyTenants
	}
	b.Run("scopes="+named(scopes), func(b *testing.B) {
		once(b, func() figures {
			path := fresh(b)
			defer os.RemoveAll(filepath.Dir(path))
			out := figures{}
			cpu := exactCPU()
			db := open(b, path, tenantOptions)
			fillTenants(b, db, scopes)
			must(b, closed(db))
			out["fill-cpu-s"] = (cpuTime() - cpu).Seconds()
			for unit, v := range space(b, path, float64(scopes*tenantPages)) {
				out[unit] = v
			}
			useTenants(b, path, scopes, out)
			return out
		})
	})
}

// closed closes a database whose log two checkpoints have cut.
func closed(db *ctxpage.DB) error {
	for range 2 {
		if _, err := db.Admin().Checkpoint(ctx); err != nil {
			return err
		}
	}
	return db.Close()
}

func tenant(i int) string { return fmt.Sprintf("tenant-%07d", i) }

func fillTenants(tb testing.TB, db *ctxpage.DB, scopes int) {
	for t := range scopes {
		w := newWords(int64(t))
		must(tb, db.Scope(tenant(t)).Update(ctx, func(tx *ctxpage.Txn) error {
			for i := range tenantPages {
				if err := tx.Put(ctx, ctxpage.Artefact{ID: pageID(i), Text: w.page(shortPage)}); err != nil {
					return err
				}
			}
			return nil
		}))
	}
}

// useTenants opens the database seven times; after the last open it asks for the first context of some scopes. Then it
// does so again to see what memory they take: to record each allocation takes time.
func useTenants(b *testing.B, path string, scopes int, out figures) {
	var opens, cold []time.Duration
	for i := range 7 {
		cpu := exactCPU()
		db := open(b, path, tenantOptions)
		opens = append(opens, exactCPU()-cpu)
		if i == 6 {
			cold = useEach(b, db, scopes)
		}
		must(b, db.Close())
	}
	slices.Sort(opens)
	slices.Sort(cold)
	out["open-cpu-ms"], out["open-cpu-worst-ms"] = ms(opens[len(opens)/2]), ms(opens[len(opens)-1])
	out["cold-p50-ms"], out["cold-p99.9-ms"], out["cold-worst-ms"] = ms(cold[len(cold)/2]), ms(cold[len(cold)*999/1000]), ms(cold[len(cold)-1])

	was := runtime.MemProfileRate
	runtime.MemProfileRate = 1
	defer func() { runtime.MemProfileRate = was }()
	pages := scopes * tenantPages
	out["heap-open-MiB"] = heapOf(b, "open", pages, func() *ctxpage.DB { return open(b, path, tenantOptions) }) / (1 << 20)
	out["heap-used-MiB"] = heapOf(b, "used", pages, func() *ctxpage.DB {
		db := open(b, path, tenantOptions)
		useEach(b, db, scopes)
		return db
	}) / (1 << 20)
}

var tenantOptions = ctxpage.Options{Exclusive: true, NoWatch: true}

// useEach asks for the first context of some scopes and returns the CPU that each took, background work included.
func useEach(tb testing.TB, db *ctxpage.DB, scopes int) (took []time.Duration) {
	for i := range tenantsUsed {
		t := i * (scopes / tenantsUsed)
		q := newWords(int64(t)).question(6) // the first words of its first page
		cpu := exactCPU()
		a, err := db.Scope(tenant(t)).Assemble(ctx, ctxpage.Query{Text: q, Budget: 4000})
		took = append(took, exactCPU()-cpu)
		must(tb, err)
		if len(a.Blocks) == 0 {
			tb.Fatal("a context is empty")
		}
	}
	return took
}
