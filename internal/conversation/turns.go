package conversation

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/token"
)

// Conversation is the turns of a session and what was decided about them, in memory. It is a value of plain data: whoever
// holds it loads its rows from a store, hands them in (Reset, TakeTurn, TakePlace, Take), and stores what writes have collected. It reads no
// clock and does no I/O. It is not safe for concurrent use: its owner has one lock for it.
//
// One revision, rev, tells what is current: every change of a turn, a verdict or a setting moves it on, and whatever was
// derived from them remembers the revision it was made at (derived). What a change of one unit does to the sum of the window
// and to the list of what is in it is carried over (recount); everything else is made again by the next reader.
type Turns struct {
	Scope, ID string
	counter   token.Counter

	Rev      uint64
	Keys     []store.PageKey
	Rows     map[string]*TurnRow
	Blocks   []Block
	own      Block          // the turn that was stored last and not taken yet; without id: none
	Staged   int            // of the blocks: how many of the newest no commit has stored yet; they have no page numbers
	reopened map[string]int // unit that had made a call before a staged turn made it again, -1: none had
	Units    []unit
	Numbers  slab[uint64]       // of blocks of one page
	Alone    slab[int]          // members of units of one block
	at       map[uint64]int     // first page number → block
	open     map[string]int     // call id, as stored and as given → unit that made it last
	byID     map[string]int     // place of a turn; may name places that are gone
	yielded  map[string]bool    // turns whose pin gave way; may name some whose pin is back
	stored   map[uint64]Verdict // of the pass in force, by first page number; nil: the blocks have them
	Unsaved  map[string]bool    // ids whose rows were made again and are not stored yet
	State    sessionRow
	Cal      Calibration
	Force    PassRow          // the pass in force
	Reads    map[string]int64 // turn at which a turn was last recalled; the next commit stores it

	Win     derived[State]
	Sum     derived[sums]  // over all units
	Inside  derived[[]int] // units that are in the window, or may be, ascending
	Outside outside        // the others; of the same revision
	touched []int          // units of Inside that changed since they were looked at
	ranked  ranking        // the turns of Inside
	looked  int            // turns and units that were looked at, for tests of what an answer costs
	reasons passReasons    // of the pass in force, once one was asked for
}

// derived is a value derived from a conversation, with the revision at which it was made; 0: never.
type derived[T any] struct {
	Value T
	At    uint64
}

func (c *Turns) current(at uint64) bool { return at == c.Rev }

// Changed moves the revision on.
func (c *Turns) Changed() { c.Rev++ }

// NewTurns is a session of which nothing is loaded.
func NewTurns(scope, id string, counter token.Counter) *Turns {
	return &Turns{Scope: scope, ID: id, counter: counter, Reads: map[string]int64{}}
}

// Reset forgets all turns and takes the state row of the session, nil: it has none. Reads that no commit has stored stay.
func (c *Turns) Reset(raw []byte) error {
	c.Release()
	c.Rows, c.at, c.open, c.byID = map[string]*TurnRow{}, map[uint64]int{}, map[string]int{}, map[string]int{}
	c.Unsaved, c.yielded = map[string]bool{}, map[string]bool{}
	c.State, c.Force = sessionRow{}, PassRow{}
	if raw != nil {
		if err := codec.ReadRow(&sessionFields, raw, rowVersion, &c.State); err != nil {
			return fmt.Errorf("ctxpage: session %s: %w", c.ID, err)
		}
	}
	c.Cal = calibrated(c.State.Ratio)
	return nil
}

// Release lets go of the turns. Reset comes before anything else then.
func (c *Turns) Release() {
	c.Rows, c.Blocks, c.Units, c.Keys, c.at, c.byID, c.open, c.stored = nil, nil, nil, nil, nil, nil, nil, nil
	c.yielded, c.Unsaved, c.Staged, c.reopened, c.own = nil, nil, 0, nil, Block{}
	c.Win, c.Sum, c.Inside, c.Outside = derived[State]{}, derived[sums]{}, derived[[]int]{}, outside{}
	c.touched, c.ranked = nil, ranking{}
	c.Numbers, c.Alone = slab[uint64]{}, slab[int]{}
	c.Changed()
}

// TakeTurn takes the stored row of a turn, TakePlace what has become of it since. A place without a row is of a turn whose
// head has the rest (Outdated).
func (c *Turns) TakeTurn(id string, raw []byte) error {
	c.Rows[id] = &TurnRow{filed: true}
	return c.malformed(id, c.Rows[id].decode(raw))
}

// TakePlace: see TakeTurn.
func (c *Turns) TakePlace(id string, raw []byte) error {
	row := c.Rows[id]
	if row == nil {
		row = &TurnRow{bare: true}
		c.Rows[id] = row
	}
	return c.malformed(id, row.decodePlace(raw))
}

func (c *Turns) malformed(id string, err error) error {
	switch {
	case errors.Is(err, codec.ErrNewer):
		err = fmt.Errorf("%w: turn %s of session %s: %w; use a newer release", store.ErrNewerFormat, id, c.ID, err)
	case err != nil:
		err = fmt.Errorf("ctxpage: turn %s of session %s: %w", id, c.ID, errors.Join(codec.ErrMalformed, err))
	}
	return err
}

// Enforce takes the pass in force and its verdicts, by first page number, for the turns that are taken after it.
func (c *Turns) Enforce(p PassRow, verdicts map[uint64]Verdict) {
	c.Force, c.stored = p, verdicts
}

// Follow says what Take will need to follow keys, the members of the session as they are now: how many of the first stand as
// they did, and which of the others are of pages that nothing is known of. grown tells that the keys taken before are the first
// of these, so that a long list need not be compared.
func (c *Turns) Follow(keys []store.PageKey, grown bool) (known int, fresh []store.PageKey) {
	if known = len(c.Keys); !grown && (known > len(keys) || !slices.Equal(keys[:known], c.Keys)) {
		known = 0
	}
	for _, k := range keys[known:] {
		if _, ok := c.kept(k, known); !ok {
			fresh = append(fresh, k)
		}
	}
	return known, fresh
}

// kept finds the block of a page that did not change, when the keys are listed anew.
func (c *Turns) kept(k store.PageKey, known int) (int, bool) {
	i, ok := c.at[k.Num]
	return i, ok && known == 0 && c.Blocks[i].Version == k.Version
}

// Remeasure is a turn whose row is missing or out of date: it is made again from the texts of its pages.
type Remeasure struct {
	Head *store.Head
	old  *TurnRow
}

// Keys are the pages whose texts are needed.
func (m *Remeasure) Keys() []store.PageKey {
	keys := make([]store.PageKey, len(m.Head.Rows))
	for i, r := range m.Head.Rows {
		keys[i] = store.PageKey{Num: r.Num, Version: m.Head.Version}
	}
	return keys
}

// Outdated reports whether the row of a turn must be made again: there is none, in the head neither, or it is of another content
// or counter. Where both are good the row holds: it has what the host told of the turn.
func (c *Turns) Outdated(h *store.Head) (m Remeasure, yes bool) {
	row := c.Rows[h.ID]
	if row != nil && !row.bare && row.Hash == headHash(h) && row.Counter == c.counter.Name() {
		if !row.filed && len(h.Turn) == 0 { // the head of an earlier version has it
			c.Unsaved[h.ID] = true
		}
		return Remeasure{}, false
	}
	if measured := new(TurnRow); measured.ofHead(h) && measured.Counter == c.counter.Name() {
		c.Rows[h.ID] = measured
		switch measured.takeOver(row); {
		case row == nil:
		case row.bare: // its place was stored with these measures
			measured.Sizes, measured.Made = row.Sizes, row.Made
		default: // and this one with others
			c.Unsaved[h.ID] = true
		}
		return Remeasure{}, false
	}
	return Remeasure{h, row}, true
}

// Remake makes the row of a turn: one that was put past the session, or changed, or counted by another counter. Pin, level
// and signals stay; what was derived from another content does not. A row that was only counted anew stays in memory: two
// processes with different counters would otherwise write all rows of a session in turns.
func (c *Turns) Remake(m Remeasure, texts []string) {
	h, old := m.Head, m.old
	row := measure(c.counter, &h.Artefact, texts, -1, headHash(h), c.stub(h.ID, h.Rows[0].Digest, SumTokens(h.Rows)))
	row.Content = contentOf(h.Rows)
	row.takeOver(old)
	c.Rows[h.ID] = row
	if row.recounted = old != nil && !old.bare && old.Hash == row.Hash; !row.recounted {
		c.Unsaved[h.ID] = true
	}
}

// Take follows the members of the session as they are now: keys, of which the first known stand as they did, with the heads
// of those that Follow named, in their order. Their rows are up to date (Outdated). The key of a turn that was staged
// completes it.
func (c *Turns) Take(keys []store.PageKey, known int, heads []*store.Head) {
	made := make([]Block, len(heads))
	for i, h := range heads {
		made[i] = c.blockOf(h)
	}
	c.take(keys, known, made)
}

// TakeOwn is Take where all that is new is the turn that this process has just committed (Stored): it need not be read back.
// False: it is not. A later commit, latest says that there is none, may have put another turn in its place.
func (c *Turns) TakeOwn(keys []store.PageKey, known int, fresh []store.PageKey, latest bool) bool {
	b := c.own
	c.own = Block{}
	if b.ID == "" || !latest || len(fresh) != 1 || known != len(c.Keys) || known+1 != len(keys) {
		return false
	}
	b.Nums, b.Version = c.Numbers.one(fresh[0].Num), fresh[0].Version
	c.take(keys, known, []Block{b})
	return true
}

// take is Take with the blocks of the heads.
func (c *Turns) take(keys []store.PageKey, known int, made []Block) {
	for i := range made {
		b := &made[i]
		b.Row = c.Rows[b.ID]
		if at, ok := c.at[b.Nums[0]]; ok {
			b.Judged, b.Verdict = c.Blocks[at].Judged, c.Blocks[at].Verdict
		} else {
			b.Verdict, b.Judged = c.stored[b.Nums[0]]
		}
	}
	list := c.merge(keys, known, made)
	if known == 0 {
		c.Blocks, c.Units, c.Staged, c.reopened = nil, nil, 0, nil
		c.at, c.open, c.byID = make(map[uint64]int, len(keys)), map[string]int{}, make(map[string]int, len(keys))
		c.Changed()
	}
	list = list[c.complete(list):]
	c.Blocks = slices.Grow(c.Blocks, len(list))
	for _, b := range list {
		c.add(b)
	}
	c.Keys = keys
	if known == 0 && len(c.Rows) > len(c.byID) {
		c.forget()
	}
}

// forget lets go of the measures that left with the heads of turns. A row that stayed would pass for stored when a page of the
// same words is put under its id.
func (c *Turns) forget() {
	for id, r := range c.Rows {
		if _, is := c.byID[id]; is || r.filed || r.bare {
			continue
		}
		delete(c.Unsaved, id) // there is nothing to store of a turn that left
		if delete(c.Rows, id); r.moved {
			c.Rows[id] = r.place()
		}
	}
}

// merge is the blocks of the keys behind the known ones: those just made, and those kept. Later pages of a block have none.
func (c *Turns) merge(keys []store.PageKey, known int, made []Block) []Block {
	list := made
	if known == 0 && len(made) < len(keys) {
		list = make([]Block, 0, len(keys))
		for _, k := range keys {
			if i, ok := c.kept(k, known); ok {
				list = append(list, c.Blocks[i])
			} else if len(made) > 0 && made[0].Nums[0] == k.Num {
				list = append(list, made[0])
				made = made[1:]
			}
		}
	}
	return list
}

// complete sets the page numbers of staged turns that a commit has stored. It returns how many of the blocks they are: all
// staged ones or, if anything else came before or with them, none; the staged turns are then withdrawn and come anew.
func (c *Turns) complete(list []Block) int {
	staged := c.Blocks[len(c.Blocks)-c.Staged:]
	same := len(staged) <= len(list)
	for i := 0; same && i < len(staged); i++ {
		same = staged[i].ID == list[i].ID && staged[i].Row == list[i].Row
	}
	if !same {
		c.withdraw()
		return 0
	}
	first := len(c.Blocks) - c.Staged
	for i := range staged {
		b := list[i]
		b.Unit = staged[i].Unit
		c.Recount(b.Unit, func() { c.Blocks[first+i] = b })
		c.at[b.Nums[0]] = first + i
	}
	c.Staged, c.reopened = 0, nil
	return len(staged)
}

// stage brings in a turn that the next commit will store, so that the window can be planned with it. Take completes it.
func (c *Turns) stage(b Block) {
	if c.reopened == nil {
		c.reopened = map[string]int{}
	}
	for _, id := range b.callNames() {
		if _, twice := c.reopened[id]; !twice {
			c.reopened[id] = -1
			if u, ok := c.open[id]; ok {
				c.reopened[id] = u
			}
		}
	}
	c.add(b)
	c.Staged++
}

// withdraw takes out the staged turns, which nothing will store: it costs what they cost and not what the session does.
func (c *Turns) withdraw() {
	units := len(c.Units)
	for ; c.Staged > 0; c.Staged-- {
		i := len(c.Blocks) - 1
		u := c.Blocks[i].Unit
		c.Recount(u, func() {
			m := &c.Units[u].Members
			*m = (*m)[:len(*m)-1]
			c.Blocks = c.Blocks[:i]
		})
		if len(c.Units[u].Members) == 0 {
			units = min(units, u)
		}
	}
	c.Units = c.Units[:units]
	at, _ := slices.BinarySearch(c.Inside.Value, units)
	c.Inside.Value = c.Inside.Value[:at]
	for id, u := range c.reopened {
		if c.open[id] = u; u < 0 {
			delete(c.open, id)
		}
	}
	c.reopened = nil
}

// add appends a block and finds its unit: a result joins the turn that made the call.
func (c *Turns) add(b Block) {
	i := len(c.Blocks)
	u, ok := c.open[b.answers()]
	if b.answers() == "" || !ok {
		u = len(c.Units)
		c.Units = append(c.Units, unit{})
	}
	b.Unit = u
	c.Recount(u, func() {
		if m := &c.Units[u].Members; *m == nil {
			*m = c.Alone.one(i)
		} else {
			*m = append(slices.Clip(*m), i)
		}
		c.Blocks = append(c.Blocks, b)
	})
	for _, id := range b.callNames() {
		c.open[id] = u
	}
	if c.byID[b.ID] = i; len(b.Nums) > 0 {
		c.at[b.Nums[0]] = i
	}
	if b.Row.Yielded {
		c.yielded[b.ID] = true
	}
}

// Turn is the number of the newest turn.
func (c *Turns) Turn() int64 {
	if len(c.Blocks) == 0 {
		return 0
	}
	return max(c.Blocks[len(c.Blocks)-1].Seq, 0)
}

// Find returns the place of a turn by its id, -1: there is none.
func (c *Turns) Find(id string) int {
	if i, ok := c.byID[id]; ok && i < len(c.Blocks) && c.Blocks[i].ID == id {
		return i
	}
	return -1
}

// Place finds a turn by its id.
func (c *Turns) Place(id string) (int, error) {
	if i := c.Find(store.Canonical(id)); i >= 0 {
		return i, nil
	}
	return 0, fmt.Errorf("%w: session %s has no turn %q", store.ErrNotFound, c.ID, id)
}
