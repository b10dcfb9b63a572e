package conversation

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/cespare/xxhash/v2"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
)

// Room is made in steps that the caller ties together, because the middle one needs texts and may ask a summariser:
//
//	plan   window.State.Plan, Backstop or MakeRoom on Window()
//	forms  FormsOf(plan) says which shorter texts are missing; the caller makes them
//	carry  CarryOut(plan, forms) moves the units to their levels, in memory and in the batch
//
// A form may turn out longer than was thought. Then its size is known from now on, and the caller plans once more.

// Form is a shorter text of a turn that a plan needs, made or to be made.
type Form struct {
	at    int
	Block Block
	Texts []string // of a staged turn; nil: they are stored
	Level session.Level
	Put   *store.Put // nil: it would not be shorter
	Size  int
}

// FormsOf lists the forms that a plan needs and that were never made.
func (c *Turns) FormsOf(p session.Plan) []Form {
	var out []Form
	for _, it := range p.Items {
		i := c.Find(it.ID)
		if i < 0 {
			continue
		}
		for _, m := range c.Units[c.Blocks[i].Unit].Members {
			l := c.plannedLevel(m, it.To)
			if (l == session.Trimmed || l == session.Summary) && c.Blocks[m].Row.Made&(1<<l) == 0 {
				out = append(out, Form{at: m, Block: c.Blocks[m], Level: l})
			}
		}
	}
	return out
}

// formPrefix begins the ids of the pages that stand for compacted turns.
const formPrefix = "ctxpage:form/"

// FormID names the derived page of a turn's content at a level.
func (c *Turns) FormID(b *Block, l session.Level) string {
	key := binary.BigEndian.AppendUint64(append([]byte(c.ID), 0), b.Row.Hash)
	return fmt.Sprintf("%s%s/%016x", formPrefix, l, xxhash.Sum64(append(key, b.ID...)))
}

// CarryOut does what a plan says: rows in memory and in the batch, derived pages in the batch. It gives what it
// changed, unit by unit.
func (c *Turns) CarryOut(w *Writes, plan session.Plan, forms []Form) ([]PassItem, error) {
	state := c.Window()
	c.Win.At = 0                       // it is changed in place
	state.Generation = plan.Generation // the caller holds the lock and has compared it
	made := make(map[string]int, len(plan.Items))
	w.expect(len(plan.Items))
	for _, f := range forms {
		c.SetRow(w, f.at, func(r *TurnRow) {
			if r.Sizes[f.Level] = f.Size; f.Put == nil {
				r.Sizes[f.Level] = 0
			} else {
				r.Made |= 1 << f.Level
			}
		})
		if f.Put != nil {
			w.Puts = append(w.Puts, *f.Put)
		}
	}
	for _, it := range plan.Items {
		if i := c.Find(it.ID); i >= 0 && it.To < session.Cold {
			made[it.ID] = c.reached(c.Blocks[i].Unit, it.To)
		}
	}
	if err := state.CarryOut(plan, made); err != nil {
		return nil, err
	}
	planned := slices.Clone(plan.Items)
	slices.SortFunc(planned, func(a, b session.PlanItem) int { return a.Index - b.Index })
	items := make([]PassItem, 0, len(planned))
	for _, it := range planned {
		sec := &state.Sections[it.Index]
		if sec.Level == it.From {
			continue
		}
		i := c.Find(sec.ID)
		row := c.Blocks[i].Row
		items = append(items, PassItem{
			ID: sec.ID, From: row.Level, To: uint8(sec.Level), FromBecause: row.Because, Because: sec.Because, Before: sec.Sizes[it.From], After: sec.Tokens(),
			Unpinned: sec.Pinned,
		})
		c.SetRow(w, i, func(r *TurnRow) { r.Level, r.Because = uint8(sec.Level), sec.Because })
		if sec.Pinned {
			c.yield(w, c.Blocks[i].Unit, true)
		}
	}
	return items, nil
}

// yield lets the pins of a unit give way, or takes that back.
func (c *Turns) yield(w *Writes, u int, gives bool) {
	for _, i := range c.Units[u].Members {
		if r := c.Blocks[i].Row; r.Pinned && r.Yielded != gives {
			c.SetRow(w, i, func(r *TurnRow) { r.Yielded = gives })
		}
		if gives {
			c.yielded[c.Blocks[i].ID] = true
		}
	}
}

// repin shows turns whole again whose pin gave way, newest first, while the window stays below a limit.
func (c *Turns) repin(w *Writes, limit int) {
	if len(c.yielded) == 0 {
		return
	}
	var at []int
	for id := range c.yielded {
		if i := c.Find(id); i >= 0 && c.Blocks[i].Row.Yielded {
			at = append(at, i)
		} else {
			delete(c.yielded, id)
		}
	}
	slices.Sort(at)
	for _, i := range slices.Backward(at) {
		u, whole := c.Blocks[i].Unit, 0
		for _, m := range c.Units[u].Members {
			whole += c.Size(&c.Blocks[m], session.Raw)
		}
		if c.Tokens()-c.unitTokens(u)+whole > limit {
			return
		}
		c.yield(w, u, false)
	}
}
