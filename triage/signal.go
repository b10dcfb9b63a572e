package triage

import (
	"cmp"
	"math"
	"slices"
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

// rankOffset is the constant of reciprocal rank fusion (Cormack, Clarke and
// Büttcher 2009): it keeps the first ranks from deciding alone.
const rankOffset = 60

// semantic fills S of all that stays: the lexical score by the best of them, or
// the cosine, or both joined by their ranks, for their scales have nothing in
// common.
func semantic(out []Scored) {
	best, vectors := signals(out)
	if best > 0 && vectors {
		join(out)
		return
	}
	for i := range out {
		s := &out[i]
		if s.Reason != "" {
			continue
		}
		if words, ok := s.lexical(); ok {
			s.Semantic = words / best
		} else if angle, ok := s.cosine(); ok {
			s.Semantic = angle
		}
	}
}

// signals gives the best lexical score of what stays, 0 for none, and whether
// there are vectors.
func signals(out []Scored) (best float64, vectors bool) {
	for i := range out {
		s := &out[i]
		if s.Reason != "" {
			continue
		}
		if words, ok := s.lexical(); ok {
			best = max(best, words)
		}
		vectors = vectors || s.Cosine != nil
	}
	return best, vectors
}

func join(out []Scored) {
	rank(out, (*Scored).lexical, func(s *Scored, r int) { s.LexicalRank = r })
	rank(out, (*Scored).cosine, func(s *Scored, r int) { s.VectorRank = r })
	for i := range out {
		if s := &out[i]; s.Reason == "" {
			s.Semantic = (reciprocal(s.LexicalRank) + reciprocal(s.VectorRank)) / 2
		}
	}
}

func (s *Scored) lexical() (float64, bool) {
	return s.Lexical, s.Lexical > 0 && !math.IsInf(s.Lexical, 1)
}

func (s *Scored) cosine() (float64, bool) {
	if s.Cosine == nil {
		return 0, false
	}
	return Semantic(*s.Cosine), true
}

// reciprocal is 1 for the first rank and 0 for none.
func reciprocal(rank int) float64 {
	if rank == 0 {
		return 0
	}
	return (rankOffset + 1) / (rankOffset + float64(rank))
}

type ranked struct {
	page  *Scored
	value float64
}

// rank tells what stays and has a value its rank, the best first. Equal values
// share one: nobody is ahead by accident.
func rank(out []Scored, value func(*Scored) (float64, bool), set func(*Scored, int)) {
	all := make([]ranked, 0, len(out))
	for i := range out {
		if v, ok := value(&out[i]); ok && out[i].Reason == "" {
			all = append(all, ranked{&out[i], v})
		}
	}
	slices.SortFunc(all, func(a, b ranked) int { return cmp.Compare(b.value, a.value) })
	at := 0
	for i, r := range all {
		if i == 0 || all[i-1].value != r.value {
			at = i + 1
		}
		set(r.page, at)
	}
}
