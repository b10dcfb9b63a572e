package engine

import "github.com/ctxpage/ctxpage/store"

// The columns of a snapshot (snapshot.go), and where memory has their values.

// column is a column of the artefacts or the pages.
//
// Every value goes through uint64, signed ones too, because the encoding (codec.AppendColumn) knows
// nothing else. The order of the columns is part of the format of a snapshot; where memory has a
// value is not. set is not called for blocks of zeros, which new rows have already.
type column[T any] struct {
	get func(c *catalogue, num uint64, row *T) uint64
	set func(r *rowReader, num uint64, rows []T, v []uint64) // num is the number of the first of the rows
}

// eachRow sets row by row. Columns that most rows have set them all in a loop of their own: an open has a
// million rows, and a call for each value of each of them takes longer than what it does.
func eachRow[T any](set func(r *rowReader, num uint64, row *T, v uint64)) func(*rowReader, uint64, []T, []uint64) {
	return func(r *rowReader, num uint64, rows []T, v []uint64) {
		for i, x := range v {
			set(r, num+uint64(i), &rows[i], x)
		}
	}
}

var artColumns = []column[artCol]{
	{func(c *catalogue, _ uint64, a *artCol) uint64 { return c.newestOf(a).lsn }, setNewestLSN},
	{func(_ *catalogue, _ uint64, a *artCol) uint64 { return uint64(a.first) }, eachRow(func(_ *rowReader, _ uint64, a *artCol, v uint64) { a.first = uint32(v) })},
	{func(_ *catalogue, _ uint64, a *artCol) uint64 { return uint64(a.group) }, eachRow(func(_ *rowReader, _ uint64, a *artCol, v uint64) { a.group = uint32(v) })},
	{func(c *catalogue, num uint64, _ *artCol) uint64 { return uint64(c.succession(num).by) }, eachRow((*rowReader).setBy)},
	{func(c *catalogue, num uint64, _ *artCol) uint64 { return c.succession(num).since }, eachRow((*rowReader).setSince)},
	{func(c *catalogue, _ uint64, a *artCol) uint64 { return uint64(c.newestOf(a).putAt) }, setNewestPut},
	{func(_ *catalogue, _ uint64, a *artCol) uint64 { return uint64(a.scope) }, eachRow(func(_ *rowReader, _ uint64, a *artCol, v uint64) { a.scope = uint32(v) })},
	{func(c *catalogue, _ uint64, a *artCol) uint64 { return uint64(c.newestOf(a).version) }, setNewestVersion},
	{func(c *catalogue, num uint64, _ *artCol) uint64 { return uint64(c.pageCount(num)) }, eachRow(func(*rowReader, uint64, *artCol, uint64) {})}, // first and many say it
	{artTraits, eachRow(setArtTraits)},
}

var pageColumns = []column[pageCol]{
	{func(_ *catalogue, _ uint64, p *pageCol) uint64 { return uint64(p.art) }, setArt},
	{func(c *catalogue, _ uint64, p *pageCol) uint64 { return c.rareOf(p).end }, eachRow(func(r *rowReader, _ uint64, p *pageCol, v uint64) { r.setRare(p, v, setEnd) })},
	{func(c *catalogue, _ uint64, p *pageCol) uint64 { return uint64(c.rareOf(p).expires) }, eachRow(func(r *rowReader, _ uint64, p *pageCol, v uint64) { r.setRare(p, v, setExpires) })},
	{func(_ *catalogue, _ uint64, p *pageCol) uint64 { return uint64(p.scope) }, eachRow(func(_ *rowReader, _ uint64, p *pageCol, v uint64) { p.scope = uint32(v) })},
	{pageTraits, eachRow(setPageTraits)},
	{func(c *catalogue, _ uint64, p *pageCol) uint64 { return c.numbers(p).lsn }, setLSN},
	{func(c *catalogue, _ uint64, p *pageCol) uint64 { return uint64(c.rareOf(p).next) }, eachRow(func(r *rowReader, _ uint64, p *pageCol, v uint64) { r.setRare(p, v, setNext) })},
	{func(_ *catalogue, _ uint64, p *pageCol) uint64 { return uint64(p.asOf) }, setAsOf},
	{func(c *catalogue, _ uint64, p *pageCol) uint64 { return uint64(c.numbers(p).seq) }, setSeq},
	{func(c *catalogue, _ uint64, p *pageCol) uint64 { return uint64(c.numbers(p).page) }, setPage},
	{func(c *catalogue, _ uint64, p *pageCol) uint64 { return uint64(c.numbers(p).version) }, setVersion},
	{func(c *catalogue, _ uint64, p *pageCol) uint64 { return uint64(c.numbers(p).head) }, setHead},
	{func(c *catalogue, _ uint64, p *pageCol) uint64 { return uint64(c.numbers(p).tokens) }, setTokens},
	{func(_ *catalogue, _ uint64, p *pageCol) uint64 { return uint64(p.facts) }, eachRow(func(_ *rowReader, _ uint64, p *pageCol, v uint64) { p.facts = uint32(v) })},
	{func(c *catalogue, _ uint64, p *pageCol) uint64 { return uint64(c.numbers(p).bytes) }, setBytes},
}

// artTraits are the small fields in one number.
func artTraits(c *catalogue, num uint64, a *artCol) uint64 {
	return uint64(*c.history.at(num - 1))<<24 | uint64(a.idLen())<<8 | uint64(a.flags)
}

// setArtTraits is the reverse of artTraits.
func setArtTraits(r *rowReader, num uint64, a *artCol, v uint64) {
	*r.c.history.at(num - 1), a.flags = uint8(v>>24), uint8(v)
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

func setNewestLSN(r *rowReader, num uint64, _ []artCol, v []uint64) {
	of := r.newest[int(num)-1-r.first:]
	for i, x := range v {
		of[i].lsn = x
	}
}

func setNewestPut(r *rowReader, num uint64, _ []artCol, v []uint64) {
	of := r.newest[int(num)-1-r.first:]
	for i, x := range v {
		of[i].putAt = int64(x)
	}
}

func setNewestVersion(r *rowReader, num uint64, _ []artCol, v []uint64) {
	of := r.newest[int(num)-1-r.first:]
	for i, x := range v {
		of[i].version = uint32(x)
	}
}

func setArt(_ *rowReader, _ uint64, rows []pageCol, v []uint64) {
	for i, x := range v {
		rows[i].art = uint32(x)
	}
}

func setAsOf(_ *rowReader, _ uint64, rows []pageCol, v []uint64) {
	for i, x := range v {
		rows[i].asOf = int64(x)
	}
}

func setLSN(r *rowReader, _ uint64, rows []pageCol, v []uint64) {
	for i, x := range v {
		if p := &rows[i]; x>>32 < wide && !p.wide() {
			p.small.lsn, p.small.lsnHigh = uint32(x), uint16(x>>32)
		} else {
			r.widen(p).lsn = x
		}
	}
}

func setSeq(r *rowReader, _ uint64, rows []pageCol, v []uint64) {
	for i, x := range v {
		if p := &rows[i]; int64(int32(x)) == int64(x) && !p.wide() {
			p.small.seq = int32(x)
		} else {
			r.widen(p).seq = int64(x)
		}
	}
}

func setPage(r *rowReader, _ uint64, rows []pageCol, v []uint64) {
	for i, x := range v {
		if p := &rows[i]; x>>16 == 0 && !p.wide() {
			p.small.page = uint16(x)
		} else {
			r.widen(p).page = uint32(x)
		}
	}
}

func setVersion(r *rowReader, _ uint64, rows []pageCol, v []uint64) {
	for i, x := range v {
		if p := &rows[i]; x>>16 == 0 && !p.wide() {
			p.small.version = uint16(x)
		} else {
			r.widen(p).version = uint32(x)
		}
	}
}

func setHead(r *rowReader, _ uint64, rows []pageCol, v []uint64) {
	for i, x := range v {
		if p := &rows[i]; x>>16 == 0 && !p.wide() {
			p.small.head = uint16(x)
		} else {
			r.widen(p).head = uint32(x)
		}
	}
}

func setTokens(r *rowReader, _ uint64, rows []pageCol, v []uint64) {
	for i, x := range v {
		if p := &rows[i]; x>>16 == 0 && !p.wide() {
			p.small.tokens = uint16(x)
		} else {
			r.widen(p).tokens = uint32(x)
		}
	}
}

func setBytes(r *rowReader, _ uint64, rows []pageCol, v []uint64) {
	for i, x := range v {
		if p := &rows[i]; x>>16 == 0 && !p.wide() {
			p.small.bytes = uint16(x)
		} else {
			r.widen(p).bytes = uint32(x)
		}
	}
}

// widen returns the numbers of a page that do not fit into its column, to set one.
func (r *rowReader) widen(p *pageCol) *pageNumbers {
	if !p.wide() {
		r.hasRare(p)
		if r.wide == nil {
			r.wide = map[uint32]*pageNumbers{}
		}
		n := p.small.numbers()
		r.wide[p.rare], p.small = &n, smallNumbers{lsnHigh: wide}
	}
	return r.wide[p.rare]
}
