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
		s := a.scan(text)
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
