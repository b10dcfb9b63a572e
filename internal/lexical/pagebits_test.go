package lexical

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestPageBits(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		base := rapid.SampledFrom([]uint64{0, 1, 63, 1 << 40}).Draw(t, "base")
		pages := map[uint64]struct{}{}
		for _, d := range rapid.SliceOf(rapid.Uint64Range(0, 300)).Draw(t, "pages") {
			pages[base+d] = struct{}{}
		}
		b := newPageBits(pages)
		for num := base - min(base, 70); num < base+400; num++ {
			_, want := pages[num]
			require.Equal(t, want, b.has(num), "%d", num)
		}
		require.False(t, b.has(1<<63))
	})
}
