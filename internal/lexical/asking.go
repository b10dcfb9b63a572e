package lexical

import (
	"math/bits"
	"slices"
)

// asking is what a question says about speakers and dates, by which turns are scored. It is zero in
// a scope without turns.
type asking struct {
	name   []bool   // by term: it is part of the name of a named speaker, so a turn need not contain it
	named  []uint32 // speakers that the terms name, ascending
	spoken float64  // the score of a turn by one of them; 0: the question names no speaker
	dates  Dates
}

// namesakes is how many speakers of a scope one word may name. A word that more speakers share, as
// user-1 and user-2 do, is a word like any other.
const namesakes = 64

// understand finds the speakers that a question names. If two names share a word, the question
// means the speaker with more of the name in it: Anna Smith, and not Anna Jones. If a question has
// only names, their words are searched for as well.
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

// lessNamed reports whether the question has more words of another speaker's name, including all of
// these.
func lessNamed(words map[uint32]uint64, w uint64) bool {
	for _, o := range words {
		if o != w && o&w == w {
			return true
		}
	}
	return false
}

// isName reports whether a term is part of the name of a named speaker.
func (a *asking) isName(t int) bool { return t < len(a.name) && a.name[t] }

// alsoForms returns the terms, and behind them the forms of which they do not tell; of gives the term
// of each of those.
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
