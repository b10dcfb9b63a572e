package triage

import (
	"math"
	"time"
)

// HalfLife is the age at which recency has fallen to one half.
const HalfLife = 7 * 24 * time.Hour

// Recency is 2^(−age/halfLife), between 0 and 1. A page from the future counts
// as new; a half-life that is not positive means HalfLife.
func Recency(age, halfLife time.Duration) float64 {
	if halfLife <= 0 {
		halfLife = HalfLife
	}
	whole, rest := max(age, 0)/halfLife, max(age, 0)%halfLife
	return math.Ldexp(power(float64(rest)/float64(halfLife)), -int(min(whole, 2000)))
}

// power is 2^−x for 0 ≤ x < 1 by the series of exp, in plain arithmetic:
// math.Exp2 is assembly on some machines, and an order must not depend on them.
func power(x float64) float64 {
	y := float64(-x * math.Ln2)
	sum := 1.0
	for k := len(inverse) - 1; k > 0; k-- {
		sum = 1 + float64(float64(sum*y)*inverse[k])
	}
	return sum
}

// inverse is 1/k: dividing takes three times as long.
var inverse = func() (of [19]float64) {
	for k := 1; k < len(of); k++ {
		of[k] = 1 / float64(k)
	}
	return of
}()

// Semantic maps a cosine to 0..1. A cosine that is not a number counts as −1.
func Semantic(cosine float64) float64 {
	if math.IsNaN(cosine) {
		return 0
	}
	return (1 + min(max(cosine, -1), 1)) / 2
}

// meaning is the share of S that vectors have where there are words, too. On conversations (bench/README.md) .2 to .3 found
// the most. Words carry the recipe of turns, which no vector knows; vectors find what is said in other words.
const meaning = .3

// semantic fills S of all that stays: the lexical score as a share of the best, or the cosine, or both joined.
//
// Rejected: reciprocal rank fusion. It forgets by how much a page is ahead: with equal shares it lost a tenth of the
// evidence that the words alone find at 512 tokens, and with its best constants found less than the weighted sum.
func semantic(out []Scored) {
	best, nearest, vectors := signals(out)
	for i := range out {
		s := &out[i]
		if s.Reason != "" {
			continue
		}
		words, found := s.lexical()
		if found {
			s.Words = words / best
		}
		switch {
		case best > 0 && vectors:
			s.Semantic = min(1, float64((1-meaning)*s.Words)+float64(meaning*s.nearness(nearest))+float64(meaning*s.apart(best)))
		case found:
			s.Semantic = s.Words
		case s.Cosine != nil:
			s.Semantic = Semantic(*s.Cosine)
		}
	}
}

// apart is the share of the best score by words that does not depend on the question. Meaning takes no share of it: a standing
// instruction applies even if the question is about something else.
func (s *Scored) apart(best float64) float64 {
	if s.Apart > 0 {
		return min(s.Apart/best, 1)
	}
	return 0
}

// signals returns the best lexical score and the greatest cosine of what stays, 0 for none, and whether there are vectors.
func signals(out []Scored) (best, nearest float64, vectors bool) {
	for i := range out {
		s := &out[i]
		if s.Reason != "" {
			continue
		}
		if words, ok := s.lexical(); ok {
			best = max(best, words)
		}
		vectors = vectors || s.Cosine != nil
		nearest = max(nearest, s.angle())
	}
	return best, nearest, vectors
}

// nearness is 1 for the page with the greatest cosine and 0 for one that points elsewhere. The exponent of 5/2 keeps the
// many that are somewhat near from adding up to those that say it.
func (s *Scored) nearness(nearest float64) float64 {
	if nearest <= 0 {
		return 0
	}
	share := s.angle() / nearest
	return share * share * math.Sqrt(share) / max(1, s.Long)
}

// angle is the cosine of a page or what its neighbours lend it, 0 to 1.
func (s *Scored) angle() float64 {
	angle := 0.0
	if s.Cosine != nil && *s.Cosine > 0 { // NaN is not
		angle = *s.Cosine
	}
	if s.Beside > angle {
		angle = s.Beside
	}
	return min(angle, 1)
}

// Relevance returns S of each candidate, in their order, without a preset: 0 to 1, and 0 for those
// that are excluded.
func Relevance(cs []Candidate) []float64 {
	var r Ranker
	r.screen(Preset{}, cs)
	semantic(r.scored)
	out := make([]float64, len(cs))
	for i := range out {
		out[i] = r.scored[i].Semantic
	}
	return out
}

// lexical returns the score by words; false: none was found. One that is not finite counts as none.
func (s *Scored) lexical() (float64, bool) {
	if s.Lexical > 0 && !math.IsInf(s.Lexical, 1) {
		return s.Lexical, true
	}
	return 0, false
}

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
