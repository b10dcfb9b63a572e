package token

import (
	"math/rand"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/internal/pieces"
)

// plain agrees with the split of both encodings wherever it answers.
func TestPlainIsThePiece(t *testing.T) {
	r := rand.New(rand.NewSource(3))
	runes := []rune("abAB zZ'_-. 0129\n\r\t,(é٣漢\u0301\u00a0's")
	answered := 0
	for range 200_000 {
		text := make([]rune, 1+r.Intn(8))
		for i := range text {
			text[i] = runes[r.Intn(len(runes))]
		}
		end, h := plain(string(text))
		if end == 0 {
			continue
		}
		answered++
		require.Equal(t, pieces.NextO200k(string(text)), end, "%q", string(text))
		require.Equal(t, pieces.NextCL100k(string(text)), end, "%q", string(text))
		if end > 1 {
			require.Equal(t, pieces.Hash(string(text)[:end]), h, "%q", string(text))
		}
	}
	require.Greater(t, answered, 50_000)
}
