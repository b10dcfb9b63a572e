package bench

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage/internal/conversation"
	"github.com/ctxpage/ctxpage/internal/prose"
	"github.com/ctxpage/ctxpage/render"
	"github.com/ctxpage/ctxpage/session"
	"github.com/stretchr/testify/require"
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

// renderPages gives 50 pages of 1 KiB: plain prose, prose in another script,
// or prose where every page has something to escape.
func renderPages(text string) []render.Page {
	pages := make([]render.Page, 50)
	for i := range pages {
		pages[i] = render.Page{
			Ref: fmt.Sprintf("acme/support:doc-%d#0@3", i), Kind: "chunk", Provenance: "chunk",
			Source: "file:docs/handbook.md", Date: time.Date(2026, 3, 1, 8, 30, i, 0, time.UTC),
			Text: strings.Repeat(text, 1024/len(text)+1)[:1024],
		}
	}
	return pages
}

// shapes render pages for a provider.
var shapes = map[string]func(seed string, pages []render.Page) ([]byte, error){
	"text": func(seed string, pages []render.Page) ([]byte, error) {
		return render.Text(nil, seed, pages, false), nil
	},
	"OpenAI": func(seed string, pages []render.Page) ([]byte, error) {
		return render.OpenAI(render.Messages(seed, pages, false))
	},
	"Anthropic": func(seed string, pages []render.Page) ([]byte, error) {
		return render.Anthropic(render.Messages(seed, pages, false))
	},
	"Gemini": func(seed string, pages []render.Page) ([]byte, error) {
		return render.Gemini(render.Messages(seed, pages, false))
	},
}

func BenchmarkRender(b *testing.B) {
	const seed = "01J8Z0DB/acme/support"
	for _, set := range []struct{ name, text string }{
		{"prose", "A refund is due within thirty days of delivery; see the table below.\n"},
		{"greek", "Η επιστροφή χρημάτων γίνεται σε τριάντα ημέρες.\n"},
		{"escapes", "line one\r\nline two \x1b[31mred\x1b[0m and a\u200bword\r\n"},
	} {
		pages := renderPages(set.text)
		for shape, rendered := range shapes {
			b.Run(fmt.Sprintf("set=%s/shape=%v/pages=50", set.name, shape), func(b *testing.B) {
				out, err := rendered(seed, pages)
				if err != nil {
					b.Fatal(err)
				}
				if n := bytes.Count(out, []byte("</page ")) + bytes.Count(out, []byte(`"role"`)); n < len(pages)/2 {
					b.Fatalf("the pack has %d pages and turns of %d", n, len(pages))
				}
				b.SetBytes(int64(len(out)))
				b.ReportAllocs()
				for b.Loop() {
					if _, err := rendered(seed, pages); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
