package directivetext

import (
	"flag"
	"strings"
	"sync"
	"testing"
	"unicode"

	"pgregory.net/rapid"
)

var allRunes = flag.Bool("runes.all", false, "try every rune in TestItemShortcuts, not those below U+3400 and the compatibility forms")

// longItem is Item as its rules are written down, without a shortcut.
func longItem(s string) string {
	for range maxFolds {
		next := squeeze(longLower(longPlain(s)))
		if next = dropArticles(apostropheDont(next)); next == s {
			break
		}
		s = next
	}
	return s
}

func longLower(s string) string {
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == 0x130:
			b.WriteString("i\u0307")
		case r == 0x3A3 && finalSigma(s, i):
			b.WriteRune(0x3C2)
		default:
			b.WriteRune(unicode.ToLower(r))
		}
	}
	return b.String()
}

// TestSigmaShortcuts holds the shortcuts of the final sigma against the tables.
func TestSigmaShortcuts(t *testing.T) {
	for r := rune(0); r <= unicode.MaxRune; r++ {
		ignorable := unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf, unicode.Lm, unicode.Sk) || strings.ContainsRune(midWord, r)
		if caseIgnorable(r) != ignorable {
			t.Fatalf("%+q is case-ignorable: %v", r, ignorable)
		}
		hasCase := unicode.In(r, unicode.Ll, unicode.Lu, unicode.Lt, unicode.Other_Lowercase, unicode.Other_Uppercase)
		if cased(r) != hasCase {
			t.Fatalf("%+q is cased: %v", r, hasCase)
		}
		if space := unicode.IsSpace(r) || r >= 0x1C && r <= 0x1F; isSpace(r) != space {
			t.Fatalf("%+q is white space: %v", r, space)
		}
	}
}

// TestItemTwice: letters that meet their marks only in lower case.
func TestItemTwice(t *testing.T) {
	for text, key := range map[string]string{
		"J\u030c":       "\u01f0",
		"H\u0331\u0307": "\u1e96\u0307",
		"\u0130\u0321":  "i\u0321\u0307",
		"\u0130\u0323":  "\u1ecb\u0307",
		"E\u0323\u0300": "\u1eb9\u0300",
	} {
		sameItem(t, text)
		if got := Item(text); got != key {
			t.Errorf("%+q: %+q, want %+q", text, got, key)
		}
	}
}

func sameItem(t interface{ Fatalf(string, ...any) }, s string) {
	want := longItem(s)
	if got := Item(s); got != want {
		t.Fatalf("Item(%+q) = %+q, by the rules %+q", s, got, want)
	}
	if got, want := plain(s), longPlain(s); got != want {
		t.Fatalf("plain(%+q) = %+q, by the rules %+q", s, got, want)
	}
	if got, want := Premise(s), squeeze(longPlain(s)); got != want {
		t.Fatalf("Premise(%+q) = %+q, by the rules %+q", s, got, want)
	}
}

func TestItemShortcuts(t *testing.T) {
	for r := rune(0); r <= 0x10FFFF; r++ {
		if r == 0x3400 && !*allRunes {
			r = 0xF900
		}
		if r == 0x10000 && !*allRunes {
			break
		}
		for _, s := range []string{string(r), "x" + string(r) + "y", string(r) + "\u0301", "a " + string(r), "J" + string(r), string(r) + "\u0323\u0345"} {
			sameItem(t, s)
		}
	}
	for _, key := range []string{"library 00500", "日本語 café", "ελληνικά", "क्षत्रिय"} {
		if n := testing.AllocsPerRun(10, func() { Item(key) }); n != 0 {
			t.Fatalf("%q is a key, and is copied", key)
		}
	}
}

func TestItemShortcutsRandom(t *testing.T) {
	alphabet := []string{
		"a", "an", "the", "dont", "don't", " ", "\t", "\u00a0", "\u3000", "\u2028", "\x1f", "`", "\u2019", "\uff40", "\uff07", "\ufb01", "…", "\ufffd", "\xff",
		"J", "\u030c", "H", "\u0331", "\u0307", "\u0321", "\u0301", "\u0345", "Σ", "σ", "ς", "İ", "K", "Ａ", "ｚ", "－", "é", "É", "㎏", "①", "日", "ｱ", "ﾞ", "한", "ᄒ", "ᅡ", "ǰ", "ß", "ẞ", "_", "1", "-", ".",
	}
	rapid.Check(t, func(t *rapid.T) {
		sameItem(t, strings.Join(rapid.SliceOfN(rapid.SampledFrom(alphabet), 0, 12).Draw(t, "parts"), ""))
	})
}

func FuzzItem(f *testing.F) {
	f.Add("The H\u0331\u0307 \u0130\u0321 dont\u2019s")
	f.Add("\uff8c\uff9e \u1112\u1161\u11ab \u0344`\xff\ufdfa")
	f.Add("\u039f\u0394\u039f\u03a3\u2028e" + strings.Repeat("\u0301\u0323", 20))
	f.Fuzz(func(t *testing.T, s string) { sameItem(t, s) })
}

// TestPagesAreMadeByMany is for the race detector.
func TestPagesAreMadeByMany(t *testing.T) {
	want := *infoOf('É')
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 50 {
				newPage('É')
				if got := *infoOf('É'); got != want {
					t.Errorf("%+v, want %+v", got, want)
				}
			}
		})
	}
	wg.Wait()
}
