package lexical

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
)

// Where there are no turns, or no weight says otherwise, a page gets nothing from others: its own
// words alone decide. Then the lists of all words are read side by side, stripe by stripe. A stripe
// is stripePages consecutive page numbers; its pages are scored in full, rarest word first, before
// the next stripe begins. The scores of one stripe stay in the cache of the processor, where those
// of all pages do not, and each stripe begins with the bar that the best K pages of the stripes
// before it set. A page that has none of the rarer words is passed over if this word and those that
// follow cannot bring it over the bar; mostly its number of occurrences decides that, without a look
// at its length.
//
// Invariant: a page that is passed over scores less than K other pages. Bounds are sums of what
// words score at most, with slack for rounding; a score that decides is summed from the rarest word
// on, as everywhere.
//
//	for each stripe, from the first page that any list has:
//	    for each word, rarest first:  add its postings in the stripe           readStripe
//	    offer the pages of the stripe that reach the bar, clear the stripe     offerStripe
//
// follow[i] is the most that the words from the i-th on can add. The threshold of a word is the bar
// less that: a page without a rarer word must get more from this one to matter. strong and frequent
// are apart because the sum of a score is formed in the order of Search, to the last bit.
type lone struct {
	readings []reading
	starts   []int // readings[starts[i]:starts[i+1]] are of the i-th word of the plan
	follow   []float64
	hitBits  [stripePages / 64]uint64
	strong   [stripePages]float64 // from words that are not common
	frequent [stripePages]float64 // from common words
}

// stripePages is how many pages a stripe has; tests make stripes smaller.
const stripePages = 4096

// reading is how far a list is read.
type reading struct {
	cursor   cursor
	tail     tailList // in place of cursor; part nil: none
	next     uint64   // the first page that is not read, or one before it; done: there is none
	segment  uint32
	filtered bool // some pages were removed
}

const done = math.MaxUint64

// standAlone reports whether the question is of pages that get nothing from others.
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
		stripe := (max(next, w.x.cols.base) - w.x.cols.base) / w.x.stripePages * w.x.stripePages // a removed page may be before the first
		bar := w.best.floor() / slack * w.x.stretch
		for i, t := range p.order {
			scores := &l.strong
			if i >= p.strong {
				scores = &l.frequent
			}
			for j := l.starts[i]; j < l.starts[i+1]; j++ {
				w.readStripe(&l.readings[j], stripe, p.weight[t], bar-l.follow[i+1], scores)
			}
		}
		w.offerStripe(stripe)
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

// readWhole reports the list that did not end as it should. It comes last, because only a list that
// was read to its end tells whether it was sound.
func (w *work) readWhole() error {
	for i := range w.lone.readings {
		if r := &w.lone.readings[i]; r.tail.p == nil && !r.cursor.end() {
			return corrupt(segmentKey(rowTerm, r.segment), "postings are damaged or outside the segment")
		}
	}
	return nil
}

// readStripe adds a list to the scores of a stripe.
func (w *work) readStripe(r *reading, stripe uint64, weight, threshold float64, scores *[stripePages]float64) {
	end := w.x.cols.base + stripe + w.x.stripePages
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
		w.addStripe(block, stripe, weight, threshold, scores)
	}
}

// addStripe adds a word to the pages of a stripe that have a rarer one, and to others that get more
// than threshold from it.
func (w *work) addStripe(block []posting, stripe uint64, weight, threshold float64, scores *[stripePages]float64) {
	shape, hit, first := w.x.cols.shape, &w.lone.hitBits, w.x.cols.base+stripe
	for _, p := range block {
		at := (p.num - first) % stripePages
		bit := uint64(1) << (at % 64)
		known := hit[at/64]&bit != 0
		if !known && weight*w.sat.most(p.tf) <= threshold || w.only != nil && !w.may(p.num) {
			continue
		}
		v := float64(weight * w.sat.of(p.tf, shape[stripe+at]))
		if v <= 0 || !known && v <= threshold {
			continue
		}
		hit[at/64] |= bit
		scores[at] += v
	}
}

// offerStripe offers the pages of a stripe that reach the bar, and clears it.
func (w *work) offerStripe(stripe uint64) {
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
			w.offerAlone(uint32(stripe)+uint32(at), own)
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
