package engine

import (
	"errors"
	"time"

	"github.com/ctxpage/ctxpage/internal/lexical"
	"github.com/ctxpage/ctxpage/store"
	"github.com/oklog/ulid/v2"
)

// A checkpoint writes into the rows what only the log has. The store that owns the rows drives it;
// the part in memory is here:
//
//	Checkpoint  the overlay is frozen, new commits fill a new one               cat.mu, briefly
//	Steps       segments of the index, while many are due                       no lock; cat.mu briefly at the end of each
//	Write       index and frozen overlay into the rows, in one transaction       no lock: a frozen overlay does not change
//	Done        the frozen overlay goes, the index takes its new segments       cat.mu, briefly
//
// Readers look at the overlay, the frozen one, then the rows. So between Write and Done they find a
// row twice, and never not at all.
//
// A crash during Write leaves the rows as they were. A crash after it leaves rows that the log
// repeats; redo skips commits up to the LSN of the rows. A step that is durable before a crash is
// not undone either: install adds only pages above those the index has (Through).

// Waiting counts the rows that are neither in the store's tables nor in a checkpoint under way.
type Waiting struct {
	Rows, Bytes int
	Since       time.Time // when the oldest row came; valid if Rows is not 0
	Vectors     int       // rows that are not in the log either, also those of a checkpoint under way
}

// Waiting returns how much a checkpoint would have to write.
func (s *Engine) Waiting() Waiting {
	s.cat.mu.RLock()
	defer s.cat.mu.RUnlock()
	w := Waiting{s.overlay.Rows(), s.overlay.Bytes, s.overlay.since, len(s.overlay.vecs)}
	if s.frozen != nil {
		w.Vectors += len(s.frozen.vecs)
	}
	return w
}

// Checkpoint is one checkpoint: the frozen rows, and the commit they end with. It is not safe for
// concurrent use, and an engine has one at a time: the store holds a lock from Engine.Checkpoint to
// Done.
//
// LSN is that of the newest commit in the rows, Seq its record in the log, and Leaves the number of
// audit leaves up to there. If no commit came since the previous checkpoint, they are the same as
// in that one. The store writes them with the rows.
type Checkpoint struct {
	LSN, Seq, Leaves uint64
	Rows, Bytes      int  // what Write writes; Bytes is an estimate. 0 rows: there is nothing to write
	Retry            bool // it has the rows of a checkpoint that failed: newer commits wait for the next one

	eng    *Engine
	rows   *overlay
	swap   lexical.Swap
	newest ulid.ULID // the greatest batch id with an outcome in the rows
	wrote  bool
}

// Checkpoint begins a checkpoint: it freezes the overlay, and new commits fill a new one. If the
// previous checkpoint failed, its rows must be written first, so this one has the same rows
// (Retry). It may run beside commits and reads, but not beside another checkpoint.
//
//	Checkpoint ──▶ Steps ──▶ Write ──the store commits──▶ Done
//	               │           └─ failed: no Done; the overlay stays frozen, and Retry has it again
//	               └─ failed: the steps that were committed stay; the next checkpoint goes on behind them
func (s *Engine) Checkpoint() *Checkpoint {
	o, retry := s.freeze()
	return &Checkpoint{LSN: o.LSN, Seq: o.Seq, Leaves: o.Leaves, Rows: o.Rows(), Bytes: o.Bytes, Retry: retry, eng: s, rows: o}
}

// Write writes the index and the frozen overlay into rows, and brings n up to date: the counts of
// rows, and up to which leaf the questions are complete. It returns the highest numbers in use, for
// Base.High. If it or its transaction fails, the checkpoint has failed.
func (c *Checkpoint) Write(tx Writer, n *RowCounts) (high string, err error) {
	c.eng.high.add(c.rows.high)
	n.asked = max(n.asked, c.rows.askedTo)
	if c.swap, err = c.eng.index.Checkpoint(SegRows{Reader: tx}, false); errors.Is(err, lexical.ErrCorrupt) {
		return "", c.eng.badIndex(err)
	}
	if err == nil {
		err = applyOverlay(tx, c.rows, n)
	}
	c.newest, c.wrote = NewestOutcome(tx), true
	return c.eng.high.String(), err
}

// Steps writes much of the index into rows before Write, in one bounded transaction after another,
// because a transaction keeps every row that it writes in memory. update runs one: it commits if fn
// returns nil, and returns fn's error. after is called after each.
func (c *Checkpoint) Steps(update func(fn func(Writer) error) error, after func() error) error {
	done := errors.New("nothing is left to do")
	for {
		var swap lexical.Swap
		err := update(func(tx Writer) (err error) {
			var more bool
			swap, more, err = c.eng.index.Step(SegRows{Reader: tx})
			switch {
			case errors.Is(err, lexical.ErrCorrupt):
				return c.eng.badIndex(err)
			case err == nil && !more:
				return done // and nothing is written
			}
			return err
		})
		switch {
		case err == done:
			return nil
		case err != nil:
			return err
		}
		c.eng.cat.mu.Lock()
		c.eng.index.Apply(swap)
		c.eng.cat.mu.Unlock()
		if err := after(); err != nil {
			return err
		}
	}
}

// Done ends a checkpoint once the transaction of Write is committed. From then on readers use the
// written rows. with runs under the readers' lock, so readers see its effect at the same moment; it
// gets the greatest batch id that has an outcome in the rows. If there was nothing to write and
// Write did not run, with is not called. Do not call Done after a failure: the rows stay frozen for
// the next checkpoint.
func (c *Checkpoint) Done(with func(newest ulid.ULID)) {
	s := c.eng
	s.cat.mu.Lock()
	defer s.cat.mu.Unlock()
	if c.wrote {
		with(c.newest)
		s.index.Apply(c.swap)
		s.releases.Add(1) // a batch that read rows before prepares again
	}
	s.frozen = nil
	s.countUnflushed()
}

// FlushTail writes the part of the index that a checkpoint leaves in memory, so that the next open
// need not analyse those pages again. Call it after a checkpoint; update is as in Checkpoint.Steps.
func (s *Engine) FlushTail(update func(fn func(Writer) error) error) error {
	var swap lexical.Swap
	err := update(func(tx Writer) (err error) {
		if swap, err = s.index.Rest(SegRows{Reader: tx}); errors.Is(err, lexical.ErrCorrupt) {
			return s.badIndex(err)
		}
		return err
	})
	if err == nil {
		s.cat.mu.Lock()
		defer s.cat.mu.Unlock()
		s.index.Apply(swap)
	}
	return err
}

// Count fills in the counts of the catalogue. with runs under its lock.
func (s *Engine) Count(st *store.StoreStats, with func()) {
	c := s.cat
	c.mu.RLock()
	defer c.mu.RUnlock()
	st.LSN, st.Artefacts, st.Pages, st.PageVersions = c.lsn, c.live, c.livePages, c.versions
	st.Scopes, st.Overlay, st.Checkpoints = len(c.byName), s.overlay.Rows(), s.releases.Load()
	with()
}
