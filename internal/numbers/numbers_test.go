package numbers_test

import (
	"math"
	"testing"

	"github.com/ctxpage/ctxpage/internal/numbers"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestBlocks: what is read is what was written, for numbers that are alike, that rise by like steps, and that are neither.
func TestBlocks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		span := rapid.SampledFrom([]uint64{0, 1, 200, 60_000, 1 << 30, math.MaxUint64}).Draw(t, "span")
		least, step := rapid.Uint64().Draw(t, "least"), rapid.Uint64().Draw(t, "step")
		want := rapid.SliceOfN(rapid.Uint64Range(0, span), 0, 2*numbers.Rows+3).Draw(t, "numbers")
		for i := range want {
			want[i] += least + step*uint64(i)
		}
		b := numbers.AppendAll(nil, len(want), func(i int) uint64 { return want[i] })
		have := make([]uint64, len(want))
		var buf numbers.Buffer
		rest, ok := buf.ReadAll(append(b, 7), len(want), func(from int, v []uint64) { copy(have[from:], v) })
		require.True(t, ok)
		require.Equal(t, []byte{7}, rest)
		require.Equal(t, want, have)
		for cut := range min(len(b), 40) { // a block that was cut is none
			_, ok := buf.ReadAll(b[:cut], len(want), func(int, []uint64) {})
			require.False(t, ok, cut)
		}
	})
}

// TestBlocksAreSmall: numbers that rise by one take a few bytes a block, whatever they are.
func TestBlocksAreSmall(t *testing.T) {
	b := numbers.AppendAll(nil, numbers.Rows, func(i int) uint64 { return math.MaxUint64 - 5 + uint64(i) })
	require.Len(t, b, 17)
}

// TestReadRefusesWidths: no block has another width.
func TestReadRefusesWidths(t *testing.T) {
	for w := range 128 {
		b := make([]byte, 9+8*64)
		b[0] = byte(w)
		_, ok := numbers.Read(b, make([]uint64, 4))
		require.Equal(t, w == 0 || w == 1 || w == 2 || w == 4 || w == 8, ok, w)
	}
}
