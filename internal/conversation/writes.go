package conversation

import (
	"fmt"
	"maps"
	"slices"

	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
	"github.com/vmihailenco/msgpack/v5"
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
	Err  error // the first that encoding gave

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

// Put sets a row to a value in msgpack.
func (w *Writes) Put(key string, v any) {
	raw, err := msgpack.Marshal(v)
	if err != nil && w.Err == nil {
		w.Err = fmt.Errorf("ctxpage: encode %s: %w", key, err)
	}
	w.Raw(key, raw)
}

func (w *Writes) row(key string, encode func() ([]byte, error)) {
	raw, err := encode()
	if err != nil && w.Err == nil {
		w.Err = fmt.Errorf("ctxpage: encode %s: %w", key, err)
	}
	w.Raw(key, raw)
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
		w.row(c.TurnKey(TurnRowKey, id), r.encode)
	} else if old != nil && old.filed { // of a turn that was deleted and comes anew
		w.Raw(c.TurnKey(TurnRowKey, id), nil)
	}
	if r.moved || old != nil && old.moved {
		r.moved = true
		w.row(c.TurnKey(PlaceRowKey, id), r.encodePlace)
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
		w.row(c.TurnKey(TurnRowKey, c.Blocks[i].ID), row.encode)
	}
	w.row(c.TurnKey(PlaceRowKey, c.Blocks[i].ID), row.encodePlace)
}

// Saved forgets what waited for a commit.
func (c *Turns) Saved() {
	c.Unsaved = map[string]bool{}
	clear(c.Reads)
}
