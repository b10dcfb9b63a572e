package engine

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sort"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/oklog/ulid/v2"
)

// The outcome of a batch is found by its id. A caller that lost the answer asks again with the id
// and never applies the batch twice.
//
// 	in flight     the sequencer has the commit: wait for it
// 	overlay       installed, not yet in the rows
// 	rows          the newest outcomesKept, at most OutcomeDays old
// 	audit         every id ever used, without its outcome: enough to refuse it (usedBefore)
//
// The places are asked in this order, because a batch moves down the list and never up: a caller
// that looked in the other order could miss it between two places.
//
// A row is written in the record of its commit (format.Commit.Result) and in no other way, except by
// an erase that takes names (EraseOutcomes). It has no digest of its own: it is compared with its leaf
// (confirmedBy) before it is used.

// answer returns the outcome to a batch if it is the batch that the outcome was made for. Another
// scope and another content get the same error, which tells nothing about the batch that has the
// id.
func (s *Engine) answer(row []byte, b *store.Batch) (*store.Outcome, error) {
	r, leaf, err := s.outcomeOf(row, b.ID)
	if err != nil {
		return nil, err
	}
	if bytes.Equal(r.Bound, b.Bound) && (leaf == nil || leaf.Scope == b.Scope || leaf.From != "") {
		return &r.Outcome, nil
	}
	return nil, store.Invalid("batch id", b.ID.String(), "an id of your own: a new one, or that of the same batch in the same scope")
}

// outcomeOf reads the outcome of an id together with the leaf that proves it; the leaf is nil if
// rows are trusted (tests).
func (s *Engine) outcomeOf(row []byte, id ulid.ULID) (r format.OutcomeRow, leaf *manifest.Record, err error) {
	if r, err = format.DecodeOutcome(row); err != nil {
		return r, nil, s.Corrupt("outcome of "+id.String(), err)
	}
	if s.opts.Trust {
		return r, nil, nil
	}
	leaf, err = s.Leaves.Leaf(r.Leaf)
	if err != nil && !errors.Is(err, manifest.ErrNoLeaf) {
		return r, nil, AuditError(err)
	}
	if err == nil && leaf.Pruned != nil && len(r.Bound) > 0 { // a stub does not name its scope; the digest binds that
		leaf.Scope, leaf.From = "", cmp.Or(leaf.From, leaf.Trace)
	}
	if err != nil || !confirmedBy(&r.Outcome, leaf, id.String()) {
		return r, nil, s.Corrupt("outcome of "+id.String(), errOutcome)
	}
	return r, leaf, nil
}

var errOutcome = errors.New("it is not how the batch ended: its audit leaf says something else")

// confirmedBy reports whether a leaf says what an outcome says. An outcome has no digest of its own,
// because everything a caller acts upon is in its leaf: status, LSN, and what was written.
func confirmedBy(out *store.Outcome, leaf *manifest.Record, id string) bool {
	if leaf.Batch != id || leaf.LSN != out.LSN || leaf.Status != out.Status.String() {
		return false
	}
	for _, list := range [][]store.Ref{out.Refs, out.Repeats} {
		for _, ref := range list {
			named := func(w manifest.Write) bool {
				is, err := store.ParseRef(w.Ref)
				return err == nil && is.Scope == ref.Scope && is.ID == ref.ID && is.Version == ref.Version
			}
			if !slices.ContainsFunc(leaf.Writes, named) {
				return false
			}
		}
	}
	return true
}

// outcome looks up the id of a batch; nil: it is new, or spent. spent: the audit has the id and no
// row has its outcome. That holds for an old id, and for one that is in flight or was until a
// moment ago; only the owner of the log's tail can tell the two apart.
func (s *Engine) outcome(ctx context.Context, b *store.Batch) (out *store.Outcome, spent bool, err error) {
	row, spent, err := s.outcomeRow(ctx, b.ID)
	if row == nil || err != nil {
		return nil, spent, err
	}
	out, err = s.answer(row, b)
	return out, false, err
}

// outcomeRow is the row of an id, in the overlay or in the log; see outcome.
func (s *Engine) outcomeRow(ctx context.Context, id ulid.ULID) (row []byte, spent bool, err error) {
	if row = s.overlayOutcome(id); row != nil {
		return row, false, nil
	}
	row, err = s.log.Outcome(ctx, id)
	if errors.Is(err, ErrTooOld) {
		spent, err = s.usedBefore(id)
	}
	return row, spent, err
}

// Outcome: see store.Store. A batch is found in one place at least: in flight until it is in the
// overlay, there until it is in the rows, so the places are looked at in that order.
func (s *Engine) Outcome(ctx context.Context, id ulid.ULID) (store.Outcome, error) {
	if err := s.Readable(ctx); err != nil {
		return store.Outcome{}, err
	}
	s.seq.flight.Lock()
	c := s.seq.ids[id]
	s.seq.flight.Unlock()
	if c != nil {
		if err := s.wait(ctx, c); err != nil {
			return store.Outcome{}, err
		}
	}
	row, spent, err := s.outcomeRow(ctx, id)
	if err != nil {
		return store.Outcome{}, err
	}
	if row != nil {
		r, _, err := s.outcomeOf(row, id)
		return r.Outcome, err
	}
	if err := s.Failure(); err != nil { // it may be in the log without having become visible
		return store.Outcome{}, err
	}
	if age := s.opts.Now().Sub(ulid.Time(id.Time())); spent || age > format.OutcomeDays {
		return store.Outcome{}, fmt.Errorf("%w: outcomes are kept for %s, and the newest %d; the manifest has it under that trace, if it was used", store.ErrTxnExpired, format.OutcomeDays, outcomesKept)
	}
	return store.Outcome{}, fmt.Errorf("%w: no batch %s was applied, held or decided", store.ErrNotFound, id)
}

// overlayOutcome is the row of the outcome of an id that is not in the rows yet; nil: it is in
// them, or there is none.
func (s *Engine) overlayOutcome(id ulid.ULID) []byte {
	s.cat.mu.RLock()
	defer s.cat.mu.RUnlock()
	row := s.overlay.result[id]
	if row == nil && s.frozen != nil {
		row = s.frozen.result[id]
	}
	return row
}

// OutcomeIn returns the outcome row of a batch id from rows; nil: there is none. A Log that has
// rows implements Log.Outcome with it.
func OutcomeIn(tx Reader, id ulid.ULID) ([]byte, error) {
	v := tx.Get(TableTxn, id[:])
	if v == nil {
		for k := range tx.From(TableTxn, nil) {
			if bytes.Compare(id[:], k) < 0 {
				return nil, ErrTooOld
			}
			break
		}
		return nil, nil
	}
	row, err := codec.Unseal('t', id[:], v)
	return slices.Clone(row), err
}

// NewestOutcome returns the greatest id that has an outcome in the file.
func NewestOutcome(tx Reader) (id ulid.ULID) {
	copy(id[:], tx.Last(TableTxn))
	return id
}

// I19. An outcome has no digest: all of it that matters is in its leaf (confirmedBy). If an outcome is
// removed from the file, its batch can be applied a second time, but only if its id is ahead of the
// clock: for every other id the audit is asked (usedBefore).
//
// Which outcomes may be missing follows from the audit alone. A checkpoint drops the outcomes with
// the smallest ids, those beyond the newest outcomesKept and those older by OutcomeDays and a day
// than the newest. So an outcome is due if fewer than outcomesKept batches with greater ids were
// ever committed, and none is that much younger.

// outcomeWalk collects what a check knows of outcomes.
type outcomeWalk struct {
	rows map[ulid.ULID]store.Outcome // of the file
	seen map[ulid.ULID]bool          // of rows: their leaf was found
	told []ulid.ULID                 // batches that the audit names; the newest of them, at least
}

// row takes an outcome of the file, which decodes.
func (w *outcomeWalk) row(id, row []byte) {
	r, err := format.DecodeOutcome(row)
	if len(id) != len(ulid.ULID{}) || err != nil {
		return
	}
	if w.rows == nil {
		w.rows, w.seen = map[ulid.ULID]store.Outcome{}, map[ulid.ULID]bool{}
	}
	w.rows[ulid.ULID(id)] = r.Outcome
}

// newest drops batches that are too old to be due, and says from which time on an outcome is.
func (w *outcomeWalk) newest() (from uint64) {
	sort.Slice(w.told, func(i, j int) bool { return w.told[j].Compare(w.told[i]) < 0 })
	w.told = slices.Compact(w.told)
	w.told = w.told[:min(len(w.told), outcomesKept)]
	if len(w.told) == 0 {
		return 0
	}
	return w.told[0].Time() - min(w.told[0].Time(), outcomeAge)
}

// outcomeStatuses are the statuses of leaves whose batch has an outcome.
var outcomeStatuses = []string{store.StatusApplied.String(), store.StatusHeld.String(), store.StatusRejected.String()}

// outcome takes a leaf of the audit, in any order.
func (c *invariantWalk) outcome(r *manifest.Record) {
	if r.Batch == "" || r.LSN == 0 || r.LSN > c.base.Applied || !slices.Contains(outcomeStatuses, r.Status) {
		return
	}
	id, err := ulid.ParseStrict(r.Batch)
	if err != nil {
		return
	}
	w := &c.outcomes
	if w.told = append(w.told, id); len(w.told) > 4*outcomesKept {
		w.newest()
	}
	out, ok := w.rows[id]
	if !ok || out.Leaf != r.Index {
		return
	}
	w.seen[id] = true
	if !confirmedBy(&out, r, r.Batch) {
		c.bad("I19", "outcome of "+r.Batch, "%v", errOutcome)
	}
}

// outcomesDue ends the walk of I19.
func (c *invariantWalk) outcomesDue() {
	w := &c.outcomes
	for _, id := range slices.SortedFunc(maps.Keys(w.rows), ulid.ULID.Compare) {
		if !w.seen[id] {
			c.bad("I19", "outcome of "+id.String(), "no audit leaf tells it")
		}
	}
	from := w.newest()
	for _, id := range w.told {
		if _, ok := w.rows[id]; !ok && id.Time() > from {
			c.bad("I19", "outcome of "+id.String(), "it is missing, and the audit says that the batch was committed, held or decided")
		}
	}
}
