package engine

import (
	"slices"
	"sort"
)

// sortedList is a sorted set of (key, page number): the pages of one provenance class by time,
// newest last, or by expiry. Chunks of a bounded size make an insertion anywhere cheap: it moves at
// most one chunk, where one sorted slice would move megabytes. An append, the usual case, touches
// the last chunk only.
//
// Rejected: a kept B-tree (tidwall/btree 1.8.2 without locks; 100,000 entries, two busy processors,
// one round):
//
//	                                   here      B-tree
//	counting up to a key               .5 µs     4.2 µs
//	taking one out, putting it back    2.1 µs    2.7 µs
//	allocations of a fill              800       6,700
//	fill, per entry, in order          .57 µs    .35 µs
//	fill, per entry, at random         2.3 µs    1.6 µs
//	walk of 1,000                      11 µs     6.8 µs
//
// Counting decided it: every question counts in each class (unswept), and a fill happens once.
//
// A chunk has 1 to 511 entries once an insertion has ended, except that the only chunk of an
// emptied list may be empty. The list is guarded by catalogue.mu; it has no lock of its own.
type sortedList struct {
	chunks []sortedRun
	n      int
}

// sortedRun is a chunk. Keys and numbers lie apart, because an entry of both would have four bytes
// of padding.
type sortedRun struct {
	keys []int64
	nums []uint32
}

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
		c.keys, c.nums = append(c.keys, e.key), append(c.nums, uint32(e.num))
	}
	o.chunks = []sortedRun{c}
	return o
}

func newRun(capacity int) sortedRun {
	return sortedRun{make([]int64, 0, capacity), make([]uint32, 0, capacity)}
}

func (c *sortedRun) at(i int) entry { return entry{c.keys[i], uint64(c.nums[i])} }
func (c *sortedRun) last() entry    { return c.at(len(c.keys) - 1) }

// search returns the place of an entry, or where it would be.
func (c *sortedRun) search(e entry) (at int, found bool) {
	at = sort.Search(len(c.keys), func(i int) bool { return c.keys[i] > e.key || c.keys[i] == e.key && uint64(c.nums[i]) >= e.num })
	return at, at < len(c.keys) && c.at(at) == e
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
	c.keys, c.nums = slices.Insert(c.keys, at, key), slices.Insert(c.nums, at, uint32(num))
	o.n++
	if len(c.keys) < sortedChunk {
		return
	}
	// An append splits off an almost empty chunk, anything else halves: sequential loads leave full
	// chunks.
	cut := len(c.keys) / 2
	if at == len(c.keys)-1 {
		cut = len(c.keys) - 1
	}
	next := newRun(firstCapacity)
	next.keys, next.nums = append(next.keys, c.keys[cut:]...), append(next.nums, c.nums[cut:]...)
	c.keys, c.nums = c.keys[:cut], c.nums[:cut]
	o.chunks = slices.Insert(o.chunks, i+1, next)
}

// firstCapacity is how many entries a new chunk can hold before it grows.
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
	c.keys, c.nums = slices.Delete(c.keys, at, at+1), slices.Delete(c.nums, at, at+1)
	if len(c.keys) == 0 && len(o.chunks) > 1 {
		o.chunks = slices.Delete(o.chunks, i, i+1)
	}
}

// upTo counts the entries with a key of at most k. It adds up whole chunks and looks into one: a
// few hundred additions for a hundred thousand entries.
func (o *sortedList) upTo(k int64) int {
	n := 0
	for i := range o.chunks {
		c := &o.chunks[i]
		if len(c.keys) == 0 {
			continue
		}
		if c.last().key <= k {
			n += len(c.keys)
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
		for j := len(c.keys) - 1; j >= 0; j-- {
			if !fn(c.at(j)) {
				return
			}
		}
	}
}

// merge walks down several lists at once: a heap of places in them, the greatest entry on top. The
// heap has numbers, because places are large to move.
type merge struct {
	lists []descent
	heap  []int32
}

// reset empties m and keeps its memory.
func (m *merge) reset() { m.lists, m.heap = m.lists[:0], m.heap[:0] }

// less says that place i of the heap comes after place j.
func (m *merge) less(i, j int) bool {
	return compareEntries(m.lists[m.heap[i]].entry, m.lists[m.heap[j]].entry) < 0
}

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
		d.at = len(d.o.chunks[d.chunk].keys)
	}
	d.at--
	d.entry = d.o.chunks[d.chunk].at(d.at)
	return true
}

// add takes in a list; call it before the first take.
func (m *merge) add(o *sortedList) {
	d := descent{o: o, chunk: len(o.chunks)}
	if !d.next() {
		return
	}
	m.lists, m.heap = append(m.lists, d), append(m.heap, int32(len(m.lists)))
	for i := len(m.heap) - 1; i > 0 && m.less((i-1)/2, i); i = (i - 1) / 2 {
		m.heap[i], m.heap[(i-1)/2] = m.heap[(i-1)/2], m.heap[i]
	}
}

// take returns the greatest entry that is left.
func (m *merge) take() (e entry, ok bool) {
	if len(m.heap) == 0 {
		return entry{}, false
	}
	top := &m.lists[m.heap[0]]
	e = top.entry
	if !top.next() {
		last := len(m.heap) - 1
		m.heap[0] = m.heap[last]
		m.heap = m.heap[:last]
	}
	for i := 0; ; {
		c := 2*i + 1
		if c >= len(m.heap) {
			return e, true
		}
		if c+1 < len(m.heap) && m.less(c, c+1) {
			c++
		}
		if !m.less(i, c) {
			return e, true
		}
		m.heap[i], m.heap[c] = m.heap[c], m.heap[i]
		i = c
	}
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
		for at, _ := c.search(first); at < len(c.keys); at++ {
			if c.keys[at] > b {
				return
			}
			fn(uint64(c.nums[at]))
		}
	}
}
