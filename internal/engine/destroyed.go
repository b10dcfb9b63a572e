package engine

import (
	"context"
	"encoding/binary"
	"slices"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// In an encrypted backup, a later erase may have destroyed the keys of some rows. The store then
// returns the remainder of each (package filestore, under.go):
//
//	head                              a row that names the version and its pages, and no more; its proof names no leaf
//	state row, held batch, question   codec.DestroyedRow: there is no row, but its checksum is counted
//
// Texts of the pages do not open either, so a read of one finds that it was erased.

// destroyed says that a proof is of a head whose key was destroyed. Such a row cannot be made
// without the keys.
func (s *Engine) destroyed(p format.Proof) bool { return s.opts.Sealed && p.Leaf == format.NoLeaf }

// DestroyedHead returns what is left of a head row once its key is destroyed, the number of its
// artefact, and the number of its first page (0: it has no page). It fails if the row is damaged.
func DestroyedHead(key, sealed []byte) (stays []byte, art, page uint64, err error) {
	row, err := codec.Unseal('m', key, sealed)
	if err != nil {
		return nil, 0, 0, err
	}
	scope := uint32(0)
	h, err := format.DecodeHead(row, func(n uint32) string { scope = n; return "" })
	if err != nil {
		return nil, 0, 0, err
	}
	left := store.Head{
		Artefact: store.Artefact{ID: h.ID, Kind: h.Kind, Provenance: h.Provenance, Supersedes: h.Supersedes, CurrentAsOf: h.CurrentAsOf, ExpiresAt: h.ExpiresAt,
			Group: h.Group}, // the session of a turn: an erase with a receipt finds the turns by it
		Art: h.Art, Version: h.Version, LSN: h.LSN, PutAt: h.PutAt, GroupNum: h.GroupNum, Deleted: h.Deleted, Gone: h.Gone, GoneBy: h.GoneBy, ErasedBy: h.ErasedBy, Floor: h.Floor,
	}
	left.Rows = make([]store.PageRow, len(h.Rows))
	for i, r := range h.Rows {
		left.Rows[i] = store.PageRow{Num: r.Num, Version: r.Version, LSN: r.LSN, Digest: r.Digest} // of a text whose salt goes
	}
	if len(h.Rows) > 0 {
		page = h.Rows[0].Num
	}
	p := format.Proof{Leaf: format.NoLeaf}
	return codec.Seal('m', key, p.AppendHead(format.EncodeHead(nil, &left, scope, format.EncodeCold(&left)))), h.Art, page, nil
}

// takeDestroyed adds to a job the state rows and questions whose keys were destroyed: an erase takes
// them from this copy too, although their names are lost. Nothing says who erased such a row, so it
// does not matter which erase takes it. Heads and held batches say so, and the caller names those of
// one erase (EraseReport.Numbers, Batches).
func (s *Engine) takeDestroyed(ctx context.Context, job *store.EraseJob) error {
	if !s.opts.Sealed {
		return nil
	}
	return s.rows.View(func(tx Reader) error {
		for _, t := range []Table{TableState, TableQuestion} {
			for k, v := range tx.From(t, nil) {
				switch {
				case !codec.IsDestroyed(v):
				case t == TableState:
					job.State = append(job.State, store.StateRow{Key: string(k)})
				case t == TableQuestion && len(k) == 8:
					job.Questions = append(job.Questions, binary.BigEndian.Uint64(k))
				}
			}
			if err := ctx.Err(); err != nil {
				return err
			}
		}
		return nil
	})
}

// ErasedTag is the tag by which leaves of erases name a row of TableState, TableHeld or
// TableQuestion.
func (s *Engine) ErasedTag(t Table, key []byte) [8]byte {
	switch t {
	case TableHeld:
		key = append([]byte(reviewGonePrefix), key...)
	case TableQuestion:
		key = append([]byte(format.QuestionGonePrefix), key...)
	}
	return s.stateTag(key)
}

// pagesOf returns the numbers of all pages of artefacts: an erase that takes names leaves no row
// that has them. The numbers are kept as spans, since pages of one artefact mostly follow each
// other.
func (s *Engine) pagesOf(refs []store.Ref) (spans []manifest.Span, err error) {
	var nums []uint64
	for _, ref := range refs {
		newest, err := s.newest(ref.Scope, ref.ID)
		if err != nil {
			return nil, err
		}
		if newest == nil {
			continue
		}
		heads, err := s.heads(newest.Art, newest.Version)
		if err != nil {
			return nil, err
		}
		for _, h := range heads {
			for i := range h.Rows {
				nums = append(nums, h.Rows[i].Num)
			}
		}
	}
	slices.Sort(nums)
	for _, num := range slices.Compact(nums) {
		if n := len(spans); n > 0 && spans[n-1][1] == num {
			spans[n-1][1]++
		} else {
			spans = append(spans, manifest.Span{num, num + 1})
		}
	}
	return spans, nil
}

// erasedTags returns the tags of the rows that a run erased or wrote anew.
func (s *Engine) erasedTags(ctx context.Context, run string) (tags [][8]byte, err error) {
	leaves, err := s.Leaves.ByTrace(ctx, run)
	if err != nil {
		return nil, AuditError(err)
	}
	for _, l := range leaves {
		if l.Type != manifest.TypeErase {
			continue
		}
		for _, d := range l.State {
			tags = append(tags, [8]byte(d))
		}
	}
	slices.SortFunc(tags, func(a, b [8]byte) int { return slices.Compare(a[:], b[:]) })
	return slices.Compact(tags), nil
}
