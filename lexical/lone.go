package lexical

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
)

// Where there are no turns, or no weight says otherwise, a page gets nothing from others: its own
// words alone decide. Then the lists of all words are read side by side, room by room: the pages of
// a room are scored in full, rarest word first, before the next room is looked at. The scores of a
// room stay in the cache of the processor, where those of all pages do not, and each room begins
// with the bar that the best K pages of the rooms before it set. A page that has none of the rarer
// words is passed over if this word and those that follow cannot bring it over the bar; mostly that
// is known from how often it has the word, without a look at its length.
//
// Invariant: what is passed over scores less than K other pages. Bounds are sums of what words
// score at most, with slack for rounding; a score that decides is summed from the rarest word on,
// as ever.
type lone struct {
	readings []reading
	starts   []int // readings[starts[i]:starts[i+1]] are of the i-th word of the plan
	follow   []float64
	hitBits  [roomPages / 64]uint64
	strong   [roomPages]float64 // from words that are not common
	frequent [roomPages]float64 // from common words
}

// roomPages is how many pages a room has; tests make rooms smaller.
const roomPages = 4096

// reading is how far a list is read.
type reading struct {
	cursor   cursor
	tail     tailList // in place of cursor; part nil: none
	next     uint64   // the first page that is not read, or one before it; done: there is none
	segment  uint32
	filtered bool // some pages were removed
}

const done = math.MaxUint64

// standAlone says whether the question is of pages that get nothing from others.
func (w *work) standAlone() bool {
	return !w.turns && w.weights.Near1 == 0 && w.weights.Near2 == 0 && w.weights.Group == 0 && !w.x.oneByOne
}

// selectAlone scores the pages that the words hit, and keeps the best.
func (w *work) selectAlone(p plan) error {
	l := w.beginReading(p)
	w.best = w.top(&w.heaps[0])
	for {
		next := uint64(done)
		for i := range l.readings {
			next = min(next, l.readings[i].next)
		}
		if next == done {
			return w.readWhole()
		}
		room := (max(next, w.x.cols.base) - w.x.cols.base) / w.x.roomPages * w.x.roomPages // a removed page may be before the first
		over := w.best.floor() / slack * w.x.stretch
		for i, t := range p.order {
			scores := &l.strong
			if i >= p.strong {
				scores = &l.frequent
			}
			for j := l.starts[i]; j < l.starts[i+1]; j++ {
				w.readRoom(&l.readings[j], room, p.weight[t], over-l.follow[i+1], scores)
			}
		}
		w.leaveRoom(room)
	}
}

// beginReading opens the lists of all words of the plan.
func (w *work) beginReading(p plan) *lone {
	if w.lone == nil {
		w.lone = new(lone)
	}
	l := w.lone
	l.readings, l.starts = slices.Grow(l.readings[:0], len(w.lists)+len(w.tails)), slices.Grow(l.starts[:0], len(p.order)+1)
	l.follow = w.mostFrom(p, l.follow)
	for _, t := range p.order {
		l.starts = append(l.starts, len(l.readings))
		for _, o := range w.lists[w.start[t]:w.start[t+1]] {
			l.readings = append(l.readings, reading{cursor: o.cursor(), next: o.segment.first, segment: o.segment.id, filtered: o.removed})
		}
		for _, ref := range w.tailsOf(t) {
			l.readings = append(l.readings, reading{tail: ref.part.list(ref.at), next: ref.part.docs[0].num, filtered: ref.part.removed > 0})
		}
	}
	l.starts = append(l.starts, len(l.readings))
	return l
}

// tailsOf returns the lists of a word that are in no segment. They were found word by word, so they
// stand in that order.
func (w *work) tailsOf(t int) []tailRef {
	from, _ := slices.BinarySearchFunc(w.tails, t, func(r tailRef, t int) int { return cmp.Compare(r.term, t) })
	to, _ := slices.BinarySearchFunc(w.tails, t+1, func(r tailRef, t int) int { return cmp.Compare(r.term, t) })
	return w.tails[from:to]
}

// mostFrom puts into most what the words of the plan from each place on can add to a page; 0 behind
// the last.
func (w *work) mostFrom(p plan, most []float64) []float64 {
	most = slices.Grow(most[:0], len(p.order)+1)[:len(p.order)+1]
	most[len(p.order)] = 0
	each, sum := w.mostOf(), 0.0
	for i := len(p.order) - 1; i >= 0; i-- {
		sum += p.weight[p.order[i]] * each
		most[i] = sum * slack
	}
	return most
}

// readWhole reports the list that did not end as it should.
func (w *work) readWhole() error {
	for i := range w.lone.readings {
		if r := &w.lone.readings[i]; r.tail.p == nil && !r.cursor.end() {
			return corrupt(segmentKey(rowTerm, r.segment), "postings are damaged or outside the segment")
		}
	}
	return nil
}

// readRoom adds a list to the scores of a room.
func (w *work) readRoom(r *reading, room uint64, weight, over float64, scores *[roomPages]float64) {
	end := w.x.cols.base + room + w.x.roomPages
	for r.next < end {
		var block []posting
		if r.tail.p != nil {
			block, r.next = r.tail.until(&w.block, end)
		} else {
			block, r.next = r.cursor.until(&w.block, end)
		}
		if r.filtered {
			block = w.present(block)
		}
		w.addRoom(block, room, weight, over, scores)
	}
}

// addRoom adds a word to the pages of a room that have a rarer one, and to others that get more
// than over from it.
func (w *work) addRoom(block []posting, room uint64, weight, over float64, scores *[roomPages]float64) {
	shape, hit, first := w.x.cols.shape, &w.lone.hitBits, w.x.cols.base+room
	for _, p := range block {
		at := (p.num - first) % roomPages
		bit := uint64(1) << (at % 64)
		known := hit[at/64]&bit != 0
		if !known && weight*w.sat.most(p.tf) <= over || w.only != nil && !w.may(p.num) {
			continue
		}
		v := float64(weight * w.sat.of(p.tf, shape[room+at]))
		if v <= 0 || !known && v <= over {
			continue
		}
		hit[at/64] |= bit
		scores[at] += v
	}
}

// leaveRoom keeps the best pages of a room and wipes it.
func (w *work) leaveRoom(room uint64) {
	l := w.lone
	for i, set := range l.hitBits {
		if set == 0 {
			continue
		}
		l.hitBits[i] = 0
		for ; set != 0; set &= set - 1 {
			at := 64*i + bits.TrailingZeros64(set)
			own := l.strong[at] + l.frequent[at]
			l.strong[at], l.frequent[at] = 0, 0
			if own < w.best.floor() {
				continue
			}
			w.offerAlone(uint32(room)+uint32(at), own)
		}
	}
}

// offerAlone offers a page version for the page that answers for it.
func (w *work) offerAlone(v uint32, own float64) {
	live, ok := w.resolve(v)
	if !ok {
		return
	}
	h := Hit{Num: live, Score: own, Own: own}
	if live != w.number(v) {
		h.Via = w.number(v)
	}
	w.best.offer(&h)
}
