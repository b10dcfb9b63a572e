package lexical

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
)

// Merging keeps the segments fewer than mergeFactor: of so many neighbours of one size class or
// smaller the young ones become one. A segment of which many pages were removed is written again
// alone, and in a purge every segment with a removed page is.
//
// An old segment with more pages than all that follow it stays out of the merge. So a page is
// written again only when about as many others came behind it: as often as the number of pages
// doubles. If it took part, every seventh checkpoint would write the whole index, and leave as much
// free space in the file.
//
// A merge of large segments takes many steps, because a transaction keeps its rows in memory.
// Between two steps the index answers from the old segments; the new one enters the list when it is
// whole. What the steps wrote so far is known from merging.written alone, so a step that failed is
// repeated. After a crash the merge begins anew: its rows are among the dead.
//
// Only neighbours are merged, so the ranges of numbers stay disjoint and rising.

// merging is a segment that takes more than one step to write. It replaces segments, or it is made
// of parts of the tail. It is not in the list before it is whole; until then its number stands
// among the dead, so that after a crash its rows go like theirs. A merging is never changed: each
// step makes the next one.
type merging struct {
	segment segment
	starts  starts
	old     []segment // nil: it is made of parts
	from    []starts  // of those
	parts   []*packed
	masked  []maskedList        // of parts, where the store masks words: it has their lists instead
	through uint64              // of parts: the number of their last page
	gone    map[uint64]struct{} // pages that had been removed when it began; later ones stay in it, and are left out by readers
	written []byte              // term and scope of the last list that is written, at the end of a block; nil: none
}

// merges reports whether a merge goes on or is due.
func (c *checkpoint) merges() bool {
	if c.merging != nil {
		return true
	}
	from, to := c.due()
	return from < to
}

// due returns which segments are to become one: the young ones of the oldest mergeFactor at the end
// of the list that are of one size class or smaller, or one of which many pages were removed, or in
// a purge any. Neighbours only, so numbers stay ascending. Classes end at 22, more than any number
// of 64 bits has (sizeClass). The smallest class is merged first; removed pages come last.
func (c *checkpoint) due() (from, to int) {
	segments := c.manifest.segments
	for class := 0; class <= 22; class++ {
		n := 0
		for n < len(segments) && sizeClass(segments[len(segments)-1-n].docs) <= class {
			n++
		}
		if n >= mergeFactor {
			from, to = len(segments)-n, len(segments)-n+mergeFactor
			return from + old(segments[from:to]), to
		}
	}
	for i := len(segments) - 1; i >= 0; i-- {
		if s := segments[i]; c.pending[s.id]*removedShare >= s.docs || c.purge && c.pending[s.id] > 0 {
			return i, i + 1
		}
	}
	return 0, 0
}

// old says how many segments at the front have more pages than all that follow them together. The
// last two are not old.
func old(segments []segment) (n int) {
	rest := uint64(0)
	for _, s := range segments {
		rest += s.docs
	}
	for n < len(segments)-2 && 2*segments[n].docs > rest {
		rest -= segments[n].docs
		n++
	}
	return n
}

// sizeClass is the logarithm to the base of mergeFactor.
func sizeClass(docs uint64) int { return (bits.Len64(docs) - 1) / 3 }

// merge continues the segment that goes on, or begins the next merge.
func (c *checkpoint) merge(most atMost) error {
	c.changed = true
	m := c.merging
	if m == nil {
		var err error
		if m, err = c.beginMerge(); err != nil {
			return err
		}
	}
	c.merging = nil
	return c.goOn(m, most)
}

// beginMerge writes the pages of the new segment.
func (c *checkpoint) beginMerge() (*merging, error) {
	from, to := c.due()
	m := &merging{old: slices.Clone(c.manifest.segments[from:to]), gone: map[uint64]struct{}{}}
	rows := docRows{id: c.manifest.next}
	for _, o := range m.old {
		err := eachDoc(c.w, o, func(d docRow) {
			if c.pending[o.id] > 0 && c.gone(d.num) {
				m.gone[d.num] = struct{}{}
			} else {
				rows.add(d)
			}
		})
		if err != nil {
			return nil, err
		}
		from, err := o.starts(c.w)
		if err != nil {
			return nil, err
		}
		m.from = append(m.from, from)
	}
	return m, c.begin(m, &rows)
}

// begin writes the pages of a segment and sets its number.
func (c *checkpoint) begin(m *merging, rows *docRows) (err error) {
	if m.segment, m.starts, err = rows.write(c.w); err != nil {
		return err
	}
	c.manifest.next++
	c.manifest.dead = append(c.manifest.dead, m.segment.id)
	return nil
}

// goOn writes about as many lists as it may, and ends the segment when it is whole.
func (c *checkpoint) goOn(m *merging, most atMost) error {
	if m.segment.docs > 0 {
		written, err := c.join(m, m.sources(c.w), newPageBits(m.gone), most)
		if err != nil {
			return err
		}
		if written != nil {
			next := *m
			next.written, c.merging = written, &next
			return nil
		}
	}
	c.end(m)
	return nil
}

// sources are the lists of what is merged, from behind the last one that an earlier step wrote.
// Their order follows page numbers, so equal terms are joined by appending.
func (m *merging) sources(rows Rows) (from []*source) {
	filter := len(m.gone) > 0
	for i, o := range m.old {
		from = append(from, o.source(rows, m.from[i], m.written, filter))
	}
	for _, p := range m.parts {
		from = append(from, p.source(m.written, filter))
	}
	if m.masked != nil {
		from = append(from, maskedSource(m.masked, m.written, filter))
	}
	return from
}

// maskedList is a list of a part of the tail under the key that it has in a store that masks words.
type maskedList struct {
	key  []byte // mask and scope
	part *packed
	at   int // in its data
}

// maskedSteps is how many steps a segment of parts takes at most where the store masks words, or a few more: its lists are
// sorted in memory.
const maskedSteps = 8

// mask returns the lists of parts in the order of their masks. Written in that of their words, each would have a row of its
// own, anywhere between those that other steps wrote.
func mask(parts []*packed, by Masked) []maskedList {
	out := []maskedList{}
	var keys []byte
	for _, p := range parts {
		for w, ok := p.from(nil); ok && w.next(); {
			if cap(keys)-len(keys) < 2*maxTerm {
				keys = make([]byte, 0, valuesSize)
			}
			from := len(keys)
			keys = appendScope(by.Word(keys, w.scope, w.term), w.scope)
			out = append(out, maskedList{keys[from:len(keys):len(keys)], p, w.at})
		}
	}
	slices.SortFunc(out, func(a, b maskedList) int {
		return cmp.Or(bytes.Compare(a.key, b.key), cmp.Compare(a.part.pages.first, b.part.pages.first))
	})
	return out
}

// maskedSource returns the masked lists behind a key; nil: all.
func maskedSource(lists []maskedList, behind []byte, filter bool) *source {
	if behind != nil {
		at, _ := slices.BinarySearchFunc(lists, behind, func(l maskedList, behind []byte) int { return cmp.Or(bytes.Compare(l.key, behind), -1) })
		lists = lists[at:]
	}
	return &source{filter: filter, more: func(s *source) (bool, error) {
		if len(lists) == 0 {
			return false, nil
		}
		l := &lists[0]
		s.key, s.list, lists = l.key, l.part.list(&reader{b: l.part.data[l.at:]}), lists[1:]
		return true, nil
	}}
}

// end puts the new segment in the place of the old ones, or behind all; none when no page is left.
func (c *checkpoint) end(m *merging) {
	at := len(c.manifest.segments)
	if m.old != nil {
		at = slices.IndexFunc(c.manifest.segments, func(s segment) bool { return s.id == m.old[0].id })
	}
	var whole []segment
	if m.segment.docs > 0 {
		whole = []segment{m.segment}
	}
	c.manifest.segments = slices.Replace(c.manifest.segments, at, at+len(m.old), whole...)
	c.manifest.dead = slices.DeleteFunc(c.manifest.dead, func(id uint32) bool { return id == m.segment.id })
	for _, o := range m.old {
		c.manifest.dead = append(c.manifest.dead, o.id)
	}
	c.manifest.through = max(c.manifest.through, m.through)
	for num := range m.gone {
		c.drop(num)
	}
}

// source returns the lists of a part or a segment in the order of term and scope.
type source struct {
	key    []byte // term and scope, as in the key of a row
	list   list
	filter bool // some of its pages are to be left out
	more   func(*source) (bool, error)
}

// source returns the lists of a packed part behind a term and scope; nil: all.
func (p *packed) source(behind []byte, filter bool) *source {
	s := &source{filter: filter}
	w, ok := p.from(behind)
	s.more = func(s *source) (bool, error) {
		for ok && w.next() {
			s.key = appendScope(append(s.key[:0], w.term...), w.scope)
			if behind != nil && bytes.Compare(s.key, behind) <= 0 {
				continue
			}
			behind, s.list = nil, w.list
			return true, nil
		}
		return false, nil
	}
	return s
}

// source returns the lists of a segment behind a term and scope.
func (o segment) source(rows Rows, at starts, behind []byte, filter bool) *source {
	r := rowLists{rows: rows, segment: o, starts: at, prefix: segmentKey(rowTerm, o.id)}
	if behind != nil { // the row may have lists that are written
		r.behind, r.from = behind, append(slices.Concat(r.prefix, behind), 0)
	}
	return &source{filter: filter, more: r.next}
}

// rowLists reads lists of a segment in portions: of a store that is written to nothing is kept, and
// no segment is in memory as a whole. Its result is valid until the next portion is read, so
// join copies the key and takes the list before it asks for more. Memory: portionBytes and one list
// more for each source.
type rowLists struct {
	rows         Rows
	segment      segment
	starts       starts
	prefix, from []byte
	behind       []byte // lists up to this term and scope are passed over
	row          blockReader
	read         []readList
	at           int
	data         []byte // of what was read
	end          bool   // nothing follows what was read
}

// readList is a list that was read ahead, as places in the memory that all of a portion share.
type readList struct {
	key, body, end int // in data
	from, df       uint64
}

const portionBytes = 32 << 10

// next sets s to the next list, and reads another portion if none is left.
func (r *rowLists) next(s *source) (bool, error) {
	if r.at == len(r.read) {
		if r.end {
			return false, nil
		}
		if err := r.portion(); err != nil || len(r.read) == 0 {
			return false, err
		}
	}
	l := &r.read[r.at]
	r.at++
	s.key = r.data[l.key:l.body]
	s.list = list{segment: r.segment, from: l.from, df: l.df, body: r.data[l.body:l.end]}
	return true, nil
}

// portion reads lists until they take portionBytes. What it gave before is overwritten.
func (r *rowLists) portion() (err error) {
	r.read, r.data, r.at, r.end = r.read[:0], r.data[:0], 0, true
	r.rows.Scan(r.prefix, r.from, func(k, v []byte) bool {
		if err = r.take(k, v); err != nil {
			return false
		}
		if len(r.data) < portionBytes {
			return true
		}
		r.from, r.end = append(append(r.from[:0], k...), 0), false
		return false
	})
	return err
}

// take reads the lists of a row.
func (r *rowLists) take(k, v []byte) error {
	if err := r.row.begin(r.segment, k, v); err != nil {
		return err
	}
	for r.row.next() {
		key := len(r.data)
		r.data = appendScope(append(r.data, r.row.term...), r.row.scope)
		if r.behind != nil {
			if bytes.Compare(r.data[key:], r.behind) <= 0 {
				r.data = r.data[:key]
				continue
			}
			r.behind = nil
		}
		body, from := len(r.data), r.starts.of(r.row.scope)
		if from == 0 {
			return corrupt(k, "the segment has no pages of scope %d", r.row.scope)
		}
		r.data = append(r.data, r.row.list.body...)
		r.read = append(r.read, readList{key, body, len(r.data), from, r.row.list.df})
	}
	return r.row.unsound(k)
}

// join writes the lists of sources as the lists of one segment, whose pages are the pages of the sources in
// their order. After most lists it stops at the next end of a block, and returns term and scope of
// the last one. The lists of one key come in the order of their pages, because sources are in that order and
// the queue keeps it: each is appended behind its predecessor (postings.append).
func (c *checkpoint) join(m *merging, from []*source, gone *pageBits, most atMost) (written []byte, err error) {
	q, err := newQueue(from)
	if err != nil {
		return nil, err
	}
	var p postings
	var key []byte
	s := m.segment
	c.block.reset()
	for n, size := 0, 0; len(q) > 0; n++ {
		if !c.block.some && n > 0 && (n >= most.lists || size >= most.bytes) {
			return key, nil
		}
		key = append(key[:0], q[0].key...)
		_, scope := termAndScope(key)
		p = postings{body: p.body[:0], last: m.starts.of(scope)} // 0: of all its pages none is left, so no list is
		for len(q) > 0 && bytes.Equal(q[0].key, key) {
			if !p.take(q[0].source, gone) {
				return nil, corrupt(slices.Concat(segmentKey(rowTerm, q[0].list.segment.id), key), "postings are damaged or outside the segment")
			}
			if err := q.advance(); err != nil {
				return nil, err
			}
		}
		if p.df == 0 { // removed pages alone had it
			continue
		}
		size += len(p.body)
		if err := c.put(s, key, &p); err != nil {
			return nil, err
		}
	}
	return nil, c.endBlock(s)
}

// take appends what is left of a source's list; it reports whether it was sound.
func (p *postings) take(s *source, gone *pageBits) bool {
	if !s.filter {
		return p.append(s.list)
	}
	var buf [blockSize]posting
	for c := s.list.cursor(); ; {
		block := c.next(&buf)
		if len(block) == 0 {
			return c.end()
		}
		for _, x := range block {
			if !gone.has(x.num) {
				p.add(x.num, x.tf)
			}
		}
	}
}

// pageBits is a set of pages to ask for every posting of a segment: a map took most of the time of
// a purge.
type pageBits struct {
	first uint64
	bits  []uint64
}

// newPageBits takes the pages of a map. They are of neighbouring segments, so the bits are no more
// than the pages there.
func newPageBits(pages map[uint64]struct{}) *pageBits {
	if len(pages) == 0 {
		return &pageBits{}
	}
	first, last := uint64(math.MaxUint64), uint64(0)
	for num := range pages {
		first, last = min(first, num), max(last, num)
	}
	b := &pageBits{first, make([]uint64, (last-first)/64+1)}
	for num := range pages {
		b.bits[(num-first)/64] |= 1 << ((num - first) % 64)
	}
	return b
}

// has reports whether a page is in the set. A number below the first wraps around and is beyond the
// last.
func (b *pageBits) has(num uint64) bool {
	at := num - b.first
	return at/64 < uint64(len(b.bits)) && b.bits[at/64]>>(at%64)&1 == 1
}

// queue is a heap of sources, the one with the least key at its top, of equal ones the first.
type queue []queued

// queued is a source with the first bytes of its key as numbers: they nearly always tell which of
// two is less.
type queued struct {
	*source
	place        int
	first, later uint64
}

// newQueue makes the heap of the sources that have a list.
func newQueue(from []*source) (queue, error) {
	q := queue{}
	for i, f := range from {
		if ok, err := f.more(f); err != nil {
			return nil, err
		} else if ok {
			q = append(q, queued{source: f, place: i})
			q[len(q)-1].look()
		}
	}
	for i := len(q)/2 - 1; i >= 0; i-- {
		q.down(i)
	}
	return q, nil
}

// look reads the first bytes of the key.
func (o *queued) look() {
	var b [2 * headSize]byte
	copy(b[:], o.key)
	o.first, o.later = binary.BigEndian.Uint64(b[:]), binary.BigEndian.Uint64(b[headSize:])
}

// less orders by key, and by place where keys are equal: the lists of one term come in the order of
// their pages.
func (o *queued) less(p *queued) bool {
	switch {
	case o.first != p.first:
		return o.first < p.first
	case o.later != p.later:
		return o.later < p.later
	}
	return cmp.Or(bytes.Compare(o.key, p.key), cmp.Compare(o.place, p.place)) < 0
}

// down moves the source at i to where no source below it is less.
func (q queue) down(i int) {
	for {
		least := i
		for c := 2*i + 1; c <= 2*i+2 && c < len(q); c++ {
			if q[c].less(&q[least]) {
				least = c
			}
		}
		if least == i {
			return
		}
		q[i], q[least] = q[least], q[i]
		i = least
	}
}

// advance takes the next list of the source at the top.
func (q *queue) advance() error {
	first := &(*q)[0]
	ok, err := first.more(first.source)
	if err != nil {
		return err
	}
	if ok {
		first.look()
	} else {
		n := len(*q) - 1
		(*q)[0] = (*q)[n]
		*q = (*q)[:n]
	}
	q.down(0)
	return nil
}

// valuesSize bytes hold the values of many lists, which are short.
const valuesSize = 64 << 10

// put adds the list of a term and scope to the block, and writes what is complete.
func (c *checkpoint) put(s segment, key []byte, p *postings) error {
	if c.block.some && len(p.body) >= blockBytes {
		if err := c.endBlock(s); err != nil {
			return err
		}
	}
	if c.block.add(key, p); c.block.full() {
		return c.endBlock(s)
	}
	return nil
}

// endBlock writes the block, if it has a list. The store keeps the value until its transaction
// ends, so it is cut from a piece of memory that is not used again.
func (c *checkpoint) endBlock(s segment) error {
	b := &c.block
	if !b.some {
		return nil
	}
	c.key = append(binary.BigEndian.AppendUint32(append(c.key[:0], rowTerm), s.id), b.key...)
	if most := b.size() + sumSize; cap(c.values)-len(c.values) < most {
		c.values = make([]byte, 0, max(most, valuesSize))
	}
	at := len(c.values)
	c.values = b.appendTo(c.values)
	c.values = binary.BigEndian.AppendUint32(c.values, sum(c.key, c.values[at:]))
	b.reset()
	return c.w.Put(c.key, c.values[at:len(c.values):len(c.values)])
}

// eachList calls fn for every list of a segment; fn reports whether it was
// sound.
func eachList(rows Rows, s segment, at starts, fn func(scope uint32, l list) bool) error {
	src := s.source(rows, at, nil, false)
	for {
		ok, err := src.more(src)
		if !ok {
			return err
		}
		if _, scope := termAndScope(src.key); !fn(scope, src.list) {
			return corrupt(slices.Concat(segmentKey(rowTerm, s.id), src.key), "postings are damaged or outside the segment")
		}
	}
}
