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
	for k := 18; k > 0; k-- {
		sum = 1 + float64(sum*y)/float64(k)
	}
	return sum
}

// Semantic maps a cosine to 0..1. A cosine that is no number counts as opposite.
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
	words := ranks(out, (*Scored).lexical, func(s *Scored, r int) { s.LexicalRank = r })
	vectors := ranks(out, (*Scored).cosine, func(s *Scored, r int) { s.VectorRank = r })
	for i := range out {
		s := &out[i]
		switch {
		case s.Reason != "":
		case len(words) > 0 && len(vectors) > 0:
			s.Semantic = (reciprocal(s.LexicalRank) + reciprocal(s.VectorRank)) / 2
		case s.LexicalRank > 0:
			s.Semantic = s.Lexical / words[0].value
		case s.VectorRank > 0:
			s.Semantic = Semantic(*s.Cosine)
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

// ranks orders what stays and has a value, best first, and tells each its rank.
// Equal values share one: nobody is ahead by accident.
func ranks(out []Scored, value func(*Scored) (float64, bool), set func(*Scored, int)) []ranked {
	all := make([]ranked, 0, len(out))
	for i := range out {
		if v, ok := value(&out[i]); ok && out[i].Reason == "" {
			all = append(all, ranked{&out[i], v})
		}
	}
	slices.SortFunc(all, func(a, b ranked) int { return cmp.Compare(b.value, a.value) })
	rank := 0
	for i, r := range all {
		if i == 0 || all[i-1].value != r.value {
			rank = i + 1
		}
		set(r.page, rank)
	}
	return all
}
