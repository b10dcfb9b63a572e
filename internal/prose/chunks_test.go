package prose

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/token"
	"github.com/kljensen/snowball/english"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func countWords(s string) int { return len(strings.Fields(s)) }

// counters that a host may bring: exact words, the estimator, one that counts a whole above the sum of its parts, and
// one for which nothing ever fits.
var splitCounters = map[string]func(string) int{
	"words":     countWords,
	"estimate":  token.Default().Count,
	"growing":   func(s string) int { return int(math.Pow(float64(len(s)), 1.3)) },
	"insatiate": func(s string) int { return 1000 * min(len(s), 1) },
}

// splitTexts is split without the counts, which it checks.
func splitTexts(t require.TestingT, text string, max int, count func(string) int) []string {
	var out []string
	for _, p := range Chunks(text, max, count) {
		require.Equal(t, count(p.Text), p.Tokens)
		out = append(out, p.Text)
	}
	return out
}

func TestSplitJoinsBack(t *testing.T) {
	pieces := []string{
		"# Heading\n", "## Second\n\n", "A line of text.\n", "\n\n", "word ", "words and words ", "- item\n", strings.Repeat("x", 200), "ä🐌漢字",
		"\r\n", "\t", "######## no heading\n", "```\ncode\n```\n", "\n", " ", "\u2028", "a\u0301\u0301",
	}
	for name, count := range splitCounters {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				text := strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 0, 60).Draw(t, "pieces"), "")
				limit := rapid.IntRange(store.MinPageTokens, 60).Draw(t, "max")
				pages := splitTexts(t, text, limit, count)
				require.Equal(t, text, strings.Join(pages, ""))
				for _, p := range pages {
					require.True(t, utf8.ValidString(p), "%q cuts a rune", p)
					require.True(t, p != "" || len(pages) == 1)
					if count(p) > limit && utf8.RuneCountInString(p) > 16 {
						t.Fatalf("a page of %d tokens, %d bytes: %q", count(p), len(p), p)
					}
				}
			})
		})
	}
}

// A page ends at the coarsest place that the limit allows.
func TestSplitPlaces(t *testing.T) {
	ten := strings.Repeat("w ", 9) + "w"
	for name, c := range map[string]struct{ pages []string }{
		"headings":         {[]string{"# a\n" + ten + "\n", "# b\n" + ten + "\n", "## c\n" + ten}},
		"paragraphs":       {[]string{ten + "\n\n", ten + "\n\n", ten}},
		"lines":            {[]string{ten + "\n", ten + "\n", ten}},
		"words":            {[]string{strings.Repeat("w ", 16), strings.Repeat("w ", 16), "w"}},
		"small ones share": {[]string{"# a\nb\n# c\nd\n# e\nf\n", "# g\n" + ten + "\n"}},
	} {
		require.Equal(t, c.pages, splitTexts(t, strings.Join(c.pages, ""), 16, countWords), name)
	}
	require.Equal(t, []string{""}, splitTexts(t, "", 16, countWords))
	require.Equal(t, []string{ten}, splitTexts(t, ten, 16, countWords))
	long := strings.Repeat("漢", 100)
	runes := splitTexts(t, long, 16, utf8.RuneCountInString)
	require.Equal(t, long, strings.Join(runes, ""))
	require.Greater(t, len(runes), 5)
}

// The work is linear in the text: a counter sees each byte a handful of times.
func TestSplitIsLinear(t *testing.T) {
	for name, text := range map[string]string{
		"prose": strings.Repeat("some words of a line\n", 20_000), "one line": strings.Repeat("word ", 80_000), "no place": strings.Repeat("x", 400_000),
		"headings": strings.Repeat("# h\nx\n\n", 50_000),
	} {
		seen := 0
		Chunks(text, 64, func(s string) int { seen += len(s); return len(s) })
		require.LessOrEqual(t, seen, 12*len(text), name)
	}
}

// TestPagesStay: pages must stay what they are, or every source that is split anew has new versions.
func TestPagesStay(t *testing.T) {
	counters := map[string]func(string) int{
		"bytes": func(s string) int { return len(s) },
		"words": func(s string) int { return len(strings.Fields(s)) },
		"quart": func(s string) int { return (len(s) + 3) / 4 },
		"above": func(s string) int { return len(s) + len(s)*len(s)/4096 }, // a whole counts for more than its parts
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	atoms := []string{"a", "word ", " ", "\n", "\n\n", "# Heading\n", "## ", "###### x\n", "😀", "漢字", strings.Repeat("x", 90), "\xff", "e\u0301", ". "}
	pages, digest := 0, sha256.New()
	for range 3000 {
		var b strings.Builder
		for range rnd.IntN(120) {
			b.WriteString(atoms[rnd.IntN(len(atoms))])
		}
		for _, name := range slices.Sorted(maps.Keys(counters)) {
			got := Chunks(b.String(), 1+rnd.IntN(60), counters[name])
			for _, p := range got {
				fmt.Fprintf(digest, "%q %d\n", p.Text, p.Tokens)
			}
			pages += len(got)
		}
	}
	require.Greater(t, pages, 50_000)
	require.Equal(t, "bfae098b5ee765e4", hex.EncodeToString(digest.Sum(nil)[:8]))
}

// TestSplitTakesLittle: whatever a text is made of, to split it takes a small multiple of it and not a string for each of
// its bytes.
func TestSplitTakesLittle(t *testing.T) {
	const size = 1 << 20
	count := func(s string) int { return (utf8.RuneCountInString(s) + 3) / 4 }
	allocated := func(f func()) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		f()
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	for _, unit := range []string{" ", "\n", "\n\n", "a", "# \n", "😀", "\xff", "a ", "\u0301", "\r\n", ". "} {
		text := strings.Repeat(unit, size/len(unit))
		var pages []Chunk
		took := allocated(func() { pages = Chunks(text, 512, count) })
		require.Less(t, took, uint64(size), "%q", unit)
		var joined strings.Builder
		for _, p := range pages {
			joined.WriteString(p.Text)
		}
		require.True(t, joined.String() == text, "%q", unit)
	}
	text := strings.Repeat(" ", size)
	require.GreaterOrEqual(t, allocated(func() { strings.Split(text, " ") }), uint64(16*size), "the negative control")
}

// plainSet is TokenSet as its rule reads, without memory or short ways.
func plainSet(texts ...string) (set []uint64) {
	for _, t := range texts {
		for _, w := range words(t) {
			if strings.Trim(w, "abcdefghijklmnopqrstuvwxyz") == "" {
				w = english.Stem(w, true)
			}
			set = append(set, xxhash.Sum64String(w)>>40)
		}
	}
	slices.Sort(set)
	return slices.Compact(set)
}

// TestTokenSetIsPlain: sets are stored, so remembered stems and the short way for ASCII must change no bit of them.
func TestTokenSetIsPlain(t *testing.T) {
	long := strings.Repeat("running", 40)
	for _, text := range []string{
		"", " ", "The runners' RUNNING_shoes don't fit: having 3 sizes, v2 and x86_64.", "and", "a_b _ __ 9", long + " " + long[:64] + " " + long[:65],
		"Ünïted straße İstanbul ΣΑΣ 東京に行く ＡＢＣ running", "caf\u00e9 cafe\u0301", "bad \xff bytes runs", "end runs", "\u1fba\u0345",
	} {
		require.Equal(t, plainSet(text, "Ann"), TokenSet(text, "Ann"), "%q", text)
	}
	require.Equal(t, TokenSet("\u1fb2"), TokenSet("\u1fba\u0345"), "one word in small letters and in capitals")
	rapid.Check(t, func(t *rapid.T) {
		texts := rapid.SliceOfN(rapid.OneOf(rapid.String(), rapid.StringMatching(`[A-Za-z_0-9' .\n-]{0,200}`)), 0, 4).Draw(t, "texts")
		require.Equal(t, plainSet(texts...), TokenSet(texts...))
	})
}
