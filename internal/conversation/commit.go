package conversation

import (
	"context"
	"errors"

	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
)

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
	err := w.Err
	if c.host.ReadOnly {
		err = store.ErrReadOnly
	}
	id, idErr := c.host.NewID()
	if err = errors.Join(err, idErr); err == nil {
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
	c.Saved()
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
