package lexical

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/cespare/xxhash/v2"
)

// The list of segments is one row, and the only place that says which rows count. It changes in the
// transaction that completes a segment, so a crash leaves the old list or the new one, each with
// all of its rows.
//
//	segments   cover rising, disjoint ranges of page numbers; every page up to through is in one, or was removed
//	dead       segments that a merge replaced, and the one that it writes. Readers may still use a list that names them, so a
//	           later step deletes their rows, not the one that replaced them
//
// A segment is never changed. A removed page stays in it until it is merged, and readers leave it
// out.

// segment is an immutable part of the index: the rows of the page numbers from
// first to last that were not removed when it was written.
type segment struct {
	id          uint32
	first, last uint64
	docs        uint64
}

// manifest is the list row: which segments the store has.
type manifest struct {
	next     uint32    // id of the next segment
	through  uint64    // every page up to here is in a segment, or gone
	segments []segment // ascending by number
	dead     []uint32  // merged out; their rows go in the next checkpoint
}

// clone is a copy that shares nothing with m.
func (m manifest) clone() manifest {
	m.segments = slices.Clone(m.segments)
	m.dead = slices.Clone(m.dead)
	return m
}

// encode makes the value of the list row, without its checksum.
func (m manifest) encode() []byte {
	b := []byte{rowVersion}
	b = binary.AppendUvarint(b, uint64(len(AnalyzerVersion)))
	b = append(b, AnalyzerVersion...)
	b = binary.AppendUvarint(b, uint64(m.next))
	b = binary.AppendUvarint(b, m.through)
	b = binary.AppendUvarint(b, uint64(len(m.segments)))
	for _, s := range m.segments {
		b = binary.AppendUvarint(b, uint64(s.id))
		b = binary.AppendUvarint(b, s.first)
		b = binary.AppendUvarint(b, s.last)
		b = binary.AppendUvarint(b, s.docs)
	}
	b = binary.AppendUvarint(b, uint64(len(m.dead)))
	for _, id := range m.dead {
		b = binary.AppendUvarint(b, uint64(id))
	}
	return b
}

// decodeManifest reads the list row. ErrAnalyzer means that the rows are sound and of another
// analyzer, which is not damage: the index is built again.
func decodeManifest(key, row []byte) (manifest, error) {
	var m manifest
	value, err := unseal(key, row)
	if err != nil {
		return m, err
	}
	if len(value) == 0 || value[0] != rowVersion {
		return m, corrupt(key, "layout of the rows is unknown, want version %d", rowVersion)
	}
	r := reader{b: value[1:]}
	if a := r.bytes(); !r.bad && string(a) != AnalyzerVersion {
		return m, ErrAnalyzer
	}
	m.next, m.through = r.uint32(), r.uvarint()
	for range r.count() {
		m.segments = append(m.segments, segment{id: r.uint32(), first: r.uvarint(), last: r.uvarint(), docs: r.uvarint()})
	}
	for range r.count() {
		m.dead = append(m.dead, r.uint32())
	}
	if r.bad || len(r.b) > 0 || !m.sound() {
		return manifest{}, corrupt(key, "list of segments is not in order")
	}
	return m, nil
}

// sound reports whether segments could be as the list says: ranges rise and do not overlap, none is
// empty, ids were given before.
func (m manifest) sound() bool {
	end := uint64(0)
	for _, s := range m.segments {
		if s.first <= end || s.last < s.first || s.docs == 0 || s.docs > s.last-s.first+1 || s.id >= m.next {
			return false
		}
		end = s.last
	}
	return end <= m.through
}

// A row of pages is the speakers in it, a count and their names, and then its
// pages: number (distance to the previous one), scope (the same, but it may fall),
// group, length, and 0 or, of a turn, 1 plus twice its traits, its month, and its
// speaker's place among the names from 1, 0 for none.

// docRow has the fields that the index keeps of a page beside its terms.
type docRow struct {
	num    uint64
	scope  uint32
	group  uint64
	length uint32
	turn   bool
	traits Traits
	month  Month
	// speaker shares its memory with others of its name.
	speaker string
}

// appendDoc appends a page of a row of pages; last and scope belong to the page before it in
// the row, speaker is its place among the names of the row.
func appendDoc(b []byte, last uint64, scope uint32, d docRow, speaker int) []byte {
	b = binary.AppendUvarint(b, d.num-last)
	b = binary.AppendVarint(b, int64(d.scope)-int64(scope))
	b = binary.AppendUvarint(b, d.group)
	b = binary.AppendUvarint(b, uint64(d.length))
	if !d.turn {
		return append(b, 0)
	}
	b = append(b, 1+2*byte(d.traits))
	b = binary.AppendUvarint(b, uint64(d.month))
	return binary.AppendUvarint(b, uint64(speaker))
}

// docRows cuts the pages of a segment into rows. They wait for write: the store is not written to
// while it is read. The names of the speakers of a row are in it once, since a conversation has
// few. docsInRow pages a row bound what one decode takes.
type docRows struct {
	id       uint32
	rows     [][2][]byte // key and value
	all      segment     // but for its number
	last     uint64
	n        int // in the row that grows
	b        []byte
	names    []byte // of the speakers, as they stand before the pages
	speakers map[string]int
	first    map[uint32]uint64 // of each scope
	scope    uint32            // of the page before
	before   uint32            // the same, in the row that grows
}

// add puts a page into the row that grows, and begins another one when that has docsInRow.
func (r *docRows) add(d docRow) {
	if r.all.docs == 0 {
		r.all.first, r.first = d.num, map[uint32]uint64{}
	}
	if r.all.docs == 0 || d.scope != r.scope { // neighbours are mostly of one scope
		if _, ok := r.first[d.scope]; !ok {
			r.first[d.scope] = d.num
		}
		r.scope = d.scope
	}
	if r.n == 0 {
		r.rows = append(r.rows, [2][]byte{docsKey(r.id, d.num)})
		r.last, r.before = d.num, 0
	}
	r.b = appendDoc(r.b, r.last, r.before, d, r.place(d.speaker))
	r.last, r.before, r.all.last = d.num, d.scope, d.num
	r.all.docs++
	if r.n++; r.n == docsInRow {
		r.end()
	}
}

// end ends the row that grows: the names stand before the pages, and they are known only now.
func (r *docRows) end() {
	if r.n == 0 {
		return
	}
	row := &r.rows[len(r.rows)-1]
	value := binary.AppendUvarint(make([]byte, 0, len(r.names)+len(r.b)+binary.MaxVarintLen32+sumSize), uint64(len(r.speakers)))
	value = append(append(value, r.names...), r.b...)
	row[1] = seal(row[0], value)
	r.n, r.b, r.names = 0, r.b[:0], r.names[:0]
	clear(r.speakers)
}

// write puts the rows, and those of the scopes. It returns their segment and where its scopes start.
func (r *docRows) write(w Writer) (segment, starts, error) {
	r.end()
	s := r.all
	s.id = r.id
	var at starts
	for scope, first := range r.first {
		at = append(at, start{scope, first})
	}
	slices.SortFunc(at, func(a, b start) int { return cmp.Compare(a.scope, b.scope) })
	for some := range slices.Chunk(at, scopesInRow) {
		key := scopesKey(s.id, some[len(some)-1].scope)
		r.rows = append(r.rows, [2][]byte{key, seal(key, some.encode(s))})
	}
	for _, row := range r.rows {
		if err := w.Put(row[0], row[1]); err != nil {
			return segment{}, nil, err
		}
	}
	return s, at, nil
}

// place is the place of a speaker among the speakers of the row, from 1; 0 for none.
func (r *docRows) place(name string) int {
	if name == "" {
		return 0
	}
	at, ok := r.speakers[name]
	if !ok {
		if r.speakers == nil {
			r.speakers = map[string]int{}
		}
		at = len(r.speakers) + 1
		r.speakers[name] = at
		r.names = append(binary.AppendUvarint(r.names, uint64(len(name))), name...)
	}
	return at
}

// turn reads what follows the length of a page.
func (r *reader) turn(d *docRow, speakers []string) {
	kind := r.uvarint()
	if kind == 0 {
		return
	}
	d.turn, d.traits = true, Traits(kind/2)
	r.bad = r.bad || kind%2 == 0 || kind/2 > uint64(allTraits)
	month, speaker := r.uvarint(), r.uvarint()
	if month >= 1<<monthBits || speaker > uint64(len(speakers)) {
		r.bad = true
		return
	}
	if d.month = Month(month); speaker > 0 {
		d.speaker = speakers[speaker-1]
	}
}

// decodeDocs calls fn for every page of a row, in ascending order. Hostile bytes: the checksum is
// no protection against someone who writes the file, so each number is held against the segment,
// each speaker against the names, and lengths against the bytes that are left.
func decodeDocs(s segment, key, row []byte, fn func(docRow)) error {
	value, err := unseal(key, row)
	if err != nil {
		return err
	}
	if len(key) != docsKeySize {
		return corrupt(key, "key has %d bytes, want %d", len(key), docsKeySize)
	}
	num, scope := binary.BigEndian.Uint64(key[segPrefix:]), int64(0)
	r := reader{b: value}
	var speakers []string
	for range r.count() {
		speakers = append(speakers, string(r.bytes()))
	}
	for n := 0; len(r.b) > 0; n++ {
		d := r.uvarint()
		scope += r.varint()
		doc := docRow{num: num + d, scope: uint32(scope), group: r.uvarint(), length: r.uint32()}
		r.turn(&doc, speakers)
		if r.bad || d == 0 && n > 0 || d > s.last || doc.num < s.first || doc.num > s.last || scope != int64(doc.scope) {
			return corrupt(key, "page %d of the row is damaged or outside the segment", n)
		}
		num = doc.num
		fn(doc)
	}
	if r.bad {
		return corrupt(key, "row ends early")
	}
	return nil
}

// eachDoc reads all pages of a segment; their number must be the segment's.
func eachDoc(rows Rows, s segment, fn func(docRow)) error {
	var err error
	n, last, ordered := uint64(0), s.first-1, true
	prefix := segmentKey(rowDocs, s.id)
	rows.Scan(prefix, nil, func(k, v []byte) bool {
		err = decodeDocs(s, k, v, func(d docRow) {
			if d.num <= last {
				ordered = false
				return
			}
			n, last = n+1, d.num
			fn(d)
		})
		return err == nil && ordered
	})
	if err == nil && (!ordered || n != s.docs) {
		err = corrupt(prefix, "segment has %d pages in order, want %d", n, s.docs)
	}
	return err
}

// encodeRemoved writes rising numbers by their distances.
func encodeRemoved(nums []uint64) []byte {
	var b []byte
	last := uint64(0)
	for _, n := range nums {
		b = binary.AppendUvarint(b, n-last)
		last = n
	}
	return b
}

// decodeRemoved reads what encodeRemoved wrote. Numbers that do not ascend are damage.
func decodeRemoved(key, row []byte) ([]uint64, error) {
	value, err := unseal(key, row)
	if err != nil {
		return nil, err
	}
	r, num := reader{b: value}, uint64(0)
	var out []uint64
	for len(r.b) > 0 {
		d := r.uvarint()
		if r.bad || d == 0 || num+d < num {
			return nil, corrupt(key, "removed numbers are not ascending")
		}
		num += d
		out = append(out, num)
	}
	return out, nil
}

// Rows of the index, all keys big-endian:
//
//	"L"                          list: version, analyzer, next id, through, segments, dead segments
//	"R"                          numbers removed, but still in a segment
//	"D" segment first            pages of a segment, up to docsInRow a row, and who speaks in them
//	"S" segment scope            first pages of this scope and of some before it, up to scopesInRow
//	"T" segment term 0 scope     postings of this term in this scope, and of some before it (block.go)
//
// Every value ends in the low half of xxhash64(key ‖ value). Numbers in values
// are unsigned varints.
const (
	rowList     = 'L'
	rowRemoved  = 'R'
	rowDocs     = 'D'
	rowScopes   = 'S'
	rowTerm     = 'T'
	rowVersion  = 1
	sumSize     = 4
	docsInRow   = 1024
	scopesInRow = 128
	scopeSize   = 1 + 4
	segPrefix   = 1 + 4
	docsKeySize = segPrefix + 8
)

// segmentKey begins the keys of a segment's rows of a kind.
func segmentKey(kind byte, segment uint32) []byte {
	return binary.BigEndian.AppendUint32([]byte{kind}, segment)
}

// docsKey is the key of a row of pages, by its first page.
func docsKey(segment uint32, first uint64) []byte {
	return binary.BigEndian.AppendUint64(segmentKey(rowDocs, segment), first)
}

// scopesKey is the key of a row of scopes, by its last scope.
func scopesKey(segment, last uint32) []byte {
	return binary.BigEndian.AppendUint32(segmentKey(rowScopes, segment), last)
}

// appendTermKey appends to dst, so that a query needs one buffer for all keys.
func appendTermKey[T string | []byte](dst []byte, segment, scope uint32, term T) []byte {
	dst = binary.BigEndian.AppendUint32(append(dst, rowTerm), segment)
	return appendScope(append(dst, term...), scope)
}

// appendScope appends a scope to its term. No term has a zero byte, so keys sort by term and then by scope; what masks
// words makes all of them as long.
func appendScope(term []byte, scope uint32) []byte {
	return binary.BigEndian.AppendUint32(append(term, 0), scope)
}

// termAndScope is the reverse of appendScope.
func termAndScope(key []byte) (term []byte, scope uint32) {
	n := len(key) - scopeSize
	return key[:n], binary.BigEndian.Uint32(key[n+1:])
}

// seal appends the checksum of a row to its value.
func seal(key, value []byte) []byte {
	return binary.BigEndian.AppendUint32(value, sum(key, value))
}

// unseal checks a row and returns its value without the checksum.
func unseal(key, row []byte) ([]byte, error) {
	n := len(row) - sumSize
	if n < 0 {
		return nil, corrupt(key, "value of %d bytes is shorter than its checksum", len(row))
	}
	if binary.BigEndian.Uint32(row[n:]) != sum(key, row[:n]) {
		return nil, corrupt(key, "checksum does not match")
	}
	return row[:n], nil
}

// sum is the checksum of a row: a row under another key has another one.
func sum(key, value []byte) uint32 {
	var d xxhash.Digest
	d.Reset()
	d.Write(key)
	d.Write(value)
	return uint32(d.Sum64())
}

// corrupt is the error for a damaged row. It wraps ErrCorrupt.
func corrupt(key []byte, format string, args ...any) error {
	return fmt.Errorf("%w: row %q: %s", ErrCorrupt, key, fmt.Sprintf(format, args...))
}

// reader takes varints off a value. After a fault every further read returns 0, so
// a decoder may look at bad once, at its end.
type reader struct {
	b   []byte
	bad bool
}

// uvarint reads an unsigned number. Its fault empties the value, so that a loop over what is left
// ends.
func (r *reader) uvarint() uint64 {
	if len(r.b) > 0 && r.b[0] < 0x80 { // most of them
		v := r.b[0]
		r.b = r.b[1:]
		return uint64(v)
	}
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

// varint reads a number that may be below zero.
func (r *reader) varint() int64 {
	v := r.uvarint()
	return int64(v>>1) ^ -int64(v&1)
}

// uint32 reads a number of 32 bits and refuses a larger one.
func (r *reader) uint32() uint32 {
	v := r.uvarint()
	if v > math.MaxUint32 {
		r.bad = true
		return 0
	}
	return uint32(v)
}

// count reads a number of elements of at least one byte each, so a damaged count
// cannot ask for more memory than the row has bytes.
func (r *reader) count() int {
	v := r.uvarint()
	if v > uint64(len(r.b)) {
		r.bad = true
		return 0
	}
	return int(v)
}

// bytes reads a length and so many bytes, borrowed from the value.
func (r *reader) bytes() []byte {
	n := r.count()
	out := r.b[:n]
	r.b = r.b[n:]
	return out
}

// A posting list is its length, then for each posting the distance to the page
// number before it (the first: to the first number of its scope in the segment) times two,
// plus one when a count of occurrences follows; without it the count is 1.

// postings builds a list.
type postings struct {
	body []byte
	df   uint64
	last uint64
}

// add appends a posting. Numbers rise; a count of 1, which most postings have, takes no byte.
func (p *postings) add(num uint64, tf uint32) {
	d := (num - p.last) << 1
	if tf == 1 && d < 0x80 { // nine of ten
		p.body = append(p.body, byte(d))
	} else if tf != 1 {
		p.body = binary.AppendUvarint(p.body, d|1)
		p.body = binary.AppendUvarint(p.body, uint64(tf))
	} else {
		p.body = binary.AppendUvarint(p.body, d)
	}
	p.df++
	p.last = num
}

// list is a posting list in its encoded form: what a cursor reads.
type list struct {
	segment segment // or the part of the tail: number 0
	from    uint64  // the number that the distance of the first posting counts from
	df      uint64
	body    []byte
	last    uint64 // number of its last page, in a part of the tail that knows it; 0: reading the list tells
	removed bool   // some pages of segment or part were, and are to be left out
}

// each calls fn for every posting in ascending order of the number. It reports
// whether the list was sound: as many postings as it says, numbers ascending and
// inside the segment, no byte left over.
func (l list) each(fn func(num uint64, tf uint32)) bool {
	var buf [blockSize]posting
	c := l.cursor()
	for {
		block := c.next(&buf)
		if len(block) == 0 {
			return c.end()
		}
		for _, p := range block {
			fn(p.num, p.tf)
		}
	}
}

// blockSize postings are decoded at once: the decoder and the code that uses
// them are two small loops then, without a call for each posting.
const blockSize = 128

// posting says that a page has a term, and how often.
type posting struct {
	num uint64
	tf  uint32
}

// cursor walks a list. It can be given any bytes. num only rises and distance bounds it, so a page
// outside the segment is never returned; left bounds how many there are; a fault stops it for good.
// So callers ask end once, when next gave nothing.
type cursor struct {
	b        []byte
	num      uint64 // of the posting before
	distance uint64 // distance to the last number of the segment
	left     uint64 // postings that must follow
	first    bool
	broken   bool
}

// cursor walks the list from its first posting.
func (l list) cursor() cursor {
	return cursor{b: l.body, num: l.from, distance: l.segment.last - l.from, left: l.df, first: true}
}

// end reports whether the list was sound; it is asked when next gave nothing.
func (c *cursor) end() bool { return !c.broken && c.left == 0 && len(c.b) == 0 }

// next decodes up to blockSize postings into buf.
func (c *cursor) next(buf *[blockSize]posting) []posting {
	b, num, distance := c.b, c.num, c.distance
	n := 0
	for limit := int(min(blockSize, c.left)); n < limit; n++ {
		if len(b) == 0 {
			break
		}
		v, tf := uint64(b[0]), uint32(1)
		if v&0x81 == 0 { // one byte, one occurrence: nine of ten
			b = b[1:]
		} else if v, tf, b = decodePosting(b); tf == 0 {
			c.broken = true
			break
		}
		d := v >> 1
		if d > distance || d == 0 && !c.first {
			c.broken = true
			break
		}
		c.first = false
		num, distance = num+d, distance-d
		buf[n] = posting{num, tf}
	}
	c.b, c.num, c.distance, c.left = b, num, distance, c.left-uint64(n)
	return buf[:n]
}

// decodePosting decodes any posting; tf is 0 if there is none.
func decodePosting(b []byte) (v uint64, tf uint32, rest []byte) {
	v, n := binary.Uvarint(b)
	if n <= 0 {
		return 0, 0, nil
	}
	if v&1 == 0 {
		return v, 1, b[n:]
	}
	t, m := binary.Uvarint(b[n:])
	if m <= 0 || t > math.MaxUint32 {
		return 0, 0, nil
	}
	return v, uint32(t), b[n+m:]
}

// append adds a whole list; false: it is not sound. Only its first distance depends on where it
// stands; the rest is copied. It is decoded only where its last number is not known.
func (p *postings) append(l list) bool {
	last, ok := l.last, l.last > 0
	if !ok {
		if last, ok = l.end(); !ok {
			return false
		}
	}
	v, tf, rest := decodePosting(l.body)
	p.add(l.from+v>>1, tf)
	p.body = append(p.body, rest...)
	p.df, p.last = p.df+l.df-1, last
	return true
}

// end reads a list for the number of its last page; false: it is not sound.
func (l list) end() (num uint64, ok bool) {
	num, distance := l.from, l.segment.last-l.from
	b := l.body
	for n := range l.df {
		if len(b) == 0 {
			return 0, false
		}
		v, tf := uint64(b[0]), uint32(1)
		if v&0x81 == 0 {
			b = b[1:]
		} else if v, tf, b = decodePosting(b); tf == 0 {
			return 0, false
		}
		d := v >> 1
		if d > distance || d == 0 && n > 0 {
			return 0, false
		}
		num, distance = num+d, distance-d
	}
	return num, l.df > 0 && len(b) == 0
}
