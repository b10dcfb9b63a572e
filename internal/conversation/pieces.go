package conversation

import (
	"cmp"
	"math"
	"slices"

	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
)

// A unit that is too large for a context is shown in pieces: of each of its turns the pages that match the question best, or
// else its beginning and its end. Without that one large result of a tool, with its call, would be left out as a whole, and
// before that its pages would take all places of a context. The newest unit may take more than others.

// Shares of the budget, in eighths: what a unit may take whole, and what its pieces take if that is more.
const (
	newestWhole, newestPieces = 6, 3
	othersWhole, othersPieces = 4, 2
)

// reasonPart leaves out pages of a large turn.
const reasonPart = "part of a large turn, of which other parts are shown"

// cutLarge chooses the pieces of the units among o.Turns that are too large. Turns of the window that are neither newest nor
// pinned, and that the question did not find, are not cut: the window decides about them as a whole.
func (o *Offer) cutLarge(c *Turns) {
	units := map[int][]*TurnIn{}
	for i := range o.Turns {
		if t := &o.Turns[i]; t.Level == session.Raw {
			units[t.Unit] = append(units[t.Unit], t)
		}
	}
	var score map[uint64]float64
	for _, turns := range units {
		size, newest, competes := 0, false, false
		for _, t := range turns {
			size += t.Size + TurnHeader
			newest, competes = newest || t.Newest, competes || !t.Managed || t.Found || t.Pinned || t.Asks
		}
		whole, room := o.q.Room*othersWhole/8, o.q.Room*othersPieces/8
		if newest {
			whole, room = o.q.Room*newestWhole/8, o.q.Room*newestPieces/8
		}
		if size <= whole || !newest && !competes {
			continue
		}
		if score == nil {
			score = o.q.scores()
		}
		cutUnit(turns, score, room)
	}
}

// scores returns how well each page that was found matches the question.
func (q *Question) scores() map[uint64]float64 {
	out := make(map[uint64]float64, len(q.Hits))
	for i := range q.Hits {
		h := &q.Hits[i]
		if out[h.Key.Num] = h.Lexical.Own; h.Lexical.Own == 0 && h.Cosine != nil {
			out[h.Key.Num] = *h.Cosine / 1e6 // below all words
		}
	}
	return out
}

// cutUnit chooses which pages of the turns of a unit are shown in a room of so many tokens: one of each turn at least.
func cutUnit(turns []*TurnIn, score map[uint64]float64, room int) {
	type piece struct {
		turn  *TurnIn
		page  int
		score float64
		edge  int // distance from the beginning, or from the end
	}
	var pieces []piece
	for _, t := range turns {
		if len(t.Nums) < 2 {
			room -= t.Size + TurnHeader
			continue
		}
		t.Pages = []int{}
		for p, num := range t.Nums {
			edge := min(2*p, 2*(len(t.Nums)-1-p)+1)
			if score := score[num]; t.Role == "user" && edge < 2 { // people ask before what they paste, or behind it
				pieces = append(pieces, piece{t, p, math.Inf(1), edge})
			} else {
				pieces = append(pieces, piece{t, p, score, edge})
			}
		}
	}
	slices.SortStableFunc(pieces, func(x, y piece) int { return cmp.Or(cmp.Compare(y.score, x.score), x.edge-y.edge) })
	take := func(p piece) {
		room -= p.turn.Stored/len(p.turn.Nums) + TurnHeader
		p.turn.Pages = append(p.turn.Pages, p.page)
	}
	for _, p := range pieces {
		if len(p.turn.Pages) == 0 {
			take(p)
		}
	}
	for _, p := range pieces {
		if !slices.Contains(p.turn.Pages, p.page) && room >= p.turn.Stored/len(p.turn.Nums)+TurnHeader {
			take(p)
		}
	}
	for _, t := range turns {
		if slices.Sort(t.Pages); len(t.Pages) == len(t.Nums) {
			t.Pages = nil
		}
	}
}

// Shows reports whether a page of the turn, from 0, is among those that enter.
func (t *TurnIn) Shows(page int) bool { return t.Pages == nil || slices.Contains(t.Pages, page) }

// Crowding returns the turns of several pages if so many of their pages were found for nothing that they took the places of
// other pages: because the turn enters anyway, or in other pieces. It also returns the hits that stay: the pieces, and the best
// of each turn that enters.
func (o *Offer) Crowding(hits []store.Candidate, most int) (of []store.Ref, stay []store.Candidate) {
	lost, best := 0, map[string]int{} // place in stay of the best hit of a turn
	for i := range hits {
		t := o.Found(hits[i].Key.Num)
		if t == nil || len(t.Nums) < 2 {
			continue
		}
		at, seen := best[t.ID]
		if !seen {
			of = append(of, store.Ref{Scope: o.scope, ID: t.ID})
		}
		piece := t.Pages != nil && t.Shows(hits[i].Ref.Page-1)
		if t.enters() || !t.Shows(hits[i].Ref.Page-1) {
			lost++
		}
		switch {
		case !seen, piece, !t.enters() && t.Pages == nil:
			best[t.ID] = len(stay)
			stay = append(stay, hits[i])
		case t.Pages == nil && stay[at].Lexical.Score < hits[i].Lexical.Score:
			stay[at] = hits[i]
		}
	}
	if lost < most {
		return nil, nil
	}
	return of, stay
}
