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

// stripePages is the number of pages a stripe has; tests make stripes smaller.
const stripePages = 4096

// reading is the position in a list.
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
// was read to its end shows whether it was sound.
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

// slack makes bounds safe against the rounding of sums in another order.
const slack = 1 + 1e-9

// extra is the most that the common words can add to a page.
func (w *work) extra(p plan) float64 {
	return w.most(p, p.order[p.strong:])
}

// most is the most that some of the words can add to a page by itself.
func (w *work) most(p plan, terms []int) float64 {
	sum := 0.0
	for _, t := range terms {
		sum += p.weight[t] * w.mostOf()
	}
	return sum * slack
}

// mostOf bounds the score of a word of weight 1.
func (w *work) mostOf() float64 { return max(w.ranker[0].Most(), w.ranker[1].Most()) }

// leaders are the best pages by their scores so far, without their neighbours.
//
// A score so far is a lower bound of the score, because words only add. Pages that the question may
// not see are left out, because they must not raise the bar.
func (w *work) leaders() top {
	first := w.top(&w.heaps[0])
	for _, v := range w.touched {
		if s := w.plain(v); s >= first.floor() {
			if live, ok := w.resolve(v); ok {
				first.offer(&Hit{Num: live, Score: s, Via: w.number(v)})
			}
		}
	}
	first.end()
	w.heaps[0] = first
	return first
}

// bar is a score that the K-th best page has at least, whatever words follow.
func (w *work) bar() float64 {
	first := w.leaders()
	return first.floor() / slack
}

// floor is a score that the K-th best page has at least: that of the K-th best
// without common words, among those that are best without their neighbours.
func (w *work) floor() float64 {
	first := w.leaders()
	better := w.top(&w.heaps[1])
	defer better.end()
	for _, h := range first.hits {
		if h.Num == h.Via {
			h.Score += w.near(h.Num)
		}
		better.offer(&h)
	}
	w.heaps[1] = better
	return better.floor() / slack
}

// candidates marks the pages that can reach floor without common words of their
// own or with them: a page that was hit, and the pages that it lends to. Pages
// that only common words hit are added by addCommon. A page without neighbours
// lends to none, and is not resolved before its score says that it can win.
// The page that it lends to may get more for their group than it gets itself.
func (w *work) candidates(floor, extra float64) {
	window := 1 + 2*w.weights.Near1 + 2*w.weights.Near2
	for _, v := range w.touched {
		if slack*(w.own[v]*window+w.groupMost(v)+w.mostForms+w.spoken)+extra < floor {
			continue
		}
		if w.corpus.Alone(w.number(v)) {
			if slack*w.plain(v)+extra >= floor {
				w.want(v)
			}
			continue
		}
		live, ok := w.resolve(v)
		if !ok {
			continue
		}
		if live == w.number(v) && window > 1 {
			w.wantWindow(v, floor, extra)
			continue
		}
		if slack*w.plain(v)+extra >= floor {
			w.want(v)
		}
	}
}

// want makes a page a candidate, once.
func (w *work) want(v uint32) {
	if !w.wanted[v] {
		w.wanted[v] = true
		w.list = append(w.list, v)
	}
}

// wantWindow wants a live page and its neighbours where they can reach floor. A neighbour is safe
// to judge by this page's score: if another page lends it more, it is wanted because of that page.
func (w *work) wantWindow(v uint32, floor, extra float64) {
	near, most := 0.0, float64(w.own[v]*2*(w.weights.Near1+w.weights.Near2))
	group, pos := w.corpus.Group(w.number(v))
	for d := -2; d <= 2 && group != 0; d++ {
		if d == 0 {
			continue
		}
		u, ok := w.at(group, pos+d)
		if !ok {
			continue
		}
		share := w.weights.Near1
		if d*d > 1 {
			share = w.weights.Near2
		}
		near += float64(share * w.own[u])
		if slack*(w.plain(u)+most)+extra >= floor {
			w.want(u)
		}
	}
	if slack*(w.plain(v)+near)+extra >= floor {
		w.want(v)
	}
}
