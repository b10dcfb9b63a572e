package triage

import "math"

// Cosine is the cosine of the angle between two vectors, −1 to 1. It is 0 for vectors of different lengths, a zero
// vector and a vector with a component that is not finite.
//
// The order of the additions is fixed and no multiplication is fused with one, so equal vectors give equal bits on
// every machine. Four sums run side by side because a single one waits for each addition.
func Cosine(a, b []float32) float64 {
	if len(a) != len(b) {
		return 0
	}
	var ab, aa, bb [4]float64
	n := len(a) &^ 3
	for i := 0; i < n; i += 4 {
		x, y := a[i:i+4:i+4], b[i:i+4:i+4]
		for j := range 4 {
			p, q := float64(x[j]), float64(y[j])
			ab[j] += float64(p * q)
			aa[j] += float64(p * p)
			bb[j] += float64(q * q)
		}
	}
	for i := n; i < len(a); i++ {
		p, q := float64(a[i]), float64(b[i])
		ab[0] += float64(p * q)
		aa[0] += float64(p * p)
		bb[0] += float64(q * q)
	}
	// The squares of float32 fit a float64, and so does the product of two roots; it is 0 or at least 1e-90.
	length := float64(math.Sqrt(fold(aa)) * math.Sqrt(fold(bb)))
	c := fold(ab) / length
	if math.IsNaN(c) || length == 0 || math.IsInf(length, 0) {
		return 0
	}
	return min(max(c, -1), 1)
}

func fold(s [4]float64) float64 { return (s[0] + s[1]) + (s[2] + s[3]) }
