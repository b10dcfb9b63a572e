package lexical

import (
	"cmp"
	"slices"
	"strings"
)

// A question for the order of events, or for a summary, is answered by turns from all over a conversation. The best by score are
// turns of a few passages, because neighbours lend to each other. So with Weights.Spread the score of a turn is divided by
//
//	1 + .1·n
//
// where n is the number of turns with a higher score among the eight before and the eight after it in its conversation. Only eight
// of them count: a passage that is all about the question loses less than half.
const (
	passage    = 8
	passageAdd = .1
)

// coursewords make a question one for a summary or an order, wherever they stand.
var coursewords = []string{
	"summary", "summarize", "summarise", "overview", "recap", "timeline", "chronology", "chronological", "chronologically",
}

// Course reports whether a question asks for an order of events or a summary.
func Course(question string) bool {
	words := strings.FieldsFunc(question, func(r rune) bool { return !inPhrase(r) })
	is := func(i int, any ...string) bool {
		return i >= 0 && i < len(words) && slices.ContainsFunc(any, func(w string) bool { return strings.EqualFold(w, words[i]) })
	}
	for i := range words {
		if is(i, coursewords...) {
			return true
		}
		if is(i, "order") && (is(i-1, "what", "which") || is(i-1, "in") && !is(i+1, "to", "that") || is(i+1, "in") && is(i+2, "which", "what")) {
			return true
		}
	}
	return false
}

// spread divides the scores of turns beside better ones.
func (w *work) spread() {
	type seat struct {
		group   uint64
		pos, at int
	}
	hits := w.best.hits
	seats := make([]seat, 0, len(hits))
	for i := range hits {
		if h := &hits[i]; w.x.cols.shape[cmp.Or(h.Via, h.Num)-w.x.cols.base].turn() {
			if group, pos := w.corpus.Group(h.Num); group != 0 {
				seats = append(seats, seat{group, pos, i})
			}
		}
	}
	slices.SortFunc(seats, func(a, b seat) int { return cmp.Or(cmp.Compare(a.group, b.group), a.pos-b.pos) })
	beside := make([]int, len(hits)) // better turns
	for i, a := range seats {
		for _, b := range seats[i+1:] {
			if b.group != a.group || b.pos > a.pos+passage {
				break
			}
			if worse(&hits[a.at], &hits[b.at]) {
				beside[a.at]++
			} else {
				beside[b.at]++
			}
		}
	}
	for i, n := range beside {
		if n > 0 {
			hits[i].divide(1 + float64(passageAdd*float64(min(n, passage))))
		}
	}
}
