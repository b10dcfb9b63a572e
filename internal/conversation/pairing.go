package conversation

import (
	"slices"

	"github.com/ctxpage/ctxpage/render"
	"github.com/ctxpage/ctxpage/store"
)

// What Pair says of a turn that belongs to no complete call.
const (
	NoTools = -1 // it makes no call and answers none
	Refused = -2 // no provider takes it
)

// Pair returns for each turn of a context the place of the turn that made its call: for a turn with calls its own place,
// for a result the place of its call, else NoTools. Refused are results whose call is not among the turns, calls of which a
// result is missing, with the results that are there, and turns whose role cannot make or answer calls. A turn without a
// role is data, whatever calls it has. Turns are in the order of their conversation.
func Pair(turns []*store.Head) []int {
	of, missing, open := make([]int, len(turns)), make([]int, len(turns)), map[[2]string]int{}
	for i, h := range turns {
		switch calls, result := len(h.ToolCalls) > 0, isResult(h); {
		case h.Role == "" || !calls && !result:
			of[i] = NoTools
		case calls && (result || h.Role != render.RoleAssistant), result && h.Role != render.RoleTool:
			of[i] = Refused
		case calls:
			of[i], missing[i] = i, len(h.ToolCalls)
			for _, c := range h.ToolCalls {
				open[[2]string{h.Scope, c.ID}] = i
			}
		default:
			call := [2]string{h.Scope, h.ToolCallID}
			at, ok := open[call]
			if of[i] = Refused; ok {
				of[i] = at
				missing[at]--
				delete(open, call)
			}
		}
	}
	for i, at := range of {
		if at >= 0 && missing[at] != 0 {
			of[i] = Refused
		}
	}
	return of
}

// Beside returns the order in which pages of a context are shown: each result stands behind its call, because no provider
// takes one in another place. A result that came late, after something else was said, moves up; all others keep their
// order. Of a page that is no turn the head is nil. The answer is nil where nothing moves.
func Beside(pages []*store.Head) (order []int) {
	groups, of := make([][]int, 0, len(pages)), map[[2]string]int{} // scope and id of a call → its group
	moved := false
	for i, h := range pages {
		g := len(groups)
		switch {
		case h == nil:
		case i > 0 && pages[i-1] != nil && h.Scope == pages[i-1].Scope && h.ID == pages[i-1].ID: // the same turn
			g--
			if at, ok := of[[2]string{h.Scope, h.ToolCallID}]; ok && h.ToolCallID != "" {
				g = at
			}
		case h.ToolCallID != "":
			if at, ok := of[[2]string{h.Scope, h.ToolCallID}]; ok {
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
			of[[2]string{h.Scope, c.ID}] = g
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
