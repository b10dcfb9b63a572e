package bench

import (
	"context"
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"

	"github.com/ctxpage/ctxpage/compat/contexty"
	"github.com/ctxpage/ctxpage/directive"
	"github.com/ctxpage/ctxpage/internal/triage"
)

// directiveState has n items in use, named as people name things.
func directiveState(tb testing.TB, n int) directive.Session {
	tb.Helper()
	policies := make([]directive.Policy, n)
	for i := range policies {
		policies[i] = directive.Policy{Item: fmt.Sprintf("library %05d", i), Polarity: directive.Use}
	}
	s, err := directive.NewState("the reader is a nurse", policies...)
	if err != nil || s.Len() != n {
		tb.Fatalf("%d items: %v", s.Len(), err)
	}
	return directive.Session{State: s}
}

func BenchmarkDirectiveStep(b *testing.B) {
	inputs := []struct {
		name, input string
		kind        directive.Kind
		changed     bool
	}{
		{"passthrough", "How do I sort a list? It has a few thousand entries, and use of memory matters.", directive.Passthrough, false},
		{"add", "prohibit library 00500b", directive.Update, true},
		{"repeat", "use library 00500", directive.Update, false},
		{"remove", "remove policy library 00500", directive.Update, true},
		{"replace", "use The Other Library instead of library 00500", directive.Update, true},
		{"clarify", "prohibit library 00500", directive.Clarify, false},
		{"question", "use tokyo instead of kyoto", directive.Clarify, false},
		{"unicode", "use ＰＤＦ ﬁles from Ａｄｏｂｅ’s site", directive.Update, true},
		{"accents", "use Crème Brûlée à la Carte", directive.Update, true},
		{"japanese", "prohibit 日本語の図書館 ライブラリ", directive.Update, true},
		{"composed", "use ﾗｲﾌﾞﾗﾘ №５ cafe\u0301", directive.Update, true},
		{"premise", "change premise to the reader is a doctor, and in a hurry", directive.Update, true},
		{"vietnamese", "prohibit Thu\u031b vie\u0323\u0302n chi\u0301nh thu\u031b\u0301c Vie\u0323\u0302t Nam", directive.Update, true},
		{"jamo", "use \u1112\u1161\u11ab\u1100\u116e\u11a8\u110b\u1165 \u1103\u1169\u1109\u1165\u1100\u116a\u11ab", directive.Update, true},
		{"devanagari", "prohibit देवनागरी पुस्तकालय क\u093cलम", directive.Update, true},
		{"arabic", "use ﻣﻜﺘﺒﺔ ﺍﻟﻜﺘﺐ ﻻ", directive.Update, true},
		{"cyrillic", "use Библиотека Имени Ленина в Москве", directive.Update, true},
		{"greek", "use ΒΙΒΛΙΟΘΗΚΗ ΤΗΣ ΕΛΛΑΔΟΣ", directive.Update, true},
		{"emoji", "prohibit 👩🏽‍💻 and 👍🏿 in ❤️ mails", directive.Update, true},
		{"marks", "use Z\u0351\u0300\u0323a\u0301\u0328\u0304\u0316l\u0325\u0302\u0301g\u0327\u0334\u030ao", directive.Update, true},
		{"folded", "use J\u030cubilee H\u0331ouse", directive.Update, true}, // which compose in lower case only
		{"replaceunicode", "use ＰｏｓｔｇｒｅＳＱＬ instead of library 00500", directive.Update, true},
		{"long", "prohibit Thư viện chính thức của nước Cộng hòa Xã hội Chủ nghĩa Việt Nam, nơi lưu giữ sách báo và tài liệu", directive.Update, true},
		{"longascii", "prohibit The library of the whole of the republic, where books and papers and other documents of interest are kept", directive.Update, true},
	}
	for _, n := range []int{1_000, 10_000} {
		s := directiveState(b, n)
		for _, in := range inputs {
			b.Run(fmt.Sprintf("items=%d/input=%s", n, in.name), func(b *testing.B) {
				if _, d := directive.Step(s, in.input); d.Kind != in.kind || d.Changed != in.changed {
					b.Fatalf("%+v", d)
				}
				b.ReportAllocs()
				for b.Loop() {
					directive.Step(s, in.input)
				}
			})
		}
	}
}

// BenchmarkDirectiveAnswer steps a session with an open question.
func BenchmarkDirectiveAnswer(b *testing.B) {
	open, d := directive.Step(directiveState(b, 1000), "use tokyo instead of kyoto")
	if d.Code != "replace_absent" {
		b.Fatalf("%+v", d)
	}
	for _, in := range []struct {
		name, input string
		kind        directive.Kind
	}{
		{"yes", "Yes!", directive.Update},
		{"no", "no thanks", directive.Update},
		{"neither", "How do I sort a list? It has a few thousand entries, and use of memory matters.", directive.Clarify},
	} {
		b.Run("items=1000/answer="+in.name, func(b *testing.B) {
			if _, d := directive.Step(open, in.input); d.Kind != in.kind {
				b.Fatalf("%+v", d)
			}
			b.ReportAllocs()
			for b.Loop() {
				directive.Step(open, in.input)
			}
		})
	}
}

func BenchmarkDirectiveImport(b *testing.B) {
	s := directiveState(b, 10_000)
	data := directive.ExportJSON(s.State)
	for name, data := range map[string][]byte{
		"keys=normal": data,
		"keys=raw":    []byte(strings.ReplaceAll(string(data), "library", "  The Librar\\u00ff")),
	} {
		b.Run("items=10000/"+name, func(b *testing.B) {
			if got, err := directive.ImportJSON(data); err != nil || got.Len() != 10_000 {
				b.Fatal(got.Len(), err)
			}
			b.ReportAllocs()
			for b.Loop() {
				_, _ = directive.ImportJSON(data)
			}
		})
	}
}

func BenchmarkDirectiveExport(b *testing.B) {
	s := directiveState(b, 10_000)
	b.ReportAllocs()
	for b.Loop() {
		directive.ExportCheckpoint(s)
	}
}

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
