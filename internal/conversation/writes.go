package conversation

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
)

// Memory is changed before the commit: what a plan does next depends on what it did. So the rule for whoever commits is that
// after a failure all of it is loaded anew; only what is known not to have compacted anything is taken back (Incoming.TakeBack,
// Undo). A copy of the conversation for each change was rejected: a session of a hundred thousand turns is tens of megabytes.

// Writes collects the writes of one batch: state rows, and pages the database derives.
type Writes struct {
	Rows []store.StateRow
	at   map[string]int
	Sets int // how often a row was set, the same one again included
	Puts []store.Put

	Expect []store.StatePre // of rows of other writers

	Texts map[string][]string // of the pages of staged turns, by id
}

// expect makes room for so many more rows.
func (w *Writes) expect(n int) {
	w.Rows = slices.Grow(w.Rows, n)
	if len(w.at) < n {
		at := make(map[string]int, len(w.at)+n)
		maps.Copy(at, w.at)
		w.at = at
	}
}

// StoreState sets the row of the session.
func (c *Turns) StoreState(w *Writes) {
	w.Raw(c.Key(SessionRowKey), codec.Row(&sessionFields, rowVersion, &c.State, 64))
}

// Raw sets a row; nil deletes it.
func (w *Writes) Raw(key string, v []byte) {
	w.Sets++
	if i, ok := w.at[key]; ok {
		w.Rows[i].Value = v
		return
	}
	w.at[key] = len(w.Rows)
	w.Rows = append(w.Rows, store.StateRow{Key: key, Value: v})
}

// Begin collects what is to be stored anyway: rows that were made again, and when turns were last read.
func (c *Turns) Begin() *Writes {
	w := &Writes{at: map[string]int{}}
	for _, id := range slices.Sorted(maps.Keys(c.Reads)) {
		if i := c.Find(id); i >= 0 {
			c.SetRow(w, i, func(r *TurnRow) { r.Signals.LastRead = max(r.Signals.LastRead, c.Reads[id]) })
		}
	}
	for _, id := range slices.Sorted(maps.Keys(c.Unsaved)) {
		c.storeRow(w, id, c.Rows[id], false)
	}
	return w
}

// storeRow stores a row that is new or was made again; the head of a new one may have it.
func (c *Turns) storeRow(w *Writes, id string, r *TurnRow, inHead bool) {
	old := c.Rows[id]
	if !inHead {
		r.filed = true
		w.Raw(c.TurnKey(TurnRowKey, id), r.encode())
	} else if old != nil && old.filed { // of a turn that was deleted and comes anew
		w.Raw(c.TurnKey(TurnRowKey, id), nil)
	}
	if r.moved || old != nil && old.moved {
		r.moved = true
		w.Raw(c.TurnKey(PlaceRowKey, id), r.encodePlace())
	}
	c.Rows[id] = r
}

// SetRow changes the place of a turn, in memory and in the batch: what encodePlace writes, and nothing else of the row.
func (c *Turns) SetRow(w *Writes, i int, change func(*TurnRow)) {
	old := c.Blocks[i].Row
	row := *old
	change(&row)
	row.moved = true
	if c.Shown(i) == session.Cold && row.Level == old.Level && row.Because == old.Because && row.Pinned == old.Pinned && row.Yielded == old.Yielded {
		c.Blocks[i].Row = &row // it was read, and stays out of the window
	} else {
		c.Recount(c.Blocks[i].Unit, func() { c.Blocks[i].Row = &row })
	}
	c.Rows[c.Blocks[i].ID] = &row
	if row.recounted { // the place has sizes of the same counter
		row.recounted, row.filed = false, true
		w.Raw(c.TurnKey(TurnRowKey, c.Blocks[i].ID), row.encode())
	}
	w.Raw(c.TurnKey(PlaceRowKey, c.Blocks[i].ID), row.encodePlace())
}

// How a change of a session reaches the store. Memory changes first and is right only if the commit succeeds:
//
//	collected ──Commit──▶ Committed    the change row has the LSN of this commit
//	              │
//	              ├─refused─▶ Failed             not loaded: the next use reads everything
//	              └─unknown─▶ Failed and unsure  the next use first asks the store what is in flight (Refresh)
//
// Invariant: every batch of a session expects its change row unchanged since the session was read, and writes it. Of two
// processes that decide on the same state one is refused, and decides again (Exclusively).

// Commit writes what was collected. When it fails, the next use reads the session again.
func (c *Conversation) Commit(ctx context.Context, actor string, w *Writes, leaf manifest.Record) error {
	id, err := c.host.NewID()
	if c.host.ReadOnly {
		err = store.ErrReadOnly
	}
	if err == nil {
		leaf.Session = c.ID
		b := store.Batch{ID: id, Scope: c.Scope, Actor: actor, Now: c.host.Clock(), OnStale: store.AllowStale, Puts: w.Puts, State: w.Rows, Leaf: leaf}
		c.Guard(&b, 0)
		b.ExpectState = append(b.ExpectState, w.Expect...)
		var out store.Outcome
		if out, err = c.host.Store.Commit(ctx, b); err == nil {
			c.Committed(out.LSN)
		}
	}
	if err != nil {
		c.Failed(err)
	}
	return err
}

// Guard lets a batch pass only if no other process changed the session since it was read, and tells the others of this one
// and of how full the window is then. coming is the tokens of turns that are not in memory yet.
func (c *Conversation) Guard(b *store.Batch, coming int) {
	key := c.Key(ChangeRowKey)
	b.ExpectState = append(b.ExpectState, store.StatePre{Key: key, LSN: c.changed})
	b.State = append(b.State, store.StateRow{Key: key, Value: c.Mark(coming)})
}

// Committed takes over the commit that stored the collected writes.
func (c *Conversation) Committed(lsn uint64) {
	c.changed = lsn
	c.Unsaved = map[string]bool{}
	clear(c.Reads)
}

// Failed notes a failed commit. The next use finds out by reading whether it happened.
func (c *Conversation) Failed(err error) {
	if c.loaded = false; errors.Is(err, store.ErrOutcomeUnknown) {
		c.unsure = true
		c.home.unsure.Store(true) // also for a Conversation that is made after this one was collected
	}
}

// change carries out a change that may enlarge the window: it makes room in the same transaction. It commits nothing when
// fn set no row.
func (c *Conversation) change(ctx context.Context, actor string, leaf manifest.Record, fn func(*Writes, *manifest.Record) error) error {
	return c.Exclusively(ctx, func() (err error) {
		w := c.Begin()
		before := w.Sets
		defer func() {
			if err != nil {
				c.loaded = false
			}
		}()
		if err := fn(w, &leaf); err != nil || w.Sets == before {
			return err
		}
		items, err := c.Relieve(ctx, w)
		if err != nil {
			return err
		}
		c.Number(w, &PassRow{Kind: session.PassBackstop, Items: items}, actor)
		return c.Commit(ctx, actor, w, leaf)
	})
}
