package bench

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/embed/static"
	"github.com/ctxpage/ctxpage/store"
)

// BenchmarkMeaning asks 100k pages for a context by words alone and by words and the small model, by turns, each with the same
// questions.
func BenchmarkMeaning(b *testing.B) {
	const pages = 100_000
	db := open(b, fresh(b), ctxpage.Options{Embedder: static.Small(), EmbedTimeout: time.Hour})
	b.Cleanup(func() { must(b, db.Close()) })
	s := db.Scope("acme/bench")
	fill(b, s, pages, shortPage)
	_, err := db.Admin().Embed(ctx, store.EmbedOptions{})
	must(b, err)
	w := newWords(9)
	byTurns(b, "words", "meaning", func(i int, meaning bool) error {
		q := assembly(w.question(asked(pages)))
		q.WordsOnly = !meaning
		a, err := s.Assemble(ctx, q)
		if err == nil && a.Degraded != "" {
			b.Fatal(a.Degraded)
		}
		return err
	})
}

// BenchmarkMisspelt searches 100k pages for words that they have, and for the same with one of them misspelt, by turns.
func BenchmarkMisspelt(b *testing.B) {
	const pages = 100_000
	s := filled(b, pages, shortPage).scope()
	w := newWords(9)
	asks, read := 0, 0
	byTurns(b, "known", "misspelt", func(i int, misspelt bool) error {
		q := strings.Fields(w.question(asked(pages)))
		if misspelt {
			q[0] = q[0][:3] + "x" + q[0][3:]
		}
		found, err := s.Search(ctx, strings.Join(q, " "), 10)
		if misspelt {
			asks++
		}
		if found.Degraded != "" {
			read++
		}
		return err
	})
	if read < asks*9/10 { // a few look like common words
		b.Fatalf("of %d misspelt words %d were read as others", asks, read)
	}
}

// byTurns measures two ways in turn and reports of both the median and the worst in microseconds of CPU of all cores, and the
// median of the clock.
func byTurns(b *testing.B, one, other string, ask func(i int, other bool) error) {
	const warm = 50
	var cpu, clock [2][]time.Duration
	for i := 0; b.Loop() || i < 4*warm; i++ {
		before, begun := cpuTime(), time.Now()
		must(b, ask(i/2, i%2 == 1))
		if i >= 2*warm {
			cpu[i%2], clock[i%2] = append(cpu[i%2], cpuTime()-before), append(clock[i%2], time.Since(begun))
		}
	}
	for at, name := range []string{one, other} {
		slices.Sort(cpu[at])
		slices.Sort(clock[at])
		n := len(cpu[at])
		b.ReportMetric(float64(cpu[at][n/2].Microseconds()), fmt.Sprintf("%s-cpu-µs", name))
		b.ReportMetric(float64(cpu[at][n*99/100].Microseconds()), fmt.Sprintf("%s-p99-µs", name))
		b.ReportMetric(float64(clock[at][n/2].Microseconds()), fmt.Sprintf("%s-clock-µs", name))
		b.ReportMetric(float64(clock[at][n/10].Microseconds()), fmt.Sprintf("%s-tenth-µs", name))
	}
}

// BenchmarkFilter asks the same questions with no filter and with filters of some selectivities, by tag and by metadata.
func BenchmarkFilter(b *testing.B) {
	filters(b, 100_000)
	if *big {
		filters(b, 1_000_000)
	}
}

func filters(b *testing.B, pages int) {
	db := open(b, fresh(b), ctxpage.Options{})
	defer db.Close()
	s := db.Scope("acme")
	w := newWords(1)
	for at := 0; at < pages; at += 1000 {
		must(b, s.Update(ctx, func(tx *ctxpage.Txn) error {
			for i := at; i < at+1000; i++ {
				a := ctxpage.Artefact{ID: fmt.Sprint("p-", i), Text: w.page(shortPage), Tags: []string{"all"}, Meta: map[string]string{"n": fmt.Sprint(i % 1000)}}
				if err := tx.Put(ctx, a); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	below := func(n int) ctxpage.Filter {
		return ctxpage.Filter{Meta: store.Conditions{{Key: "n", Op: store.OpLess, Value: fmt.Sprint(n)}}}
	}
	for _, c := range []struct {
		name string
		f    ctxpage.Filter
	}{{"none", ctxpage.Filter{}}, {"tag=100%", ctxpage.Filter{TagsAny: []string{"all"}}}, {"meta=50%", below(500)}, {"meta=10%", below(100)}, {"meta=1%", below(10)}, {"meta=.1%", below(1)}} {
		b.Run(fmt.Sprintf("pages=%s/filter=%s", named(pages), c.name), func(b *testing.B) {
			q := newWords(2)
			_, err := s.Search(ctx, q.question(3), 10, ctxpage.Where(c.f)) // the set of the filter is made once
			must(b, err)
			var took []float64
			for b.Loop() {
				before := cpu(b)
				_, err := s.Search(ctx, q.question(3), 10, ctxpage.Where(c.f))
				must(b, err)
				took = append(took, float64(cpu(b)-before))
			}
			slices.Sort(took)
			b.ReportMetric(took[len(took)/2], "cpu-ns-p50")
			b.ReportMetric(took[len(took)/10], "cpu-ns-p10")
		})
	}
}
