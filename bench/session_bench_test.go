package bench

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/session"
)

var benchTime = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// benchHistory makes n blocks of forty words each out of a vocabulary of 2,000,
// one a turn.
func benchHistory(n int) []session.Block {
	r := rand.New(rand.NewPCG(1, 1))
	out := make([]session.Block, n)
	for i := range out {
		text := ""
		for range 40 {
			text += fmt.Sprintf("word%d ", r.IntN(2000))
		}
		out[i] = session.Block{
			ID: fmt.Sprint("m-", i), Turn: int64(i), Tokens: 60, Role: []session.Role{session.User, session.Assistant, session.Tool}[i%3],
			Hashes: session.TokenSet(text),
		}
	}
	return out
}

func BenchmarkSessionPass(b *testing.B) {
	for _, n := range []int{1_000, 10_000} {
		words := make([]string, 12)
		for i := range words {
			words[i] = fmt.Sprint("word", i*7)
		}
		in := session.Input{Blocks: benchHistory(n), Intent: session.NewIntent(words...), Params: session.RecommendedParams()}
		r, err := session.Pass(in)
		require.NoError(b, err)
		require.Equal(b, [2]int{12, n}, [2]int{r.Keywords, r.Count[0] + r.Count[1] + r.Count[2]})
		b.Run(fmt.Sprintf("blocks=%dk/keywords=12", n/1000), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := session.Pass(in); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// benchWindow is a window above its trigger, every section rated and with
// signals for the detectors.
func benchWindow(n int) session.State {
	r := rand.New(rand.NewPCG(7, 7))
	s := session.State{Config: session.Config{Total: n * 120}, Turn: int64(n)}
	for i := range n {
		s.Sections = append(s.Sections, session.Section{
			ID: fmt.Sprint("s", i), Kind: []string{"message", "tool", "chunk"}[i%3], Role: session.Assistant, Priority: session.Priority(i%3 - 1),
			At: benchTime.Add(time.Duration(i-n) * time.Minute), Turn: int64(i), Sizes: session.EstimateSizes(85 + r.IntN(30)),
			Relevance: r.Float64(), Rated: true,
			Signals: session.Signals{Digest: r.Uint64() % uint64(8*n), Source: fmt.Sprint("file:", r.IntN(n)), Version: r.Uint64() % 4},
		})
	}
	return s
}

func BenchmarkSessionPlan(b *testing.B) {
	for _, n := range []int{1_000, 10_000} {
		s := benchWindow(n)
		require.NoError(b, s.Check())
		p, err := s.Plan(benchTime)
		require.NoError(b, err)
		require.LessOrEqual(b, p.Predicted, p.Thresholds.Target)
		b.Run(fmt.Sprintf("sections=%dk", n/1000), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Plan(benchTime); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
