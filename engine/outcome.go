package engine

import (
	"bytes"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/store"
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
