package codec

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestReadRefusesRuns: runs are of the numbers of their block and have some.
func TestReadRefusesRuns(t *testing.T) {
	for _, b := range [][]byte{{0xc0}, {0xc0, 4}, {0xc0, 0, 2}, {0xc0, 5, 2}, {0xc0, 3, 2, 2, 2}} {
		_, ok := readBlock(b, make([]uint64, 4))
		require.False(t, ok, "%x", b)
	}
	v := make([]uint64, 4)
	_, ok := readBlock([]byte{0xc0, 3, 2, 1, 1}, v)
	require.True(t, ok, "the control")
	require.Equal(t, []uint64{1, 1, 1, 0}, v)
}

// TestReadRefusesWidths: no block has another width.
func TestReadRefusesWidths(t *testing.T) {
	for w := range 128 {
		b := make([]byte, 9+8*64)
		b[0] = byte(w)
		_, ok := readBlock(b, make([]uint64, 4))
		require.Equal(t, w == 0 || w == 1 || w == 2 || w == 4 || w == 8, ok, w)
	}
}
