package ctxpage

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/vmihailenco/msgpack/v5"
)

// boundBytes is how much of the digest of a batch its outcome keeps.
const boundBytes = 16

// outcomeRow is an outcome as it is stored. Bound is what the id of the batch stands for (Batch.Bound): an id is no
// secret, so whoever repeats it must also repeat the batch, in the same scope, to learn how it ended.
type outcomeRow struct {
	Outcome
	Bound []byte `msgpack:",omitempty"`
}

// answer gives the outcome to a batch that is the one it was made for. Another scope and another content get the same
// error, which says nothing about the batch that has the id.
func (s *fileStore) answer(row []byte, b *Batch) (*Outcome, error) {
	var r outcomeRow
	if err := unpack(row, &r); err != nil {
		return nil, s.corrupt("outcome of "+b.ID.String(), err)
	}
	if len(r.Bound) > 0 && bytes.Equal(r.Bound, b.Bound) || len(r.Bound) == 0 && s.endedIn(&r.Outcome, b) {
		return &r.Outcome, nil
	}
	return nil, invalid("batch id", b.ID.String(), "an id of your own: a new one, or that of the same batch in the same scope")
}

// endedIn says whether an outcome is that of a batch of the same id and scope. Programs of old kept no digest with it; the
// audit knows the scope.
func (s *fileStore) endedIn(out *Outcome, b *Batch) bool {
	leaf, err := s.man.Leaf(out.Leaf)
	return err == nil && leaf.Batch == b.ID.String() && leaf.Scope == b.Scope
}

// bind digests what a batch asks for. What the clock, the salts, the gate and the state of the database put into it is
// left out, so that a host that repeats the batch after a crash gives the same digest.
func (b *Batch) bind() error {
	h := sha256.New()
	e := msgpack.NewEncoder(h)
	e.SetSortMapKeys(true)
	err := errors.Join(e.EncodeString(b.Scope), e.EncodeInt(int64(len(b.Puts))))
	for i := range b.Puts {
		p := &b.Puts[i]
		a := p.Artefact
		a.ExpiresAt, a.TTL = time.Time{}, 0
		if !p.AsOfGiven || a.Source != "" {
			a.CurrentAsOf = time.Time{}
		}
		if len(a.DerivedFrom) > 0 {
			a.Provenance = 0 // that of the least of its parents, as they are by now
		}
		a.DerivedFrom = make([]Ref, len(p.Artefact.DerivedFrom))
		for j, r := range p.Artefact.DerivedFrom {
			a.DerivedFrom[j] = Ref{Scope: r.Scope, ID: r.ID}
		}
		err = errors.Join(err, e.Encode(&a))
		if a.Source != "" {
			continue // its text is the source's, which may say something else by now
		}
		size := 0
		for j := range p.Pages {
			size += len(p.Pages[j].Text)
		}
		err = errors.Join(err, e.EncodeInt(int64(size)))
		for j := range p.Pages { // joined: where a text is cut is no part of it
			_, _ = h.Write([]byte(p.Pages[j].Text))
		}
	}
	if err = errors.Join(err, e.Encode(b.Deletes)); err != nil {
		return fmt.Errorf("ctxpage: digest of batch %s: %w", b.ID, err)
	}
	b.Bound = h.Sum(nil)[:boundBytes]
	return nil
}
