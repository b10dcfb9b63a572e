package bench

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage"
)

var huge = flag.Int("huge", 0, "pages of BenchmarkHuge: 10000000 take 5 GB of disk, 4 GB of memory and ten minutes")

// hugeAsked is how many questions and puts are timed.
const hugeAsked = 200

// BenchmarkHuge fills one database with pages of 130 bytes and measures an open after a clean close, searches and
// assemblies of 50, and puts, in CPU. -huge 10000 has what the puts are compared with.
func BenchmarkHuge(b *testing.B) {
	if *huge == 0 {
		b.Skip("-args -huge 10000000 asks for it")
	}
	once(b, func() figures {
		path := fresh(b)
		defer os.RemoveAll(filepath.Dir(path))
		db := open(b, path, tenantOptions)
		fillHuge(b, db.Scope("acme/bench"), *huge)
		must(b, closed(db))
		out := figures{}
		for unit, v := range space(b, path, float64(*huge)) {
			if unit == "all-B" || unit == "free-B" {
				out[unit] = v
			}
		}
		var opens []time.Duration
		for range 3 {
			at, cpu := time.Now(), exactCPU()
			db = open(b, path, tenantOptions)
			out["open-ms"] = ms(time.Since(at))
			opens = append(opens, exactCPU()-cpu)
			must(b, db.Close())
		}
		slices.Sort(opens)
		out["open-cpu-ms"] = ms(opens[1])
		db = open(b, path, tenantOptions)
		defer db.Close()
		askHuge(b, db.Scope("acme/bench"), out)
		return out
	})
}

// fillHuge prints what each tenth takes, because the whole takes long.
func fillHuge(tb testing.TB, s *ctxpage.Scope, pages int) {
	w, cpu := newWords(1), exactCPU()
	for at := 0; at < pages; at += 500 {
		must(tb, s.Update(ctx, func(tx *ctxpage.Txn) error {
			for i := at; i < min(at+500, pages); i++ {
				if err := tx.Put(ctx, ctxpage.Artefact{ID: pageID(i), Text: w.page(shortPage)}); err != nil {
					return err
				}
			}
			return nil
		}))
		if tenth := max(pages/10, 500); (at+500)%tenth == 0 {
			fmt.Fprintf(os.Stderr, "%d pages, %.1f µs of CPU each\n", at+500, micros(exactCPU()-cpu)/float64(tenth))
			cpu = exactCPU()
		}
	}
}

// askHuge measures questions of six words and puts of one writer. The first of each kind comes before.
func askHuge(b *testing.B, s *ctxpage.Scope, out figures) {
	w := newWords(9)
	for name, do := range map[string]func() error{
		"search": func() error { _, err := s.Search(ctx, w.question(6), 50); return err },
		"assembly": func() error {
			a, err := s.Assemble(ctx, ctxpage.Query{Text: w.question(6), Budget: 4000, TopK: 50})
			if err == nil && len(a.Blocks) == 0 {
				return fmt.Errorf("a context is empty")
			}
			return err
		},
		"put": func() error {
			_, err := s.Put(ctx, ctxpage.Artefact{ID: fmt.Sprint("late-", serial.Add(1)), Text: w.page(shortPage)})
			return err
		},
	} {
		must(b, do())
		var took []time.Duration
		all := exactCPU()
		for range hugeAsked {
			cpu := exactCPU()
			must(b, do())
			took = append(took, exactCPU()-cpu)
		}
		out[name+"-cpu-ms"] = ms((exactCPU() - all) / hugeAsked)
		slices.Sort(took)
		out[name+"-p50-cpu-ms"] = ms(took[hugeAsked/2])
	}
}
