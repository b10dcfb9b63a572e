package conversation

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"

	"github.com/cespare/xxhash/v2"
	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/prose"
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

// CarryOut carries out a plan: rows in memory and in the batch, derived pages in the batch. It returns the changed units.
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
	sort.Slice(planned, func(i, j int) bool { return planned[i].Index < planned[j].Index })
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

// Turns give room by taking a shorter form: trimmed, a summary, a stub. A commit makes room by itself when the window is
// above its limit (the backstop); it never waits for a model, so its forms are extracts. The watcher makes room ahead of
// need and may ask a summarizer, without the lock of the session (MakeForms).

// Exists refuses a session that nobody has begun: a context without the conversation it was asked for misleads.
func (c *Conversation) Exists(ctx context.Context) error {
	if len(c.Blocks) > 0 || c.State.Created != 0 {
		return nil
	}
	if err := c.home.Readable(ctx, c.Scope); err != nil { // a damaged row may hide the turns
		return err
	}
	return fmt.Errorf("%w: scope %s has no session %q; append its first turn or set its window first", store.ErrNotFound, c.Scope, c.ID)
}

// Relieve makes room when the window is above its limit. It changes rows in memory and in the batch, and returns what it
// compacted, also beside an error.
func (c *Conversation) Relieve(ctx context.Context, w *Writes) ([]PassItem, error) {
	return c.MakeRoom(ctx, w, false)
}

// reliefTries is the number of plans that a commit makes. A form may turn out longer than estimated; the next plan knows its size.
const reliefTries = 16

// MakeRoom compacts until the window fits. With yield, protected turns give way to the newest one.
func (c *Conversation) MakeRoom(ctx context.Context, w *Writes, yield bool) ([]PassItem, error) {
	if c.Fits() == nil {
		return nil, nil
	}
	var items []PassItem
	for range reliefTries {
		plan, err := c.Window().Backstop(c.host.Clock(), yield)
		if err != nil {
			return items, err
		}
		forms := c.FormsOf(plan)
		for i := range forms {
			forms[i].Texts = w.Texts[forms[i].Block.ID]
		}
		if forms, err = c.MakeForms(ctx, forms, nil); err != nil {
			return items, err
		}
		more, err := c.CarryOut(w, plan, forms)
		if err != nil {
			return items, err
		}
		if items = JoinItems(items, more); c.Fits() == nil {
			return items, nil
		}
	}
	return items, c.Fits()
}

// formWorkers is the number of summaries that are requested concurrently.
const formWorkers = 8

// MakeForms writes the forms. It may run without the lock of the session, because it reads immutable pages only. It asks a
// summarizer for several at once; without one it takes extracts.
func (c *Conversation) MakeForms(ctx context.Context, forms []Form, by Summarizer) ([]Form, error) {
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

// makeForm leaves f without a put when the form would not be shorter than the turn.
func (c *Conversation) makeForm(ctx context.Context, f *Form, by Summarizer) error {
	b := &f.Block
	keys := make([]store.PageKey, len(b.Nums))
	for i, n := range b.Nums {
		keys[i] = store.PageKey{Num: n, Version: b.Version}
	}
	texts, version := f.Texts, b.Version
	var err error
	if texts == nil {
		texts, err = c.host.Texts(ctx, store.Scopes{c.Scope}, keys)
	} else {
		version, err = c.nextVersion(ctx, b.ID)
	}
	if err != nil {
		return err
	}
	count := c.host.Counter.Count
	whole := strings.Join(texts, "")
	text, author := "", "ctxpage"
	if f.Level == session.Trimmed {
		text = prose.Trim(whole)
	} else {
		text, author = c.summary(ctx, whole, b.Row.Sizes[session.Summary], by)
	}
	n := count(text)
	size := n + max(b.Row.Sizes[session.Raw]-count(whole), 0) // calls stay
	if n == 0 || n > store.MaxPageTokens || size >= b.Row.Sizes[session.Raw] {
		return nil
	}
	put, err := c.host.MakePut(store.Artefact{
		ID: c.FormID(b, f.Level), Kind: store.KindSummary, Provenance: store.Scratch, Priority: store.PriorityLow, Text: text, CurrentAsOf: codec.FromMicros(b.AsOf), Name: author,
		DerivedFrom: []store.Ref{{Scope: c.Scope, ID: b.ID, Version: version}},
	})
	f.Put, f.Size = &put, size
	return err
}

// nextVersion is the version that an incoming turn will get. It is above 1 when its id was deleted before.
func (c *Conversation) nextVersion(ctx context.Context, id string) (uint32, error) {
	l, err := c.host.Store.Resolve(ctx, store.Scopes{c.Scope}, store.Ref{ID: id})
	if errors.Is(err, store.ErrNotFound) {
		return 1, nil
	}
	return l.Version + 1, err
}

func (c *Conversation) summary(ctx context.Context, text string, tokens int, by Summarizer) (summary, author string) {
	if by != nil {
		if got := c.host.Shorten(ctx, by, text, tokens); got != "" {
			return got, by.Name()
		}
	}
	return prose.Extract(text, tokens, c.host.Counter.Count), "ctxpage"
}
