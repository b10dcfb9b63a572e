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
