package conversation

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
)

// How turns come in:
//
//	Next, UniqueCalls, Pair, Bring   each is checked against those before it; its row is in memory and in the batch
//	Fits                 true: the commit brings them, and Take adds them
//	Stage                else they stand in the window as they will, without page numbers, while room is made for them
//	commit               Take completes the staged ones with their numbers
//	TakeBack             or nothing is committed: what they changed is undone, or all of it has to be loaded anew

// Incoming has the turns on their way into a session and the rows written with them. Nothing of them is in the conversation until
// room has to be made: then they are staged, so that the window can be planned with them.
type Incoming struct {
	*Writes
	of       *Turns
	Fresh    []freshTurn
	called   map[string]int // the last of Fresh that makes a call of that id
	given    map[string]int // the last of Fresh for whose call that id was given, which is stored under another one
	answered map[string]int // the one of Fresh that answers a call
	brought  int            // Sets when the last of them was brought
}

// Incoming begins to collect turns.
func (c *Turns) Incoming() *Incoming { return &Incoming{Writes: c.Begin(), of: c} }

// freshTurn is a turn on its way in: its place among the caller's turns, and its block without page numbers.
type freshTurn struct {
	At    int
	Block Block
	was   *TurnRow // what stood under its id: of a turn that was deleted
}

// TakeBack takes out of memory what no commit will bring. False: older turns were compacted for it, and the conversation must
// be loaded anew. A row that stayed would pass for stored when a page of the same words is put under its id.
func (a *Incoming) TakeBack() bool {
	if a.Sets != a.brought && len(a.Fresh) > 0 {
		return false
	}
	a.of.withdraw()
	for _, f := range a.Fresh {
		if delete(a.of.Rows, f.Block.ID); f.was != nil {
			a.of.Rows[f.Block.ID] = f.was
		}
	}
	return true
}

// Bring notes a turn on its way in. at is its place among the caller's turns; inHead reports that its put has the row.
func (a *Incoming) Bring(at int, b Block, inHead bool) {
	a.noteCalls(&b)
	a.Fresh = append(a.Fresh, freshTurn{at, b, a.of.Rows[b.ID]})
	a.of.storeRow(a.Writes, b.ID, b.Row, inHead)
	a.brought = a.Sets
}

// Stored says that a commit brought the turns. If that is one turn of one page, what is known of it is all that its head
// has.
func (a *Incoming) Stored(pages int) {
	if len(a.Fresh) == 1 && pages == 1 {
		a.of.own = a.Fresh[0].Block
	}
}

// Next is the number of the turn: one more than the highest there is.
func (a *Incoming) Next() (int64, error) {
	last := a.of.Turn()
	if n := len(a.Fresh); n > 0 {
		last = a.Fresh[n-1].Block.Seq
	}
	if last == math.MaxInt64 { // of a plain put
		return 0, store.Invalid("seq", fmt.Sprintf("a turn behind number %d", last), "a session without a page of the highest number, behind which nothing can stand")
	}
	return last + 1, nil
}

// reopen shows a call whole again that left the window before its result came: a result goes where its call is, and the
// newest turn goes in.
func (a *Incoming) reopen(b *Block) {
	u, ok := a.of.open[b.answers()]
	if b.answers() == "" || !ok {
		return
	}
	if lead := a.of.Units[u].Members[0]; a.of.Blocks[lead].Row.Level > 0 {
		a.of.SetRow(a.Writes, lead, func(r *TurnRow) { r.Level, r.Because = 0, "" })
	}
}

// Fits reports whether the turns fit into the window as they are; true without a window. Pins that gave way come back before.
func (a *Incoming) Fits() (bool, error) {
	c := a.of
	if !c.State.limited() {
		return true, nil
	}
	limits := c.State.Config.Thresholds()
	sum, largest := 0, 0
	for i := range a.Fresh {
		n := c.Size(&a.Fresh[i].Block, session.Raw)
		sum, largest = sum+n, max(largest, n)
		a.reopen(&a.Fresh[i].Block)
	}
	c.repin(a.Writes, limits.Warn-sum)
	sum += c.Tokens()
	return sum <= limits.Usable && largest <= limits.Usable, nil
}

// Coming is the tokens of the turns that Stage has not brought into the window.
func (a *Incoming) Coming() (sum int) {
	if a.of.Staged > 0 || !a.of.State.limited() {
		return 0
	}
	for i := range a.Fresh {
		sum += a.of.Size(&a.Fresh[i].Block, session.Raw)
	}
	return sum
}

// Stage brings one turn, with the texts of its pages, into the window, and says how it comes in: whole, which may need room to
// be made, or as a stub.
func (a *Incoming) Stage(i int, texts []string, now time.Time) (Admission, error) {
	c, b := a.of, a.Fresh[i].Block
	if a.Texts == nil {
		a.Texts = map[string][]string{}
	}
	a.Texts[b.ID] = texts
	c.stage(b)
	u := c.Blocks[len(c.Blocks)-1].Unit
	sec, _ := c.section(u)
	if max(c.Tokens(), sec.Tokens()) <= c.State.Config.Thresholds().Usable { // as Admit does, without a look at the others
		return Admission{Section: sec}, nil
	}
	rest := c.Window()
	rest.Sections = slices.DeleteFunc(slices.Clone(rest.Sections), func(s Section) bool { return s.ID == sec.ID })
	adm, err := rest.Admit(sec, now)
	if err == nil && adm.How == AdmitStub {
		c.SetRow(a.Writes, c.Units[u].Members[0], func(r *TurnRow) { r.Level, r.Because = uint8(adm.Section.Level), adm.Section.Because })
	}
	return adm, err
}
