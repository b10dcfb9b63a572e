package engine

import (
	"sync"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/numbers"
	"github.com/ctxpage/ctxpage/store"
)

// column is a column of the artefacts or the pages.
//
// Every value goes through uint64, signed ones too, because the encoding (internal/numbers) knows
// nothing else. The order of the columns is part of the format of a snapshot; where memory has a
// value is not. set is not called for blocks of zeros, which new rows have already.
type column[T any] struct {
	get func(c *catalogue, num uint64, row *T) uint64
	set func(r *rowReader, num uint64, row *T, v uint64)
}

var artColumns = []column[artCol]{
	{func(_ *catalogue, _ uint64, a *artCol) uint64 { return a.lsn }, func(_ *rowReader, _ uint64, a *artCol, v uint64) { a.lsn = v }},
	{func(_ *catalogue, _ uint64, a *artCol) uint64 { return uint64(a.first) }, func(_ *rowReader, _ uint64, a *artCol, v uint64) { a.first = uint32(v) }},
	{func(_ *catalogue, _ uint64, a *artCol) uint64 { return uint64(a.group) }, func(_ *rowReader, _ uint64, a *artCol, v uint64) { a.group = uint32(v) }},
	{func(c *catalogue, num uint64, _ *artCol) uint64 { return uint64(c.succession(num).by) }, (*rowReader).setBy},
	{func(c *catalogue, num uint64, _ *artCol) uint64 { return c.succession(num).since }, (*rowReader).setSince},
	{func(_ *catalogue, _ uint64, a *artCol) uint64 { return uint64(a.putAt) }, func(_ *rowReader, _ uint64, a *artCol, v uint64) { a.putAt = int64(v) }},
	{func(_ *catalogue, _ uint64, a *artCol) uint64 { return uint64(a.scope) }, func(_ *rowReader, _ uint64, a *artCol, v uint64) { a.scope = uint32(v) }},
	{func(_ *catalogue, _ uint64, a *artCol) uint64 { return uint64(a.version) }, func(_ *rowReader, _ uint64, a *artCol, v uint64) { a.version = uint32(v) }},
	{func(c *catalogue, num uint64, _ *artCol) uint64 { return uint64(c.pageCount(num)) }, func(*rowReader, uint64, *artCol, uint64) {}}, // first and many say it
	{artTraits, setArtTraits},
}

var pageColumns = []column[pageCol]{
	{func(_ *catalogue, _ uint64, p *pageCol) uint64 { return uint64(p.art) }, func(_ *rowReader, _ uint64, p *pageCol, v uint64) { p.art = uint32(v) }},
	{func(c *catalogue, _ uint64, p *pageCol) uint64 { return c.rareOf(p).end }, func(r *rowReader, _ uint64, p *pageCol, v uint64) { r.setRare(p, v, setEnd) }},
	{func(c *catalogue, _ uint64, p *pageCol) uint64 { return uint64(c.rareOf(p).expires) }, func(r *rowReader, _ uint64, p *pageCol, v uint64) { r.setRare(p, v, setExpires) }},
	{func(_ *catalogue, _ uint64, p *pageCol) uint64 { return uint64(p.scope) }, func(_ *rowReader, _ uint64, p *pageCol, v uint64) { p.scope = uint32(v) }},
	{pageTraits, setPageTraits},
	{func(_ *catalogue, _ uint64, p *pageCol) uint64 { return p.lsn }, func(_ *rowReader, _ uint64, p *pageCol, v uint64) { p.lsn = v }},
	{func(c *catalogue, _ uint64, p *pageCol) uint64 { return uint64(c.rareOf(p).next) }, func(r *rowReader, _ uint64, p *pageCol, v uint64) { r.setRare(p, v, setNext) }},
	{func(_ *catalogue, _ uint64, p *pageCol) uint64 { return uint64(p.asOf) }, func(_ *rowReader, _ uint64, p *pageCol, v uint64) { p.asOf = int64(v) }},
	{func(_ *catalogue, _ uint64, p *pageCol) uint64 { return uint64(p.seq) }, func(_ *rowReader, _ uint64, p *pageCol, v uint64) { p.seq = int64(v) }},
	{func(_ *catalogue, _ uint64, p *pageCol) uint64 { return uint64(p.page) }, func(_ *rowReader, _ uint64, p *pageCol, v uint64) { p.page = uint32(v) }},
	{func(_ *catalogue, _ uint64, p *pageCol) uint64 { return uint64(p.version) }, func(_ *rowReader, _ uint64, p *pageCol, v uint64) { p.version = uint32(v) }},
	{func(_ *catalogue, _ uint64, p *pageCol) uint64 { return uint64(p.head) }, func(_ *rowReader, _ uint64, p *pageCol, v uint64) { p.head = uint32(v) }},
	{func(_ *catalogue, _ uint64, p *pageCol) uint64 { return uint64(p.tokens) }, func(_ *rowReader, _ uint64, p *pageCol, v uint64) { p.tokens = uint32(v) }},
	{func(_ *catalogue, _ uint64, p *pageCol) uint64 { return uint64(p.facts) }, func(_ *rowReader, _ uint64, p *pageCol, v uint64) { p.facts = uint32(v) }},
	{func(_ *catalogue, _ uint64, p *pageCol) uint64 { return uint64(p.bytes) }, func(_ *rowReader, _ uint64, p *pageCol, v uint64) { p.bytes = uint32(v) }},
}

// artTraits are the small fields in one number.
func artTraits(c *catalogue, num uint64, a *artCol) uint64 {
	return uint64(*c.ever.at(num - 1))<<24 | uint64(a.idLen())<<8 | uint64(a.flags)
}

// setArtTraits is the reverse of artTraits.
func setArtTraits(r *rowReader, num uint64, a *artCol, v uint64) {
	*r.c.ever.at(num - 1), a.flags = uint8(v>>24), uint8(v)
	a.setIDLen(int(uint16(v >> 8)))
}

// pageTraits are the small fields in one number.
func pageTraits(_ *catalogue, _ uint64, p *pageCol) uint64 {
	v := uint64(p.kind) | uint64(p.prov)<<8 | uint64(p.flags)<<16
	if p.retired {
		v |= 1 << 24
	}
	return v
}

// setPageTraits is the reverse of pageTraits.
func setPageTraits(_ *rowReader, _ uint64, p *pageCol, v uint64) {
	p.kind, p.prov, p.flags, p.retired = store.Kind(v), store.Provenance(v>>8), uint8(v>>16), v>>24&1 == 1
}

// appendRows appends the columns of the rows from..to, block by block, so that the rows of a block
// stay in the cache.
func appendRows[T any](b []byte, c *catalogue, rows *chunked[T], from, to int, cols []column[T]) []byte {
	for ; from < to; from += chunkRows {
		some := rows.block(from, min(from+chunkRows, to))
		for _, col := range cols {
			b = numbers.AppendAll(b, len(some), func(i int) uint64 { return col.get(c, uint64(from+i)+1, &some[i]) })
		}
	}
	return b
}

// rowReader reads a part of the artefacts or the pages. Parts are read at the same time, so what
// few rows have waits here until the part is read (merge).
type rowReader struct {
	c       *catalogue
	rare    []rareCol // by pageCol.rare-1 of the rows of this part
	arts    []uint64
	retired []succession // of arts
	since   int          // how many of them have got theirs
}

// readRows is the reverse of appendRows. It fills rows that were allocated before and returns what
// follows them; false: the bytes are not of that many rows.
func readRows[T any](r *rowReader, b []byte, rows *chunked[T], from, to int, cols []column[T]) (rest []byte, ok bool) {
	var buf numbers.Buffer
	for ; from < to; from += chunkRows {
		some := rows.block(from, min(from+chunkRows, to))
		for _, col := range cols {
			if b, ok = buf.ReadAll(b, len(some), func(_ int, v []uint64) {
				for i, x := range v {
					col.set(r, uint64(from+i)+1, &some[i], x)
				}
			}); !ok {
				return nil, false
			}
		}
	}
	return b, true
}

func setEnd(r *rareCol, v uint64)     { r.end = v }
func setExpires(r *rareCol, v uint64) { r.expires = int64(v) }
func setNext(r *rareCol, v uint64)    { r.next = uint32(v) }

// setRare sets a field of a page's rareCol, which it makes for a value that is not 0.
func (r *rowReader) setRare(p *pageCol, v uint64, set func(*rareCol, uint64)) {
	if v == 0 {
		return
	}
	if p.rare == 0 {
		r.rare = append(r.rare, rareCol{})
		p.rare = uint32(len(r.rare))
	}
	set(&r.rare[p.rare-1], v)
}

func (r *rowReader) setBy(num uint64, _ *artCol, v uint64) {
	if v != 0 {
		r.arts, r.retired = append(r.arts, num), append(r.retired, succession{by: uint32(v)})
	}
}

// setSince comes after setBy for each block of rows.
func (r *rowReader) setSince(num uint64, _ *artCol, v uint64) {
	if r.since < len(r.arts) && r.arts[r.since] == num {
		r.retired[r.since].since = v
		r.since++
	}
}

// mergePages gives the catalogue what pages from..to have beside their columns. The caller holds a lock.
func (r *rowReader) mergePages(from, to int) {
	base := r.c.rare.len()
	r.c.rare.grow(base + len(r.rare))
	for i := range r.rare {
		*r.c.rare.at(uint64(base + i)) = r.rare[i]
	}
	for i := from; i < to && len(r.rare) > 0; i++ {
		if p := r.c.pages.at(uint64(i)); p.rare != 0 {
			p.rare += uint32(base)
		}
	}
}

// mergeArts is the same for artefacts.
func (r *rowReader) mergeArts() {
	for i, num := range r.arts {
		r.c.setSuccession(num, r.retired[i])
	}
}

// readArts reads the columns of some artefacts, and their ids into the arena. Parts are read at the
// same time, so each begins with the place of its first id.
func (c *catalogue) readArts(mu *sync.Mutex, b []byte, from, to int) bool {
	d := &codec.Decoder{B: b}
	at := d.Uvarint()
	r := &rowReader{c: c}
	rest, ok := readRows(r, d.B, &c.arts, from, to, artColumns)
	if !ok || !c.readIDs(rest, at, from, to) {
		return false
	}
	mu.Lock()
	defer mu.Unlock()
	r.mergeArts()
	return r.since == len(r.arts)
}

// appendIDs appends the ids of some artefacts: for each how many bytes it shares with the id before
// it, which are many in most databases, then the other bytes of all. n is the length of the ids.
func (c *catalogue) appendIDs(b []byte, from, to int) (out []byte, n int) {
	var rest, last []byte
	b = numbers.AppendAll(b, to-from, func(i int) uint64 {
		id := c.idOf(c.arts.at(uint64(from + i)))
		if len(id) == 0 {
			return 0
		}
		k := 0
		for k < min(len(id), len(last)) && id[k] == last[k] {
			k++
		}
		rest, last = append(rest, id[k:]...), id
		n += len(id)
		return uint64(k)
	})
	return append(b, rest...), n
}

// readIDs is the reverse of appendIDs. The ids go into the arena, the first at a place.
func (c *catalogue) readIDs(b []byte, at uint64, from, to int) bool {
	shared := make([]uint64, to-from)
	var buf numbers.Buffer
	rest, ok := buf.ReadAll(b, len(shared), func(from int, v []uint64) { copy(shared[from:], v) })
	if !ok || at > uint64(len(c.keys)) {
		return false
	}
	keys, last := c.keys[at:], []byte(nil)
	for i, k := range shared {
		a := c.arts.at(uint64(from + i))
		n := uint64(a.idLen())
		if n == 0 {
			continue
		}
		if n > uint64(len(keys)) || k > min(n, uint64(len(last))) || n-k > uint64(len(rest)) {
			return false
		}
		copy(keys, last[:k])
		copy(keys[k:n], rest[:n-k])
		a.setIDAt(at)
		last, keys, rest, at = keys[:n], keys[n:], rest[n-k:], at+n
	}
	return len(rest) == 0
}

// readPages reads the columns of some pages.
func (c *catalogue) readPages(mu *sync.Mutex, b []byte, from, to int) bool {
	r := &rowReader{c: c}
	rest, ok := readRows(r, b, &c.pages, from, to, pageColumns)
	mu.Lock()
	defer mu.Unlock()
	r.mergePages(from, to)
	return ok && len(rest) == 0
}
