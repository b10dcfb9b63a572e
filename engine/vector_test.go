package engine

import (
	"testing"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/stretchr/testify/require"
)

func FuzzVectorRow(f *testing.F) {
	f.Add(encodeVector("m", []float32{1, 2}))
	f.Add([]byte{1, 255, 255, 255})
	f.Fuzz(func(t *testing.T, b []byte) {
		model, v, err := decodeVector(b)
		if err != nil {
			require.ErrorIs(t, err, codec.ErrMalformed)
			return
		}
		require.Equal(t, v, func() []float32 {
			_, again, err := decodeVector(encodeVector(model, v))
			require.NoError(t, err)
			return again
		}())
	})
}
