package engine

import (
	"bytes"
	"cmp"
	"errors"
	"slices"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// tombstone is what stays of a dropped version: what names it and its pages, and what it replaced, which holds on; and
// what the index knows its pages by (analyse), for newer versions may have them. Nobody here can tell whether a field of a
// later release is content, so those stay.
func tombstone(h *store.Head, by string) *store.Head {
	return &store.Head{
		Artefact: store.Artefact{
			ID: h.ID, Kind: h.Kind, Provenance: h.Provenance, Priority: h.Priority, CurrentAsOf: h.CurrentAsOf, ExpiresAt: h.ExpiresAt,
			Seq: h.Seq, Name: h.Name, Source: h.Artefact.Source, Supersedes: h.Supersedes, Unknown: h.Artefact.Unknown,
		},
		Unknown: h.Unknown,
		Scope:   h.Scope, Art: h.Art, Version: h.Version, LSN: h.LSN, PutAt: h.PutAt, GroupNum: h.GroupNum, Rows: h.Rows, Gone: true, GoneBy: by,
	}
}

// errNoneLeft means that all that was to be dropped is named by now.
var errNoneLeft = errors.New("ctxpage: nothing is left to drop")

// enqueueDrops makes head records of what gc drops, but for what has been named since it was planned: what keeps one
// version keeps the others of its artefact this time, because pages may be shared among them.
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
		if err := s.addHead(&p.record, leaf, headRecord{head: h}, s.seq.scope(h.Scope), d.group, d.cold); err != nil {
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

// dropped is a version that gc took, in an overlay, with the pages that no version has any more.
type dropped struct {
	key  HeadKey
	nums []uint64
}

// installGone makes the drop of a version visible. The caller holds cat.mu, or is recovery.
func (s *Engine) installGone(t *hot, rows []store.PageRow, row []byte, ended *[]uint64) error {
	gone, err := s.cat.drop(t, rows)
	if err != nil {
		return err
	}
	o := s.overlay
	d := dropped{HeadKey{t.Art, t.Version}, gone}
	o.heads[d.key] = row
	o.Bytes += len(row)
	o.gone = append(o.gone, d)
	for _, num := range gone {
		o.Bytes -= len(o.texts[num])
		delete(o.texts, num)
	}
	s.index.Remove(gone...)
	*ended = append(*ended, gone...)
	return nil
}

// goneCol is the column of a page that no version has any more. It is the same whatever the page was, because nothing
// else is known of it after a reopen.
func goneCol(art uint64, scope uint32, r *store.PageRow, page uint32) pageCol {
	return pageCol{art: art, lsn: r.LSN, page: page, version: r.Version, scope: scope, flags: FlagGone}
}

// drop takes a version that is not the newest out of the catalogue, and gives its pages that no version has any more:
// those for which it was the newest that had them (share).
func (c *catalogue) drop(t *hot, rows []store.PageRow) (gone []uint64, err error) {
	if t.Art > uint64(len(c.arts)) || t.Version >= c.art(t.Art).version {
		return nil, codec.ErrMalformed
	}
	for i := range rows {
		num := rows[i].Num
		if num > uint64(len(c.pages)) || c.page(num).art != t.Art {
			return nil, codec.ErrMalformed
		}
		p := c.page(num)
		if p.head != t.Version || p.gone() {
			continue
		}
		col := goneCol(t.Art, t.Scope, &rows[i], uint32(i+1))
		col.end, col.next = p.end, p.next
		*p = col
		c.grouped.set(num, false)
		c.versions--
		c.dropped++
		gone = append(gone, num)
	}
	return gone, nil
}

// locateGone finds a page of a dropped version that newer ones have: a reference to a page names the version in which it
// appeared. The caller holds cat.mu.
func (s *Engine) locateGone(scope string, h *store.Head, ref store.Ref) (store.Located, error) {
	if ref.Page > 0 && ref.Page <= len(h.Rows) {
		num := h.Rows[ref.Page-1].Num
		if p := s.cat.page(num); !p.gone() {
			return store.Located{Scope: scope, Version: p.head, LSN: h.LSN, Pages: []store.PageKey{{Num: num, Version: p.head}}, Expires: p.expires}, nil
		}
	}
	return store.Located{}, store.GoneError(h, ref.Page)
}

// GoneRow says whether a head row is that of a dropped version.
func GoneRow(row []byte) bool {
	t := DecodeHot(&codec.Decoder{B: row})
	return t.Flags&FlagGone != 0
}

// replacedRows counts the stored head rows in whose place come those that say that the version is gone.
func replacedRows(tx Reader, o *Overlay, rows map[HeadKey][]byte) (n int) {
	keys := map[HeadKey]bool{}
	for _, d := range o.gone {
		keys[d.key] = true
	}
	for _, f := range o.forgot {
		keys[HeadKey{f.art, f.below}] = true
	}
	for k := range keys {
		if rows[k] != nil && tx.Get(TableMeta, headRowKey(k)) != nil {
			n++
		}
	}
	return n
}

// applyGone deletes the texts of the pages that no version has any more, and their vectors, also those that came late.
func applyGone(tx Writer, o *Overlay, n *RowCounts) error {
	for _, d := range o.gone {
		for _, num := range d.nums {
			key := textRowKey(num)
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

// deletePrefix deletes the rows whose keys begin with a prefix.
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

// nameGone says how many pages that stood at the moment of the past that is asked of were dropped since. The caller
// holds cat.mu.
func (s *Engine) nameGone(v *corpus, q *store.CandidateQuery, out *store.Candidates) {
	if v.past == nil || s.cat.dropped == 0 {
		return
	}
	n := 0
	for i := range s.cat.pages {
		p := &s.cat.pages[i]
		if !p.gone() || p.lsn > q.AsOf || p.end <= q.AsOf || v.masked[p.art] || !slices.Contains(v.chain, p.scope) {
			continue
		}
		if n++; n <= nearestMisses {
			c := s.cat.candidate(uint64(i + 1))
			c.Excluded = store.ReasonGone
			addMiss(out, c)
		}
	}
	if n > 0 {
		i := slices.IndexFunc(out.Excluded, func(e store.Excluded) bool { return e.Reason == store.ReasonGone })
		out.Excluded[i].Count = n
	}
}
