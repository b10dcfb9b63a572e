package lexical

import (
	"math/bits"
	"slices"
)

// asking is what is known of a question where turns are among what it looks at. The zero value is that of a scope
// without turns.
type asking struct {
	name   []bool   // by term: it is of the name of a speaker who is named, and so no word that a turn must have
	named  []uint32 // speakers that the terms name, ascending
	spoken float64  // what a turn of theirs gets; 0: nobody is named
	dates  Dates
}

// namesakes is how many speakers of a scope one word may name. One that more of them share, as user-1 and user-2 do, is a
// word like any other.
const namesakes = 64

// understand finds who is named. Of two speakers whose names share a word the one is meant of whom more words are there:
// Anna Smith, and not Anna Jones. A question of names alone looks for these words, too.
func (c *columns) understand(scopes []uint32, total scopeStats, terms []string, dates Dates) (a asking) {
	if total.turns == 0 {
		return a
	}
	a.dates = dates
	words := map[uint32]uint64{} // speaker → bits of the terms of his name
	for _, id := range scopes {
		called := c.scopes[c.scopeAt[id]].called
		for t, term := range terms[:min(len(terms), 64)] {
			if who := called[term]; len(who) <= namesakes {
				for _, n := range who {
					words[n] |= 1 << t
				}
			}
		}
	}
	all, turns := uint64(0), uint64(0)
	for n, w := range words {
		if !lessNamed(words, w) {
			a.named, all = append(a.named, n), all|w
			turns += c.speakers[n].turns
		}
	}
	if len(a.named) == 0 {
		return a
	}
	slices.Sort(a.named)
	a.spoken = spokenBase + float64(spokenRare*ln(float64(total.turns)/float64(turns)))
	if bits.OnesCount64(all) < len(terms) {
		a.name = make([]bool, len(terms))
		for t := range min(len(terms), 64) {
			a.name[t] = all>>t&1 == 1
		}
	}
	return a
}

// lessNamed says whether more of somebody else's name is there, these words among it.
func lessNamed(words map[uint32]uint64, w uint64) bool {
	for _, o := range words {
		if o != w && o&w == w {
			return true
		}
	}
	return false
}

// isName says whether a term is of the name of a speaker who is named.
func (a *asking) isName(t int) bool { return t < len(a.name) && a.name[t] }

// alsoForms gives the terms, and behind them the forms of which they do not tell; of gives the term of each of those.
func (a *asking) alsoForms(terms []string) (all []string, of []int) {
	all = terms
	for t, term := range terms {
		if a.isName(t) {
			continue
		}
		for _, f := range formsOf(term) {
			if !slices.Contains(terms, f) {
				all, of = append(all[:len(all):len(all)], f), append(of, t)
			}
		}
	}
	return all, of
}
