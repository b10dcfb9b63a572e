package engine

import (
	"cmp"
	"encoding/binary"
	"maps"
	"slices"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/numbers"
)

// image appends the parts of the catalogue: sizes, artefacts with their ids, pages, the table of
// ids, and the lists. Facts are renumbered on the way (used), and ids are written one after the
// other, so the arena of the reader has no gap where gc forgot one. The caller holds mu.
func (c *catalogue) image(out *Columns) {
	ids := 0
	for _, a := range c.arts.all() {
		ids += a.idLen()
	}
	facts, as := c.facts.used(&c.pages)
	e := &codec.Encoder{}
	for _, n := range []int{c.arts.len(), c.pages.len(), ids, len(c.table), c.used, c.live, c.livePages, c.versions, c.dropped} {
		e.Uvarint(uint64(n))
	}
	out.add(partSizes, e.B)
	at := 0
	for from := 0; from < c.arts.len(); from += partRows {
		to := min(from+partRows, c.arts.len())
		b := binary.AppendUvarint(nil, uint64(at))
		b = appendRows(b, c, &c.arts, from, to, artColumns)
		b, n := c.appendIDs(b, from, to)
		out.add(partArts, b)
		at += n
	}
	cols := slices.Clone(pageColumns)
	for i := range cols {
		if get := cols[i].get; i == len(cols)-2 { // facts
			cols[i].get = func(c *catalogue, num uint64, p *pageCol) uint64 { return uint64(as[get(c, num, p)]) }
		}
	}
	for from := 0; from < c.pages.len(); from += partRows {
		out.add(partPages, appendRows(nil, c, &c.pages, from, min(from+partRows, c.pages.len()), cols))
	}
	for from := 0; from < len(c.table); from += partRows {
		out.add(partTable, numbers.AppendSparse(nil, c.table[from:min(from+partRows, len(c.table))]))
	}
	out.add(partLists, c.lists(facts))
}

// used returns the combinations that pages have, and their numbers by those in f.
func (f *facts) used(pages *chunked[pageCol]) (kept *facts, as []uint32) {
	kept, as = &facts{}, make([]uint32, len(f.at)+1)
	for _, p := range pages.all() {
		if n := p.facts; n != 0 && as[n] == 0 {
			as[n] = kept.number(f.get(n))
		}
	}
	return kept, as
}

// lists is everything that is no column.
func (c *catalogue) lists(f *facts) []byte {
	e := &imageEncoder{}
	e.Bytes(f.arena)
	e.numbers(len(f.at), func(i int) uint64 { return f.at[i] })
	e.numbers(len(f.table), func(i int) uint64 { return uint64(f.table[i]) })
	e.numbers(len(c.grouped), func(i int) uint64 { return c.grouped[i] })
	e.numbers(len(c.current), func(i int) uint64 { return c.current[i] })
	e.numbers(4*len(c.periods), func(i int) uint64 {
		p := &c.periods[i/4]
		return uint64([4]int64{p.asOf[0], p.asOf[1], p.put[0], p.put[1]}[i%4])
	})
	many := slices.Sorted(maps.Keys(c.many))
	e.numbers(len(many), func(i int) uint64 { return uint64(many[i]) })
	for _, art := range many {
		e.small(c.many[art])
	}
	e.Count(len(c.scopes))
	for _, s := range c.scopes {
		e.scope(s)
	}
	e.Count(len(c.groups))
	for i := range c.groups {
		e.group(&c.groups[i], c.named[artKey{c.groups[i].scope, c.groups[i].name}] == uint64(i+1))
	}
	sums := slices.SortedFunc(maps.Keys(c.sums), func(a, b artKey) int { return cmp.Or(cmp.Compare(a.scope, b.scope), cmp.Compare(a.id, b.id)) })
	sums = slices.DeleteFunc(sums, func(k artKey) bool { return c.lookup(k.scope, k.id) == 0 }) // gc forgot it
	e.Count(len(sums))
	for _, k := range sums {
		e.Uvarint(uint64(k.scope))
		e.Str(k.id)
		e.nums(c.sums[k])
	}
	return e.B
}

// imageEncoder writes the lists of a snapshot.
type imageEncoder struct{ codec.Encoder }

// numbers writes a count and that many numbers in blocks.
func (e *imageEncoder) numbers(n int, at func(i int) uint64) {
	e.Count(n)
	e.B = numbers.AppendAll(e.B, n, at)
}

// nums writes a list of page numbers.
func (e *imageEncoder) nums(v []uint64) { e.numbers(len(v), func(i int) uint64 { return v[i] }) }
func (e *imageEncoder) small(v []uint32) {
	e.numbers(len(v), func(i int) uint64 { return uint64(v[i]) })
}

// sorted writes the pages of a list in its order. Their keys are in their columns.
func (e *imageEncoder) sorted(o *sortedList) {
	all := make([]uint32, 0, o.n)
	for i := range o.chunks {
		all = append(all, o.chunks[i].nums...)
	}
	e.small(all)
}

// scope writes a scope with its classes; a name of "" stands for a number that is not in use.
func (e *imageEncoder) scope(s *scopeCol) {
	if s == nil {
		e.Str("")
		return
	}
	e.Str(s.name)
	for i := range s.classes {
		cl := &s.classes[i]
		e.Count(cl.n)
		e.Count(cl.retired)
		e.Count(cl.turns)
		e.Varint(cl.swept)
		e.sorted(&cl.recent)
		e.sorted(&cl.expiry)
	}
	e.nums(s.unconditional)
	e.Count(s.arts)
	e.Uvarint(s.sourced)
	arts := s.byID.all()
	e.Count(s.byID.done)
	e.small(arts)
	for _, u := range s.uses {
		e.Count(u.pages)
		e.Varint(u.bytes)
	}
}

// group writes a group. named says whether its name leads to it; false for a number that is not in
// use.
func (e *imageEncoder) group(g *groupCol, named bool) {
	e.Uvarint(uint64(g.scope))
	e.Str(g.name)
	e.U8(map[bool]uint8{true: 1}[named])
	e.Uvarint(g.moved)
	e.small(g.members)
	for i := range g.live {
		e.Count(int(g.live[i]))
		e.Count(int(g.turns[i]))
		e.sorted(&g.turnsOf()[i])
	}
}
