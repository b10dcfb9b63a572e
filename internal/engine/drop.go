package engine

import (
	"bytes"
	"cmp"
	"errors"
	"slices"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// A drop, from the sequencer to the rows. A dropped version keeps its row as a tombstone; its texts
// and vectors go.
//
// 	enqueueDrops  at the tail: whatever was named since the plan stays, and with it the rest of its artefact in this commit
// 	installGone   the catalogue learns which pages no version has any more; index and vectors forget them
// 	applyGone     the checkpoint deletes their texts and vectors, in the transaction that writes the tombstone
//
// Invariants: the newest version is never dropped, so every number in the catalogue still answers.
// A page goes with the newest version that has it, so a page that is gone here is gone for every
// version. A text that is still in the overlay is taken out of it: otherwise the checkpoint would
// write a text that the same transaction deletes.
//
// Rejected: deleting the row too. History, lineage and old manifests name the version, and "dropped
// by gc" would look like "never existed".

// errNoneLeft means that all that was to be dropped is named by now.
var errNoneLeft = errors.New("ctxpage: nothing is left to drop")

// enqueueDrops makes head records of what gc drops, except what has been named since the plan. If
// one version of an artefact is kept, the others in this commit are kept too, because they may
// share pages.
func (s *Engine) enqueueDrops(b *Request, p *Commit, leaf *manifest.Record) error {
	if len(b.drops) == 0 {
		return nil
	}
	stays := map[uint64]string{}
	for _, d := range b.drops {
		if why := cmp.Or(d.kept, s.seq.watch.why(d.head)); why != "" {
			stays[d.head.Art] = why
		}
	}
	for _, d := range b.drops {
		if d.kept = stays[d.head.Art]; d.kept != "" {
			continue
		}
		h := d.head
		if err := s.addHead(&p.record, leaf, format.HeadRecord{Head: h}, s.seq.scope(h.Scope), d.group, d.cold); err != nil {
			return err
		}
		ref := store.Ref{Scope: h.Scope, ID: h.ID, Version: h.Version}
		leaf.Writes = append(leaf.Writes, manifest.Write{Num: h.Rows[0].Num, Ref: ref.String(), Version: h.Version, Gone: true})
	}
	if len(p.record.Heads) == 0 {
		return errNoneLeft
	}
	return nil
}

// dropped is a version that gc dropped, in an overlay, with the pages that no version has any more.
type dropped struct {
	key  format.HeadKey
	nums []uint64
}

// installGone makes the drop of a version visible. The caller holds cat.mu, or is recovery.
func (s *Engine) installGone(t *format.Hot, rows []store.PageRow, row []byte, ended *[]uint64) error {
	gone, err := s.cat.drop(t, rows)
	if err != nil {
		return err
	}
	o := s.overlay
	d := dropped{format.HeadKey{Art: t.Art, Version: t.Version}, gone}
	o.heads[d.key] = row
	o.Bytes += len(row)
	o.gone = append(o.gone, d)
	for _, num := range gone {
		o.Bytes -= len(o.texts[num])
		delete(o.texts, num)
	}
	s.index.Remove(gone...)
	s.near.remove(gone)
	*ended = append(*ended, gone...)
	return nil
}

// goneCol returns the column of a page that no version has any more. It depends only on fields that
// are still known after a reopen.
func goneCol(art uint64, scope uint32, r *store.PageRow, page uint32) pageCol {
	return pageCol{art: uint32(art), lsn: r.LSN, page: page, version: r.Version, scope: scope, flags: format.FlagGone}
}

// hasPage reports whether a page ever belonged to an artefact. The numbers of a forgotten artefact
// belong to none.
func (c *catalogue) hasPage(art, num uint64) bool {
	return num > 0 && num <= uint64(c.pages.len()) && uint64(c.page(num).art) == art
}

// drop takes a version that is not the newest out of the catalogue, and gives its pages that no
// version has any more: those for which it was the newest that had them (share). ErrMalformed: the
// record names what this catalogue does not have, so it is damaged or of another history.
func (c *catalogue) drop(t *format.Hot, rows []store.PageRow) (gone []uint64, err error) {
	if t.Art > uint64(c.arts.len()) || t.Version >= c.art(t.Art).version {
		return nil, codec.ErrMalformed
	}
	for i := range rows {
		num := rows[i].Num
		if !c.hasPage(t.Art, num) {
			return nil, codec.ErrMalformed
		}
		p := c.page(num)
		if p.head != t.Version || p.gone() {
			continue
		}
		col := goneCol(t.Art, t.Scope, &rows[i], uint32(i+1))
		ended := *c.rareOf(p)
		ended.expires, col.rare = 0, p.rare
		c.account(p, -1)
		*p = col
		c.setRare(p, ended)
		c.grouped.set(num, false)
		c.versions--
		c.dropped++
		gone = append(gone, num)
	}
	return gone, nil
}

// locateGone finds a page of a dropped version that newer ones have: a reference to a page names
// the version in which it appeared. The caller holds cat.mu.
func (s *Engine) locateGone(scope string, h *store.Head, ref store.Ref) (store.Located, error) {
	if ref.Page > 0 && ref.Page <= len(h.Rows) {
		num := h.Rows[ref.Page-1].Num
		if p := s.cat.page(num); !p.gone() {
			return store.Located{Scope: scope, Version: p.head, LSN: h.LSN, Pages: []store.PageKey{{Num: num, Version: p.head}}, Expires: s.cat.expires(p)}, nil
		}
	}
	return store.Located{}, store.GoneError(h, ref.Page)
}

// replacedRows counts the stored head rows that a tombstone in the overlay replaces.
func replacedRows(tx Reader, o *overlay, rows map[format.HeadKey][]byte) (n int) {
	keys := map[format.HeadKey]bool{}
	for _, d := range o.gone {
		keys[d.key] = true
	}
	for _, f := range o.forgot {
		keys[format.HeadKey{Art: f.art, Version: f.below}] = true
	}
	for k := range keys {
		if rows[k] != nil && tx.Get(TableMeta, format.HeadRowKey(k)) != nil {
			n++
		}
	}
	return n
}

// applyGone deletes the texts of the pages that no version has any more, and their vectors,
// including vectors that were put after the drop.
func applyGone(tx Writer, o *overlay, n *RowCounts) error {
	for _, d := range o.gone {
		for _, num := range d.nums {
			key := format.TextRowKey(num)
			if tx.Get(TableContent, key) != nil {
				n.content--
			}
			if err := tx.Delete(TableContent, key); err != nil {
				return err
			}
			if err := deletePrefix(tx, TableVec, key); err != nil {
				return err
			}
		}
	}
	return nil
}

// deletePrefix deletes the rows whose keys begin with a prefix. Keys are collected first: the walk
// does not survive a change of its table.
func deletePrefix(tx Writer, t Table, prefix []byte) error {
	var keys [][]byte
	for k := range tx.From(t, prefix) {
		if !bytes.HasPrefix(k, prefix) {
			break
		}
		keys = append(keys, slices.Clone(k))
	}
	for _, k := range keys {
		if err := tx.Delete(t, k); err != nil {
			return err
		}
	}
	return nil
}

// nameGone reports how many pages that were current at the moment a question asks about have been
// dropped since. The caller holds cat.mu.
func (s *Engine) nameGone(v *corpus, q *store.CandidateQuery, out *store.Candidates) {
	if v.past == nil || s.cat.dropped == 0 {
		return
	}
	n := 0
	for num, p := range s.cat.pages.all() {
		if !p.gone() || p.lsn > q.AsOf || s.cat.end(p) <= q.AsOf || v.masked[uint64(p.art)] || !slices.Contains(v.chain, p.scope) {
			continue
		}
		if n++; n <= nearestMisses {
			c := s.cat.candidate(num)
			c.Excluded = store.ReasonGone
			addMiss(out, c)
		}
	}
	if n > 0 {
		i := slices.IndexFunc(out.Excluded, func(e store.Excluded) bool { return e.Reason == store.ReasonGone })
		out.Excluded[i].Count = n
	}
}
