package storetest

import (
	"github.com/ctxpage/ctxpage/lexical"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// carryConflict is the first artefact that carried versions do not continue.
func (m *Memory) carryConflict(b *store.Batch) *store.ConflictError {
	next := map[name]uint32{}
	for i := range b.Carry {
		h := &b.Carry[i].Head
		want := next[nameOf(h)]
		was := m.at(nameOf(h), now)
		if want == 0 && was != nil {
			want = was.Version + 1
		}
		if want == 0 && h.Floor {
			want = h.Version
		}
		if h.Version != max(want, 1) || h.Floor && was != nil {
			c := &store.ConflictError{Ref: store.Ref{Scope: h.Scope, ID: h.ID}}
			if was != nil {
				c.Now = was.LSN
			}
			return c
		}
		next[nameOf(h)] = h.Version + 1
	}
	return nil
}

// carry writes a version as another database had it, under numbers of this one. Versions below a floor are gone.
func (m *Memory) carry(c *store.Carried, leaf *manifest.Record) error {
	h := own(c.Head)
	h.Art, h.LSN, h.GroupNum = number(m.arts, nameOf(&h)), m.lsn, 0
	number(m.scopes, name{scope: h.Scope})
	if h.Group != "" {
		h.GroupNum = number(m.groups, name{h.Scope, h.Group})
	} else if len(h.Rows) > 1 {
		h.GroupNum = number(m.groups, name{h.Scope, "\x00" + h.ID})
	}
	for v := uint32(1); h.Floor && v < h.Version; v++ {
		below := *h.Below(v)
		below.LSN = m.lsn
		m.heads = append(m.heads, &below)
	}
	prev := m.at(nameOf(&h), now)
	ref := store.Ref{Scope: h.Scope, ID: h.ID, Version: h.Version}
	from := len(leaf.Writes)
	for i := range h.Rows {
		r := &h.Rows[i]
		fresh := !m.carriedPage(prev, r)
		if fresh {
			r.Num, r.LSN = uint64(len(m.pages))+1, m.lsn
			m.pages = append(m.pages, &page{PageRow: *r, of: nameOf(&h), at: i + 1, gone: m.lsn})
			ref.Page = i + 1
			leaf.Writes = append(leaf.Writes, manifest.Write{Num: r.Num, Ref: ref.String(), Version: h.Version, Digest: r.Digest[:]})
		}
		p := m.pages[r.Num-1]
		if h.Gone || p.gone == 0 {
			continue
		}
		text, ok := c.Text(i)
		if !ok {
			return store.Invalid("carried version", ref.String(), "the text of each new page")
		}
		p.text, p.gone = text, 0
		an := store.Analyse(m.analyzer, &h.Artefact, text)
		m.index.Add(lexical.Doc{Num: r.Num, Scope: uint32(m.scopes[name{scope: h.Scope}]), Group: h.GroupNum, Analysis: an, Turn: store.TurnOf(&h.Artefact)})
	}
	if len(leaf.Writes) == from {
		ref.Page = 0
		leaf.Writes = append(leaf.Writes, manifest.Write{Ref: ref.String(), Version: h.Version, Deleted: h.Deleted})
	}
	m.heads = append(m.heads, &h)
	return nil
}

// carriedPage gives a row the number that its page has in the version before.
func (m *Memory) carriedPage(prev *store.Head, r *store.PageRow) bool {
	if prev == nil {
		return false
	}
	for i := range prev.Rows {
		if p := &prev.Rows[i]; store.SamePage(p, r) {
			r.Num, r.LSN, r.Version = p.Num, p.LSN, p.Version
			return true
		}
	}
	return false
}
