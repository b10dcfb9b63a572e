package engine

import (
	"math"
	"testing"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/stretchr/testify/require"
)

// TestVectorRowIsFinite: a row with a number that is none, or is infinite, is malformed wherever it stands.
func TestVectorRowIsFinite(t *testing.T) {
	for _, f := range []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)), math.Float32frombits(1<<31 | 0x7f800001)} {
		for i := range 9 {
			v := make([]float32, 9)
			_, _, err := decodeVector(encodeVector("m", v))
			require.NoError(t, err, "control")
			v[i], v[8-i] = -math.MaxFloat32, f
			_, _, err = decodeVector(encodeVector("m", v))
			require.ErrorIs(t, err, codec.ErrMalformed)
		}
	}
}

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
