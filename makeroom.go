package ctxpage

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/cespare/xxhash/v2"
	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
)

// relieve makes room where the window is above its limit: the backstop. It changes rows in memory and in the batch and
// says what it compacted, with an error as well. No summariser is asked: a commit does not wait for a model.
func (c *conversation) relieve(ctx context.Context, w *changes) ([]passItem, error) {
	return c.makeRoom(ctx, w, func(s session.State) (session.Plan, error) { return s.Backstop(c.db.opts.Clock(), 0) })
}

// reliefTries is how often room is made for one commit: a form may turn out longer than was thought, and then the next plan
// knows its size.
const reliefTries = 16

func (c *conversation) makeRoom(ctx context.Context, w *changes, planned func(session.State) (session.Plan, error)) ([]passItem, error) {
	if c.fits() == nil {
		return nil, nil
	}
	var items []passItem
	for range reliefTries {
		plan, err := planned(c.window())
		if err != nil {
			return items, err
		}
		forms := c.formsOf(plan)
		for i := range forms {
			forms[i].texts = w.texts[forms[i].block.nums[0]]
		}
		if forms, err = c.makeForms(ctx, forms, nil); err != nil {
			return items, err
		}
		more, err := c.carryOut(w, plan, forms)
		if err != nil {
			return items, err
		}
		if items = joinItems(items, more); c.fits() == nil {
			return items, nil
		}
	}
	return items, c.fits()
}

// joinItems is two passes as one.
func joinItems(items, more []passItem) []passItem {
	if len(items) == 0 {
		return more
	}
	for _, it := range more {
		if k := slices.IndexFunc(items, func(x passItem) bool { return x.ID == it.ID }); k >= 0 {
			items[k].To, items[k].Because, items[k].After, items[k].Unpinned = it.To, it.Because, it.After, items[k].Unpinned || it.Unpinned
		} else {
			items = append(items, it)
		}
	}
	return items
}

// form is a shorter text of a turn that a plan needs, made or to be made.
type form struct {
	at    int
	block block
	texts []string // of a turn on its way in; nil: they are stored
	level session.Level
	put   *store.Put // nil: it would not be shorter
	size  int
}

// formsOf lists the forms that a plan needs and that were never made.
func (c *conversation) formsOf(p session.Plan) []form {
	var out []form
	for _, it := range p.Items {
		i := c.find(it.ID)
		if i < 0 {
			continue
		}
		for _, m := range c.units[c.blocks[i].unit].members {
			l := c.plannedLevel(m, it.To)
			if (l == session.Trimmed || l == session.Summary) && c.blocks[m].row.Made&(1<<l) == 0 {
				out = append(out, form{at: m, block: c.blocks[m], level: l})
			}
		}
	}
	return out
}

// makeForms writes the forms. It may run without the session's lock: it reads immutable pages. A summariser is asked for
// several at once.
func (c *conversation) makeForms(ctx context.Context, forms []form, by Summarizer) ([]form, error) {
	errs := make([]error, len(forms))
	gate := make(chan struct{}, formWorkers)
	var wg sync.WaitGroup
	for i := range forms {
		if by == nil {
			errs[i] = c.makeForm(ctx, &forms[i], nil)
			continue
		}
		gate <- struct{}{}
		wg.Go(func() {
			defer func() { <-gate }()
			errs[i] = c.makeForm(ctx, &forms[i], by)
		})
	}
	wg.Wait()
	return forms, errors.Join(errs...)
}

func (c *conversation) makeForm(ctx context.Context, f *form, by Summarizer) error {
	b := &f.block
	keys := make([]store.PageKey, len(b.nums))
	for i, n := range b.nums {
		keys[i] = store.PageKey{Num: n, Version: b.version}
	}
	texts, version := f.texts, b.version
	var err error
	if texts == nil {
		texts, err = c.db.texts(ctx, store.Scopes{c.scope}, keys)
	} else {
		version, err = c.nextVersion(ctx, b.id)
	}
	if err != nil {
		return err
	}
	count := c.db.opts.Counter.Count
	whole := strings.Join(texts, "")
	text, author := "", "ctxpage"
	if f.level == session.Trimmed {
		text = session.Trim(whole)
	} else {
		text, author = c.summary(ctx, whole, b.row.Sizes[session.Summary], by)
	}
	n := count(text)
	size := n + max(b.row.Sizes[session.Raw]-count(whole), 0) // calls stay
	if n == 0 || n > MaxPageTokens || size >= b.row.Sizes[session.Raw] {
		return nil
	}
	put, err := c.db.makePut(Artefact{
		ID: c.formID(b, f.level), Kind: KindSummary, Provenance: Scratch, Priority: PriorityLow, Text: text, CurrentAsOf: codec.FromMicros(b.asOf), Name: author,
		DerivedFrom: []Ref{{Scope: c.scope, ID: b.id, Version: version}},
	}, Validator{})
	f.put, f.size = &put, size
	return err
}

// nextVersion is the version that a turn on its way in will be: its id may have been deleted before.
func (c *conversation) nextVersion(ctx context.Context, id string) (uint32, error) {
	l, err := c.db.store.Resolve(ctx, store.Scopes{c.scope}, Ref{ID: id})
	if errors.Is(err, ErrNotFound) {
		return 1, nil
	}
	return l.Version + 1, err
}

func (c *conversation) summary(ctx context.Context, text string, tokens int, by Summarizer) (summary, author string) {
	if by != nil {
		if got := c.db.shorten(ctx, by, text, tokens); got != "" {
			return got, by.Name()
		}
		c.db.opts.Logger.Warn("summariser gave nothing, an extract stands in", "session", c.id, "summarizer", by.Name())
	}
	return session.Extract(text, tokens, c.db.opts.Counter.Count), "ctxpage"
}

// formPrefix begins the ids of the pages that stand for compacted turns.
const formPrefix = "ctxpage:form/"

// formID names the derived page of a turn's content at a level.
func (c *conversation) formID(b *block, l session.Level) string {
	key := binary.BigEndian.AppendUint64(append([]byte(c.id), 0), b.row.Hash)
	return fmt.Sprintf("%s%s/%016x", formPrefix, l, xxhash.Sum64(append(key, b.id...)))
}

// carryOut does what a plan says: rows in memory and in the batch, derived pages in the batch. It gives what it
// changed, unit by unit.
func (c *conversation) carryOut(w *changes, plan session.Plan, forms []form) ([]passItem, error) {
	state := c.window()
	c.win = nil                        // it is changed in place
	state.Generation = plan.Generation // the caller holds the lock and has compared it
	made := make(map[string]int, len(plan.Items))
	w.expect(len(plan.Items))
	for _, f := range forms {
		c.setRow(w, f.at, func(r *turnRow) {
			if r.Sizes[f.level] = f.size; f.put == nil {
				r.Sizes[f.level] = 0
			} else {
				r.Made |= 1 << f.level
			}
		})
		if f.put != nil {
			w.puts = append(w.puts, *f.put)
		}
	}
	for _, it := range plan.Items {
		if i := c.find(it.ID); i >= 0 && it.To < session.Cold {
			made[it.ID] = c.reached(c.blocks[i].unit, it.To)
		}
	}
	if _, err := state.CarryOut(plan, made); err != nil {
		return nil, err
	}
	planned := slices.Clone(plan.Items)
	slices.SortFunc(planned, func(a, b session.PlanItem) int { return a.Index - b.Index })
	items := make([]passItem, 0, len(planned))
	for _, it := range planned {
		sec := &state.Sections[it.Index]
		if sec.Level == it.From {
			continue
		}
		i := c.find(sec.ID)
		row := c.blocks[i].row
		items = append(items, passItem{
			ID: sec.ID, From: row.Level, To: uint8(sec.Level), FromBecause: row.Because, Because: sec.Because, Before: sec.Sizes[it.From], After: sec.Tokens(),
			Unpinned: sec.Pinned,
		})
		c.setRow(w, i, func(r *turnRow) { r.Level, r.Because = uint8(sec.Level), sec.Because })
		if sec.Pinned {
			c.yield(w, c.blocks[i].unit, true)
		}
	}
	return items, nil
}

// admit holds the window below its limit while turns come in: turns that fit are let in whole, those for which room can
// be made after a compaction, and a large one that nobody protects as a stub. The new blocks stand in memory while
// the window is planned, and are taken out again: the commit brings them in with their numbers.
func (a *appending) admit(ctx context.Context, leaf *manifest.Record) error {
	c := a.c
	if c.state.Config == nil {
		return nil
	}
	limits, err := c.state.Config.Thresholds()
	if err != nil {
		return err
	}
	sets := a.sets
	sum, largest := 0, 0
	for i := range a.fresh {
		n := c.size(&a.fresh[i].block, session.Raw)
		sum, largest = sum+n, max(largest, n)
		a.reopen(&a.fresh[i].block)
	}
	c.repin(a.changes, limits.Warn-sum)
	if sum += c.tokens(); sum <= limits.Usable && largest <= limits.Usable {
		return nil
	}
	blocks, units := len(c.blocks), len(c.units)
	a.opened = map[string]int{}
	defer func() { c.takeOut(blocks, units, a.opened) }()
	var items []passItem
	for i := range a.fresh {
		more, err := a.admitOne(ctx, i)
		if err != nil {
			if err = fmt.Errorf("turn %d: %w", a.fresh[i].at+1, err); a.sets == sets {
				a.takeBack() // nothing was compacted yet: what was loaded still is what is stored
			} else {
				c.loaded = false
			}
			return err
		}
		items = joinItems(items, more)
	}
	if len(items) > 0 {
		row := passRow{Kind: PassBackstop, Items: items}
		c.number(a.s, a.changes, &row)
		if a.try != nil {
			*a.try = row.info()
		}
		leaf.Action += fmt.Sprintf("; pass %d: %d compacted, %d tokens freed", row.Number, len(items), row.freed())
	}
	return nil
}

// takeOut takes the newest blocks out again, down to so many blocks and units; opened is which unit had made a call before,
// -1: none had. What is known of the others stays, so that it costs what the new ones cost and not what the session does.
func (c *conversation) takeOut(blocks, units int, opened map[string]int) {
	for i := len(c.blocks) - 1; i >= blocks; i-- {
		b := &c.blocks[i]
		delete(c.at, b.nums[0])
		c.recount(b.unit, func() {
			m := &c.units[b.unit].members
			*m = (*m)[:len(*m)-1]
			c.blocks = c.blocks[:i]
		})
	}
	c.units = c.units[:units]
	at, _ := slices.BinarySearch(c.inside, units)
	c.inside = c.inside[:at]
	for id, u := range opened {
		if c.open[id] = u; u < 0 {
			delete(c.open, id)
		}
	}
}

func (p *passRow) freed() (n int) {
	for _, it := range p.Items {
		n += it.Before - it.After
	}
	return n
}

func (a *appending) admitOne(ctx context.Context, i int) ([]passItem, error) {
	c := a.c
	f := &a.fresh[i]
	rest := c.window()
	f.block.nums = []uint64{^uint64(i)} // a number no page has
	if a.texts == nil {
		a.texts = map[uint64][]string{}
	}
	for _, p := range a.tx.writes[f.block.id].Pages {
		a.texts[^uint64(i)] = append(a.texts[^uint64(i)], p.Text)
	}
	for _, id := range f.block.calls() {
		if _, twice := a.opened[id]; !twice {
			a.opened[id] = -1
			if u, ok := c.open[id]; ok {
				a.opened[id] = u
			}
		}
	}
	c.add(f.block)
	u := c.blocks[len(c.blocks)-1].unit
	sec, _ := c.section(u)
	rest.Sections = slices.DeleteFunc(slices.Clone(rest.Sections), func(s session.Section) bool { return s.ID == sec.ID })
	adm, err := rest.Admit(sec, c.db.opts.Clock())
	if err != nil {
		return nil, err
	}
	if adm.How == session.AdmitStub {
		c.setRow(a.changes, c.units[u].members[0], func(r *turnRow) { r.Level, r.Because = uint8(adm.Section.Level), adm.Section.Because })
	}
	if adm.Yield {
		return c.makeRoom(ctx, a.changes, func(s session.State) (session.Plan, error) { return s.MakeRoom(c.db.opts.Clock()) })
	}
	return c.relieve(ctx, a.changes)
}

// reopen shows a call whole again that left the window before its result came: a result goes where its call is, and the
// newest turn goes in.
func (a *appending) reopen(b *block) {
	u, ok := a.c.open[b.answers()]
	if b.answers() == "" || !ok {
		return
	}
	if lead := a.c.units[u].members[0]; a.c.blocks[lead].row.Level > 0 {
		a.c.setRow(a.changes, lead, func(r *turnRow) { r.Level, r.Because = 0, "" })
	}
}

// yield lets the pins of a unit give way, or takes that back.
func (c *conversation) yield(w *changes, u int, gives bool) {
	for _, i := range c.units[u].members {
		if r := c.blocks[i].row; r.Pinned && r.Yielded != gives {
			c.setRow(w, i, func(r *turnRow) { r.Yielded = gives })
		}
		if gives {
			c.yielded[c.blocks[i].id] = true
		}
	}
}

// repin shows turns whole again whose pin gave way, newest first, while the window stays below a limit.
func (c *conversation) repin(w *changes, limit int) {
	if len(c.yielded) == 0 {
		return
	}
	var at []int
	for id := range c.yielded {
		if i := c.find(id); i >= 0 && c.blocks[i].row.Yielded {
			at = append(at, i)
		} else {
			delete(c.yielded, id)
		}
	}
	slices.Sort(at)
	for _, i := range slices.Backward(at) {
		u, whole := c.blocks[i].unit, 0
		for _, m := range c.units[u].members {
			whole += c.size(&c.blocks[m], session.Raw)
		}
		if c.tokens()-c.unitTokens(u)+whole > limit {
			return
		}
		c.yield(w, u, false)
	}
}
