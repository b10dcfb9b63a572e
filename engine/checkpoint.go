package engine

import (
	"errors"
	"time"

	"github.com/ctxpage/ctxpage/lexical"
	"github.com/ctxpage/ctxpage/store"
	"github.com/oklog/ulid/v2"
)

// A checkpoint brings into the rows what only the log has. The store that owns the rows drives it; what is in memory
// changes here:
//
//	Freeze      the overlay becomes the old one, new commits fill a new one     cat.mu, briefly
//	FlushIndex  segments of the index, while many are due                       no lock; its end takes cat.mu, briefly
//	Flush       index and old overlay into the rows, in a transaction of theirs no lock: the old overlay does not change
//	Thaw        the old overlay goes, the index takes its new segments          cat.mu, briefly
//
// Readers look at the overlay, the old one, then the rows, so between Flush and Thaw they find a row twice and never
// not at all.

// Waiting is what is not in the rows yet and not in a checkpoint under way either.
type Waiting struct {
	Rows, Bytes int
	Since       time.Time // when the oldest came, if Rows is not 0
}

// Waiting tells how much a checkpoint would have to do.
func (s *Engine) Waiting() Waiting {
	s.cat.mu.RLock()
	defer s.cat.mu.RUnlock()
	return Waiting{s.overlay.Rows(), s.overlay.Bytes, s.overlay.since}
}

// Flushed is what Flush wrote.
type Flushed struct {
	swap   lexical.Swap
	Newest ulid.ULID // greatest batch id with an outcome in the rows
}

// Numbers are the highest that were in use up to an overlay that is about to be flushed, for Base.High.
func (s *Engine) Numbers(o *Overlay) string {
	s.high.add(o.high)
	return s.high.String()
}

// Flush writes the index and an overlay that Freeze gave into rows, and counts those that are new.
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

// FlushIndex brings much of the index into rows, one bounded transaction after the other. update runs one: it commits when
// fn returns nil, and gives back fn's error. after is called behind each.
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

// Thaw lets go of the old overlay once its rows are written; nil: there were none. with runs at the same moment for
// readers: under their lock.
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

// Count fills in what the catalogue counts. with runs under its lock.
func (s *Engine) Count(st *store.StoreStats, with func()) {
	c := s.cat
	c.mu.RLock()
	defer c.mu.RUnlock()
	st.LSN, st.Artefacts, st.Pages, st.PageVersions = c.lsn, c.live, c.livePages, c.versions
	st.Scopes, st.Unverified, st.Overlay, st.Checkpoints = len(c.scopes), c.unproved, s.overlay.Rows(), s.releases.Load()
	with()
}
