package lexical

import "iter"

// Covered returns the share of the terms of a question, from Analyzer.Terms, that texts have, in this or in an irregular
// form. It reads texts until all are found, and within bytes at most.
func (a *Analyzer) Covered(terms []string, texts iter.Seq[string], within int) float64 {
	if len(terms) == 0 {
		return 0
	}
	missing := make(map[string][]string, len(terms)) // a term or a form of it → the terms that it stands for
	open := make(map[string]bool, len(terms))
	for _, t := range terms {
		open[t] = true
		missing[t] = append(missing[t], t)
		for _, f := range formsOf(t) {
			missing[f] = append(missing[f], t)
		}
	}
	some := uint64(0) // a bit for the hash of each: few other words have one of them, so the map is seldom asked
	for t := range missing {
		some |= 1 << (hash(t) % 64)
	}
	for text := range texts {
		if len(open) == 0 || within <= 0 {
			break
		}
		text = text[:min(len(text), within)]
		within -= len(text)
		s := a.scanFor(text, initials(open))
		for i := range s.terms {
			if some>>(s.terms[i].hashed()%64)&1 == 0 {
				continue
			}
			for _, t := range missing[s.terms[i].Term] {
				delete(open, t)
			}
		}
		a.release(s)
	}
	return float64(len(terms)-len(open)) / float64(len(terms))
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
func initials(terms map[string]bool) uint32 {
	all := uint32(1 << 31)
	for t := range terms {
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
