package conversation

import (
	"math"
	"sync/atomic"

	"github.com/ctxpage/ctxpage/session"
)

// Recency is 1 / (1 + ln(1+delta)), given lnDelta = ln(1+delta).
func Recency(lnDelta float64) float64 { return 1 / (1 + lnDelta) }

// Score is alpha*similarity + beta*recency, each operation rounded on its own:
// the conversions forbid the compiler a fused multiply-add, which would change
// the last bit on some processors.
func Score(alpha, beta, similarity, recency float64) float64 {
	return float64(alpha*similarity) + float64(beta*recency)
}

// Classify compares the unrounded score with the cuts. Retain is tested first,
// so inverted cuts retain; a NaN score is neither and pages.
func Classify(score, retainCut, evictCut float64) session.Action {
	switch {
	case score >= retainCut:
		return session.Retain
	case score < evictCut:
		return session.Evict
	}
	return session.Page
}

// Ln is the natural logarithm of a positive finite x, correctly rounded, the
// same on every platform. math.Log is assembly on some and differs in the last
// bit from the C library for about one integer in a hundred, which moves a
// score off a cut it should sit on. The series is summed in pairs of floats
// (about 106 bits); against glibc it differs for 54 of the first 2,000,000
// integers, and each time the rounding of glibc is wrong.
func Ln(x float64) float64 {
	f, e := math.Frexp(x)
	if f < math.Sqrt2/2 {
		f, e = f*2, e-1
	}
	s := quotient(f-1, twoSum(f, 1)) // atanh argument; f−1 is exact here
	z := s.times(s)
	sum := lnTail(z.hi)
	for k := lnPaired - 1; k >= 0; k-- {
		sum = lnCoef[k].plusSmaller(z.times(sum))
	}
	r := s.times(sum)
	return pair{2 * r.hi, 2 * r.lo}.plus(ln2.times(pair{float64(e), 0})).hi
}

// pair is hi+lo with |lo| at most half a unit in the last place of hi.
type pair struct{ hi, lo float64 }

const (
	lnPaired = 10 // terms of the series that need both halves
	lnTerms  = 21
)

var (
	ln2    = pair{0x1.62e42fefa39efp-1, 0x1.abc9e3b39803fp-56}
	lnCoef = lnCoefficients()
)

// lnCoefficients returns 1/(2k+1) for the terms of atanh.
func lnCoefficients() (c [lnTerms]pair) {
	for k := range c {
		c[k] = quotient(1, pair{float64(2*k + 1), 0})
	}
	return c
}

// lnTail sums the terms from lnPaired on; they are below 2^-55 of the whole, so
// one float is enough.
func lnTail(z float64) pair {
	t := 0.0
	for k := lnTerms - 1; k >= lnPaired; k-- {
		t = math.FMA(t, z, lnCoef[k].hi)
	}
	return pair{t, 0}
}

func twoSum(a, b float64) pair {
	s := a + b
	t := s - a
	return pair{s, (a - (s - t)) + (b - t)}
}

func (p pair) plus(q pair) pair {
	s := twoSum(p.hi, q.hi)
	t := twoSum(p.lo, q.lo)
	s = twoSum(s.hi, s.lo+t.hi)
	return twoSum(s.hi, s.lo+t.lo)
}

// plusSmaller adds a smaller pair of the same sign.
func (p pair) plusSmaller(q pair) pair {
	s := orderedSum(p.hi, q.hi)
	return orderedSum(s.hi, s.lo+(p.lo+q.lo))
}

// orderedSum is twoSum for |a| ≥ |b|.
func orderedSum(a, b float64) pair {
	s := a + b
	return pair{s, b - (s - a)}
}

func (p pair) times(q pair) pair {
	hi := float64(p.hi * q.hi)
	lo := math.FMA(p.hi, q.hi, -hi)
	lo += float64(p.hi*q.lo) + float64(p.lo*q.hi)
	return orderedSum(hi, lo)
}

// quotient divides a float by a pair.
func quotient(a float64, d pair) pair {
	q := a / d.hi
	r := math.FMA(-q, d.hi, a) - float64(q*d.lo)
	return twoSum(q, r/d.hi)
}

// recencies remembers what recencyOf computed, as bits; 0: not yet. It takes the
// logarithms, a third of a pass, out of all passes but the first.
var recencies [1 << 14]atomic.Uint64

// recencyOf is Recency at a distance of delta turns behind the head.
func recencyOf(delta int64) float64 {
	if uint64(delta) >= uint64(len(recencies)) {
		return Recency(Ln(1 + float64(delta)))
	}
	known := &recencies[delta]
	bits := known.Load()
	if bits == 0 {
		bits = math.Float64bits(Recency(Ln(1 + float64(delta))))
		known.Store(bits)
	}
	return math.Float64frombits(bits)
}
