package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/oklog/ulid/v2"
)

// Held batches. A row is written when a batch is held, and once more when it is decided, under the
// same key. A batch moves down these states and never up:
//
//	waits     Decided is empty; gc keeps what its Context and its puts name
//	decided   "approved" or "rejected", with the reviewer, a note, and the outcome that a repeated decision gets
//	gone      gc dropped the row, KeepFor after the batch was held; the audit still has its leaves
//
// A damaged row ends neither a listing nor a count: the caller gets the others, and an error that
// names it. Only gc stops at it, because it cannot know which versions the damaged batch keeps.

// scanHeld lists held batches by id, which is by time. Rows are read from the cursor on, up to the
// limit. The error names damaged rows, beside a list of the others. A batch that cannot be decoded
// has no state and no scope to select by, so it is named whatever q asks for.
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
			st, err = format.HeldState(row)
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
			h, err = format.DecodeHeld(row)
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

// eachHeld calls fn with the rows of held batches above an id, rising, until it returns false. A
// row with a wrong checksum comes with its error. Rows of the overlays are merged in: fn sees each
// batch once, in its newest state. The overlays are read before the rows: a row that a checkpoint
// moves from the one to the other in between is in newer already, and is not shown twice. An empty
// row in an overlay is one that gc dropped; it hides the row of the file. lsn is of the overlays, and
// a batch that is held after it may be seen.
func (s *Engine) eachHeld(after ulid.ULID, fn func(id ulid.ULID, row []byte, err error) bool) (lsn uint64, err error) {
	newer := map[ulid.ULID][]byte{}
	var ids []ulid.ULID
	s.cat.mu.RLock()
	lsn = s.cat.lsn
	for _, o := range []*overlay{s.frozen, s.overlay} {
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
	sort.Slice(ids, func(i, j int) bool { return ids[i].Compare(ids[j]) < 0 })
	more := true
	upTo := func(k []byte) { // rows of the overlays up to k
		for more && len(ids) > 0 && (k == nil || bytes.Compare(ids[0][:], k) <= 0) {
			if row := newer[ids[0]]; len(row) > 0 { // otherwise gc dropped it
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
			if !more || newer[id] != nil || id.Compare(after) <= 0 || codec.IsDestroyed(v) {
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

// Undecided counts the held batches that wait for review. The first call counts them; later install
// keeps the count up to date. If a batch was held or decided during the first count, the result is
// returned but not kept.
func (s *Engine) Undecided() (n int, err error) {
	s.cat.mu.RLock()
	n, known, changes := s.heldOpen, s.heldKnown, s.heldChanges
	s.cat.mu.RUnlock()
	if known {
		return n, nil
	}
	n = 0
	if err = s.eachUndecided(func(*store.HeldBatch) { n++ }); err == nil {
		s.cat.mu.Lock()
		if s.heldChanges == changes {
			s.heldOpen, s.heldKnown = n, true
		}
		s.cat.mu.Unlock()
	}
	return n, err
}

// eachUndecided calls fn with the state of each held batch that waits for review. Damaged rows are named in the error.
func (s *Engine) eachUndecided(fn func(*store.HeldBatch)) error {
	var damage error
	_, err := s.eachHeld(ulid.ULID{}, func(id ulid.ULID, row []byte, err error) bool {
		var st store.HeldBatch
		if err == nil {
			st, err = format.HeldState(row)
		}
		if err != nil {
			damage = errors.Join(damage, s.Corrupt("held batch "+id.String(), err))
		} else if st.Decided == "" {
			fn(&st)
		}
		return true
	})
	return errors.Join(err, damage)
}

// heldAbsent says of a held batch that is not there whether it was erased. The leaf of an erase has
// an entry for each batch. It reads the leaves of every erase, but only after the batch was not
// found, which is rare.
func (s *Engine) heldAbsent(ctx context.Context, id ulid.ULID) error {
	tag := s.stateTag([]byte(reviewGonePrefix + string(id[:])))
	var by *store.EraseReport
	err := s.eraseRows(ctx, func(row *eraseRow, _ uint64) error {
		leaves, err := s.Leaves.ByTrace(ctx, row.Report.Trace)
		if err != nil {
			return AuditError(err)
		}
		for _, l := range leaves {
			if l.Type == manifest.TypeErase && slices.ContainsFunc(l.State, func(d manifest.Digest) bool { return bytes.HasPrefix(d, tag[:]) }) {
				by = &row.Report
			}
		}
		return nil
	})
	switch {
	case err != nil:
		return fmt.Errorf("%w: no held batch %s; whether it was erased is not known: %w", store.ErrNotFound, id, err)
	case by != nil:
		return fmt.Errorf("%w: held batch %s: %w at %s by %s, trace %s", store.ErrNotFound, id, store.ErrErased, by.At.Format(time.RFC3339), by.By, by.Trace)
	}
	return fmt.Errorf("%w: no held batch %s", store.ErrNotFound, id)
}

// Held reads one held batch. Errors: ErrNotFound, which also matches ErrErased when an erase took
// it; CorruptError for a row that is damaged or is not the one that the audit names.
func (s *Engine) Held(ctx context.Context, id ulid.ULID) (h store.HeldBatch, err error) {
	if err := s.Readable(ctx); err != nil {
		return h, err
	}
	row := s.overlayRow(func(o *overlay) ([]byte, bool) { r, ok := o.held[id]; return r, ok })
	if row == nil {
		row, err = s.row(TableHeld, 'd', id[:])
		if errors.Is(err, codec.ErrDestroyed) {
			return h, fmt.Errorf("%w: held batch %s: %w after this backup was made", store.ErrNotFound, id, store.ErrErased)
		}
		if err != nil {
			return h, err
		}
	}
	if len(row) == 0 {
		return h, s.heldAbsent(ctx, id)
	}
	if h, err = format.DecodeHeld(row); err == nil {
		err = s.provedHeld(id[:], row)
	}
	if err != nil {
		return store.HeldBatch{}, s.Corrupt("held batch "+id.String(), err)
	}
	return h, nil
}

// approvable refuses a batch that says more than this program understands: applied without it, that
// would be lost. Fields of its artefacts are kept with them (store.Artefact.Unknown).
func approvable(b *store.Batch) error {
	unknown := len(b.Unknown)
	for i := range b.Puts {
		unknown += len(b.Puts[i].Unknown)
	}
	if unknown == 0 {
		return nil
	}
	return errors.New("it was held by a later release and has fields that this one does not know; approve it with that release, or reject it")
}
