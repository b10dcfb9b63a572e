package directive

import (
	"math/rand/v2"
	"strings"
	"testing"

	"golang.org/x/text/unicode/norm"
)

// TestLongRunOfMarks: package norm joins 30 marks and puts a U+034F before the
// next; a key with marks nobody wrote would be another key elsewhere.
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

// TestComposedAsNorm holds the long way against the library where both apply.
func TestComposedAsNorm(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	pools := [][2]int{{0x20, 0x250}, {0x300, 0x370}, {0x300, 0x370}, {0x1100, 0x1200}, {0xAC00, 0xD7A4}, {0x1E00, 0x2200}, {0x900, 0xE00}, {0xF900, 0x10000}, {0x1D100, 0x1D800}}
	for range 20000 {
		var b strings.Builder
		for range 1 + rng.IntN(12) {
			p := pools[rng.IntN(len(pools))]
			b.WriteRune(rune(p[0] + rng.IntN(p[1]-p[0])))
		}
		s := b.String()
		if got, want := string(composed(decomposed(s))), norm.NFKC.String(s); got != want {
			t.Fatalf("%+q: %+q, want %+q", s, got, want)
		}
	}
}
