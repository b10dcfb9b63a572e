package ctxpage

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/ctxpage/ctxpage/internal/talk"
	"github.com/ctxpage/ctxpage/store"
)

// conversation is a session in the memory of this process: its turns (talk.Conversation), and what ties them to the store.
// One change of a session happens at a time, decided on what is stored and committed before the next:
//
//	exclusively  lock ─▶ refresh ─▶ fn: ask, change memory, collect writes ─▶ commit ─▶ unlock
//	                      │                                                    │
//	                      │ change row as it was: the new members only         │ done: Saved
//	                      ▼ moved, or not loaded: everything                   ▼ failed: not loaded
//
// Its lock comes before all others (db.go). What others write to the group by plain puts is found by the members' list, what
// another process decided by the change row, which every commit expects to be as it was (guard); the loser decides anew.
// Memory is changed before the commit, so after a failure all of it is read again: also when the outcome is unknown, and then
// only once nothing is on its way any more (unsure).
type conversation struct {
	*talk.Conversation // under lock
	db                 *DB
	lock               chan struct{} // of one place; a channel, so that a context can end the wait

	loaded  bool
	unsure  bool // a commit that failed may still happen
	gcs     uint64
	changed uint64 // LSN of the row talk.ChangeRowKey: of the last commit of the session, by whatever process
	lsn     uint64 // of the store when the members were listed
	watch   atomic.Pointer[Watcher]
}

func newConversation(db *DB, scope, id string) *conversation {
	return &conversation{Conversation: talk.NewConversation(scope, id, db.opts.Counter), db: db, lock: make(chan struct{}, 1)}
}

// exclusively runs fn on the session as it is now, and again when another process changed the session before what fn
// commits: every commit of a session expects its change row to be as it was when the session was read.
func (c *conversation) exclusively(ctx context.Context, fn func() error) error {
	return whileConflicting(ctx, func() error { return c.once(ctx, fn) })
}

func (c *conversation) once(ctx context.Context, fn func() error) error {
	select {
	case c.lock <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	whole := false
	defer func() {
		if !whole { // a counter of the host panicked: what is in memory may be half of something
			c.loaded = false
		}
		<-c.lock
	}()
	err := c.refresh(ctx)
	if err == nil {
		err = fn()
	}
	whole = true
	return err
}

// refresh brings the memory up to the store: nothing, the new turns, or everything that changed.
func (c *conversation) refresh(ctx context.Context) error {
	if gcs := c.db.talks.gcs.Load(); gcs != c.gcs { // rows of turns that were deleted are gone
		c.gcs, c.loaded = gcs, false
	}
	change, err := c.db.store.State(ctx, c.Key(talk.ChangeRowKey))
	if err != nil {
		return err
	}
	if !c.loaded || change.LSN != c.changed { // else another process committed
		c.changed = change.LSN
		if err := c.load(ctx); err != nil {
			return err
		}
	}
	page, err := c.db.store.Scan(ctx, store.ScanQuery{What: store.ScanMembers, Scopes: store.Scopes{c.Scope}, Group: c.ID, Known: c.lsn})
	if err != nil {
		return err
	}
	keys := page.Keys
	if page.Same {
		keys = append(c.Keys, keys...)
	}
	c.lsn = max(c.lsn, page.LSN)
	if err := c.follow(ctx, keys, page.Same); err != nil {
		c.loaded = false // half taken over: read all of it again
		return err
	}
	return nil
}

// follow takes the members of the session as they are now.
func (c *conversation) follow(ctx context.Context, keys []store.PageKey, grown bool) error {
	known, fresh := c.Follow(keys, grown)
	if known == len(keys) && known == len(c.Keys) && c.Staged == 0 {
		return nil
	}
	heads, err := c.heads(ctx, fresh)
	if err != nil {
		return err
	}
	for _, h := range heads {
		old, yes := c.Outdated(h)
		if !yes {
			continue
		}
		texts, err := c.db.texts(ctx, store.Scopes{c.Scope}, old.Keys())
		if err != nil {
			return err
		}
		c.Remake(old, texts)
	}
	c.Take(keys, known, heads)
	return nil
}

// heads loads the heads of the turns whose first page is among the keys, in their order.
func (c *conversation) heads(ctx context.Context, keys []store.PageKey) ([]*store.Head, error) {
	loaded, err := c.db.store.Load(ctx, store.Scopes{c.Scope}, keys, store.WantHead)
	if err != nil {
		return nil, err
	}
	heads := make([]*store.Head, 0, len(loaded))
	for i := range loaded {
		if l := &loaded[i]; l.Err != nil {
			return nil, l.Err
		} else if l.Page == 1 {
			heads = append(heads, l.Head)
		}
	}
	return heads, nil
}

// load reads the rows. A session without a row is one that only plain puts have written to.
func (c *conversation) load(ctx context.Context) error {
	if c.unsure { // what is read before the commit becomes visible would stay: nothing tells of rows that change
		if _, err := c.db.store.Refresh(ctx, 0); err != nil && ctx.Err() != nil {
			return err
		}
		c.unsure = false
	}
	c.lsn = 0
	row, err := c.db.store.State(ctx, c.Key(talk.SessionRowKey))
	if err != nil {
		return err
	}
	if err := c.Reset(row.Value); err != nil {
		return err
	}
	if err := c.loadRows(ctx, talk.TurnRowKey, c.TakeTurn); err != nil {
		return err
	}
	if err := c.loadRows(ctx, talk.PlaceRowKey, c.TakePlace); err != nil {
		return err
	}
	force, verdicts, err := c.loadForce(ctx, c.State.InForce)
	if err != nil {
		return err
	}
	c.Enforce(force, verdicts)
	c.loaded = true
	return nil
}

// loadRows reads the rows of one kind that are kept of the turns.
func (c *conversation) loadRows(ctx context.Context, kind string, take func(id string, raw []byte) error) error {
	prefix := c.TurnKey(kind, "")
	return c.db.scanState(ctx, prefix, func(r store.StateRow) error { return take(r.Key[len(prefix):], r.Value) })
}

// loadForce reads a pass that is to be in force and its verdicts; 0: there is none.
func (c *conversation) loadForce(ctx context.Context, n uint64) (p talk.PassRow, verdicts map[uint64]talk.Verdict, err error) {
	if verdicts, err = c.loadVerdicts(ctx, n); err == nil && n != 0 {
		p, err = c.loadPass(ctx, n)
	}
	return p, verdicts, err
}

// scanState walks state rows by prefix.
func (db *DB) scanState(ctx context.Context, prefix string, fn func(store.StateRow) error) error {
	for cursor := ""; ; {
		page, err := db.store.Scan(ctx, store.ScanQuery{What: store.ScanState, Prefix: prefix, Cursor: cursor, Limit: 4096})
		if err != nil {
			return err
		}
		for _, r := range page.State {
			if err := fn(r); err != nil {
				return err
			}
		}
		if cursor = page.Next; cursor == "" {
			return nil
		}
	}
}

// texts pages texts in, through the working set.
func (db *DB) texts(ctx context.Context, scopes store.Scopes, keys []store.PageKey) ([]string, error) {
	frames, errs, err := db.table.load(ctx, scopes, keys)
	if err != nil {
		return nil, err
	}
	defer db.table.unpin(frames)
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	out := make([]string, len(frames))
	for i, f := range frames {
		out[i] = f.text
	}
	return out, nil
}
