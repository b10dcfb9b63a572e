package lexical

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSketch: the estimate is near what was added, whatever was added twice, and never above what there may be.
func TestSketch(t *testing.T) {
	for _, n := range []int{0, 1, 2, 100, 5_000, 2 * sketchBits, 4 * sketchBits} {
		parts := [3]sketch{}
		for i := range n {
			term := fmt.Appendf(nil, "term%d", i/2)
			parts[i%3].add(uint32(i%2), term)
			parts[i*7%3].add(uint32(i%2), term)
		}
		all := sketch{}
		for i := range parts {
			all.join(&parts[i])
		}
		require.InDelta(t, n, all.estimate(10*n+10), .05*float64(n), n)
		require.LessOrEqual(t, all.estimate(n), n)
	}
	full := sketch{}
	for i := range 20 * sketchBits {
		full.add(1, fmt.Append(nil, i))
	}
	require.Equal(t, 20*sketchBits, full.estimate(20*sketchBits), "no bit is clear")
}

// TestStepsShareWords: parts that have the same words become one segment, though they have more lists together than a
// step writes. Parts with words of their own, the negative control, become one each.
func TestStepsShareWords(t *testing.T) {
	const parts, each, known = 6, 4, 500
	segments := func(word func(num uint64, i int) string) int {
		s := memStore{}
		x := s.open(t)
		x.stepTerms = flushDocs*each + 1
		for num := uint64(1); num <= parts*flushDocs; num++ {
			d := Doc{Num: num, Scope: 1, Analysis: Analysis{Length: each}}
			for i := range each {
				d.Analysis.Terms = append(d.Analysis.Terms, TermCount{Term: word(num, i), N: 1})
			}
			x.Add(d)
		}
		for s.step(t, x) {
		}
		s.checkpoint(t, x, false)
		require.Equal(t, uint64(parts*flushDocs), x.Through())
		return len(x.manifest.segments)
	}
	require.Equal(t, 1, segments(func(num uint64, i int) string { return fmt.Sprintf("%d-%d", i, num%known) }))
	require.Equal(t, parts, segments(func(num uint64, i int) string { return fmt.Sprintf("%d-%d", i, num) }))
}
