package bench

import (
	"context"
	"fmt"
	"math/rand"
	"slices"
	"testing"

	"github.com/ctxpage/ctxpage/compat/contexty"
	"github.com/ctxpage/ctxpage/internal/triage"
)

// budgetTalk is a conversation of n messages with their weights, every tenth turn a tool call with its result.
func budgetTalk(n int) ([]contexty.Message, []int) {
	r := rand.New(rand.NewSource(1))
	messages, weights := make([]contexty.Message, n), make([]int, n)
	for i := range messages {
		m := contexty.TextMessage([]string{"user", "assistant"}[i%2], "text")
		m.ID = fmt.Sprint(i)
		switch i % 20 {
		case 3:
			m.ToolCalls = []contexty.ToolCall{{ID: fmt.Sprint("c", i)}}
		case 4:
			m.Role, m.ToolCallID = "tool", fmt.Sprint("c", i-1)
		}
		messages[i], weights[i] = m, 20+r.Intn(200)
	}
	return messages, weights
}

// BenchmarkHistoryCut halves a history whose weights are known. v=suffix-sum is the least that any cut has to do: add
// weights from the newest back until the limit is reached.
func BenchmarkHistoryCut(b *testing.B) {
	for _, n := range []int{1_000, 10_000, 100_000} {
		messages, weights := budgetTalk(n)
		turns, total := contexty.NewTurns(), 0
		for i := range messages {
			turns.Append(&messages[i], weights[i])
			total += weights[i]
		}
		limit := total / 2
		want, sum := budgetSuffixCut(weights, limit)
		cut, ok := turns.Cut(limit, 1, 0)
		kept := budgetWalk(cut)
		if !ok || sum > limit || cut.Tokens > limit || cut.First < want-2 || cut.First > want+2 || kept < n-want-3 {
			b.Fatalf("cut at %d keeping %d, the bare loop at %d", cut.First, kept, want)
		}
		b.Run(fmt.Sprintf("n=%d/v=suffix-sum", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				budgetSuffixCut(weights, limit)
			}
		})
		b.Run(fmt.Sprintf("n=%d/v=ctxpage", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				turns.Cut(limit, 1, 0)
			}
		})
		b.Run(fmt.Sprintf("n=%d/v=ctxpage-walked", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				cut, _ := turns.Cut(limit, 1, 0)
				budgetWalk(cut)
			}
		})
		b.Run(fmt.Sprintf("n=%d/v=ctxpage-compile", n), func(b *testing.B) {
			list := []contexty.Block{{Key: "talk", Class: triage.History, Messages: messages, Turns: turns, Low: 1}}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := contexty.Compile(contexty.Config{Budget: limit}, list); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(kept), "kept")
		})
	}
}

func budgetWalk(c contexty.Cut) (kept int) {
	for range c.All() {
		kept++
	}
	return kept
}

func budgetSuffixCut(weights []int, limit int) (from, sum int) {
	from = len(weights)
	for from > 0 && sum+weights[from-1] <= limit {
		from--
		sum += weights[from]
	}
	return from, sum
}

// BenchmarkContextyTruncate halves a history in the compatible mode, counting included: with a stock counter one walk,
// with any other a few counts of what would be left.
func BenchmarkContextyTruncate(b *testing.B) {
	for _, n := range []int{100, 400, 4_000, 100_000} {
		messages, _ := budgetTalk(n)
		stock := &contexty.FixedCounter{TokensPerMessage: 10}
		for name, counter := range map[string]contexty.TokenCounter{"stock": stock, "opaque": budgetOpaque{stock}} {
			b.Run(fmt.Sprintf("n=%d/v=%s", n, name), func(b *testing.B) {
				s := contexty.NewTruncateOldestStrategy()
				for b.Loop() {
					out, err := s.Apply(context.Background(), messages, 10*n, 5*n, counter)
					if err != nil || len(out) != n/2 {
						b.Fatal(len(out), err)
					}
				}
			})
		}
	}
}

type budgetOpaque struct{ contexty.TokenCounter }

// BenchmarkPrefix runs 400 turns with the window full and reports the share of input tokens that repeat the start of
// the prompt before: what a provider's prefix cache can serve.
func BenchmarkPrefix(b *testing.B) {
	for _, v := range []struct {
		name string
		low  float64
		hold bool
	}{{"ctxpage", contexty.DefaultLow, true}, {"sliding", 1, false}} {
		b.Run("turns=400/v="+v.name, func(b *testing.B) {
			var share float64
			for b.Loop() {
				share = budgetUnchanged(b, v.low, v.hold)
			}
			b.ReportMetric(100*share, "unchanged-%")
		})
	}
}

func budgetUnchanged(b *testing.B, low float64, hold bool) float64 {
	const window, system = 16_000, 1_500
	messages, weights := budgetTalk(1_000)
	turns, marked := contexty.NewTurns(), 0
	var last []int
	same, total, full := 0, 0, 0
	for i := 0; full < 400; i += 2 {
		turns.Append(&messages[i], weights[i])
		turns.Append(&messages[i+1], weights[i+1])
		cut, ok := turns.Cut(window-system, low, marked)
		if !ok {
			b.Fatal("the newest message does not fit")
		}
		if hold {
			marked = cut.First
		}
		keep := slices.Collect(cut.All())
		if len(keep) < i {
			full++
			same += system
			total += system
			for n, m := range keep {
				total += weights[m]
				if n < len(last) && last[n] == m {
					same += weights[m]
				} else {
					last = nil
				}
			}
		}
		last = keep
	}
	return float64(same) / float64(total)
}

// BenchmarkFit places candidates, all of them scored, in a window that holds a quarter.
func BenchmarkFit(b *testing.B) {
	for _, n := range []int{50, 500, 5_000} {
		r := rand.New(rand.NewSource(1))
		req := triage.Request{RecentShare: .1}
		for i := range n {
			it := triage.Item{Key: fmt.Sprintf("p%06d", i), Class: triage.RAG, Position: i, Tokens: 50 + r.Intn(500), Score: r.Float64(), Recent: i%10 == 0}
			it.Compressed = it.Tokens / 3
			req.Items, req.Budget = append(req.Items, it), req.Budget+it.Tokens/4
		}
		if res, err := triage.Fit(req); err != nil || res.Used > req.Budget || res.Used < req.Budget*9/10 {
			b.Fatal(res.Used, err)
		}
		b.Run(fmt.Sprintf("items=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := triage.Fit(req); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
