package lexical

import (
	"iter"
	"slices"
)

// Covered returns the share of the terms of a question, from Analyzer.Terms, that texts have, in this or in an irregular
// form. It reads texts until all are found, and within bytes at most. A text that comes with Hit.Has, for the terms that were
// searched for, is read only if it has a term that is still missing.
func (a *Analyzer) Covered(terms, searched []string, texts iter.Seq2[string, uint32], within int) float64 {
	if len(terms) == 0 {
		return 0
	}
	open := newOpenTerms(terms, searched)
	for text, has := range texts {
		if len(open.terms) == 0 || within <= 0 {
			break
		}
		whole := len(text) <= within
		text = text[:min(len(text), within)]
		within -= len(text)
		if has == 0 || !whole || has&open.bits != 0 { // the end of a text that was cut may be another word
			s := a.scanFor(text, open.initials)
			open.found(s.terms)
			a.release(s)
		}
	}
	return float64(len(terms)-len(open.terms)) / float64(len(terms))
}

// openTerms are the terms of a question that no text has had yet.
type openTerms struct {
	terms, searched []string
	forms           map[string][]string // a term or a form of it → the terms that it stands for
	some            uint64              // a bit for the hash of each: few other words have one of them, so the map is seldom asked
	bits            uint32              // of Hit.Has
	initials        uint32
}

func newOpenTerms(terms, searched []string) *openTerms {
	o := &openTerms{terms: slices.Clone(terms), searched: searched, forms: make(map[string][]string, len(terms))}
	for _, t := range terms {
		o.forms[t] = append(o.forms[t], t)
		for _, f := range formsOf(t) {
			o.forms[f] = append(o.forms[f], t)
		}
	}
	for t := range o.forms {
		o.some |= 1 << (hash(t) % 64)
	}
	o.sum()
	return o
}

// sum computes what follows from the terms.
func (o *openTerms) sum() {
	o.bits, o.initials = 0, initials(o.terms)
	for _, t := range o.terms {
		if formsOf(t) != nil { // Has is of the terms alone
			o.bits = ^uint32(0)
		} else if at, ok := slices.BinarySearch(o.searched, t); ok { // otherwise no page has it
			o.bits |= bitOf(at)
		}
	}
}

// found takes the terms of a text.
func (o *openTerms) found(text []TermCount) {
	left := len(o.terms)
	for i := range text {
		if o.some>>(text[i].hashed()%64)&1 == 0 {
			continue
		}
		for _, t := range o.forms[text[i].Term] {
			o.terms = slices.DeleteFunc(o.terms, func(open string) bool { return open == t })
		}
	}
	if len(o.terms) < left {
		o.sum()
	}
}

// scanFor is scan for one who looks for terms with some initials alone: of most other words of a–z the stem is not looked up. A
// stem begins as its word does.
func (a *Analyzer) scanFor(text string, initials uint32) *scanner {
	s := a.borrow()
	s.initials, s.looked = initials, 0
	if s.text(text); s.length == 0 { // nothing but stop words, or no word was looked up that is none
		a.release(s)
		return a.scan(text)
	}
	s.initials = 0
	return s
}

// initials has a bit for the first letter of each term and of its forms, and one more, so that it is never 0.
func initials(terms []string) uint32 {
	all := uint32(1 << 31)
	for _, t := range terms {
		all |= initial(t)
		for _, f := range formsOf(t) {
			all |= initial(f)
		}
	}
	return all
}

func initial(term string) uint32 {
	if c := term[0] - 'a'; c < 26 {
		return 1 << c
	}
	return 0 // no word of a–z has it
}

// looksUp reports whether the stem of a word of a–z is needed: it has one of the initials, or it is one of the first, which show
// whether a text has anything but stop words.
func (s *scanner) looksUp(first byte) bool {
	if s.initials == 0 || s.initials>>(first-'a')&1 == 1 {
		return true
	}
	s.looked++
	return s.looked <= 4
}
