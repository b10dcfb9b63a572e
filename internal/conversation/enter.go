package conversation

import (
	"cmp"
	"maps"
	"slices"

	"github.com/ctxpage/ctxpage/internal/triage"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
)

// Which turns of an offer enter a context. Turns under a pass, a window or a pin are placed by what those decided. The
// others compete with pages, by score, and so do turns that left the window for want of room and that the question found.
//
// Order: whole turns before stubs, better before worse, newer before older. Turns enter in this order until the budget is
// spent. A turn that is left out is counted under one reason, and the few with the best scores are named, so that the
// manifest says what the model did not see.

// Enter returns the turns that enter, in that order, the hits without the pages of turns that do not compete, and how many
// turns are left out for each reason, with those named that match the question best.
func (o *Offer) Enter(hits []store.Candidate) (in []*TurnIn, rest []store.Candidate, left []store.Excluded) {
	if len(o.Turns) == 0 {
		return nil, hits, nil
	}
	o.found = map[uint64]*store.Candidate{}
	for i, c := range hits {
		t, ok := o.placeByPage[c.Key.Num]
		if !ok {
			rest = append(rest, c)
			continue
		}
		o.found[c.Key.Num] = &hits[i]
		if !o.Turns[t].enters() {
			if !o.Turns[t].Shows(c.Ref.Page - 1) {
				c.Excluded = reasonPart
			}
			rest = append(rest, c)
		}
	}
	remaining, out := o.q.Budget, map[string]*store.Excluded{}
	for _, i := range o.entryOrder() {
		t := &o.Turns[i]
		if !t.enters() {
			continue
		}
		reason := o.refuse(t)
		if reason == "" && !t.Newest && !t.Asks && !t.Pinned && !t.Found && (remaining < 0 || t.Size > o.q.Budget) {
			reason = o.q.NoRoom
		}
		if reason != "" {
			o.leave(out, t, reason)
			continue
		}
		if t.Pages != nil {
			leftFor(out, reasonPart).Count += len(t.Nums) - len(t.Pages)
		}
		t.Late = 1 - max(float64(remaining), 0)/float64(o.q.Budget)
		remaining -= OfferedSize(t.Size, o.q.Budget)
		in = append(in, t)
	}
	for of, n := range o.More {
		if n == 0 {
			continue
		}
		reason := of.Why
		if len(o.q.Kinds) > 0 && !slices.Contains(o.q.Kinds, of.Kind) {
			reason = triage.OtherKind
		}
		leftFor(out, reason).Count += n
	}
	for _, reason := range slices.Sorted(maps.Keys(out)) {
		left = append(left, *out[reason])
	}
	return in, rest, left
}

// Complete adds to the competing hits the calls and results of the same units, which the question may not have found. They
// get the score of the hit.
func (o *Offer) Complete(hits []store.Candidate) []store.Candidate {
	if len(o.placeByPage) == 0 { // no session: nothing to look up for each of the hits
		return hits
	}
	units := map[int]*store.Candidate{} // the best of each
	there := map[uint64]bool{}
	for i := range hits {
		c := &hits[i]
		there[c.Key.Num] = true
		if t, ok := o.placeByPage[c.Key.Num]; ok && o.Turns[t].Tool != nil {
			if best := units[o.Turns[t].Unit]; best == nil || best.Lexical.Score < c.Lexical.Score {
				units[o.Turns[t].Unit] = c
			}
		}
	}
	if len(units) == 0 {
		return hits
	}
	out := slices.Clip(hits)
	for i := range o.Turns {
		t := &o.Turns[i]
		best := units[t.Unit]
		if best == nil || t.enters() || o.refuse(t) != "" {
			continue
		}
		for p, num := range t.Nums {
			if !there[num] && t.Shows(p) {
				c := *o.candidate(t, p)
				c.Lexical.Score, c.Lexical.Near = best.Lexical.Score, best.Lexical.Score
				out = append(out, c)
				o.placeByPage[num] = i
			}
		}
	}
	return out
}

// enters reports whether a turn enters a context whatever else does. Others compete with pages.
func (t *TurnIn) enters() bool { return t.Managed || t.Newest || t.Asks }

// entryOrder returns the places of Turns in the order in which they enter.
func (o *Offer) entryOrder() []int {
	type place struct {
		at, stub int
		score    float64
	}
	order := make([]place, len(o.Turns))
	for i := range o.Turns {
		t := &o.Turns[i]
		p := &order[len(order)-1-i] // of equal ones the newest is first: then there is little to sort
		if *p = (place{at: i, score: t.Score}); t.Level == session.Stub && t.Group == "" {
			p.stub = 1
		}
	}
	slices.SortFunc(order, func(x, y place) int {
		return cmp.Or(x.stub-y.stub, cmp.Compare(y.score, x.score), y.at-x.at)
	})
	at := make([]int, len(order))
	for i := range order {
		at[i] = order[i].at
	}
	return at
}

// refuse returns the reason that excludes a turn; "": none does.
func (o *Offer) refuse(t *TurnIn) string {
	switch {
	case t.Expired(o.q.Now):
		return triage.Expired
	case len(o.q.Kinds) > 0 && !slices.Contains(o.q.Kinds, t.Kind):
		return triage.OtherKind
	case t.Level == session.Cold:
		return t.Why
	case t.masked:
		return o.q.Hidden
	}
	return ""
}

// leave counts a turn that is left out, and names it if it is among the MaxNamed that match the question best.
func (o *Offer) leave(left map[string]*store.Excluded, t *TurnIn, reason string) {
	e := leftFor(left, reason)
	e.Count++
	score := 0.0
	if hit := o.found[t.Nums[0]]; hit != nil {
		score = hit.Lexical.Score
	}
	if n := len(e.Nearest); n == MaxNamed && e.Nearest[n-1].Lexical.Score >= score {
		return
	}
	c := *o.Candidate(t, 0)
	if k := slices.IndexFunc(e.Nearest, func(o store.Candidate) bool { return o.Lexical.Score < c.Lexical.Score }); k >= 0 {
		e.Nearest = slices.Insert(e.Nearest, k, c)
	} else {
		e.Nearest = append(e.Nearest, c)
	}
	e.Nearest = e.Nearest[:min(len(e.Nearest), MaxNamed)]
}

// leftFor returns the entry of a reason, which it makes if there is none.
func leftFor(left map[string]*store.Excluded, reason string) *store.Excluded {
	e := left[reason]
	if e == nil {
		e = &store.Excluded{Reason: reason}
		left[reason] = e
	}
	return e
}

// Candidate returns a page of a turn as the index found it, or else one with the same fields and no score.
func (o *Offer) Candidate(t *TurnIn, page int) *store.Candidate {
	if c := o.found[t.Nums[page]]; c != nil {
		return c
	}
	return o.candidate(t, page)
}

func (o *Offer) candidate(t *TurnIn, page int) *store.Candidate {
	return &store.Candidate{
		Key: store.PageKey{Num: t.Nums[page], Version: t.Version}, Ref: store.Ref{Scope: o.scope, ID: t.ID, Page: page + 1, Version: t.Version}, Kind: t.Kind, Provenance: t.Prov,
		AsOf: t.AsOf, Tokens: t.Stored / len(t.Nums), GroupName: o.session, Seq: t.Seq,
	}
}

// Found returns the turn of a page that the index found; nil: the page belongs to no turn.
func (o *Offer) Found(page uint64) *TurnIn {
	if i, ok := o.placeByPage[page]; ok {
		return &o.Turns[i]
	}
	return nil
}

// Managed reports whether a pass, a window or a pin decides about the turns. Otherwise they compete as pages do.
func (o *Offer) Managed() bool { return o.managed && len(o.Turns) > 0 }
