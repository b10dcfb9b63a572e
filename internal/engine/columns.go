package engine

import (
	"iter"
	"math"
	"slices"
	"sort"

	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/store"
)

// The rows of the catalogue: each artefact and each page version in memory, and beside them
// what only few have.

// artCol is an artefact. What else is known of its newest version is in the column of page 1, or in
// catalogue.newest.
type artCol struct {
	first  uint32 // number of page 1; 0: it has no pages. The rest are in many
	newest uint32 // see newestOf
	group  uint32
	scope  uint32
	idLow  uint32 // idAt
	marks  uint16 // idLen, idAt, artNewest, artRetired, artMany
	idHigh uint8  // idAt
	flags  uint8
}

// newestCol is the newest version of an artefact; version 0: there is none. Most artefacts have a
// first page that came with it, soon before it was put. Then the column of the page has all of it, but
// for the microseconds between, which are in artCol.newest. The others keep a place in
// catalogue.newest (artNewest) as long as they have their number.
type newestCol struct {
	lsn     uint64
	putAt   int64 // microseconds
	version uint32
}

// newestOf returns the newest version of an artefact.
func (c *catalogue) newestOf(a *artCol) newestCol {
	if a.marks&artNewest != 0 {
		return *c.newest.at(uint64(a.newest))
	}
	if a.first == 0 {
		return newestCol{}
	}
	p := c.page(uint64(a.first))
	n := c.numbers(p)
	return newestCol{n.lsn, p.asOf + int64(int32(a.newest)), n.head}
}

// setNewest notes the newest version of an artefact whose pages have their columns.
func (c *catalogue) setNewest(a *artCol, n newestCol) {
	switch {
	case a.marks&artNewest != 0:
		*c.newest.at(uint64(a.newest)) = n
	case !c.implies(a, &n):
		c.addNewest(a, &n)
	}
}

// addNewest adds the newest version of an artefact to catalogue.newest.
func (c *catalogue) addNewest(a *artCol, n *newestCol) {
	a.mark(artNewest, true)
	a.newest = uint32(c.newest.len())
	c.newest.grow(c.newest.len() + 1)
	*c.newest.at(uint64(a.newest)) = *n
}

// implies notes the newest version of an artefact without a place in catalogue.newest, and reports
// whether the column of page 1 has the rest of it.
func (c *catalogue) implies(a *artCol, n *newestCol) bool {
	if a.first == 0 {
		return *n == newestCol{}
	}
	p := c.page(uint64(a.first))
	of := c.numbers(p)
	a.newest = uint32(n.putAt - p.asOf)
	return of.lsn == n.lsn && of.head == n.version && p.asOf+int64(int32(a.newest)) == n.putAt
}

// Bits of artCol.marks. A place in keys has 42 bits: all ids that numbers of 32 bits can have take
// 2^41 bytes.
const (
	idLenBits  = 1<<10 - 1
	idAtBits   = 3 << 10 // the highest two of 42, above those in idHigh and idLow
	artNewest  = 1 << 13 // it has an entry in newest
	artRetired = 1 << 14 // it has an entry in retired
	artMany    = 1 << 15 // it has one in many
)

// live reports whether an artefact is not deleted. Superseded ones are live.
func (a *artCol) live() bool { return a.first != 0 }

// retired reports whether another artefact supersedes it.
func (a *artCol) retired() bool { return a.marks&artRetired != 0 }

// idLen is the length of its id; 0: the number is not in use, or gc forgot the artefact.
func (a *artCol) idLen() int { return int(a.marks & idLenBits) }

func (a *artCol) setIDLen(n int) { a.marks = a.marks&^idLenBits | uint16(n)&idLenBits }

// idAt returns the place in keys where its id begins.
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

// succession names the artefact that supersedes another one.
type succession struct {
	by    uint32 // the artefact
	since uint64 // the LSN from which it is superseded, perhaps by another artefact at first
}

// pageCol is a page version. The fields that a query reads for every page it hits come first. None
// belongs to the artefact: reading another table would cost another cache miss.
type pageCol struct {
	art     uint32
	rare    uint32 // what few pages have, see rareCol; 0: nothing
	scope   uint32
	kind    store.Kind
	prov    store.Provenance
	flags   uint8
	retired bool // current, but another artefact supersedes its own
	asOf    int64
	facts   uint32 // see type facts
	small   smallNumbers
}

// pageNumbers are the numbers of a page that are small for most pages.
type pageNumbers struct {
	lsn     uint64
	seq     int64
	page    uint32
	version uint32 // the version of the artefact in which it appeared
	head    uint32 // the newest version of the artefact that has it
	tokens  uint32
	bytes   uint32 // of its text
}

// smallNumbers are the numbers of a page in twenty bytes. If one of them has no room, all are in
// catalogue.wide, which takes little beside the text of a page so long or an artefact so often put.
type smallNumbers struct {
	lsn     uint32 // and lsnHigh
	seq     int32
	lsnHigh uint16 // or wide
	page    uint16
	version uint16
	head    uint16
	tokens  uint16
	bytes   uint16
}

// wide in lsnHigh says that the numbers are in catalogue.wide.
const wide = 1<<16 - 1

func (p *pageCol) wide() bool { return p.small.lsnHigh == wide }

// numbers returns the numbers of a page.
func (c *catalogue) numbers(p *pageCol) pageNumbers {
	if p.wide() {
		return c.wide[p.rare]
	}
	return p.small.numbers()
}

func (s *smallNumbers) numbers() pageNumbers {
	return pageNumbers{uint64(s.lsnHigh)<<32 | uint64(s.lsn), int64(s.seq), uint32(s.page), uint32(s.version), uint32(s.head), uint32(s.tokens), uint32(s.bytes)}
}

// small returns the numbers in twenty bytes; false: one of them has no room.
func (n *pageNumbers) small() (s smallNumbers, ok bool) {
	s = smallNumbers{uint32(n.lsn), int32(n.seq), uint16(n.lsn >> 32), uint16(n.page), uint16(n.version), uint16(n.head), uint16(n.tokens), uint16(n.bytes)}
	return s, s.lsnHigh != wide && s.numbers() == *n
}

// setPageCol fills the column of a page, which keeps its place in rare.
func (c *catalogue) setPageCol(p *pageCol, col pageCol, n pageNumbers) {
	if p.wide() {
		delete(c.wide, p.rare)
	}
	col.rare = p.rare
	*p = col
	if s, ok := n.small(); ok {
		p.small = s
		return
	}
	p.small.lsnHigh = wide
	c.hasRare(p)
	c.wide[p.rare] = n
}

// rareCol has the fields of a page that ended, or that expires. A page keeps its place here as long as it
// has its number.
type rareCol struct {
	end     uint64 // the LSN that ended it; 0: none did
	expires int64
	next    uint32 // the page that answers for it once it ended; 0: none
}

// mostNumber is the highest number of an artefact, a page or a group. A batch that would need a
// higher one is refused (numbering.possible): the columns of so many pages take 400 GiB.
const mostNumber = 1<<32 - 1

// gone reports whether gc dropped every version that had the page. The column keeps its place: the page
// that followed it, the span in which it was current, and its artefact.
func (p *pageCol) gone() bool { return p.flags&format.FlagGone != 0 }

// unconditional reports whether a page is a candidate whatever a question says: it is pinned, or of kind
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
	c.history.grow(n)
}

// nothing is the rareCol of most pages. It is never written to.
var nothing rareCol

// rareOf returns what a page has of its end and expiry, to read.
func (c *catalogue) rareOf(p *pageCol) *rareCol {
	if p.rare == 0 {
		return &nothing
	}
	return c.rare.at(uint64(p.rare) - 1)
}

// setRare sets the end or the expiry of a page. A page that has neither, and never had, takes no
// place for them.
func (c *catalogue) setRare(p *pageCol, r rareCol) {
	if p.rare == 0 {
		if r == nothing {
			return
		}
		c.hasRare(p)
	}
	*c.rare.at(uint64(p.rare) - 1) = r
}

// hasRare makes a place in rare for a page that has none.
func (c *catalogue) hasRare(p *pageCol) {
	if p.rare == 0 {
		c.rare.grow(c.rare.len() + 1)
		p.rare = uint32(c.rare.len())
	}
}

func (c *catalogue) expires(p *pageCol) int64 {
	if p.rare == 0 {
		return 0
	}
	return c.rare.at(uint64(p.rare) - 1).expires
}

func (c *catalogue) end(p *pageCol) uint64 { return c.rareOf(p).end }

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

// pageCount returns the number of pages of an artefact.
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
	a.marks &^= artMany
	if len(rows) > 1 {
		a.marks |= artMany
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

// chunked is a column of rows in memory: an array that grows in chunks of chunkRows and never
// moves. A slice that grows by append has up to a quarter more room than rows, and copying a
// million rows makes a commit wait; here at most one chunk is not full, and nothing is copied. To
// reach a row takes one more read, of a table of pointers that stays in the processor's cache.
//
// Rows are counted from 0. Pointers to rows stay valid.
type chunked[T any] struct {
	chunks []*[chunkRows]T
	n      int
}

// chunkRows divides the rows of a block of a snapshot (codec.ColumnRows). A small database takes one
// chunk, and a process may have a thousand of those open: with 1,024 rows it took 105 KiB.
const chunkRows = 128

func (c *chunked[T]) len() int { return c.n }

// at returns row i, which must exist.
func (c *chunked[T]) at(i uint64) *T { return &c.chunks[i/chunkRows][i%chunkRows] }

// grow adds empty rows until there are n.
func (c *chunked[T]) grow(n int) {
	for len(c.chunks)*chunkRows < n {
		c.chunks = append(c.chunks, new([chunkRows]T))
	}
	c.n = max(c.n, n)
}

// block returns the rows from..to of one chunk.
func (c *chunked[T]) block(from, to int) []T {
	return c.chunks[from/chunkRows][from%chunkRows : (to-1)%chunkRows+1]
}

// all yields the rows in order with their numbers, from 1.
func (c *chunked[T]) all() iter.Seq2[uint64, *T] {
	return func(yield func(uint64, *T) bool) {
		for at := 0; at < c.n; at += chunkRows {
			some := c.block(at, min(at+chunkRows, c.n))
			for i := range some {
				if !yield(uint64(at+i)+1, &some[i]) {
					return
				}
			}
		}
	}
}

// sortedList is a sorted set of (key, page number): the pages of one provenance class by time,
// newest last, or by expiry. Chunks of a bounded size make an insertion anywhere cheap: it moves at
// most one chunk, where one sorted slice would move megabytes. An append, the usual case, touches
// the last chunk only.
//
// Rejected: a kept B-tree. Every question counts in each class (unswept), which takes it eight times as long.
//
// A chunk has 1 to 511 entries once an insertion has ended, except that the only chunk of an
// emptied list may be empty. The list is guarded by catalogue.mu; it has no lock of its own.
type sortedList struct {
	chunks []sortedRun
	n      int
}

// sortedRun is a chunk. Most have entries that lie near each other, which take eight bytes: the
// distances of key and number from base and least, in one number that has their order. A chunk that
// gets an entry too far away has nums from then on, and keys in rows.
type sortedRun struct {
	rows  []uint64
	nums  []uint32 // nil: rows has whole entries
	base  int64
	least uint32
}

// Bits of an entry in eight bytes: 203 days and a million pages, half of them on each side of the
// first entry.
const (
	runKeyBits = 44
	runNumBits = 20
)

// entry is a page under its key: a time in microseconds.
type entry struct {
	key int64
	num uint64
}

// sortedChunk is the most entries of a chunk.
const sortedChunk = 512

// sortedOf makes a list of entries that are in order, to read.
func sortedOf(all []entry) (o sortedList) {
	if o.n = len(all); o.n == 0 {
		return o
	}
	c := newRun(o.n)
	for _, e := range all {
		c.insert(len(c.rows), e)
	}
	o.chunks = []sortedRun{c}
	return o
}

func newRun(capacity int) sortedRun { return sortedRun{rows: make([]uint64, 0, capacity)} }

func (c *sortedRun) at(i int) entry {
	x := c.rows[i]
	if c.nums != nil {
		return entry{int64(x), uint64(c.nums[i])}
	}
	return entry{c.base + int64(x>>runNumBits), uint64(c.least) + x&(1<<runNumBits-1)}
}

func (c *sortedRun) last() entry { return c.at(len(c.rows) - 1) }

// insert puts an entry in its place.
func (c *sortedRun) insert(at int, e entry) {
	if len(c.rows) == 0 {
		const keys, nums = 1 << (runKeyBits - 1), 1 << (runNumBits - 1)
		c.base, c.least, c.nums = max(e.key, math.MinInt64+keys)-keys, uint32(max(e.num, nums)-nums), nil
	}
	if c.nums == nil && e.key >= c.base && e.num >= uint64(c.least) {
		if key, num := uint64(e.key-c.base), e.num-uint64(c.least); key < 1<<runKeyBits && num < 1<<runNumBits {
			c.rows = slices.Insert(c.rows, at, key<<runNumBits|num)
			return
		}
	}
	c.widen()
	c.rows, c.nums = slices.Insert(c.rows, at, uint64(e.key)), slices.Insert(c.nums, at, uint32(e.num))
}

// widen makes room in the chunk for any entry.
func (c *sortedRun) widen() {
	if c.nums != nil {
		return
	}
	nums := make([]uint32, len(c.rows), cap(c.rows))
	for i := range c.rows {
		e := c.at(i)
		c.rows[i], nums[i] = uint64(e.key), uint32(e.num)
	}
	c.nums = nums
}

// remove takes out the entries from..to.
func (c *sortedRun) remove(from, to int) {
	c.rows = slices.Delete(c.rows, from, to)
	if c.nums != nil {
		c.nums = slices.Delete(c.nums, from, to)
	}
}

// search returns the place of an entry, or where it would be.
func (c *sortedRun) search(e entry) (at int, found bool) {
	at = sort.Search(len(c.rows), func(i int) bool { return compareEntries(c.at(i), e) >= 0 })
	return at, at < len(c.rows) && c.at(at) == e
}

// compareEntries orders by time, then by number, so that pages of one microsecond have one order
// everywhere. It is written out because it is called for every step of every question.
func compareEntries(a, b entry) int {
	switch {
	case a.key != b.key:
		if a.key < b.key {
			return -1
		}
		return 1
	case a.num < b.num:
		return -1
	case a.num > b.num:
		return 1
	}
	return 0
}

// find returns the chunk that has e or would have it.
func (o *sortedList) find(e entry) int {
	lo, hi := 0, len(o.chunks)-1
	for lo < hi {
		mid := (lo + hi) / 2
		if compareEntries(o.chunks[mid].last(), e) < 0 {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// insert adds an entry. An entry that is there already stays as it is.
func (o *sortedList) insert(key int64, num uint64) {
	e := entry{key, num}
	if len(o.chunks) == 0 {
		o.chunks = append(o.chunks, sortedRun{})
	}
	i := o.find(e)
	c := &o.chunks[i]
	at, found := c.search(e)
	if found {
		return
	}
	c.insert(at, e)
	o.n++
	if len(c.rows) < sortedChunk {
		return
	}
	// An append splits off an almost empty chunk, anything else halves: sequential loads leave full
	// chunks.
	cut := len(c.rows) / 2
	if at == len(c.rows)-1 {
		cut = len(c.rows) - 1
	}
	next := newRun(firstCapacity)
	for j := cut; j < len(c.rows); j++ {
		next.insert(len(next.rows), c.at(j))
	}
	c.remove(cut, len(c.rows))
	o.chunks = slices.Insert(o.chunks, i+1, next)
}

// firstCapacity is the number of entries a new chunk can hold before it grows.
const firstCapacity = 64

// remove takes an entry out, if it is there. A chunk that becomes empty is dropped, unless it is
// the only one; half-empty chunks are not merged.
func (o *sortedList) remove(key int64, num uint64) {
	if len(o.chunks) == 0 {
		return
	}
	e := entry{key, num}
	i := o.find(e)
	c := &o.chunks[i]
	at, found := c.search(e)
	if !found {
		return
	}
	o.n--
	c.remove(at, at+1)
	if len(c.rows) == 0 && len(o.chunks) > 1 {
		o.chunks = slices.Delete(o.chunks, i, i+1)
	}
}

// upTo counts the entries with a key of at most k. It adds up whole chunks and looks into one: a
// few hundred additions for a hundred thousand entries.
func (o *sortedList) upTo(k int64) int {
	n := 0
	for i := range o.chunks {
		c := &o.chunks[i]
		if len(c.rows) == 0 {
			continue
		}
		if c.last().key <= k {
			n += len(c.rows)
			continue
		}
		at, _ := c.search(entry{k, ^uint64(0)})
		return n + at
	}
	return n
}

// descend calls fn from the greatest key down until it returns false.
func (o *sortedList) descend(fn func(e entry) bool) {
	for i := len(o.chunks) - 1; i >= 0; i-- {
		c := &o.chunks[i]
		for j := len(c.rows) - 1; j >= 0; j-- {
			if !fn(c.at(j)) {
				return
			}
		}
	}
}

// merge walks down several lists at once. A question has a few, so their greatest entries are compared one by one.
type merge []descent

// descent is a place in a list, on the way from its greatest entry down.
type descent struct {
	entry entry
	o     *sortedList
	chunk int
	at    int
}

// next moves to the next smaller entry; false: there is none.
func (d *descent) next() bool {
	for d.at == 0 {
		if d.chunk--; d.chunk < 0 {
			return false
		}
		d.at = len(d.o.chunks[d.chunk].rows)
	}
	d.at--
	d.entry = d.o.chunks[d.chunk].at(d.at)
	return true
}

// add takes in a list; call it before the first take.
func (m *merge) add(o *sortedList) {
	if d := (descent{o: o, chunk: len(o.chunks)}); d.next() {
		*m = append(*m, d)
	}
}

// take returns the greatest entry that is left.
func (m *merge) take() (e entry, ok bool) {
	lists := *m
	if len(lists) == 0 {
		return entry{}, false
	}
	top := 0
	for i := range lists {
		if compareEntries(lists[i].entry, lists[top].entry) > 0 {
			top = i
		}
	}
	e = lists[top].entry
	if !lists[top].next() {
		lists[top] = lists[len(lists)-1]
		*m = lists[:len(lists)-1]
	}
	return e, true
}

// between calls fn with the pages whose keys are above a and at most b, lowest first. fn must not
// change the list.
func (o *sortedList) between(a, b int64, fn func(num uint64)) {
	if o.n == 0 {
		return
	}
	first := entry{a, ^uint64(0)}
	for i := o.find(first); i < len(o.chunks); i++ {
		c := &o.chunks[i]
		for at, _ := c.search(first); at < len(c.rows); at++ {
			if c.at(at).key > b {
				return
			}
			fn(c.at(at).num)
		}
	}
}
