package conversation

import (
	"slices"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"
	"github.com/ctxpage/ctxpage/render"
	"github.com/ctxpage/ctxpage/store"
)

// Ids of calls. Some servers number the calls of each answer from 0, so the same ids come again and again, and providers
// refuse a request in which an id stands twice. A call whose id was used before in the session is stored under another one,
// made of the id that was given and the number of its turn: call_0_t17. Its results are stored with that id, too. So a pair
// keeps one id in all contexts, and whatever pairs calls with results compares ids and nothing else.

// maxGivenID bounds the part of a given id in the id that is stored: some providers accept 64 bytes.
const maxGivenID = 40

// reusedID returns the id under which turn seq stores a call whose id was used before.
func reusedID(given string, seq int64) string {
	return shortID(given) + "_t" + strconv.FormatInt(seq, 10)
}

// shortID shortens a given id that is too long to be a part of another one.
func shortID(given string) string {
	if len(given) <= maxGivenID {
		return given
	}
	return strings.ToValidUTF8(given[:maxGivenID-17], "") + "_" + strconv.FormatUint(xxhash.Sum64String(given), 16)
}

// givenID returns the id from which reusedID made a stored one, shortened; "": it was stored as given.
func givenID(stored string) string {
	at := strings.LastIndex(stored, "_t")
	if at < 0 {
		return ""
	}
	if _, err := strconv.ParseUint(stored[at+2:], 10, 63); err != nil {
		return ""
	}
	return stored[:at]
}

// isStoredAs reports whether a call whose id was given may be stored under another id.
func isStoredAs(given, stored string) bool {
	return given == stored || givenID(stored) == shortID(given)
}

// callNames returns the ids of the calls that a turn makes, and those that were given for them.
func (b *Block) callNames() []string {
	names := b.calls()
	for _, id := range b.calls() {
		if given := givenID(id); given != "" && reusedID(given, b.Seq) == id {
			names = append(slices.Clip(names), given)
		}
	}
	return names
}

// UniqueCalls returns the calls of a turn on its way in, with other ids where theirs were used before.
func (a *Incoming) UniqueCalls(calls []store.ToolCall, seq int64) []store.ToolCall {
	used := func(id string) bool {
		_, before := a.of.open[id]
		_, called := a.called[id]
		_, given := a.given[id]
		return before || called || given
	}
	out := calls
	for i, c := range calls {
		if !used(c.ID) {
			continue
		}
		id := reusedID(c.ID, seq)
		for used(id) || slices.ContainsFunc(out, func(o store.ToolCall) bool { return o.ID == id }) {
			id = reusedID(id, seq)
		}
		if &out[0] == &calls[0] {
			out = slices.Clone(calls)
		}
		out[i].ID = id
	}
	return out
}

// Pair returns the stored id of the call that a result answers: the last call of that name, unless it is answered. Providers
// refuse a result without its call.
func (a *Incoming) Pair(call string) (id string, err error) {
	look := func(b *Block) {
		for _, c := range b.calls() {
			if c == call || givenID(c) == shortID(call) && reusedID(shortID(call), b.Seq) == c {
				id = c
			}
		}
		if id != "" && b.answers() == id {
			id = ""
		}
	}
	last, fresh := a.called[call]
	if n, ok := a.given[shortID(call)]; ok && (!fresh || n > last) {
		last, fresh = n, true
	}
	if fresh {
		look(&a.Fresh[last].Block)
	}
	if id == "" { // no call on its way has the name
		u, ok := a.of.open[call]
		if !ok {
			u, ok = a.of.open[shortID(call)]
		}
		if ok {
			for _, i := range a.of.Units[u].Members {
				look(&a.of.Blocks[i])
			}
		}
		last = -1
	}
	if n, answered := a.answered[id]; id == "" || answered && n > last {
		return "", store.Invalid("tool_call_id", strconv.Quote(call), "a call that an earlier turn of the session made and nothing has answered")
	}
	return id, nil
}

// noteCalls lets the turns behind b find its calls and the call that it answers.
func (a *Incoming) noteCalls(b *Block) {
	note := func(at *map[string]int, name string) {
		if *at == nil {
			*at = map[string]int{}
		}
		(*at)[name] = len(a.Fresh)
	}
	made := len(b.calls())
	for i, name := range b.callNames() {
		if i < made {
			note(&a.called, name)
		} else {
			note(&a.given, name)
		}
	}
	if b.answers() != "" {
		note(&a.answered, b.answers())
	}
}

// StoredIDs replaces the call ids of a repeated turn with those under which block i was stored.
func (c *Turns) StoredIDs(i int, a *store.Artefact) {
	b := &c.Blocks[i]
	if isStoredAs(a.ToolCallID, b.answers()) {
		a.ToolCallID = b.answers()
	}
	stored := b.calls()
	if len(stored) != len(a.ToolCalls) {
		return
	}
	a.ToolCalls = slices.Clone(a.ToolCalls)
	for k := range stored {
		if isStoredAs(a.ToolCalls[k].ID, stored[k]) {
			a.ToolCalls[k].ID = stored[k]
		}
	}
}

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
