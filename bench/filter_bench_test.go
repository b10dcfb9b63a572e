package bench

import (
	"fmt"
	"slices"
	"testing"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/store"
)

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
