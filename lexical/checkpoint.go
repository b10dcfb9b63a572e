package lexical

import (
	"cmp"
	"encoding/binary"
	"iter"
	"maps"
	"math/bits"
	"slices"
)

const (
	// flushDocs pages in the tail make a segment. Fewer would write more rows a
	// page, more would keep more in memory and in the redo of an open.
	flushDocs = 1024
	// mergeFactor segments of about one size become one.
	mergeFactor = 8
	// A segment is written anew when this share of its pages was removed.
	removedShare = 4
	// rangeDocs pages in a merge are the most that one pass over all terms takes;
	// above it terms go by their first byte, to bound the memory.
	rangeDocs = 1 << 12
	// stepTerms terms of pages, repetitions on one page not counted, are about what one step writes.
	stepTerms = 1 << 18
	// roomSize bytes hold the values of many lists, which are short.
	roomSize = 64 << 10
)

// Swap is what a checkpoint changed. It takes effect with Apply, after the
// transaction that the checkpoint wrote to is committed.
type Swap struct {
	manifest manifest
	dropped  []uint64 // removed numbers that are in no segment any more
	saved    int
	changed  bool
}

// Checkpoint writes what is due to w: the tail as a segment, in steps of 1,024
// pages, or all of it when force is set; merges; the numbers of removed pages. It
// does not change the index, so a transaction that fails has no effect: the next
// checkpoint does it again. Rows of segments that were merged go in the next
// checkpoint, because readers may still hold the old list. One checkpoint runs
// at a time.
func (x *Index) Checkpoint(w Writer, force bool) (Swap, error) {
	c := x.snapshot(force)
	c.w = w
	if err := c.deleteDead(); err != nil {
		return Swap{}, err
	}
	if err := c.flush(); err != nil {
		return Swap{}, err
	}
	if err := c.merge(); err != nil {
		return Swap{}, err
	}
	if err := c.compact(); err != nil {
		return Swap{}, err
	}
	if err := c.save(); err != nil {
		return Swap{}, err
	}
	return c.swap(), nil
}

// Step does a bounded part of what is due, for a transaction keeps all rows in memory that it writes: it writes some of
// the tail's whole parts as a segment or, when one such step is all that is left of the tail, merges segments once. It
// reports whether it did something; the owner commits it, calls Apply and goes on until nothing is done, and then
// calls Checkpoint, whose other rules hold for Step too.
func (x *Index) Step(w Writer) (Swap, bool, error) {
	c := x.snapshot(false)
	c.w = w
	some := c.some(x.stepTerms)
	if at := c.due(); some == len(c.parts) && at == 0 {
		return Swap{}, false, nil
	}
	if err := c.deleteDead(); err != nil {
		return Swap{}, false, err
	}
	if some < len(c.parts) {
		c.parts = c.parts[:some]
		if err := c.flush(); err != nil {
			return Swap{}, false, err
		}
	} else if err := c.mergeOldest(); err != nil {
		return Swap{}, false, err
	}
	if err := c.save(); err != nil {
		return Swap{}, false, err
	}
	return c.swap(), true, nil
}

// some is how many of the parts one step writes.
func (c *checkpoint) some(most int) int {
	n, terms := 0, 0
	for n < len(c.parts) && (n == 0 || terms+len(c.parts[n].uses) <= most) {
		terms += len(c.parts[n].uses)
		n++
	}
	return n
}

// mergeOldest merges the oldest of the segments that are due, no more than must be for one of the next size.
func (c *checkpoint) mergeOldest() error {
	at := len(c.manifest.segments) - c.due()
	return c.rewrite(at, at+mergeFactor)
}

func (c *checkpoint) swap() Swap {
	return Swap{manifest: c.manifest, dropped: c.dropped, saved: c.saved, changed: c.changed}
}

// Apply makes a committed checkpoint visible. The zero Swap changes nothing.
func (x *Index) Apply(s Swap) {
	if !s.changed {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, n := range s.dropped {
		delete(x.removed, n)
	}
	if s.manifest.through > x.manifest.through {
		x.tail = x.tail.after(s.manifest.through, func(num uint64) bool {
			_, gone := x.removed[num]
			return gone
		})
	}
	x.manifest, x.saved = s.manifest, s.saved
	x.countPending()
}

// checkpoint is one run of Checkpoint: a snapshot of the index and its changes.
type checkpoint struct {
	w        Writer
	manifest manifest
	parts    []*part
	removed  map[uint64]struct{}
	saved    int
	pending  map[uint32]uint64
	dropped  []uint64
	changed  bool

	atOnce uint32
	all    dictionary // of the parts; see joinTerms
	to     [][]uint32 // number in all by part and number there

	key  []byte
	room []byte // see put
}

func (x *Index) snapshot(force bool) *checkpoint {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.invert()
	return &checkpoint{
		manifest: x.manifest.clone(), parts: x.tail.whole(force),
		atOnce: x.invertAtOnce, removed: maps.Clone(x.removed), pending: maps.Clone(x.pending), saved: x.saved,
	}
}

func (c *checkpoint) gone(num uint64) bool {
	_, gone := c.removed[num]
	return gone
}

func (c *checkpoint) deleteDead() error {
	for _, id := range c.manifest.dead {
		for _, kind := range []byte{rowDocs, rowTerm} {
			if err := deletePrefix(c.w, segmentKey(kind, id)); err != nil {
				return err
			}
		}
		c.changed = true
	}
	c.manifest.dead = nil
	return nil
}

// deletePrefix deletes in batches: the store must not change under a scan.
func deletePrefix(w Writer, prefix []byte) error {
	const batch = 4096
	for {
		keys := make([][]byte, 0, batch)
		w.Scan(prefix, func(k, _ []byte) bool {
			keys = append(keys, slices.Clone(k))
			return len(keys) < batch
		})
		for _, k := range keys {
			if err := w.Delete(k); err != nil {
				return err
			}
		}
		if len(keys) < batch {
			return nil
		}
	}
}

// flush writes what it was given of the tail as a segment.
func (c *checkpoint) flush() error {
	if len(c.parts) == 0 {
		return nil
	}
	c.changed = true
	c.manifest.through = c.parts[len(c.parts)-1].last()
	var docs []docRow
	var gone []uint64
	for _, p := range c.parts {
		for i := range p.docs {
			if row := p.docs[i].docRow; c.gone(row.num) {
				gone = append(gone, row.num)
			} else {
				docs = append(docs, row)
			}
		}
	}
	if len(docs) > 0 {
		s := c.newSegment(docs[0].num, docs[len(docs)-1].num, uint64(len(docs)))
		if err := c.writeTail(s, docs); err != nil {
			return err
		}
		c.manifest.segments = append(c.manifest.segments, s)
	}
	for _, num := range gone {
		c.drop(num)
	}
	return nil
}

func (c *checkpoint) drop(num uint64) {
	c.dropped = append(c.dropped, num)
	delete(c.removed, num)
}

func (c *checkpoint) newSegment(first, last, docs uint64) segment {
	s := segment{id: c.manifest.next, first: first, last: last, docs: docs}
	c.manifest.next++
	return s
}

// writeTail writes the pages of the parts that were not removed.
func (c *checkpoint) writeTail(s segment, docs []docRow) error {
	rows := docRows{s: s, w: c.w}
	for _, d := range docs {
		if err := rows.add(d); err != nil {
			return err
		}
	}
	if err := rows.flush(); err != nil {
		return err
	}
	c.joinTerms()
	for terms := c.all.sorted(); len(terms) > 0; {
		n, size := 0, uint32(0)
		for ; n < len(terms) && size < c.atOnce; n++ {
			size += c.all.terms[terms[n]].df
		}
		if err := c.writeTerms(s, docs, terms[:n], c.invert(terms[:n], size)); err != nil {
			return err
		}
		terms = terms[n:]
	}
	return nil
}

// invertAtOnce bounds the memory of writeTail, in postings of 8 bytes.
const invertAtOnce = 4 << 20

// joinTerms makes one dictionary of those of the parts, and counts the pages that have a term.
func (c *checkpoint) joinTerms() {
	c.all, c.to = newDictionary(), make([][]uint32, len(c.parts))
	for i, p := range c.parts {
		text := string(p.text)
		c.all.room(len(p.terms))
		c.to[i] = make([]uint32, len(p.terms))
		for j := range p.terms {
			t := &p.terms[j]
			term := text[t.at : t.at+t.size]
			c.to[i][j], _ = c.all.enter(inScope(hash(term), t.scope), t.scope, term)
		}
	}
	for _, u := range c.uses() {
		c.all.terms[u.term].df++
	}
}

// uses gives the terms of the pages that were not removed, by the page's index among them. Terms are those of all parts.
func (c *checkpoint) uses() iter.Seq2[uint32, use] {
	return func(yield func(uint32, use) bool) {
		doc := uint32(0)
		for i, p := range c.parts {
			to := c.to[i]
			for j := range p.docs {
				if c.gone(p.docs[j].num) {
					continue
				}
				for _, u := range p.of(j) {
					if !yield(doc, use{to[u.term], u.n}) {
						return
					}
				}
				doc++
			}
		}
	}
}

// invert brings what stands page after page in the parts into the order of some terms: the postings of one behind those
// of the other. A posting is the page's index above the count.
func (c *checkpoint) invert(terms []uint32, size uint32) []uint64 {
	next := make([]uint32, len(c.all.terms)) // where the next posting of a term goes, plus one; 0: it is none of them
	at := uint32(1)
	for _, t := range terms {
		next[t] = at
		at += c.all.terms[t].df
	}
	posts := make([]uint64, size)
	for doc, u := range c.uses() {
		if to := next[u.term]; to > 0 {
			posts[to-1] = uint64(doc)<<32 | uint64(u.n)
			next[u.term]++
		}
	}
	return posts
}

// writeTerms writes the lists of some terms, in their order.
func (c *checkpoint) writeTerms(s segment, docs []docRow, terms []uint32, posts []uint64) error {
	var p postings
	for _, at := range terms {
		t := &c.all.terms[at]
		if t.df == 0 { // removed pages alone had it
			continue
		}
		p = postings{body: p.body[:0], last: s.first}
		for _, w := range posts[:t.df] {
			p.add(docs[w>>32].num, uint32(w))
		}
		posts = posts[t.df:]
		if err := c.put(s, t.scope, c.all.bytes(t), &p); err != nil {
			return err
		}
	}
	return nil
}

// writeLists puts the lists in the order of their keys, as a B+tree likes it.
func (c *checkpoint) writeLists(s segment, lists map[termKey]*postings) error {
	keys := slices.SortedFunc(maps.Keys(lists), func(a, b termKey) int {
		return cmp.Or(cmp.Compare(a.scope, b.scope), cmp.Compare(a.term, b.term))
	})
	for _, k := range keys {
		if err := c.put(s, k.scope, []byte(k.term), lists[k]); err != nil {
			return err
		}
	}
	return nil
}

// put writes the list of a term. The store keeps the value until its transaction
// ends, so it is cut from a piece of memory that is not used again.
func (c *checkpoint) put(s segment, scope uint32, term []byte, p *postings) error {
	c.key = appendTermKey(c.key[:0], s.id, scope, term)
	if most := binary.MaxVarintLen64 + len(p.body) + sumSize; cap(c.room)-len(c.room) < most {
		c.room = make([]byte, 0, max(most, roomSize))
	}
	at := len(c.room)
	c.room = append(binary.AppendUvarint(c.room, p.df), p.body...)
	c.room = binary.BigEndian.AppendUint32(c.room, sum(c.key, c.room[at:]))
	return c.w.Put(c.key, c.room[at:len(c.room):len(c.room)])
}

// docRows cuts the pages of a segment into rows.
type docRows struct {
	s           segment
	w           Writer
	first, last uint64
	n           int
	b           []byte
}

func (r *docRows) add(d docRow) error {
	if r.n == 0 {
		r.first, r.last = d.num, d.num
	}
	r.b = appendDoc(r.b, r.last, d)
	r.last = d.num
	if r.n++; r.n < docsInRow {
		return nil
	}
	return r.flush()
}

func (r *docRows) flush() error {
	if r.n == 0 {
		return nil
	}
	key := docsKey(r.s.id, r.first)
	err := r.w.Put(key, seal(key, r.b))
	r.n, r.b = 0, nil
	return err
}

// merge joins segments at the end of the list while mergeFactor of them are of
// one size class or smaller. Neighbours only, so numbers stay ascending.
func (c *checkpoint) merge() error {
	for {
		n := c.due()
		if n == 0 {
			return nil
		}
		at := len(c.manifest.segments) - n
		if err := c.rewrite(at, len(c.manifest.segments)); err != nil {
			return err
		}
	}
}

// due returns how many segments at the end are to be merged, 0 for none.
func (c *checkpoint) due() int {
	segments := c.manifest.segments
	for class := 0; class <= 22; class++ {
		n := 0
		for n < len(segments) && sizeClass(segments[len(segments)-1-n].docs) <= class {
			n++
		}
		if n >= mergeFactor {
			return n
		}
	}
	return 0
}

// sizeClass is the logarithm to the base of mergeFactor.
func sizeClass(docs uint64) int { return (bits.Len64(docs) - 1) / 3 }

// compact writes segments anew of which many pages were removed.
func (c *checkpoint) compact() error {
	for i := len(c.manifest.segments) - 1; i >= 0; i-- {
		s := c.manifest.segments[i]
		if c.pending[s.id]*removedShare < s.docs {
			continue
		}
		if err := c.rewrite(i, i+1); err != nil {
			return err
		}
	}
	return nil
}

// rewrite replaces the segments [from, to) by one without removed pages, or by
// none when nothing is left.
func (c *checkpoint) rewrite(from, to int) error {
	c.changed = true
	old := slices.Clone(c.manifest.segments[from:to])
	docs, err := c.left(old)
	if err != nil {
		return err
	}
	var merged []segment
	if n := len(docs); n > 0 {
		s := c.newSegment(docs[0].num, docs[n-1].num, uint64(n))
		if err := c.writeMerged(s, old, docs); err != nil {
			return err
		}
		merged = []segment{s}
	}
	c.manifest.segments = slices.Replace(c.manifest.segments, from, to, merged...)
	for _, o := range old {
		c.manifest.dead = append(c.manifest.dead, o.id)
		c.dropIn(o)
	}
	return nil
}

func (c *checkpoint) dropIn(s segment) {
	if c.pending[s.id] == 0 {
		return
	}
	for n := range c.removed {
		if s.first <= n && n <= s.last {
			c.drop(n)
		}
	}
}

// left returns the pages of segments that were not removed.
func (c *checkpoint) left(old []segment) ([]docRow, error) {
	n := uint64(0)
	for _, o := range old {
		n += o.docs
	}
	docs := make([]docRow, 0, n)
	for _, o := range old {
		err := eachDoc(c.w, o, func(d docRow) {
			if c.pending[o.id] == 0 || !c.gone(d.num) {
				docs = append(docs, d)
			}
		})
		if err != nil {
			return nil, err
		}
	}
	return docs, nil
}

func (c *checkpoint) writeMerged(s segment, old []segment, docs []docRow) error {
	rows := docRows{s: s, w: c.w}
	scopes := map[uint32]int{}
	for _, d := range docs {
		scopes[d.scope]++
		if err := rows.add(d); err != nil {
			return err
		}
	}
	if err := rows.flush(); err != nil {
		return err
	}
	for _, scope := range slices.Sorted(maps.Keys(scopes)) {
		err := error(nil)
		if scopes[scope] <= rangeDocs {
			err = c.mergeTerms(s, old, scope, nil)
		} else {
			err = c.mergeRanges(s, old, scope)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// termKey names a list of a segment.
type termKey struct {
	scope uint32
	term  string
}

func (c *checkpoint) mergeRanges(s segment, old []segment, scope uint32) error {
	for b := range 256 {
		if err := c.mergeTerms(s, old, scope, []byte{byte(b)}); err != nil {
			return err
		}
	}
	return nil
}

// mergeTerms merges the lists of a scope whose terms start with a prefix.
func (c *checkpoint) mergeTerms(s segment, old []segment, scope uint32, start []byte) error {
	lists := map[termKey]*postings{}
	for _, o := range old {
		prefix := append(binary.BigEndian.AppendUint32(segmentKey(rowTerm, o.id), scope), start...)
		err := eachList(c.w, prefix, o, func(scope uint32, term string, l list) bool {
			key := termKey{scope, term}
			p := lists[key]
			if p == nil {
				p = &postings{last: s.first}
			}
			sound := c.mergeList(p, l)
			if p.df > 0 {
				lists[key] = p
			}
			return sound
		})
		if err != nil {
			return err
		}
	}
	return c.writeLists(s, lists)
}

// mergeList appends what is left of a list; it reports whether it was sound.
func (c *checkpoint) mergeList(p *postings, l list) bool {
	if c.pending[l.segment.id] == 0 {
		return p.append(l)
	}
	return l.each(func(num uint64, tf uint32) {
		if !c.gone(num) {
			p.add(num, tf)
		}
	})
}

// eachList calls fn for every list with a prefix; fn reports whether it was
// sound.
func eachList(rows Rows, prefix []byte, s segment, fn func(scope uint32, term string, l list) bool) error {
	var err error
	rows.Scan(prefix, func(k, v []byte) bool {
		if len(k) < termPrefix {
			err = corrupt(k, "key has %d bytes, want at least %d", len(k), termPrefix)
			return false
		}
		var l list
		if l, err = parseList(s, k, v); err != nil {
			return false
		}
		if !fn(binary.BigEndian.Uint32(k[segPrefix:]), string(k[termPrefix:]), l) {
			err = corrupt(k, "postings are damaged or outside the segment")
		}
		return err == nil
	})
	return err
}

// save writes the list row and the removed numbers, when they changed.
func (c *checkpoint) save() error {
	nums := slices.Sorted(maps.Keys(c.removed))
	nums = slices.DeleteFunc(nums, func(n uint64) bool { return n > c.manifest.through })
	if len(nums) != c.saved || len(c.dropped) > 0 {
		key := []byte{rowRemoved}
		if err := c.w.Put(key, seal(key, encodeRemoved(nums))); err != nil {
			return err
		}
		c.saved, c.changed = len(nums), true
	}
	if !c.changed {
		return nil
	}
	key := []byte{rowList}
	return c.w.Put(key, seal(key, c.manifest.encode()))
}
