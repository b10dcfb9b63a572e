package prose

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

const refund = "Refunds are made within 30 days of the purchase, to the card that was charged; vouchers are not refunded."

func TestSame(t *testing.T) {
	for other, want := range map[string]bool{
		refund: true,
		"REFUNDS are made   within 30 days\nof the purchase -- to the card that was charged. Vouchers are not refunded": true,
		"Policy 7:\n\n" + refund:                                                   true,
		refund + " (page 2)":                                                       true,
		strings.Replace(refund, "30", "60", 1):                                     false,
		strings.Replace(refund, "are not", "are", 1):                               false,
		"one two three four five six seven eight nine ten eleven twelve " + refund: false, // more than a quarter
		"": false,
		"Another text of about as many words, which has nothing to do with the first one at all, or has it?": false,
	} {
		require.Equal(t, want, SameText(refund, other), other)
		require.Equal(t, want, SameText(other, refund), other)
		a, b := SketchOf(refund), SketchOf(other)
		if same, known := a.Same(&b); known {
			require.Equal(t, want, same, "by their sketches: %s", other)
		}
	}
	require.False(t, SameText("thank you so much", "thank you so much"), "short texts repeat nothing")
}

// SketchOf those that are the same the sketches meet; of those that differ hardly any do.
func TestSketch(t *testing.T) {
	meet := func(a, b Sketch) bool {
		for k := range a.parts {
			if a.parts[k] != 0 && a.parts[k] == b.parts[k] {
				return true
			}
		}
		return false
	}
	missed, met := 0, 0
	for i := range 500 {
		var words []string
		for j := range 40 {
			words = append(words, fmt.Sprintf("w%dx%d", i, j*j))
		}
		text := strings.Join(words, " ")
		require.True(t, meet(SketchOf(text), SketchOf(strings.ToUpper(text)+".")))
		if !meet(SketchOf(text), SketchOf("a header of some words, "+text)) {
			missed++
		}
		if meet(SketchOf(text), SketchOf(strings.ReplaceAll(text, "w", "v"))) {
			met++
		}
	}
	require.LessOrEqual(t, missed, 5)
	require.LessOrEqual(t, met, 5)
	require.Zero(t, SketchOf("thank you so much"))
	require.False(t, meet(SketchOf(""), SketchOf("")))
}

// SketchOf several that are the same the first is found, whatever else shares a part, and nothing after Clear. A sketch does not
// depend on the process: its numbers are pinned.
func TestSeen(t *testing.T) {
	var s Seen[int]
	a, b := &Sketch{parts: [4]uint64{1, 2, 3, 4}}, &Sketch{parts: [4]uint64{9, 2, 7, 4}}
	for round := range 2 {
		_, found := s.First(a, func(int) bool { return true })
		require.False(t, found, "round %d", round)
		s.Add(a, 1)
		s.Add(b, 2)
		s.Add(a, 3)
		s.Add(&Sketch{}, 4)
		of, found := s.First(a, func(int) bool { return true })
		require.True(t, found)
		require.Equal(t, 1, of)
		of, found = s.First(b, func(of int) bool { return of > 1 })
		require.True(t, found)
		require.Equal(t, 2, of)
		_, found = s.First(b, func(int) bool { return false })
		require.False(t, found)
		_, found = s.First(&Sketch{}, func(int) bool { return true })
		require.False(t, found, "a short text repeats nothing")
		s.Clear()
	}
	require.Equal(t, SketchOf(refund), SketchOf(refund))
	require.Equal(t, uint64(0x14edc521bdbcda3c), SketchOf(refund).parts[0])
}

// SketchOf many texts with one header each is compared with a bounded number.
func TestSeenIsBounded(t *testing.T) {
	var s Seen[int]
	a := &Sketch{parts: [4]uint64{1, 2, 3, 4}}
	for i := range 1000 {
		s.Add(a, i)
	}
	compared := 0
	_, found := s.First(a, func(int) bool { compared++; return false })
	require.False(t, found)
	require.Equal(t, mostCompared, compared)
}

// What Seen finds is what a map of the parts finds, through rounds, growth and parts that share a place.
func TestSeenIsAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var seen Seen[int]
		for range rapid.IntRange(1, 4).Draw(t, "rounds") {
			at, links := map[uint64][]int{}, []int{}
			for of := range rapid.IntRange(0, 400).Draw(t, "texts") {
				var sketch Sketch
				for k := range sketch.parts { // few places, so that they meet
					sketch.parts[k] = rapid.Uint64Range(0, 60).Draw(t, "part") * 128 % 1000
				}
				modulo := rapid.IntRange(1, 5).Draw(t, "same")
				same := func(o int) bool { return o%modulo == of%modulo }
				first, left := len(links), mostCompared
				for _, p := range sketch.parts {
					for i := len(at[p]) - 1; i >= 0 && left > 0 && p != 0; i-- {
						if at[p][i] >= first {
							continue
						}
						if left--; same(links[at[p][i]]) {
							first = at[p][i]
						}
					}
				}
				got, found := seen.First(&sketch, same)
				require.Equal(t, first < len(links), found)
				if found {
					require.Equal(t, links[first], got)
				}
				seen.Add(&sketch, of)
				for _, p := range sketch.parts {
					if p != 0 {
						at[p], links = append(at[p], len(links)), append(links, of)
					}
				}
			}
			seen.Clear()
		}
	})
}
