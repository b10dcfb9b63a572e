package ctxpage

import (
	"context"
	"errors"

	"github.com/ctxpage/ctxpage/internal/talk"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// How a change of a session reaches the store. Memory is changed first and is right only if the commit succeeds:
//
//	collected ──commit──▶ saved     the change row has the LSN of this commit
//	              │
//	              ├─refused─▶ failed: not loaded; the next use reads all of it
//	              └─unknown─▶ failed and unsure: the next use asks the store first what is on its way (Refresh)
//
// Invariant: every batch of a session expects its change row to be as it was when the session was read, and writes it.
// Of two processes that decide on the same state one is refused, and decides anew (conversation.exclusively).

// commit writes what was collected. Memory was changed before it: when the commit fails, all of it is read again.
func (c *conversation) commit(ctx context.Context, s *Scope, w *talk.Writes, leaf manifest.Record) error {
	err := w.Err
	if s.db.opts.ReadOnly {
		err = ErrReadOnly
	}
	id, idErr := s.db.newID()
	if err = errors.Join(err, idErr); err == nil {
		leaf.Session = c.ID
		b := store.Batch{ID: id, Scope: c.Scope, Actor: s.actor, Now: s.db.opts.Clock(), OnStale: AllowStale, Puts: w.Puts, State: w.Rows, Leaf: leaf}
		c.guard(&b)
		var out Outcome
		if out, err = s.db.store.Commit(ctx, b); err == nil {
			c.saved(out.LSN)
		}
	}
	if err != nil {
		c.failed(err)
		return err
	}
	return nil
}

// guard has a batch refused when another process changed the session since it was read, and tells that one of this batch.
func (c *conversation) guard(b *store.Batch) {
	key := c.Key(talk.ChangeRowKey)
	b.ExpectState = append(b.ExpectState, store.StatePre{Key: key, LSN: c.changed})
	b.State = append(b.State, store.StateRow{Key: key, Value: []byte{1}})
}

// saved forgets what waited for a commit, which was that of an LSN.
func (c *conversation) saved(lsn uint64) {
	c.changed = lsn
	c.Saved()
}

// failed has all of it read again after a commit: whether it happened is found by that.
func (c *conversation) failed(err error) {
	if c.loaded = false; errors.Is(err, ErrOutcomeUnknown) {
		c.unsure = true
		c.db.talks.unsure.Store(true) // also for who opens it after it was collected
	}
}
