package lexical

import (
	"math"
	"slices"
)

// Ties are broken by page number, the greater first, so the best k do not depend on the order in
// which pages are offered.

// top keeps the best k hits of distinct pages. They stay where they came to; a heap of their places
// has the worst on top, for hits are large and a heap moves what it holds many times.
//
//	hits   where a hit came to; never moved
//	heap   places in hits, the worst first
//	slot   by page: its place in the heap + 1
//
// Invariant: slot and heap agree, and every other slot is 0. slot is the query's, as long as the
// columns. The tops of a query share it: one ends before the next begins, or they have no page in
// common (fillUp). end gives it back all zero.
type top struct {
	k    int
	hits []Hit
	heap []uint32 // places in hits
	base uint64   // page number of slot 0
	slot []uint32 // by page: where it stands in the heap + 1; 0 when it is not there
}

// top borrows the slots of the query; end gives them back, all zero. Its hits
// take the place of those in buf.
func (w *work) top(buf *top) top {
	return top{k: w.k, hits: buf.hits[:0], heap: buf.heap[:0], base: w.x.cols.base, slot: w.slot}
}

// end gives the slots back.
func (t *top) end() {
	for i := range t.heap {
		t.place(i, 0)
	}
}

// at is the hit at a place of the heap.
func (t *top) at(i int) *Hit { return &t.hits[t.heap[i]] }

func (t *top) place(i int, slot uint32) { t.slot[t.at(i).Num-t.base] = slot }

// floor is the score that a hit must have to get in.
func (t *top) floor() float64 {
	if len(t.heap) < t.k {
		return math.Inf(-1)
	}
	return t.at(0).Score
}

// worse orders hits so that of any two distinct ones exactly one is worse. It is a total order, so
// the best k are the same set in whatever order pages are offered.
func worse(a, b *Hit) bool {
	if a.Score != b.Score {
		return a.Score < b.Score
	}
	if a.Num != b.Num {
		return a.Num < b.Num
	}
	return a.Via > b.Via // of equal ways to one page: by itself, then the oldest version
}

// offer takes a hit when it is among the best; of two for one page the better.
func (t *top) offer(n *Hit) {
	if n.Score < t.floor() {
		return
	}
	if at := t.slot[n.Num-t.base]; at > 0 {
		if i := int(at - 1); worse(t.at(i), n) {
			*t.at(i) = *n
			t.down(i)
		}
		return
	}
	if len(t.heap) < t.k {
		t.hits, t.heap = append(t.hits, *n), append(t.heap, uint32(len(t.hits)))
		t.up(len(t.heap) - 1)
		return
	}
	if worse(t.at(0), n) {
		t.place(0, 0)
		*t.at(0) = *n
		t.down(0)
	}
}

// up and down move a hit through the heap. What it passes moves by one place, and it is put down
// once.

func (t *top) up(i int) {
	moved := t.heap[i]
	for i > 0 {
		p := (i - 1) / 2
		if !worse(&t.hits[moved], t.at(p)) {
			break
		}
		t.heap[i] = t.heap[p]
		t.place(i, uint32(i+1))
		i = p
	}
	t.heap[i] = moved
	t.place(i, uint32(i+1))
}

func (t *top) down(i int) {
	moved := t.heap[i]
	for {
		c := 2*i + 1
		if c >= len(t.heap) {
			break
		}
		if c+1 < len(t.heap) && worse(t.at(c+1), t.at(c)) {
			c++
		}
		if !worse(t.at(c), &t.hits[moved]) {
			break
		}
		t.heap[i] = t.heap[c]
		t.place(i, uint32(i+1))
		i = c
	}
	t.heap[i] = moved
	t.place(i, uint32(i+1))
}

// sorted returns the best n hits, best first.
func (t *top) sorted(n int) []Hit {
	slices.SortFunc(t.heap, func(a, b uint32) int {
		if worse(&t.hits[b], &t.hits[a]) {
			return -1
		}
		return 1
	})
	best := t.heap[:min(n, len(t.heap))]
	out := slices.Grow([]Hit(nil), len(best))
	for _, at := range best {
		out = append(out, t.hits[at])
	}
	return out
}
