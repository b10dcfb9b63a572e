package token

import (
	"math/rand"
	"testing"

	"github.com/stretchr/testify/require"
)

// plain agrees with the split of both encodings wherever it answers.
func TestPlainIsThePiece(t *testing.T) {
	r := rand.New(rand.NewSource(3))
	runes := []rune("abAB zZ'_-. 0129\n\r\t,(é٣漢\u0301\u00a0's")
	answered, keys := 0, map[uint64]string{}
	for range 200_000 {
		text := make([]rune, 1+r.Intn(8))
		for i := range text {
			text[i] = runes[r.Intn(len(runes))]
		}
		end, key := plain(string(text))
		if end == 0 {
			continue
		}
		answered++
		require.Equal(t, nextO200k(string(text)), end, "%q", string(text))
		require.Equal(t, nextCL100k(string(text)), end, "%q", string(text))
		if piece := string(text)[:end]; key != 0 {
			if keys[key] == "" {
				keys[key] = piece
			}
			require.Equal(t, keys[key], piece, "two pieces of one key")
		}
	}
	require.Greater(t, answered, 50_000)
}
