package rendering

import (
	"math/rand"
	"testing"

	"github.com/stretchr/testify/require"
)

// A name of printable ASCII is folded by a short way, to what the long one gives.
func TestFoldOfPlainNames(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	for range 20_000 {
		b := make([]byte, r.Intn(12))
		for i := range b {
			b[i] = byte(' ' + r.Intn('~'-' '+1))
			if r.Intn(4) == 0 {
				b[i] = ' '
			}
		}
		require.True(t, isPlain(string(b)))
		require.Equal(t, fold(string(b)), FoldName(string(b)), "%q", b)
	}
	for _, s := range []string{"a\tb", "a\x7f", "ä", "\x00", "ſ"} {
		require.False(t, isPlain(s))
	}
	require.Equal(t, "s", FoldName("ſ"))
	require.Equal(t, "a b", FoldName("A\u00ad \tB"))
}

// The shortcuts of FoldName give what the whole way gives.
func TestFoldShortcuts(t *testing.T) {
	for _, s := range []string{"", " ", "  ", "a", " a", "a ", "a b", "a  b", "A b", "ann.lee-7", "\ta", "a\x7f", "a\u00a0b", "Ann  Lee"} {
		require.Equal(t, fold(s), FoldName(s), "%q", s)
	}
}
