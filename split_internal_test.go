package ctxpage

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
)

// The split that made all its pieces before it joined them: pages must stay what they were.
func wholeSplit(text string, max int, count func(string) int) []cutPage {
	if n := count(text); n <= max {
		return []cutPage{{text, n}}
	}
	var pages []cutPage
	start, end, sum := 0, 0, 0
	flush := func() {
		if page := text[start:end]; page != "" {
			if n := count(page); n > max && len(page) > 16 && sum > 0 {
				half := runeBoundary(page, len(page)/2)
				pages = append(pages, wholeSplit(page[:half], max, count)...)
				pages = append(pages, wholeSplit(page[half:], max, count)...)
			} else {
				pages = append(pages, cutPage{page, n})
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
			want, got := wholeSplit(b.String(), size, count), split(b.String(), size, count)
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
		var pages []cutPage
		took := allocated(func() { pages = split(text, 512, count) })
		require.Less(t, took, uint64(size), "%q", unit)
		var joined strings.Builder
		for _, p := range pages {
			joined.WriteString(p.text)
		}
		require.True(t, joined.String() == text, "%q", unit)
	}
	text := strings.Repeat(" ", size)
	require.Greater(t, allocated(func() { wholeSplit(text, 512, count) }), uint64(16*size), "the negative control")
}

// TestSupersedesInALine: a long line of artefacts, each in place of the one before, costs what its members cost.
func TestSupersedesInALine(t *testing.T) {
	const n = 4000
	var s supersedes
	writes := map[string]*store.Put{}
	put := func(id, old string) bool {
		p := &store.Put{Artefact: Artefact{ID: id, Supersedes: []string{old}}}
		if s.leads(p.Artefact.Supersedes, id, writes) {
			return false
		}
		s.forget(writes[id])
		s.note(p)
		writes[id] = p
		return true
	}
	name := func(i int) string { return fmt.Sprint("s", i) }
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 2 { // and again
		for i := 1; i < n; i++ {
			require.True(t, put(name(i), name(i-1)))
		}
	}
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(16<<20))
	require.False(t, put(name(0), name(n-1)), "a circle")
	require.False(t, put(name(7), name(9)))
	s.forget(writes[name(8)])
	delete(writes, name(8))
	require.True(t, put(name(7), name(9)), "the line was broken")
	require.False(t, put(name(8), name(7)) && put(name(9), name(8)))
}

// TestLongDirective: what is too long for a directive is refused before anything is made of it; prose of any length
// passes.
func TestLongDirective(t *testing.T) {
	db, _ := openInternal(t)
	d := db.Scope("acme").Directives()
	long := strings.Repeat("\ufb01", 2<<20) // each becomes two letters
	var before, after runtime.MemStats
	for _, verb := range []string{"use ", "prohibit ", "set premise ", "change premise to ", "remove policy ", "use x instead of "} {
		runtime.ReadMemStats(&before)
		_, err := d.Step(t.Context(), verb+long)
		_, perr := d.Preview(t.Context(), verb+long)
		runtime.ReadMemStats(&after)
		require.ErrorIs(t, err, ErrInvalid, verb)
		require.ErrorIs(t, perr, ErrInvalid, verb)
		require.ErrorContains(t, err, "expected at most 65536")
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(2*len(long)+(6<<20)), verb) // of which the inputs themselves are two
	}
	for _, prose := range []string{"users say: " + long, long, "clear state" + strings.Repeat(" ", MaxDirective) + "later"} {
		got, err := d.Step(t.Context(), prose)
		require.NoError(t, err)
		require.Zero(t, got.Kind)
	}
}
