package bench

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/internal/conversation"
	"github.com/ctxpage/ctxpage/internal/prose"
	"github.com/ctxpage/ctxpage/session"
)

var benchTime = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// benchHistory makes n blocks of forty words each out of a vocabulary of 2,000,
// one a turn.
func benchHistory(n int) []conversation.PassBlock {
	r := rand.New(rand.NewPCG(1, 1))
	out := make([]conversation.PassBlock, n)
	for i := range out {
		text := ""
		for range 40 {
			text += fmt.Sprintf("word%d ", r.IntN(2000))
		}
		out[i] = conversation.PassBlock{
			ID: fmt.Sprint("m-", i), Turn: int64(i), Tokens: 60, Role: []string{conversation.User, conversation.Assistant, conversation.Tool}[i%3],
			Hashes: prose.TokenSet(text),
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
		blocks, intent := benchHistory(n), conversation.IntentOf(session.PassQuery{Keywords: words})
		_, verdicts, err := conversation.Judge(blocks, intent, session.RecommendedParams(), 0)
		require.NoError(b, err)
		require.Equal(b, [2]int{12, n}, [2]int{intent.Len(), len(verdicts)})
		b.Run(fmt.Sprintf("blocks=%dk/keywords=12", n/1000), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := conversation.Judge(blocks, intent, session.RecommendedParams(), 0); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// benchWindow is a window above its trigger, every section rated and with
// signals for the detectors.
func benchWindow(n int) conversation.State {
	r := rand.New(rand.NewPCG(7, 7))
	s := conversation.State{Config: session.Config{Total: n * 120}, Turn: int64(n)}
	for i := range n {
		s.Sections = append(s.Sections, conversation.Section{
			ID: fmt.Sprint("s", i), Kind: []string{"message", "tool", "chunk"}[i%3], Role: conversation.Assistant, Priority: conversation.Priority(i%3 - 1),
			At: benchTime.Add(time.Duration(i-n) * time.Minute), Turn: int64(i), Sizes: conversation.EstimateSizes(85 + r.IntN(30)),
			Relevance: r.Float64(), Rated: true,
			Signals: session.Signals{Digest: r.Uint64() % uint64(8*n), Source: fmt.Sprint("file:", r.IntN(n)), Version: r.Uint64() % 4},
		})
	}
	return s
}

func BenchmarkSessionPlan(b *testing.B) {
	for _, n := range []int{1_000, 10_000} {
		s := benchWindow(n)
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
