package codec

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOrdered: numbers come back with what follows them, their bytes sort as they do, none begins another one, and a number that is cut short is none.
func TestOrdered(t *testing.T) {
	t.Parallel()
	all := []uint64{0, 1, 127, 128, 1<<14 - 1, 1 << 14, 1<<56 - 1, 1 << 56, 1<<63 - 1, 1 << 63, math.MaxUint64}
	for range 2000 {
		all = append(all, rand.Uint64()>>rand.IntN(64))
	}
	slices.Sort(all)
	all = slices.Compact(all)
	var last []byte
	for _, v := range all {
		b := AppendOrdered(nil, v)
		require.Negative(t, bytes.Compare(last, b), "%d", v)
		require.False(t, last != nil && bytes.HasPrefix(b, last), "%d", v)
		got, rest := Ordered(append(slices.Clone(b), "rest"...))
		require.Equal(t, v, got)
		require.Equal(t, "rest", string(rest))
		_, rest = Ordered(b[:len(b)-1])
		require.Nil(t, rest, "%d", v)
		last = b
	}
	require.Len(t, AppendOrdered(nil, 1<<21-1), 3)
	require.Len(t, last, 9)
}
