package bench

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/loop"
	"github.com/ctxpage/ctxpage/ops"
)

// eraseRounds is how many pairs of a compaction and an erase are measured. Each erase is of another person.
const eraseRounds = 5

// BenchmarkErase takes the 1,000 pages about one person out of a database, beside two readers, and compares the time with
// that of a compaction just before, which copies the file once. Times are those of the round with the median ratio.
func BenchmarkErase(b *testing.B) {
	sizes := []int{100_000}
	if *big {
		sizes = append(sizes, 1_000_000)
	}
	for _, pages := range sizes {
		b.Run(named(pages), func(b *testing.B) {
			once(b, func() figures {
				db := personal(b, pages, 1000)
				defer db.Close()
				rounds := make([]figures, eraseRounds)
				for i := range rounds {
					rounds[i] = eraseRound(b, db, pages, person(i))
				}
				const ratio = "erase/compact"
				slices.SortFunc(rounds, func(x, y figures) int { return cmp.Compare(x[ratio], y[ratio]) })
				out := maps.Clone(rounds[eraseRounds/2])
				out["worst-"+ratio] = rounds[eraseRounds-1][ratio]
				for unit := range out {
					if strings.HasSuffix(unit, "-ms") { // the longest wait of all rounds
						for _, r := range rounds {
							out[unit] = max(out[unit], r[unit])
						}
					}
				}
				return out
			})
		})
	}
}

// eraseRound measures a compaction, then an erase of all pages about one person.
func eraseRound(b *testing.B, db *ctxpage.DB, pages int, who string) figures {
	cpu := cpuTime()
	compact := timed(b, func() error { _, err := db.Admin().Compact(ctx, false, nil); return err })
	compactCPU := cpuTime() - cpu
	must(b, warm(db))             // the first read after an open holds all rows against the audit
	idle := readers(b, db, pages) // what they wait anyway: on a busy machine it is not nothing
	time.Sleep(2 * compact)
	alone := idle("")
	waits := readers(b, db, pages)
	parts := map[string]time.Duration{}
	last, at := "search", time.Now()
	cpu = cpuTime()
	took := timed(b, func() error {
		rep, err := db.Admin().Erase(ctx, ops.Request{Subject: who, By: "bench", Reason: "asked", Progress: func(what string, _, _ uint64) {
			if what == "erase" || what == "compact" && last != what {
				parts[last] += time.Since(at)
				waits(last)
				last, at = what, time.Now()
			}
		}})
		if err == nil && len(rep.Erased) != 1000 {
			b.Fatalf("%d artefacts were erased", len(rep.Erased))
		}
		return err
	})
	parts[last] += time.Since(at)
	cpu = cpuTime() - cpu
	waits(last)
	longest := waits("")
	return figures{
		"compact-s": compact.Seconds(), "erase-s": took.Seconds(), "erase/compact": took.Seconds() / compact.Seconds(), "erase/compact-cpu": cpu.Seconds() / compactCPU.Seconds(),
		"longest-read-ms": ms(longest["search"], longest["erase"], longest["compact"]), "idle-read-ms": ms(alone[""]),
		"search-read-ms": ms(longest["search"]), "commit-read-ms": ms(longest["erase"]), "copy-read-ms": ms(longest["compact"]),
		"search-s": parts["search"].Seconds(), "index+log-s": parts["erase"].Seconds(), "copy-s": parts["compact"].Seconds(),
	}
}

func person(i int) string { return "person-" + strconv.Itoa(i) }

// personal is a database in which some pages, far from each other, are about each of eraseRounds persons.
func personal(tb testing.TB, pages, about int) *ctxpage.DB {
	db := open(tb, fresh(tb), ctxpage.Options{WorkingSet: -1})
	s, w := db.Scope("acme/bench"), newWords(1)
	for at := 0; at < pages; at += 500 {
		must(tb, s.Update(ctx, func(tx *ctxpage.Txn) error {
			for i := at; i < min(at+500, pages); i++ {
				a := ctxpage.Artefact{ID: pageID(i), Text: w.page(shortPage)}
				if who := i % (pages / about); who < eraseRounds {
					a.Subject = person(who)
				}
				if err := tx.Put(ctx, a); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	_, err := db.Admin().Checkpoint(ctx)
	must(tb, err)
	return db
}

func warm(db *ctxpage.DB) error {
	s := db.Scope("acme/bench")
	if _, err := loop.Collect(s.Artefacts(ctx, "", ctxpage.AtMost(1, "", nil))); err != nil {
		return err
	}
	_, err := s.Get(ctx, pageID(eraseRounds)) // about nobody
	return err
}

func timed(tb testing.TB, do func() error) time.Duration {
	start := time.Now()
	must(tb, do())
	return time.Since(start)
}

func ms(of ...time.Duration) float64 { return float64(slices.Max(of)) / 1e6 }

// readers read pages of nobody until they are told to stop. They are told the name of each phase at its end, "" to stop, and
// give the longest time that one of them waited in each.
func readers(tb testing.TB, db *ctxpage.DB, pages int) (ended func(phase string) map[string]time.Duration) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	var mu sync.Mutex
	var longest time.Duration
	phases := map[string]time.Duration{}
	for g := range 2 {
		wg.Go(func() {
			for i := g; ; i += 7 {
				select {
				case <-done:
					return
				case <-time.After(2 * time.Millisecond):
				}
				at := i * 13 % pages
				if at%(pages/1000) < eraseRounds {
					at += eraseRounds
				}
				from := time.Now()
				if _, err := db.Scope("acme/bench").Get(ctx, "page-"+strconv.Itoa(at)); err != nil {
					tb.Error(err)
					return
				}
				mu.Lock()
				longest = max(longest, time.Since(from))
				mu.Unlock()
			}
		})
	}
	return func(phase string) map[string]time.Duration {
		if phase == "" {
			close(done)
			wg.Wait()
		}
		mu.Lock()
		defer mu.Unlock()
		phases[phase] = max(phases[phase], longest)
		longest = 0
		return phases
	}
}
