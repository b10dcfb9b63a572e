package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/store"
	"github.com/oklog/ulid/v2"
)

// Held batches. A row is written when a batch is held and once more when it is decided, under the same key: two states and
// no way back.
//
//	waits     Decided is empty; gc keeps what its Context and its puts name
//	decided   "approved" or "rejected", with who, a note, and the outcome that the same decision gets again
//	gone      gc dropped it, KeepFor after the decision; the audit still has its leaves
//
// A damaged row ends neither a listing nor a count: the caller gets the others and an error that names it. Only gc stops
// there, because nobody knows what the damaged one keeps.

// scanHeld lists held batches by id, which is by time. Rows are read from the cursor on, up to the limit. Damaged rows
// are told in the error, beside a list of the others.
func (s *Engine) scanHeld(q store.ScanQuery) (out store.ScanPage, err error) {
	var after ulid.ULID
	if q.Cursor != "" {
		if after, err = ulid.ParseStrict(q.Cursor); err != nil {
			return out, store.Invalid("cursor", q.Cursor, "a cursor from the page before")
		}
	}
	var damage error
	add := func(id ulid.ULID, row []byte, err error) (more bool) {
		var st store.HeldBatch
		if err == nil {
			st, err = heldState(row)
		}
		if err == nil {
			err = s.provedHeld(id[:], row)
		}
		if err == nil && (st.Decided != "" && !q.All || len(q.Scopes) > 0 && st.Batch.Scope != q.Scopes[0]) {
			return true
		}
		if len(out.Held) == q.Limit {
			out.Next = out.Held[q.Limit-1].Batch.ID.String()
			return false
		}
		var h store.HeldBatch
		if err == nil {
			h, err = DecodeHeld(row)
		}
		if err != nil {
			damage = errors.Join(damage, s.Corrupt("held batch "+id.String(), err))
			return true
		}
		out.Held = append(out.Held, h)
		return true
	}
	if out.LSN, err = s.eachHeld(after, add); err != nil {
		return out, err
	}
	return out, damage
}

// eachHeld gives the rows of held batches above an id, rising, until fn returns false. A row that does not check comes
// with its error.
func (s *Engine) eachHeld(after ulid.ULID, fn func(id ulid.ULID, row []byte, err error) bool) (lsn uint64, err error) {
	newer := map[ulid.ULID][]byte{}
	var ids []ulid.ULID
	s.cat.mu.RLock()
	lsn = s.cat.lsn
	for _, o := range []*Overlay{s.frozen, s.overlay} {
		if o == nil {
			continue
		}
		for id, row := range o.held {
			if newer[id] == nil && id.Compare(after) > 0 {
				ids = append(ids, id)
			}
			newer[id] = row
		}
	}
	s.cat.mu.RUnlock()
	slices.SortFunc(ids, ulid.ULID.Compare)
	more := true
	upTo := func(k []byte) { // those of the overlay below k
		for more && len(ids) > 0 && (k == nil || bytes.Compare(ids[0][:], k) <= 0) {
			if row := newer[ids[0]]; len(row) > 0 { // else gc took it
				more = fn(ids[0], row, nil)
			}
			ids = ids[1:]
		}
	}
	err = s.rows.View(func(tx Reader) error {
		for k, v := range tx.From(TableHeld, after[:]) {
			if !more {
				break
			}
			upTo(k)
			id := ulid.ULID(k)
			if !more || newer[id] != nil || id.Compare(after) <= 0 {
				continue
			}
			row, err := codec.Unseal('d', k, v)
			more = fn(id, row, err)
		}
		return nil
	})
	upTo(nil)
	return lsn, err
}

// Undecided counts the held batches that wait for review. They are counted once; install keeps the count.
func (s *Engine) Undecided() (n int, err error) {
	s.cat.mu.RLock()
	n, known, changes := s.heldOpen, s.heldKnown, s.heldChanges
	s.cat.mu.RUnlock()
	if known {
		return n, nil
	}
	n = 0
	var damage error
	_, err = s.eachHeld(ulid.ULID{}, func(id ulid.ULID, row []byte, err error) bool {
		var st store.HeldBatch
		if err == nil {
			st, err = heldState(row)
		}
		if err != nil {
			damage = errors.Join(damage, s.Corrupt("held batch "+id.String(), err))
		} else if st.Decided == "" {
			n++
		}
		return true
	})
	if err == nil && damage == nil {
		s.cat.mu.Lock()
		if s.heldChanges == changes {
			s.heldOpen, s.heldKnown = n, true
		}
		s.cat.mu.Unlock()
	}
	return n, errors.Join(err, damage)
}

// Held reads one held batch.
func (s *Engine) Held(ctx context.Context, id ulid.ULID) (h store.HeldBatch, err error) {
	if err := s.Readable(ctx); err != nil {
		return h, err
	}
	row := s.overlayRow(func(o *Overlay) ([]byte, bool) { r, ok := o.held[id]; return r, ok })
	if row == nil {
		if row, err = s.row(TableHeld, 'd', id[:]); err != nil {
			return h, err
		}
	}
	if len(row) == 0 {
		return h, fmt.Errorf("%w: no held batch %s", store.ErrNotFound, id)
	}
	if h, err = DecodeHeld(row); err == nil {
		err = s.provedHeld(id[:], row)
	}
	if err == nil && row[0] != heldMark {
		err = s.heldBy(ctx, id, &h)
	}
	if err != nil {
		return store.HeldBatch{}, s.Corrupt("held batch "+id.String(), err)
	}
	return h, nil
}
