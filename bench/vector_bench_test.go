package bench

import (
	"context"
	"fmt"
	"hash/maphash"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/store"
)

// hashed is an embedder without meaning and without a network: what remains is what ctxpage itself spends.
type hashed struct {
	seed  maphash.Seed
	width int
	texts int
}

func (h *hashed) Model() string { return fmt.Sprintf("hashed-%d", h.width) }

func (h *hashed) Embed(_ context.Context, texts []string) ([][]float32, error) {
	h.texts += len(texts)
	out := make([][]float32, len(texts))
	for i, t := range texts {
		x := maphash.String(h.seed, t)
		out[i] = make([]float32, h.width)
		for j := range out[i] {
			x = x*6364136223846793005 + 1442695040888963407
			out[i][j] = float32(int32(x>>32)) / (1 << 31)
		}
	}
	return out, nil
}

// BenchmarkAssembleVectors is BenchmarkAssemble over 10k short pages with an embedder: every page has its vector, every
// question is new.
func BenchmarkAssembleVectors(b *testing.B) {
	const pages = 10_000
	for _, width := range []int{0, 384, 1024} {
		b.Run(fmt.Sprintf("pages=%s/size=%d/width=%d", named(pages), shortPage, width), func(b *testing.B) {
			h := &hashed{seed: maphash.MakeSeed(), width: width}
			opts := ctxpage.Options{Embedder: h}
			if width == 0 {
				opts.Embedder = nil
			}
			db := open(b, fresh(b), opts)
			b.Cleanup(func() { must(b, db.Close()) })
			s := db.Scope("acme/bench")
			fill(b, s, pages, shortPage)
			for w, i := newWords(10), 0; i < 2000; i++ { // until nearly every page that is asked for has its vector
				_, err := s.Assemble(ctx, assembly(w.question(asked(pages))))
				must(b, err)
			}
			_, err := db.Admin().Checkpoint(ctx)
			must(b, err)
			h.texts = 0
			w := newWords(9)
			measure(b, 1, func(int, uint64) error {
				_, err := s.Assemble(ctx, assembly(w.question(asked(pages))))
				return err
			})
			b.ReportMetric(float64(h.texts)/float64(b.N), "texts/op")
		})
	}
}

// BenchmarkFirstNear opens a database and asks the first question by meaning, which reads the vectors of the file.
func BenchmarkFirstNear(b *testing.B) {
	const width = 384
	pages := 100_000
	if *big {
		pages = 1_000_000
	}
	h := &hashed{seed: maphash.MakeSeed(), width: width}
	path := fresh(b)
	db := open(b, path, ctxpage.Options{Embedder: h})
	fill(b, db.Scope("acme/bench"), pages, shortPage)
	_, err := db.Admin().Embed(ctx, store.EmbedOptions{})
	must(b, err)
	must(b, db.Close())
	var first, second, clock time.Duration
	for b.Loop() {
		db := open(b, path, ctxpage.Options{Embedder: h})
		s := db.Scope("acme/bench")
		for _, took := range []*time.Duration{&first, &second} {
			before, begun := cpu(b), time.Now()
			found, err := s.Search(ctx, fmt.Sprint("question ", took), 10)
			must(b, err)
			if found.Degraded != "" {
				b.Fatal(found.Degraded)
			}
			if *took += cpu(b) - before; took == &first {
				clock += time.Since(begun)
			}
		}
		must(b, db.Close())
	}
	b.ReportMetric(float64(clock.Milliseconds())/float64(b.N), "first-ms")
	b.ReportMetric(float64((first-second).Nanoseconds())/float64(b.N)/float64(pages), "cpu-ns/vector")
}
