package engine

import (
	"bytes"
	"slices"
	"time"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/store"
	"github.com/oklog/ulid/v2"
)

// outcomeRow is an outcome as it is stored. Bound is what the id of the batch stands for (Batch.Bound): an id is no
// secret, so whoever repeats it must also repeat the batch, in the same scope, to learn how it ended.
type outcomeRow struct {
	store.Outcome
	Bound []byte `msgpack:",omitempty"`
}

// answer gives the outcome to a batch that is the one it was made for. Another scope and another content get the same
// error, which says nothing about the batch that has the id.
func (s *Engine) answer(row []byte, b *store.Batch) (*store.Outcome, error) {
	var r outcomeRow
	if err := codec.Unpack(row, &r); err != nil {
		return nil, s.Corrupt("outcome of "+b.ID.String(), err)
	}
	if len(r.Bound) > 0 && bytes.Equal(r.Bound, b.Bound) || len(r.Bound) == 0 && s.endedIn(&r.Outcome, b) {
		return &r.Outcome, nil
	}
	return nil, store.Invalid("batch id", b.ID.String(), "an id of your own: a new one, or that of the same batch in the same scope")
}

// endedIn says whether an outcome is that of a batch of the same id and scope. Programs of old kept no digest with it; the
// audit knows the scope.
func (s *Engine) endedIn(out *store.Outcome, b *store.Batch) bool {
	leaf, err := s.Leaves.Leaf(out.Leaf)
	return err == nil && leaf.Batch == b.ID.String() && leaf.Scope == b.Scope
}

// outcomeDays is how long the outcome of a batch id is remembered. An older id is refused and never applied again.
const outcomeDays = 7 * 24 * time.Hour

// idAhead is how far the clock of whoever made a batch id may be ahead of ours. It is less than what forgetOutcomes
// keeps beyond outcomeDays, so that no id in use is ever forgotten.
const idAhead = 12 * time.Hour

// outcome looks the id of a batch up in overlay and file; nil: it is new, or spent. Spent: the audit has the id and
// neither of them has its outcome, which is so of an old one, and of one that is in flight or was until a moment ago: only
// under the sequencer the two can be told apart. Ids sort by time, so that one that was just made is above all those in
// the file, which need not be read then.
func (s *Engine) outcome(b *store.Batch) (out *store.Outcome, spent bool, err error) {
	id := b.ID
	row, above := s.overlayOutcome(id)
	if row == nil && !above {
		older := false // than all that are kept
		err := s.Rows.View(func(tx Reader) error {
			v := tx.Get(TableTxn, id[:])
			if v == nil {
				for k := range tx.From(TableTxn, nil) {
					older = bytes.Compare(id[:], k) < 0
					break
				}
				return nil
			}
			sealed, err := codec.Unseal('t', id[:], v)
			if err != nil {
				return s.Corrupt("outcome of "+id.String(), err)
			}
			row = slices.Clone(sealed)
			return nil
		})
		if err == nil && older {
			spent, err = s.usedBefore(id)
		}
		if err != nil {
			return nil, false, err
		}
	}
	if row == nil {
		return nil, spent, nil
	}
	out, err = s.answer(row, b)
	return out, false, err
}

// overlayOutcome returns the row of an id that is not in the file yet, and whether it is above every id in the file.
func (s *Engine) overlayOutcome(id ulid.ULID) (row []byte, above bool) {
	s.Catalogue.Mu.RLock()
	defer s.Catalogue.Mu.RUnlock()
	row = s.Overlay.result[id]
	if row == nil && s.Old != nil {
		row = s.Old.result[id]
	}
	return row, id.Compare(s.Filed) > 0
}

// NewestOutcome returns the greatest id that has an outcome in the file.
func NewestOutcome(tx Reader) (id ulid.ULID) {
	copy(id[:], tx.Last(TableTxn))
	return id
}
