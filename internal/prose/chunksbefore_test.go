package prose

import (
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// The split that made all its pieces before it joined them: pages must stay what they were.
func wholeSplit(text string, max int, count func(string) int) []Chunk {
	if n := count(text); n <= max {
		return []Chunk{{text, n}}
	}
	var pages []Chunk
	start, end, sum := 0, 0, 0
	flush := func() {
		if page := text[start:end]; page != "" {
			if n := count(page); n > max && len(page) > 16 && sum > 0 {
				half := runeBoundary(page, len(page)/2)
				pages = append(pages, wholeSplit(page[:half], max, count)...)
				pages = append(pages, wholeSplit(page[half:], max, count)...)
			} else {
				pages = append(pages, Chunk{page, n})
			}
		}
		start, sum = end, 0
	}
	for _, piece := range wholePieces(text, 0, max, count) {
		n := count(piece)
		if end > start && sum+n > max {
			flush()
		}
		end += len(piece)
		sum += n
	}
	flush()
	return pages
}

func wholePieces(text string, level, max int, count func(string) int) []string {
	if level > 4 || count(text) <= max {
		return []string{text}
	}
	var out []string
	for _, p := range wholeCutAt(text, level) {
		if p != "" {
			out = append(out, wholePieces(p, level+1, max, count)...)
		}
	}
	return out
}

func wholeCutAt(text string, level int) []string {
	switch level {
	case 0:
		return wholeCutBefore(text, func(rest string) bool { return isHeading(rest) })
	case 1:
		return strings.SplitAfter(text, "\n\n")
	case 2:
		return strings.SplitAfter(text, "\n")
	case 3:
		return strings.SplitAfter(text, " ")
	}
	var out []string
	for len(text) > 0 {
		n := 0
		for i := 0; i < 16 && n < len(text); i++ {
			_, w := utf8.DecodeRuneInString(text[n:])
			n += w
		}
		out = append(out, text[:n])
		text = text[n:]
	}
	return out
}

func wholeCutBefore(text string, at func(string) bool) []string {
	var out []string
	start := 0
	for i := 0; i < len(text); {
		j := strings.IndexByte(text[i:], '\n')
		if j < 0 {
			break
		}
		i += j + 1
		if i < len(text) && at(text[i:]) {
			out = append(out, text[start:i])
			start = i
		}
	}
	return append(out, text[start:])
}

func TestSplitAsBefore(t *testing.T) {
	counters := map[string]func(string) int{
		"bytes": func(s string) int { return len(s) },
		"words": func(s string) int { return len(strings.Fields(s)) },
		"quart": func(s string) int { return (len(s) + 3) / 4 },
		"above": func(s string) int { return len(s) + len(s)*len(s)/4096 }, // a whole counts for more than its parts
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	atoms := []string{"a", "word ", " ", "\n", "\n\n", "# Heading\n", "## ", "###### x\n", "😀", "漢字", strings.Repeat("x", 90), "\xff", "e\u0301", ". "}
	pages := 0
	for range 3000 {
		var b strings.Builder
		for range rnd.IntN(120) {
			b.WriteString(atoms[rnd.IntN(len(atoms))])
		}
		for name, count := range counters {
			size := 1 + rnd.IntN(60)
			want, got := wholeSplit(b.String(), size, count), Chunks(b.String(), size, count)
			require.Equal(t, want, got, "%s %d %q", name, size, b.String())
			pages += len(got)
		}
	}
	require.Greater(t, pages, 50_000)
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
	require.Greater(t, allocated(func() { wholeSplit(text, 512, count) }), uint64(16*size), "the negative control")
}
