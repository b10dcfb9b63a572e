package engine

import (
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/store"
)

// The rows of the catalogue: what each artefact and each page version has in memory, and beside it
// what few of them have.

// artCol is an artefact: its newest version. Times are in microseconds.
type artCol struct {
	lsn     uint64
	putAt   int64
	first   uint32 // number of page 1; 0: it has no pages. The rest are in many
	group   uint32
	scope   uint32
	version uint32
	idLow   uint32 // idAt
	marks   uint16 // idLen, idAt, artRetired, artMany
	idHigh  uint8  // idAt
	flags   uint8
}

// Bits of artCol.marks. A place in keys has 43 bits: all ids that numbers of 32 bits can have take
// 2^41 bytes.
const (
	idLenBits  = 1<<10 - 1
	idAtBits   = 7 << 10 // the highest three of 43, above those in idHigh and idLow
	artRetired = 1 << 14 // it has an entry in retired
	artMany    = 1 << 15 // it has one in many
)

// live says that an artefact is not deleted. Superseded ones are live.
func (a *artCol) live() bool { return a.first != 0 }

// retired says that another artefact supersedes it.
func (a *artCol) retired() bool { return a.marks&artRetired != 0 }

// idLen is the length of its id; 0: the number is not in use, or gc forgot the artefact.
func (a *artCol) idLen() int { return int(a.marks & idLenBits) }

func (a *artCol) setIDLen(n int) { a.marks = a.marks&^idLenBits | uint16(n)&idLenBits }

// idAt is where its id begins in keys.
func (a *artCol) idAt() uint64 {
	return uint64(a.marks&idAtBits)<<30 | uint64(a.idHigh)<<32 | uint64(a.idLow)
}

func (a *artCol) setIDAt(at uint64) {
	a.idLow, a.idHigh, a.marks = uint32(at), uint8(at>>32), a.marks&^idAtBits|uint16(at>>30)&idAtBits
}

// mark sets or clears a mark.
func (a *artCol) mark(m uint16, on bool) {
	if a.marks &^= m; on {
		a.marks |= m
	}
}

// succession is what supersedes an artefact.
type succession struct {
	by    uint32 // the artefact
	since uint64 // the LSN from which it is superseded, perhaps by another artefact at first
}

// pageCol is a page version. The fields that a query reads for every page it hits come first. None
// of them belongs to the artefact: reading another table would cost another cache miss. It has the
// size of a line of the processor's cache.
type pageCol struct {
	art     uint32
	rare    uint32 // what few pages have, see rareCol; 0: nothing
	scope   uint32
	kind    store.Kind
	prov    store.Provenance
	flags   uint8
	retired bool // current, but another artefact supersedes its own
	lsn     uint64
	asOf    int64
	seq     int64
	page    uint32
	version uint32 // the version of the artefact in which it appeared
	head    uint32 // the newest version of the artefact that has it
	tokens  uint32
	facts   uint32 // see type facts
	bytes   uint32 // of its text
}

// rareCol is what a page has that ended, or that expires. A page keeps its place here as long as it
// has its number.
type rareCol struct {
	end     uint64 // the LSN that ended it; 0: none did
	expires int64
	next    uint32 // the page that answers for it once it ended; 0: none
}

// mostNumber is the highest number of an artefact, a page or a group. A batch that would need a
// higher one is refused (numbering.possible): the columns of so many pages take 400 GiB.
const mostNumber = 1<<32 - 1

// gone says that gc dropped every version that had the page. The column keeps its place: the page
// that followed it, the span in which it was current, and its artefact.
func (p *pageCol) gone() bool { return p.flags&format.FlagGone != 0 }

// unconditional says that a page is a candidate whatever a question says: it is pinned, or of kind
// system.
func (p *pageCol) unconditional() bool {
	return p.flags&format.FlagPinned != 0 || p.kind == store.KindSystem
}

// art and page return the column of a number that exists.
func (c *catalogue) art(num uint64) *artCol   { return c.arts.at(num - 1) }
func (c *catalogue) page(num uint64) *pageCol { return c.pages.at(num - 1) }

// growArts adds empty artefacts until there are n.
func (c *catalogue) growArts(n int) {
	c.arts.grow(n)
	c.ever.grow(n)
}

// pageArt returns the artefact of a page.
func (c *catalogue) pageArt(p *pageCol) *artCol { return c.arts.at(uint64(p.art) - 1) }

// nothing is what most pages have of a rareCol. It is never written to.
var nothing rareCol

// rareOf returns what a page has of its end and expiry, to read.
func (c *catalogue) rareOf(p *pageCol) *rareCol {
	if p.rare == 0 {
		return &nothing
	}
	return c.rare.at(uint64(p.rare) - 1)
}

// setRare gives a page an end, an expiry or both. A page that has neither, and never had, takes no
// place for them.
func (c *catalogue) setRare(p *pageCol, r rareCol) {
	if p.rare == 0 {
		if r == nothing {
			return
		}
		c.rare.grow(c.rare.len() + 1)
		p.rare = uint32(c.rare.len())
	}
	*c.rare.at(uint64(p.rare) - 1) = r
}

func (c *catalogue) expires(p *pageCol) int64 { return c.rareOf(p).expires }
func (c *catalogue) end(p *pageCol) uint64    { return c.rareOf(p).end }

// idOf borrows the id from the arena: valid while the caller holds mu.
func (c *catalogue) idOf(a *artCol) []byte {
	at := a.idAt()
	return c.keys[at : at+uint64(a.idLen())]
}

// id returns a copy of the id.
func (c *catalogue) id(a *artCol) string { return string(c.idOf(a)) }

// nums returns the pages of an artefact's newest version. The slice belongs to the catalogue.
func (c *catalogue) nums(num uint64) []uint32 {
	a := c.art(num)
	if a.marks&artMany != 0 {
		return c.many[uint32(num)]
	}
	if a.live() {
		return []uint32{a.first}
	}
	return nil
}

// pageCount is how many pages an artefact has.
func (c *catalogue) pageCount(num uint64) int { return c.pagesOf(num, c.art(num)) }

// pagesOf is pageCount for a caller that has the column.
func (c *catalogue) pagesOf(num uint64, a *artCol) int {
	switch {
	case a.marks&artMany != 0:
		return len(c.many[uint32(num)])
	case a.live():
		return 1
	}
	return 0
}

// setNums notes the pages of the newest version. Most artefacts have one page, which is kept in the
// artefact itself; longer ones have a list in many.
func (c *catalogue) setNums(art uint64, rows []store.PageRow) {
	a := c.art(art)
	if a.marks&artMany != 0 {
		delete(c.many, uint32(art))
	}
	a.first = 0
	if len(rows) > 0 {
		a.first = uint32(rows[0].Num)
	}
	if a.mark(artMany, len(rows) > 1); len(rows) > 1 {
		nums := make([]uint32, len(rows))
		for i := range rows {
			nums[i] = uint32(rows[i].Num)
		}
		c.many[uint32(art)] = nums
	}
}

// succession returns what supersedes an artefact; by 0: nothing does.
func (c *catalogue) succession(art uint64) succession {
	if !c.art(art).retired() {
		return succession{}
	}
	return c.retired[uint32(art)]
}

// setSuccession notes what supersedes an artefact.
func (c *catalogue) setSuccession(art uint64, s succession) {
	a := c.art(art)
	if s.by != 0 {
		c.retired[uint32(art)] = s
	} else if a.retired() {
		delete(c.retired, uint32(art))
	}
	a.mark(artRetired, s.by != 0)
}
