package engine

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
)

// BenchmarkTriage proposes the newest 50 of a million pages without a question, in one scope and over a chain of
// twenty: what the catalogue can say by recency and provenance, before anything is read. The catalogue stands alone, for
// nothing else of a database is asked.
func BenchmarkTriage(b *testing.B) {
	const pages = 1_000_000
	now := time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)
	for _, scopes := range []int{1, 20} {
		s := &Engine{cat: newCatalogue(), opts: Options{Trust: true}} // nothing to compare with
		var chain store.Scopes
		for i := range scopes {
			chain = append(chain, fmt.Sprint("scope-", i))
			s.cat.addScope(uint32(i+1), chain[i])
		}
		s.cat.reserve(pages)
		for i := range uint64(pages) {
			// The pages of a scope, and of a provenance, lie apart in time and in memory.
			h := format.Hot{
				Kind: store.KindFact, Provenance: []store.Provenance{store.Chunk, store.Validated, store.Chunk, store.Tool}[i%4], Scope: uint32(i*7919%uint64(scopes)) + 1, Art: i + 1, Version: 1, LSN: i + 1,
				AsOf: now.Add(-time.Duration(pages-1-i) * time.Minute).UnixMicro(), ID: fmt.Append(nil, "page-", i),
			}
			s.cat.install(&h, []store.PageRow{{Num: i + 1, Version: 1, LSN: i + 1, Tokens: 30}})
		}
		q := store.CandidateQuery{Scopes: chain, Floor: store.Tool, Now: now, Recent: 50}
		out := must(s.Candidates(context.Background(), q))(b)
		require.Len(b, out.Hits, 50)
		for _, c := range out.Hits { // the ages are 0, 1, 2 … minutes
			require.Less(b, now.Sub(codec.FromMicros(c.AsOf)), 50*time.Minute)
		}
		b.Run(fmt.Sprintf("pages=1M/scopes=%d", scopes), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Candidates(context.Background(), q); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
