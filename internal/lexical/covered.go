package lexical

import (
	"iter"
	"slices"
)

// Covered returns the share of the terms of a question, from Analyzer.Terms, that texts have, in this or in an irregular
// form. It reads texts until all are found, and within bytes at most. A text may come with the Hit.Has of its page, for the
// terms that were searched for, if all texts of the page are read to their ends; then it is read only where that leaves open
// whether it has a term.
func (a *Analyzer) Covered(terms, searched []string, texts iter.Seq2[string, uint32], within int) float64 {
	if len(terms) == 0 {
		return 0
	}
	open := newOpenTerms(terms, searched)
	for text, has := range texts {
		if len(open.terms) == 0 || within <= 0 {
			break
		}
		text = text[:min(len(text), within)]
		within -= len(text)
		if has == 0 || !open.settle(has) {
			s := a.scanFor(text, open.initials())
			open.found(s.terms)
			a.release(s)
		}
	}
	return float64(len(terms)-len(open.terms)) / float64(len(terms))
}

// openTerms are the terms of a question that no text has had yet.
type openTerms struct {
	terms []openTerm
	forms map[string][]string // a term or a form of it → the terms that it stands for; nil: no text was read yet
}

type openTerm struct {
	term   string
	bit    uint32 // in Hit.Has; 0: no page has it
	formed bool   // it has irregular forms
}

func newOpenTerms(terms, searched []string) *openTerms {
	o := &openTerms{terms: make([]openTerm, len(terms))}
	for i, t := range terms {
		o.terms[i] = openTerm{term: t, formed: formsOf(t) != nil}
		if at, ok := slices.BinarySearch(searched, t); ok {
			o.terms[i].bit = bitOf(at)
		}
	}
	return o
}

// settle takes the terms that a page has. false: its texts may have others.
func (o *openTerms) settle(has uint32) bool {
	settled, last := true, bitOf(31)
	o.terms = slices.DeleteFunc(o.terms, func(t openTerm) bool {
		there := has&t.bit != 0
		if there && t.bit != last {
			return true
		}
		settled = settled && !there && !t.formed
		return false
	})
	return settled
}

// found takes the terms of a text.
func (o *openTerms) found(text []TermCount) {
	if o.forms == nil {
		o.forms = make(map[string][]string, len(o.terms))
		for _, t := range o.terms {
			for _, f := range append([]string{t.term}, formsOf(t.term)...) {
				o.forms[f] = append(o.forms[f], t.term)
			}
		}
	}
	for i := range text {
		for _, t := range o.forms[text[i].Term] {
			o.terms = slices.DeleteFunc(o.terms, func(open openTerm) bool { return open.term == t })
		}
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
func (o *openTerms) initials() uint32 {
	all := uint32(1 << 31)
	for _, t := range o.terms {
		all |= initial(t.term)
		for _, f := range formsOf(t.term) {
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
