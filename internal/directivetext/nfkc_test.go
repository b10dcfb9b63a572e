package directivetext

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"golang.org/x/text/unicode/norm"
)

// joiner is what package norm puts into a run of more than 30 combining marks.
const joiner = "\u034F"

// longPlain is plain by package norm, and by the rules of the Annex, rune by rune,
// where that would add a joiner.
func longPlain(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	out := norm.NFKC.String(s)
	if strings.Count(out, joiner) != strings.Count(s, joiner) {
		out = string(longComposed(longDecomposed(s)))
	}
	return strings.ReplaceAll(strings.ReplaceAll(out, "\u2019", "'"), "`", "'")
}

func longDecomposed(s string) []rune {
	var runes []rune
	for _, r := range s {
		runes = append(runes, []rune(norm.NFKD.String(string(r)))...)
	}
	for i := 0; i < len(runes); i++ {
		start := i
		for i < len(runes) && longClass(runes[i]) != 0 {
			i++
		}
		slices.SortStableFunc(runes[start:i], func(a, b rune) int { return cmp.Compare(longClass(a), longClass(b)) })
	}
	return runes
}

func longClass(r rune) uint8 { return norm.NFKD.PropertiesString(string(r)).CCC() }

func longComposed(runes []rune) []rune {
	out := runes[:0]
	starter, last := -1, uint8(0)
	for _, r := range runes {
		c := longClass(r)
		if starter >= 0 && (starter == len(out)-1 || last < c) {
			if joined := []rune(norm.NFC.String(string([]rune{out[starter], r}))); len(joined) == 1 {
				out[starter] = joined[0]
				continue
			}
		}
		if c == 0 {
			starter = len(out)
		}
		last = c
		out = append(out, r)
	}
	return out
}

// TestLongRunOfMarks: a key with marks nobody wrote would be another key elsewhere.
func TestLongRunOfMarks(t *testing.T) {
	for _, c := range []struct{ name, in, key string }{
		{"31 marks", "a1" + strings.Repeat("\u0301", 31), "a1" + strings.Repeat("\u0301", 31)},
		{"the first composes", "e" + strings.Repeat("\u0301", 40), "\u00e9" + strings.Repeat("\u0301", 39)},
		{"ordered by class", "x" + strings.Repeat("\u0301\u0323", 20), "x\u0323" + strings.Repeat("\u0323", 19) + strings.Repeat("\u0301", 20)},
		{"a joiner that was written", "e\u034f" + strings.Repeat("\u0301", 40), "e\u034f" + strings.Repeat("\u0301", 40)},
		{"of compatibility runes", strings.Repeat("\uff9e", 40), strings.Repeat("\u3099", 40)},
		{"Hangul around", "\u1100\u1161\u11a8" + strings.Repeat("\u3099", 40) + "\uac00\u11a8", "\uac01" + strings.Repeat("\u3099", 40) + "\uac01"},
	} {
		if got := Item(c.in); got != c.key {
			t.Errorf("%s: %+q, want %+q", c.name, got, c.key)
		}
		if got := Item(c.key); got != c.key {
			t.Errorf("%s: the key %+q is not its own key: %+q", c.name, c.key, got)
		}
	}
}

// TestComposites holds the table of pairs against package norm: all that it
// composes, and nothing that it does not.
func TestComposites(t *testing.T) {
	composite := composites().composite
	if got := composite('e', 'x'); got != 0 {
		t.Fatalf("e and x make %+q", got)
	}
	var firsts, seconds []rune
	for c := rune(0x80); c <= 0x10FFFF; c++ {
		s := string(c)
		d := norm.NFC.PropertiesString(s).Decomposition()
		if c >= hangulS && c < hangulS+hangulLs*hangulVs*hangulTs {
			d = norm.NFD.Bytes([]byte(s))
		}
		if d == nil || !norm.NFC.IsNormalString(s) {
			continue
		}
		runes := []rune(string(d))
		b := runes[len(runes)-1]
		a := []rune(norm.NFC.String(string(runes[:len(runes)-1])))
		if got := composite(a[0], b); len(a) != 1 || got != c {
			t.Fatalf("%+q and %+q make %+q, want %+q", a, b, got, c)
		}
		if c < hangulS || c > 0xD7A3 || c%97 == 0 {
			firsts, seconds = append(firsts, a[0]), append(seconds, b)
		}
	}
	if len(firsts) < 1000 {
		t.Fatalf("%d composites", len(firsts))
	}
	rng := rand.New(rand.NewPCG(5, 6))
	for range 200_000 {
		a, b := firsts[rng.IntN(len(firsts))], seconds[rng.IntN(len(seconds))]
		if !norm.NFD.IsNormalString(norm.NFD.String(string(a)) + string(b)) {
			continue // b goes before a mark of a
		}
		want := rune(0)
		if joined := []rune(norm.NFC.String(string([]rune{a, b}))); len(joined) == 1 {
			want = joined[0]
		}
		if got := composite(a, b); got != want {
			t.Fatalf("%+q and %+q make %+q, want %+q", a, b, got, want)
		}
	}
}

// TestPlainAsNorm holds plain against package norm, on strings of scripts that
// compose, decompose and reorder.
func TestPlainAsNorm(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	pools := [][2]int{
		{0x20, 0x250}, {0x300, 0x370}, {0x300, 0x370}, {0x370, 0x600}, {0x600, 0x780}, {0x900, 0xE00}, {0xE00, 0x1100}, {0x1100, 0x1200},
		{0x1AB0, 0x1B80}, {0x1DC0, 0x1E00}, {0x1E00, 0x2200}, {0x3040, 0x3400}, {0xAC00, 0xD7A4}, {0xF900, 0x10000}, {0x11000, 0x11A00},
		{0x16D00, 0x16E00}, {0x1D100, 0x1D200}, {0x1D400, 0x1F000}, {0x2F800, 0x2FA20}, {0xE0100, 0xE01F0},
	}
	n := 100_000
	if testing.Short() {
		n /= 10
	}
	for range n {
		var b strings.Builder
		first, second := pools[rng.IntN(len(pools))], pools[rng.IntN(len(pools))]
		for range 1 + rng.IntN(12) {
			p := first
			if rng.IntN(3) == 0 {
				p = second
			}
			b.WriteRune(rune(p[0] + rng.IntN(p[1]-p[0])))
		}
		if got, want := plain(b.String()), longPlain(b.String()); got != want {
			t.Fatalf("%+q: %+q, want %+q", b.String(), got, want)
		}
	}
}
