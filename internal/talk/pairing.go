package talk

import (
	"cmp"
	"slices"

	"github.com/ctxpage/ctxpage/render"
	"github.com/ctxpage/ctxpage/store"
)

// Unpaired returns the turns of a context that no provider would take: results whose call is not among the turns, and
// calls of which a result is missing. The last call stays if nothing else was said after it: it waits for its results.
//
// It walks the turns in their order and counts the missing results of each call. A message that answers a call and makes
// another one belongs to the chain of the first, so a chain stays or goes as a whole. A negative count is a result without
// its call. Unpaired sorts turns.
func Unpaired(turns []*store.Head) (out []*store.Head) {
	slices.SortFunc(turns, func(x, y *store.Head) int { return cmp.Or(cmp.Compare(x.Seq, y.Seq), cmp.Compare(x.ID, y.ID)) })
	type chain struct{ missing int } // results
	open, of, last := map[string]*chain{}, make([]*chain, len(turns)), (*chain)(nil)
	for i, h := range turns {
		if last = open[h.ToolCallID]; h.ToolCallID == "" || last == nil {
			last = &chain{}
		}
		if of[i] = last; isResult(h) {
			last.missing--
			delete(open, h.ToolCallID)
		}
		for _, c := range h.ToolCalls {
			last.missing++
			open[c.ID] = last
		}
	}
	waits := len(turns)
	for waits > 0 && of[waits-1] == last {
		waits--
	}
	if slices.Contains(of[:waits], last) {
		last = nil // something else was said before all results were there
	}
	for i, c := range of {
		if c.missing < 0 || c.missing > 0 && c != last {
			out = append(out, turns[i])
		}
	}
	return out
}

// Beside returns the order in which pages of a context are shown: each result stands behind its call, because no provider
// takes one in another place. A result that came late, after something else was said, moves up; all others keep their
// order. Of a page that is no turn the head is nil. The answer is nil where nothing moves.
func Beside(pages []*store.Head) (order []int) {
	groups, of := make([][]int, 0, len(pages)), map[string]int{} // which group answers to a call
	moved := false
	for i, h := range pages {
		g := len(groups)
		switch {
		case h == nil:
		case i > 0 && pages[i-1] != nil && h.Scope == pages[i-1].Scope && h.ID == pages[i-1].ID: // the same turn
			g--
			if at, ok := of[h.ToolCallID]; ok && h.ToolCallID != "" {
				g = at
			}
		case h.ToolCallID != "":
			if at, ok := of[h.ToolCallID]; ok {
				g, moved = at, moved || at < len(groups)-1
			}
		}
		if g == len(groups) {
			groups = append(groups, nil)
		}
		if groups[g] = append(groups[g], i); h == nil {
			continue
		}
		for _, c := range h.ToolCalls {
			of[c.ID] = g
		}
	}
	if !moved {
		return nil
	}
	return slices.Concat(groups...)
}

// UsesTools reports whether a turn makes calls or is the result of one.
func UsesTools(h *store.Head) bool { return len(h.ToolCalls) > 0 || isResult(h) }

// isResult reports whether a turn is the result of a call.
func isResult(h *store.Head) bool { return h.ToolCallID != "" || h.Role == render.RoleTool }
