package bench

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ctxpage/ctxpage/directive"
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
