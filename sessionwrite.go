package ctxpage

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
	"github.com/vmihailenco/msgpack/v5"
)

// changes collects the writes of one batch: state rows, and pages the database derives.
type changes struct {
	rows []store.StateRow
	at   map[string]int
	sets int // how often a row was set, the same one again included
	puts []store.Put
	err  error // the first that encoding gave

	texts map[uint64][]string // of turns on their way in, by the numbers that stand for those of their pages
}

// expect makes room for so many more rows.
func (w *changes) expect(n int) {
	w.rows = slices.Grow(w.rows, n)
	if len(w.at) < n {
		at := make(map[string]int, len(w.at)+n)
		maps.Copy(at, w.at)
		w.at = at
	}
}

func (w *changes) put(key string, v any) {
	raw, err := msgpack.Marshal(v)
	if err != nil && w.err == nil {
		w.err = fmt.Errorf("ctxpage: encode %s: %w", key, err)
	}
	w.raw(key, raw)
}

func (w *changes) row(key string, encode func() ([]byte, error)) {
	raw, err := encode()
	if err != nil && w.err == nil {
		w.err = fmt.Errorf("ctxpage: encode %s: %w", key, err)
	}
	w.raw(key, raw)
}

func (w *changes) raw(key string, v []byte) {
	w.sets++
	if i, ok := w.at[key]; ok {
		w.rows[i].Value = v
		return
	}
	w.at[key] = len(w.rows)
	w.rows = append(w.rows, store.StateRow{Key: key, Value: v})
}

// begin collects what is to be stored anyway: rows that were made again, and when turns were last read.
func (c *conversation) begin() *changes {
	w := &changes{at: map[string]int{}}
	for _, id := range slices.Sorted(maps.Keys(c.reads)) {
		if i := c.find(id); i >= 0 {
			c.setRow(w, i, func(r *turnRow) { r.Signals.LastRead = max(r.Signals.LastRead, c.reads[id]) })
		}
	}
	for _, id := range slices.Sorted(maps.Keys(c.unsaved)) {
		c.storeRow(w, id, c.rows[id])
	}
	return w
}

// storeRow stores a row that is new or was made again.
func (c *conversation) storeRow(w *changes, id string, r *turnRow) {
	w.row(c.turnKey(turnRowKey, id), r.encode)
	if old := c.rows[id]; r.moved || old != nil && old.moved { // of a turn that was deleted and comes anew
		r.moved = true
		w.row(c.turnKey(placeRowKey, id), r.encodePlace)
	}
	c.rows[id] = r
}

// commit writes what was collected. Memory was changed before it: when the commit fails, all of it is read again.
func (c *conversation) commit(ctx context.Context, s *Scope, w *changes, leaf manifest.Record) error {
	err := w.err
	if s.db.opts.ReadOnly {
		err = ErrReadOnly
	}
	id, idErr := s.db.newID()
	if err = errors.Join(err, idErr); err == nil {
		leaf.Session = c.id
		_, err = s.db.store.Commit(ctx, store.Batch{
			ID: id, Scope: c.scope, Actor: s.actor, Now: s.db.opts.Clock(), OnStale: AllowStale, Puts: w.puts, State: w.rows, Leaf: leaf,
		})
	}
	if err != nil {
		c.failed(err)
		return err
	}
	c.saved()
	c.gen++
	return nil
}

// failed has all of it read again after a commit: whether it happened is found by that.
func (c *conversation) failed(err error) {
	if c.loaded = false; errors.Is(err, ErrOutcomeUnknown) {
		c.unsure = true
		c.db.talks.unsure.Store(true) // also for who opens it after it was collected
	}
}

// saved forgets what waited for a commit.
func (c *conversation) saved() {
	c.unsaved = map[string]bool{}
	clear(c.reads)
}

// setRow changes the place of a turn, in memory and in the batch: what encodePlace writes, and nothing else of the row.
func (c *conversation) setRow(w *changes, i int, change func(*turnRow)) {
	old := c.blocks[i].row
	row := *old
	change(&row)
	row.moved = true
	if c.shown(i) == session.Cold && row.Level == old.Level && row.Because == old.Because && row.Pinned == old.Pinned && row.Yielded == old.Yielded {
		c.blocks[i].row = &row // it was read, and stays out of the window
	} else {
		c.recount(c.blocks[i].unit, func() { c.blocks[i].row = &row })
	}
	c.rows[c.blocks[i].id] = &row
	w.row(c.turnKey(placeRowKey, c.blocks[i].id), row.encodePlace)
}
