package engine

import (
	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// Versions that another database had (store.Carried). They come with number, time, writer, salts
// and digests, and get what belongs to this database: the number of the artefact, of its pages and
// of its group, and an LSN.
//
// Versions without content, which gc dropped or an erase took there, are committed together with
// the next version that has content. So no reader sees an artefact whose newest version cannot be
// read. They share the LSN of that version (I3). install enters them as a load of the rows does.

// newestImported reads the newest head of each artefact that a batch carries versions of; nil: it
// has none.
//
// It runs before the sequencer is entered, since it reads rows. movedImported then says, under the
// lock, whether what it read still holds; if not, the batch is prepared again.
func (s *Engine) newestImported(b *Request) (map[string]*store.Head, error) {
	if len(b.Carry) == 0 {
		return nil, nil
	}
	out := make(map[string]*store.Head, len(b.Carry))
	for i := range b.Carry {
		h := &b.Carry[i].Head
		key := flightKey(h.Scope, h.ID)
		if _, known := out[key]; known {
			continue
		}
		prev, err := s.newest(h.Scope, h.ID)
		if err != nil {
			return nil, err
		}
		out[key] = prev
	}
	return out, nil
}

// movedImported reports whether one of the artefacts got another version since its head was read. The
// caller holds mu.
func (c *catalogue) movedImported(prev map[string]*store.Head) bool {
	for key, h := range prev {
		scope, id := cutFlightKey(key)
		var have, now uint32
		if h != nil {
			have = h.Version
		}
		if art := c.artOf(scope, id); art != 0 {
			now = c.newestOf(c.art(art)).version
		}
		if have != now {
			return true
		}
	}
	return false
}

// enqueueImported makes head records of the carried versions.
func (s *Engine) enqueueImported(b *Request, pre *prepared, n *numbering, p *Commit, leaf *manifest.Record) error {
	last := make(map[string]*store.Head, len(b.Carry))
	for i := range b.Carry {
		c := &b.Carry[i]
		key := flightKey(c.Head.Scope, c.Head.ID)
		prev := last[key]
		if prev == nil {
			prev = pre.carried[key]
		}
		scope := n.scope(c.Head.Scope)
		h, texts, err := n.imported(c, prev, scope)
		if err != nil {
			return err
		}
		last[key] = h
		importedWrites(h, prev, leaf)
		if err := s.addHead(&p.record, leaf, format.HeadRecord{Head: h, Texts: texts}, scope, format.GroupName(h), format.EncodeCold(h)); err != nil {
			return err
		}
	}
	return nil
}

// imported sets the numbers that a carried version has here. prev is its predecessor.
//
// A page that the version before has too keeps its number and its text, so that the same content is
// stored once, as for a put here. Its text is needed again only if the version before was dropped.
func (n *numbering) imported(c *store.Carried, prev *store.Head, scope uint32) (*store.Head, []format.PageText, error) {
	h := c.Head
	h.LSN, h.Art, h.GroupNum, h.Superseded = n.rec.LSN, n.next.Art, 0, ""
	if prev != nil {
		h.Art = prev.Art
	} else {
		n.next.Art++
	}
	switch {
	case h.Group != "":
		h.GroupNum = n.groupOf(scope, h.Group)
	case len(h.Rows) > 1:
		h.GroupNum = n.groupOf(scope, "\x00"+h.ID)
	}
	var texts []format.PageText
	h.Rows = make([]store.PageRow, len(c.Head.Rows))
	for i := range h.Rows {
		r := &h.Rows[i]
		*r = c.Head.Rows[i]
		known, text, fresh, err := format.CarriedPage(prev, c, i)
		if err != nil {
			return nil, nil, err
		}
		if known != nil {
			r.Num, r.LSN, r.Version = known.Num, known.LSN, known.Version
		} else {
			r.Num, r.LSN = n.next.Num, n.rec.LSN
			n.next.Num++
		}
		if fresh {
			texts = append(texts, format.PageText{Num: r.Num, Text: text})
		}
	}
	return &h, texts, nil
}

// importedWrites names in the leaf what a carried version wrote.
//
// Each new page is a write with its digest. A version that has no new page still needs a write,
// since the audit would not know of it otherwise.
func importedWrites(h, prev *store.Head, leaf *manifest.Record) {
	ref, from := store.Ref{Scope: h.Scope, ID: h.ID, Version: h.Version}, len(leaf.Writes)
	if h.Deleted {
		nums := []uint64{0}
		if prev != nil {
			nums = lastPages([]*store.Head{prev})
		}
		for i, num := range nums {
			ref.Page = i + 1
			leaf.Writes = append(leaf.Writes, manifest.Write{Num: num, Ref: ref.String(), Version: h.Version, Deleted: true})
		}
		return
	}
	for i := range h.Rows {
		if r := &h.Rows[i]; format.PageOf(prev, r) == nil {
			ref.Page = i + 1
			leaf.Writes = append(leaf.Writes, manifest.Write{Num: r.Num, Ref: ref.String(), Version: h.Version, Digest: r.Digest[:]})
		}
	}
	if len(leaf.Writes) == from {
		num := uint64(0)
		if len(h.Rows) > 0 {
			num = h.Rows[0].Num
		}
		ref.Page = 0
		leaf.Writes = append(leaf.Writes, manifest.Write{Num: num, Ref: ref.String(), Version: h.Version})
	}
}

// belowFloor is a row for a version below a floor that is in an overlay; nil: it cannot be made.
func (s *Engine) belowFloor(row []byte, k format.HeadKey) []byte {
	d := codec.Decoder{B: row}
	t := format.DecodeHot(&d)
	h, err := format.DecodeHead(row, s.cat.scopeName)
	if err != nil {
		return nil
	}
	h = format.BelowFloor(h, k.Version)
	h.Provenance = t.Provenance
	return (&format.Proof{}).AppendHead(format.EncodeHead(nil, h, t.Scope, format.EncodeCold(h)))
}
