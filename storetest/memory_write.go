package storetest

import (
	"reflect"
	"slices"
	"time"

	"github.com/ctxpage/ctxpage/lexical"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// put makes a version of an artefact, or none where the put repeats what is current: then it is named in Repeats. It
// repeats nothing where it supersedes an artefact that is current, or where its own was superseded meanwhile and it is no
// source that says what it said. A page that says what the page in its place said goes on under its number, unless the
// artefact was superseded, or the page would be found by other words or neighbours.
func (m *Memory) put(b *store.Batch, p *store.Put, out *store.Outcome, leaf *manifest.Record) {
	h := &store.Head{Artefact: p.Artefact, Scope: b.Scope, Version: 1, LSN: m.lsn, PutAt: b.Now, Actor: b.Actor, Source: p.Source, PartBytes: p.PartBytes, Counter: p.Counter}
	m.number(h, len(p.Pages))
	old, goesOn := m.at(nameOf(h), now), false // under its numbers
	if old != nil {
		h.Version = old.Version + 1
		superseded := m.supersededBy(old, m.lsn-1) != nil
		supersedes := slices.ContainsFunc(h.Supersedes, func(id string) bool {
			s := m.at(name{b.Scope, id}, m.lsn-1)
			return s != nil && !s.Deleted && m.supersededBy(s, m.lsn-1) == nil
		})
		repeats := m.says(old, p) && sameHead(old, h, p.AsOfGiven)
		if repeats && !supersedes && (!superseded || h.Artefact.Source != "") {
			w := written(old, 0, old.Rows[0].Num)
			w.Touch = true
			leaf.Writes = append(leaf.Writes, w)
			ref := store.Ref{Scope: b.Scope, ID: h.ID, Version: old.Version}
			out.Refs, out.Repeats = append(out.Refs, ref), append(out.Repeats, ref)
			return
		}
		was, is := old.Artefact, h.Artefact
		if !p.AsOfGiven || !m.says(old, p) {
			was.CurrentAsOf = is.CurrentAsOf
		}
		goesOn = !superseded && (repeats || old.GroupNum == h.GroupNum && store.FoundAlike(&was, &is))
	}
	out.Refs = append(out.Refs, store.Ref{Scope: b.Scope, ID: h.ID, Version: h.Version})
	from := len(leaf.Writes)
	for i, np := range p.Pages {
		row := store.PageRow{Version: h.Version, Bytes: uint32(len(np.Text)), Hash: np.Hash, Salt: np.Salt, Digest: np.Digest}
		if goesOn && i < len(old.Rows) && m.saysAt(old, i, np.Text) {
			row = old.Rows[i]
		} else {
			m.addPage(h, i, &row, leaf)
			m.addText(h, row.Num, np.Text)
		}
		row.Tokens = uint32(np.Tokens)
		h.Rows = append(h.Rows, row)
	}
	if len(leaf.Writes) == from {
		leaf.Writes = append(leaf.Writes, written(h, 0, h.Rows[0].Num))
	}
	m.heads = append(m.heads, h)
}

// number gives a version the numbers of its artefact, scope and group. The pages of one artefact are neighbours, too.
func (m *Memory) number(h *store.Head, pages int) {
	h.Art, h.GroupNum = next(m.arts, nameOf(h)), 0
	next(m.scopes, name{scope: h.Scope})
	if h.Group != "" || pages > 1 {
		h.GroupNum = next(m.groups, name{h.Scope, groupOf(h)})
	}
}

func groupOf(h *store.Head) string {
	if h.Group != "" {
		return h.Group
	}
	return "\x00" + h.ID
}

// next is the number of a name, the next one where it has none.
func next(of map[name]uint64, n name) uint64 {
	if of[n] == 0 {
		of[n] = uint64(len(of)) + 1
	}
	return of[n]
}

// written is how a leaf names a page of a version; page 0: the version.
func written(h *store.Head, page int, num uint64) manifest.Write {
	return manifest.Write{Num: num, Ref: store.Ref{Scope: h.Scope, ID: h.ID, Page: page, Version: h.Version}.String(), Version: h.Version}
}

// addPage adds a page version. It has no text yet.
func (m *Memory) addPage(h *store.Head, i int, row *store.PageRow, leaf *manifest.Record) {
	row.Num, row.LSN = uint64(len(m.pages))+1, m.lsn
	m.pages = append(m.pages, &page{PageRow: *row, of: nameOf(h), at: i + 1, gone: m.lsn})
	w := written(h, i+1, row.Num)
	w.Digest = row.Digest[:]
	leaf.Writes = append(leaf.Writes, w)
}

func (m *Memory) addText(h *store.Head, num uint64, text string) {
	m.pages[num-1].text, m.pages[num-1].gone = text, 0
	an := store.Analyse(m.analyzer, &h.Artefact, text)
	m.index.Add(lexical.Doc{Num: num, Scope: uint32(m.scopes[name{scope: h.Scope}]), Group: h.GroupNum, Analysis: an, Turn: store.TurnOf(&h.Artefact)})
}

func (m *Memory) delete(old *store.Head, b *store.Batch, out *store.Outcome, leaf *manifest.Record) {
	h := own(*old)
	h.Deleted, h.Version, h.LSN, h.PutAt, h.Actor, h.Rows, h.Supersedes = true, h.Version+1, m.lsn, b.Now, b.Actor, nil, nil
	out.Refs = append(out.Refs, store.Ref{Scope: h.Scope, ID: h.ID, Version: h.Version})
	for i, r := range old.Rows {
		w := written(&h, i+1, r.Num)
		w.Deleted = true
		leaf.Writes = append(leaf.Writes, w)
	}
	m.heads = append(m.heads, &h)
}

// says tells whether a put has the texts of a version.
func (m *Memory) says(old *store.Head, p *store.Put) bool {
	same := len(old.Rows) == len(p.Pages)
	for i := 0; same && i < len(p.Pages); i++ {
		same = m.saysAt(old, i, p.Pages[i].Text)
	}
	return same
}

func (m *Memory) saysAt(old *store.Head, i int, text string) bool {
	p := m.pages[old.Rows[i].Num-1]
	return p.gone == 0 && p.text == text
}

// sameHead: a put repeats what is current when all but who wrote it, when, and the stamp of the source is the same. A source
// that another host read is another source.
func sameHead(old, h *store.Head, asOf bool) bool {
	plain := func(h *store.Head) store.Head {
		c := own(*h)
		c.Actor, c.Source, c.PutAt, c.LSN, c.Version, c.Rows = "", store.Validator{Hash: h.Source.Hash}, time.Time{}, 0, 0, nil
		c.ExpiresAt, c.TTL = c.ExpiresAt.UTC().Round(time.Microsecond), 0
		if c.CurrentAsOf = c.CurrentAsOf.UTC().Round(time.Microsecond); !asOf {
			c.CurrentAsOf = time.Time{}
		}
		return c
	}
	return old.SourceHost() == h.SourceHost() && reflect.DeepEqual(plain(old), plain(h))
}

// carryConflict is the first artefact that carried versions do not continue.
func (m *Memory) carryConflict(b *store.Batch) *store.ConflictError {
	next := map[name]uint32{}
	for i := range b.Carry {
		h := &b.Carry[i].Head
		c := &store.ConflictError{Ref: store.Ref{Scope: h.Scope, ID: h.ID}}
		was, want := m.at(nameOf(h), now), max(next[nameOf(h)], 1)
		if was != nil {
			c.Now, want = was.LSN, max(next[nameOf(h)], was.Version+1)
		} else if h.Floor {
			want = h.Version
		}
		if h.Version != want || h.Floor && was != nil {
			return c
		}
		next[nameOf(h)] = h.Version + 1
	}
	return nil
}

// carry writes a version as another database had it, under numbers of this one. Versions below a floor are gone. A page that
// the version before has goes on under its number.
func (m *Memory) carry(c *store.Carried, leaf *manifest.Record) error {
	h := own(c.Head)
	h.LSN = m.lsn
	m.number(&h, len(h.Rows))
	for v := uint32(1); h.Floor && v < h.Version; v++ {
		below := *h.Below(v)
		below.LSN = m.lsn
		m.heads = append(m.heads, &below)
	}
	prev := m.at(nameOf(&h), now)
	from := len(leaf.Writes)
	for i := range h.Rows {
		r, at := &h.Rows[i], -1
		if prev != nil {
			at = slices.IndexFunc(prev.Rows, func(p store.PageRow) bool { return store.SamePage(&p, r) })
		}
		if at >= 0 {
			r.Num, r.LSN, r.Version = prev.Rows[at].Num, prev.Rows[at].LSN, prev.Rows[at].Version
		} else {
			m.addPage(&h, i, r, leaf)
		}
		if h.Gone || m.pages[r.Num-1].gone == 0 {
			continue
		}
		text, ok := c.Text(i)
		if !ok {
			return store.Invalid("carried version", h.PageRef(i+1).String(), "the text of each new page")
		}
		m.addText(&h, r.Num, text)
	}
	if len(leaf.Writes) == from {
		w := written(&h, 0, 0)
		w.Deleted = h.Deleted
		leaf.Writes = append(leaf.Writes, w)
	}
	m.heads = append(m.heads, &h)
	return nil
}
