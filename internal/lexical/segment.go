package lexical

import (
	"encoding/binary"
	"slices"
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
// pages: number (distance to the one before), scope, group, length, and 0 or, of a
// turn, 1, plus 2 in the first person, its month, and its speaker's place among the
// names from 1, 0 for none.

// docRow is what the index keeps of a page beside its terms.
type docRow struct {
	num      uint64
	scope    uint32
	group    uint64
	length   uint32
	turn     bool
	personal bool
	month    Month
	// speaker shares its memory with others of its name.
	speaker string
}

// appendDoc appends a page of a row of pages; last is the number before it in the row, speaker its
// place among the names of the row.
func appendDoc(b []byte, last uint64, d docRow, speaker int) []byte {
	b = binary.AppendUvarint(b, d.num-last)
	b = binary.AppendUvarint(b, uint64(d.scope))
	b = binary.AppendUvarint(b, d.group)
	b = binary.AppendUvarint(b, uint64(d.length))
	switch {
	case !d.turn:
		return append(b, 0)
	case d.personal:
		b = append(b, 3)
	default:
		b = append(b, 1)
	}
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
}

// add puts a page into the row that grows, and begins another one when that has docsInRow.
func (r *docRows) add(d docRow) {
	if r.all.docs == 0 {
		r.all.first = d.num
	}
	if r.n == 0 {
		r.rows = append(r.rows, [2][]byte{docsKey(r.id, d.num)})
		r.last = d.num
	}
	r.b = appendDoc(r.b, r.last, d, r.place(d.speaker))
	r.last, r.all.last = d.num, d.num
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

// write puts the rows and gives the segment that they are of.
func (r *docRows) write(w Writer) (segment, error) {
	r.end()
	for _, row := range r.rows {
		if err := w.Put(row[0], row[1]); err != nil {
			return segment{}, err
		}
	}
	s := r.all
	s.id = r.id
	return s, nil
}

// place is where a speaker stands among those of the row, from 1; 0 for none.
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
	switch bits := r.uvarint(); bits {
	case 0:
		return
	case 1, 3:
		d.turn, d.personal = true, bits == 3
	default:
		r.bad = true
	}
	month, speaker := r.uvarint(), r.uvarint()
	if month >= firstPerson || speaker > uint64(len(speakers)) {
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
	num := binary.BigEndian.Uint64(key[segPrefix:])
	r := reader{b: value}
	var speakers []string
	for range r.count() {
		speakers = append(speakers, string(r.bytes()))
	}
	for n := 0; len(r.b) > 0; n++ {
		d := r.uvarint()
		doc := docRow{num: num + d, scope: r.uint32(), group: r.uvarint(), length: r.uint32()}
		r.turn(&doc, speakers)
		if r.bad || d == 0 && n > 0 || d > s.last || doc.num < s.first || doc.num > s.last {
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
