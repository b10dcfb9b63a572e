package codec_test

import (
	"math"
	"testing"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestBlocks: what is read is what was written, for numbers that are alike, that rise by like steps, and that are neither.
func TestBlocks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		span := rapid.SampledFrom([]uint64{0, 1, 200, 60_000, 1 << 30, math.MaxUint64}).Draw(t, "span")
		least, step := rapid.Uint64().Draw(t, "least"), rapid.Uint64().Draw(t, "step")
		want := rapid.SliceOfN(rapid.Uint64Range(0, span), 0, 2*codec.ColumnRows+3).Draw(t, "numbers")
		for i := range want {
			want[i] += least + step*uint64(i)
		}
		for i, run := 0, rapid.IntRange(1, 3*codec.ColumnRows).Draw(t, "run"); i < len(want); i++ {
			want[i] = want[i-i%run]
		}
		b := codec.AppendColumn(nil, len(want), func(i int) uint64 { return want[i] })
		have := make([]uint64, len(want))
		var buf codec.ColumnBuffer
		rest, ok := buf.ReadColumn(append(b, 7), len(want), func(from int, v []uint64) { copy(have[from:], v) })
		require.True(t, ok)
		require.Equal(t, []byte{7}, rest)
		require.Equal(t, want, have)
		for cut := range min(len(b), 40) { // a block that was cut is none
			_, ok := buf.ReadColumn(b[:cut], len(want), func(int, []uint64) {})
			require.False(t, ok, cut)
		}
	})
}

// TestBlocksAreSmall: numbers that rise by one take a few bytes a block, whatever they are.
func TestBlocksAreSmall(t *testing.T) {
	b := codec.AppendColumn(nil, codec.ColumnRows, func(i int) uint64 { return math.MaxUint64 - 5 + uint64(i) })
	require.Len(t, b, 17)
}

// TestRunsAreSmall: the commits and times of pages that were stored 500 at a time take a few bytes a block.
func TestRunsAreSmall(t *testing.T) {
	b := codec.AppendColumn(nil, codec.ColumnRows, func(i int) uint64 { return 1<<50 + uint64(i/500)*40_000 })
	require.Less(t, len(b), 30)
}

// TestSparse: what is read is what was written, also zeros; what was cut, or has bits behind its end, is refused.
func TestSparse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.SampledFrom([]uint32{0, 1, 200, 1 << 17, math.MaxUint32}).Draw(t, "most")
		want := rapid.SliceOfN(rapid.OneOf(rapid.Just(uint32(0)), rapid.Uint32Range(0, most)), 0, 300).Draw(t, "numbers")
		b := codec.AppendSparse(nil, want)
		have := make([]uint32, len(want))
		require.True(t, codec.ReadSparse(b, have))
		require.Equal(t, want, have)
		for cut := range b {
			require.False(t, codec.ReadSparse(b[:cut], make([]uint32, len(want))), cut)
		}
		require.False(t, codec.ReadSparse(append(b, 0), make([]uint32, len(want))))
	})
	require.False(t, codec.ReadSparse([]byte{0x80, 1, 1}, make([]uint32, 7)), "a bit behind the last number")
	require.False(t, codec.ReadSparse([]byte{1, 33, 1, 1, 1, 1, 1}, make([]uint32, 1)), "a width of 33")
}
