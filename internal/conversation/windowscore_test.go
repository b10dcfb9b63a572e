package conversation

import (
	"math"
	"math/big"
	"testing"

	"github.com/ctxpage/ctxpage/session"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// exactLn is ln x with 300 bits: ln x = 2 atanh((x-1)/(x+1)) after halving.
func exactLn(x float64) float64 {
	const prec = 300
	f := func(v float64) *big.Float { return new(big.Float).SetPrec(prec).SetFloat64(v) }
	atanh2 := func(y *big.Float) *big.Float { // 2 atanh((y-1)/(y+1))
		s := new(big.Float).SetPrec(prec).Quo(f(0).Sub(y, f(1)), f(0).Add(y, f(1)))
		z, sum, term := f(0).Mul(s, s), f(0), f(0).Set(s)
		for k := 1.0; k < 280; k += 2 {
			sum.Add(sum, f(0).Quo(term, f(k)))
			term.Mul(term, z)
		}
		return sum.Mul(sum, f(2))
	}
	m, e := math.Frexp(x)
	r := f(0).Mul(atanh2(f(2)), f(float64(e)))
	out, _ := r.Add(r, atanh2(f(m))).Float64()
	return out
}

func TestLnIsCorrectlyRounded(t *testing.T) {
	require.Equal(t, 0.0, Ln(1))
	rapid.Check(t, func(t *rapid.T) {
		x := rapid.OneOf(
			rapid.Map(rapid.IntRange(1, 2_000_001), func(i int) float64 { return float64(i) }),
			rapid.Float64Range(0.5, 2), rapid.Float64Range(1e-300, math.MaxFloat64),
		).Draw(t, "x")
		require.Equal(t, exactLn(x), Ln(x))
	})
	differs := 0
	for i := 2.0; i < 3000; i++ {
		if math.Log(i) != Ln(i) {
			differs++
		}
	}
	t.Logf("math.Log differs for %d of 3,000 on this platform", differs)
}

func TestScoreIsNotFused(t *testing.T) {
	// With a fused multiply-add the last bit of the sum would be another.
	a, s, b, r := 0.7, 1.0/3, 0.3, 0.41906169866 // an arbitrary pair for which it matters
	for i := 0; i < 1000; i++ {
		r = math.Nextafter(r, 1)
		p, q := a*s, b*r
		require.Equal(t, p+q, Score(a, b, s, r))
	}
}

func TestClassifyComparesUnrounded(t *testing.T) {
	require.Equal(t, session.Retain, Classify(0.55, 0.55, 0.2))
	require.Equal(t, session.Page, Classify(math.Nextafter(0.55, 0), 0.55, 0.2))
	require.Equal(t, session.Page, Classify(0.2, 0.55, 0.2))
	require.Equal(t, session.Evict, Classify(math.Nextafter(0.2, 0), 0.55, 0.2))
	require.Equal(t, session.Retain, Classify(0.4, 0.3, 0.5), "inverted cuts retain")
	require.Equal(t, session.Page, Classify(math.NaN(), 0.55, 0.2))
}
