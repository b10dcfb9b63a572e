package triage

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestCosine(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, c := range []struct {
		a, b []float32
		want float64
	}{
		{[]float32{1, 0}, []float32{1, 0}, 1}, {[]float32{1, 0}, []float32{0, 1}, 0}, {[]float32{1, 0}, []float32{-2, 0}, -1},
		{[]float32{1, 1}, []float32{1, 0}, math.Sqrt2 / 2}, {[]float32{3, 4, 0, 0, 5}, []float32{3, 4, 0, 0, 5}, 1},
		{nil, nil, 0}, {[]float32{0, 0}, []float32{1, 0}, 0}, {[]float32{1}, []float32{1, 0}, 0},
		{[]float32{nan}, []float32{1}, 0}, {[]float32{inf}, []float32{1}, 0}, {[]float32{inf, 1}, []float32{inf, 1}, 0},
		{[]float32{math.MaxFloat32, math.MaxFloat32}, []float32{math.MaxFloat32, 0}, math.Sqrt2 / 2},
		{[]float32{math.SmallestNonzeroFloat32}, []float32{math.SmallestNonzeroFloat32}, 1},
	} {
		require.InDelta(t, c.want, Cosine(c.a, c.b), 1e-15, "%v %v", c.a, c.b)
	}
}

func TestCosineProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 67).Draw(t, "n")
		vec := rapid.SliceOfN(rapid.Float32Range(-100, 100), n, n)
		a, b := vec.Draw(t, "a"), vec.Draw(t, "b")
		c := Cosine(a, b)
		require.Equal(t, c, Cosine(b, a))
		require.LessOrEqual(t, math.Abs(c), 1.)
		var ab, aa, bb float64
		for i := range a {
			ab += float64(a[i]) * float64(b[i])
			aa += float64(a[i]) * float64(a[i])
			bb += float64(b[i]) * float64(b[i])
		}
		if aa > 1e-20 && bb > 1e-20 {
			require.InDelta(t, ab/math.Sqrt(aa*bb), c, 1e-9)
		}
	})
}
