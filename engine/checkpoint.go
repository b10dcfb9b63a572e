package engine

import (
	"errors"
	"time"

	"github.com/ctxpage/ctxpage/lexical"
	"github.com/ctxpage/ctxpage/store"
	"github.com/oklog/ulid/v2"
)

// A checkpoint writes into the rows what only the log has. The store that owns the rows drives it;
// the part in memory is here:
//
//	Freeze      the overlay becomes the old one, new commits fill a new one     cat.mu, briefly
//	FlushIndex  segments of the index, while many are due                       no lock; cat.mu briefly at the end of each
//	Flush       index and old overlay into the rows, in one transaction          no lock: the old overlay does not change
//	Thaw        the old overlay goes, the index takes its new segments          cat.mu, briefly
//
// Readers look at the overlay, the old one, then the rows. So between Flush and Thaw they find a
// row twice, and never not at all.
//
// A crash during Flush leaves the rows as they were. A crash after it leaves rows that the log
// repeats; redo skips commits up to the LSN of the rows. A step of FlushIndex that is durable
// before a crash is not undone either: install adds only pages above those the index has (Through).

// Waiting counts the rows that are neither in the file nor in a checkpoint under way.
type Waiting struct {
	Rows, Bytes int
	Since       time.Time // when the oldest row came; valid if Rows is not 0
}

// Waiting returns how much a checkpoint would have to write.
func (s *Engine) Waiting() Waiting {
	s.cat.mu.RLock()
	defer s.cat.mu.RUnlock()
	return Waiting{s.overlay.Rows(), s.overlay.Bytes, s.overlay.since}
}

// Flushed is what Flush wrote, for Thaw.
type Flushed struct {
	swap   lexical.Swap
	Newest ulid.ULID // the greatest batch id with an outcome in the rows
}

// Numbers returns the highest numbers in use up to an overlay that is about to be flushed, for
// Base.High.
func (s *Engine) Numbers(o *Overlay) string {
	s.high.add(o.high)
	return s.high.String()
}

// Flush writes the index and a frozen overlay into rows, and counts the rows that are new.
func (s *Engine) Flush(tx Writer, o *Overlay, n *RowCounts) (f Flushed, err error) {
	if f.swap, err = s.index.Checkpoint(SegRows{Reader: tx}, false); errors.Is(err, lexical.ErrCorrupt) {
		return f, s.badIndex(err)
	}
	if err == nil {
		err = applyOverlay(tx, o, n)
	}
	f.Newest = NewestOutcome(tx)
	return f, err
}

// FlushIndex writes much of the index into rows, in one bounded transaction after another, because
// a transaction keeps every row that it writes in memory. update runs one: it commits if fn returns
// nil, and returns fn's error. after is called after each.
func (s *Engine) FlushIndex(update func(fn func(Writer) error) error, after func() error) error {
	done := errors.New("nothing is left to do")
	for {
		var swap lexical.Swap
		err := update(func(tx Writer) (err error) {
			var more bool
			swap, more, err = s.index.Step(SegRows{Reader: tx})
			switch {
			case errors.Is(err, lexical.ErrCorrupt):
				return s.badIndex(err)
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
		s.cat.mu.Lock()
		s.index.Apply(swap)
		s.cat.mu.Unlock()
		if err := after(); err != nil {
			return err
		}
	}
}

// FlushTail writes what FlushIndex and Flush leave in memory of the index, so that an open need not
// analyse it again. It comes after a checkpoint; update is that of FlushIndex.
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

// Thaw releases the frozen overlay once its rows are written. f is nil if there were none. with
// runs at the same moment for readers: under their lock. releases is counted up, so that a batch
// that read rows before prepares again.
func (s *Engine) Thaw(f *Flushed, with func()) {
	s.cat.mu.Lock()
	defer s.cat.mu.Unlock()
	if f != nil {
		with()
		s.index.Apply(f.swap)
		s.releases.Add(1)
	}
	s.frozen = nil
	s.countUnflushed()
}

// Count fills in the counts of the catalogue. with runs under its lock.
func (s *Engine) Count(st *store.StoreStats, with func()) {
	c := s.cat
	c.mu.RLock()
	defer c.mu.RUnlock()
	st.LSN, st.Artefacts, st.Pages, st.PageVersions = c.lsn, c.live, c.livePages, c.versions
	st.Scopes, st.Unverified, st.Overlay, st.Checkpoints = len(c.byName), c.unproved, s.overlay.Rows(), s.releases.Load()
	with()
}
