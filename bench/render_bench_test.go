package bench

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage/render"
)

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
