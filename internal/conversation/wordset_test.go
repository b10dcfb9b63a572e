package conversation

import (
	"encoding/binary"
	"math"
	"slices"
	"testing"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// wordSets are what session.TokenSet may give, with neighbours and both ends of the range.
var wordSets = rapid.Custom(func(t *rapid.T) []uint64 {
	one := rapid.OneOf(rapid.Uint64Max(math.MaxUint32), rapid.Uint64Max(100), rapid.Uint64Range(math.MaxUint32-20, math.MaxUint32))
	out := rapid.SliceOfN(one, 0, 300).Draw(t, "words")
	slices.Sort(out)
	return slices.Compact(out)
})

// Words are read back as they were, from one form alone: what is cut, or has a bit more, is refused.
func TestWordSets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		words := wordSets.Filter(func(w []uint64) bool { return len(w) > 0 }).Draw(t, "set")
		b := packWords(nil, words)
		require.LessOrEqual(t, len(b), 3+4*len(words)+len(words)/4)
		d := codec.Decoder{B: b}
		require.Equal(t, words, readWords(&d))
		require.NoError(t, d.Err)

		cut := codec.Decoder{B: b[:rapid.IntRange(0, len(b)-1).Draw(t, "cut")]}
		readWords(&cut)
		require.Error(t, cut.Err)
		more := codec.Decoder{B: append(slices.Clone(b), 0)}
		readWords(&more)
		require.Error(t, more.Err)

		flipped := slices.Clone(b)
		flipped[rapid.IntRange(0, len(b)-1).Draw(t, "byte")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		other := codec.Decoder{B: flipped}
		if got := readWords(&other); other.Err == nil {
			require.NotEqual(t, words, got)
			require.True(t, slices.IsSorted(got))
			require.Equal(t, flipped, packWords(nil, got), "a set has one form")
		}
	})
}

// A count that is written in more bytes than it needs is another form of the same set, and refused.
func TestWordSetCountHasOneForm(t *testing.T) {
	b := packWords(nil, []uint64{0, 0xffffffeb})
	d := codec.Decoder{B: append([]byte{b[0] | 0x80, 0}, b[1:]...)}
	readWords(&d)
	require.Error(t, d.Err)
}

// A turn of twenty words takes less than half of what its hashes of 64 bits took.
func TestWordSetIsSmall(t *testing.T) {
	words := make([]uint64, 20)
	for i := range words {
		words[i] = uint64(i)*(1<<32/20) + uint64(i*i*12345)
	}
	require.Less(t, len(packWords(nil, words)), 78)
}

// FuzzWords: whatever stands in a row, reading it ends, with an error or with a set that is written back as it was.
func FuzzWords(f *testing.F) {
	f.Add(packWords(nil, []uint64{0, 1, 5, math.MaxUint32}))
	f.Add(binary.AppendUvarint(nil, math.MaxUint64))
	f.Fuzz(func(t *testing.T, b []byte) {
		d := codec.Decoder{B: b}
		if words := readWords(&d); d.Err == nil {
			require.True(t, slices.IsSorted(words))
			require.Len(t, slices.Compact(slices.Clone(words)), len(words))
		}
	})
}
