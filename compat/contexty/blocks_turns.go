package contexty

import (
	"iter"
	"slices"
	"sort"
)

// maxWeight bounds the weight of a message so that sums over any history stay exact. Limits are bounded below it: a
// message that heavy never fits.
const maxWeight = 1 << 36

// Turns indexes a conversation for cutting: the weight of each message, and which messages stay or go together.
//
// A turn group is a single message, or an assistant message with tool calls and all results that answer them, at any
// distance. A group is incomplete when a call has no result or a result no call; such a group is never emitted, because
// providers refuse it. Appending is O(1); a cut is O(log n) once the sums are settled. The zero value is empty and
// protects nothing. A Turns is not safe for concurrent use.
type Turns struct {
	protect []string // roles
	groups  []turn
	of      []int32 // message → group
	weights []int   // per message
	sums    []int   // sums[g] is the weight of the movable groups before g; settled up to dirty
	dirty   int
	calls   map[string]asked // call id → who asked last
	held    int              // weight of protected complete groups
	guarded bool             // a message of a protected role came by
	user    int              // newest user message's group + 1; 0 = none
}

// asked is a call that waits for n results. Calls without an id wait under the empty one.
type asked struct{ group, n int32 }

// turn is one group.
type turn struct {
	weight    int
	first     int32 // its first message
	members   int32
	missing   int32 // calls without a result; −1: a result without a call
	protected bool
}

// movable returns the contribution of the group to the sums: only complete groups that are not protected move.
func (t *turn) movable() int {
	if t.missing != 0 || t.protected {
		return 0
	}
	return t.weight
}

// NewTurns returns an empty index that protects the given roles: a message of such a role keeps its group.
func NewTurns(protectRoles ...string) *Turns {
	return &Turns{protect: slices.Clone(protectRoles)}
}

// Len returns the number of messages.
func (h *Turns) Len() int { return len(h.of) }

// Append adds the next message with its weight; negative weights count as 0. It keeps only strings of m.
func (h *Turns) Append(m *Message, weight int) {
	weight = min(max(weight, 0), maxWeight)
	h.guarded = h.guarded || slices.Contains(h.protect, m.Role)
	h.weights = append(h.weights, weight)
	if isResult(m) && h.joins(m, weight) {
		return
	}
	g := int32(len(h.groups))
	t := turn{weight: weight, first: int32(len(h.of)), members: 1, protected: slices.Contains(h.protect, m.Role)}
	if isResult(m) {
		t.missing = -1
	}
	for i := range m.ToolCalls {
		t.missing += h.ask(m.ToolCalls[i].ID, g)
	}
	if m.Role == "user" {
		h.user = int(g) + 1
	}
	h.groups = append(h.groups, t)
	h.of = append(h.of, g)
	h.hold(&t)
}

func isResult(m *Message) bool { return m.ToolCallID != "" || m.Role == "tool" }

// joins adds a tool result to the group that asked for it.
func (h *Turns) joins(m *Message, weight int) bool {
	a, ok := h.calls[m.ToolCallID]
	if !ok {
		return false
	}
	if a.n--; a.n > 0 {
		h.calls[m.ToolCallID] = a
	} else {
		delete(h.calls, m.ToolCallID) // a second result of one call answers nothing
	}
	t := &h.groups[a.group]
	h.release(t)
	t.weight = min(t.weight+weight, maxWeight)
	t.members++
	t.missing--
	t.protected = t.protected || slices.Contains(h.protect, m.Role)
	h.hold(t)
	h.of = append(h.of, a.group)
	h.dirty = min(h.dirty, int(a.group))
	return true
}

// ask records a call and returns how many results it adds to wait for: none when the message repeats an id.
func (h *Turns) ask(id string, g int32) int32 {
	if h.calls == nil {
		h.calls = map[string]asked{}
	}
	a, ok := h.calls[id]
	switch {
	case !ok || a.group != g:
		a = asked{group: g, n: 1}
	case id == "":
		a.n++
	default:
		return 0
	}
	h.calls[id] = a
	return 1
}

func (h *Turns) hold(t *turn) {
	if t.protected && t.missing == 0 {
		h.held += t.weight
	}
}

func (h *Turns) release(t *turn) {
	if t.protected && t.missing == 0 {
		h.held -= t.weight
	}
}

// settle brings the sums up to date.
func (h *Turns) settle() {
	n := len(h.groups)
	if len(h.sums) == n+1 && h.dirty == n {
		return
	}
	from := min(h.dirty, max(len(h.sums)-1, 0))
	h.sums = append(h.sums[:min(len(h.sums), from+1)], make([]int, n+1-min(len(h.sums), from+1))...)
	for g := from; g < n; g++ {
		h.sums[g+1] = h.sums[g] + h.groups[g].movable()
	}
	h.dirty = n
}

// must returns the groups that every cut keeps: protected groups and the newest user message.
func (h *Turns) must() int {
	if h.user > 0 {
		return h.held + h.groups[h.user-1].movable()
	}
	return h.held
}

// weight is the cost of a history cut at group from.
func (h *Turns) weight(from int) int {
	w := h.held + h.sums[len(h.groups)] - h.sums[from]
	if h.user > 0 && h.user-1 < from {
		w += h.groups[h.user-1].movable()
	}
	return w
}

// Mark is the place at which a history was cut: the first message that stayed. Pass it to the next Compile. The zero Mark is an
// uncut history.
type Mark struct {
	Index int    `json:"index"`        // of the message, counted from the oldest ever in the block
	ID    string `json:"id,omitempty"` // its ID, if it has one; it takes precedence over Index
}

// cut decides how much of the oldest a history drops to fit limit, and returns the first group that stays.
//
// While everything from the mark on fits, the mark stays: what was cut stays cut although there is room, so the prefix
// does not move. On overflow it cuts to the low mark, a share of what is movable, so that the next overflow is some
// turns away. When the whole history fits under the low mark again, the mark is void. ok is false when what must stay
// exceeds the limit.
func (h *Turns) cut(limit int, low float64, marked int) (from int, ok bool) {
	h.settle()
	limit = min(limit, maxWeight-1)
	must := h.must()
	if must > limit {
		return len(h.groups), false
	}
	target := must + min(int(low*float64(limit-must)), limit-must)
	switch {
	case h.weight(0) <= target, marked == 0 && h.weight(0) <= limit:
		return 0, true
	case marked > 0 && h.weight(marked) <= limit:
		return marked, true
	}
	if from = h.shrink(target); h.weight(from) <= must {
		from = h.shrink(limit) // the newest group alone is above the low mark: keep it while it fits
	}
	return from, true
}

// Cut decides what of the conversation stays within limit, as Compile does for a block with strategy Truncate. low is
// the low mark (outside (0, 1]: DefaultLow), marked the First of the last cut (0: none). ok is false when what must
// stay exceeds limit; the cut then keeps nothing. It costs O(log n) once the sums are settled.
func (h *Turns) Cut(limit int, low float64, marked int) (c Cut, ok bool) {
	from, ok := h.cut(limit, lowMark(low), h.groupAt(marked))
	if !ok {
		return Cut{First: marked}, false
	}
	return Cut{First: h.firstOf(from), Tokens: h.weight(from), turns: h, from: from}, true
}

// Cut is a decision of Turns.Cut. It is valid until the next Append.
type Cut struct {
	First  int // the first message that stays, not counting protected ones before it; pass it as marked to the next Cut
	Tokens int // weight of the messages that stay
	turns  *Turns
	from   int
}

// All yields the indexes of the messages that stay, oldest first. It looks at kept messages, and at those before First
// only when roles are protected.
func (c Cut) All() iter.Seq[int] {
	return func(yield func(int) bool) {
		if c.turns == nil {
			return
		}
		start, groups := c.start(), c.turns.groups
		for i, g := range c.turns.of[start:] {
			usual := int(g) >= c.from && groups[g].missing == 0
			if (usual || c.turns.keeps(g, c.from)) && !yield(start+i) {
				return
			}
		}
	}
}

// start is the first message that can stay.
func (c Cut) start() int {
	h := c.turns
	switch {
	case h.guarded:
		return 0
	case h.user > 0 && h.user-1 < c.from:
		return int(h.groups[h.user-1].first)
	}
	return c.First
}

func lowMark(low float64) float64 {
	if low > 0 && low <= 1 {
		return low
	}
	return DefaultLow
}

// groupAt is the group a message index marks, 0 for one that marks nothing.
func (h *Turns) groupAt(i int) int {
	switch {
	case i <= 0 || i > len(h.of):
		return 0
	case i == len(h.of):
		return len(h.groups)
	}
	return int(h.of[i])
}

// firstOf is the first message of a group; the number of messages for the group after the last.
func (h *Turns) firstOf(g int) int {
	if g == len(h.groups) {
		return len(h.of)
	}
	return int(h.groups[g].first)
}

// shrink is the first group from which on everything fits the target.
func (h *Turns) shrink(target int) int {
	return sort.Search(len(h.groups), func(from int) bool { return h.weight(from) <= target })
}

// keeps reports whether a group is emitted by a cut at from.
func (h *Turns) keeps(g int32, from int) bool {
	t := &h.groups[g]
	return t.missing == 0 && (int(g) >= from || t.protected || int(g) == h.user-1)
}

// total is the weight of all groups that can be emitted.
func (h *Turns) total() int {
	h.settle()
	return h.held + h.sums[len(h.groups)]
}

// marked is the group a mark points at; 0 when the mark is void.
func (h *Turns) marked(m Mark, messages []Message) int {
	i := m.Index
	if m.ID != "" && (i < 0 || i >= len(messages) || messages[i].ID != m.ID) {
		i = slices.IndexFunc(messages, func(x Message) bool { return x.ID == m.ID })
	}
	return h.groupAt(i)
}

// mark is the Mark of a cut at group from.
func (h *Turns) mark(from int, messages []Message) Mark {
	if from == 0 {
		return Mark{}
	}
	m := Mark{Index: h.firstOf(from)}
	if m.Index < len(messages) {
		m.ID = messages[m.Index].ID
	}
	return m
}
