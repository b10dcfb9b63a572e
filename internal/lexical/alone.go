package lexical

import (
	"math"
	"math/bits"
	"slices"
	"sync"
)

// Where no page gets anything from others (there are no turns, or the weights are zero), its own words alone decide. Then the
// lists of all words are read side by side, stripe by stripe: the pages of a stripe are scored in full, rarest word first,
// before the next stripe begins. The scores of one stripe stay in the cache of the processor, where those of all pages do
// not, and each stripe begins with the bar that the best K pages before it set. A page that has none of the rarer words is
// passed over if this word and those that follow cannot bring it over the bar; mostly its number of occurrences decides
// that, without a look at its length.
//
// Invariant: a page that is passed over scores less than K others. follow[i] bounds what the words from the i-th on can add. A
// score that decides is summed in the order of Search, to the last bit.
type alone struct {
	lists  []reading
	starts []int // lists[starts[i]:starts[i+1]] are of the i-th word of the plan
	follow []float64
	hit    [stripePages / 64]uint64
	scores [2][stripePages]float64 // from words that are not common, and from common ones; zero between stripes
	has    [stripePages]uint32     // see Hit; zero between stripes
	found  [stripePages]uint16     // memory of offerAlone
}

// stripePages is the number of pages a stripe has at most; tests make stripes smaller.
const stripePages = 4096

// reading is the position in a list.
type reading struct {
	cursor  cursor
	part    *part    // an open one: posts are in place of cursor
	posts   []uint64 // see lists
	segment uint32
	removed bool      // some pages were
	rest    []posting // of block: not added yet
	block   [blockSize]posting
}

// unread serves all indexes, because its size does not depend on them.
var unread = sync.Pool{New: func() any { return new(alone) }}

// besides is the number of lists that are read side by side at most, each with a block of 2 KiB. A question of more words, which is
// a text of its own, is read list by list.
const besides = 1024

// standAlone reports whether no page gets anything from others, and the lists that were found are few enough.
func (w *work) standAlone() bool {
	return !w.turns && w.weights.Near1 == 0 && w.weights.Near2 == 0 && w.weights.Group == 0 && len(w.lists)+len(w.tails) <= w.x.besides
}

// selectAlone scores the pages that the words hit, and keeps the best. After an error its memory is not used again.
func (w *work) selectAlone(p plan) error {
	l := unread.Get().(*alone)
	w.open(l, p)
	w.best = w.top(&w.heaps[0])
	for {
		next, some := uint64(0), false
		for i := range l.lists {
			if rest := l.lists[i].rest; len(rest) > 0 && (!some || rest[0].num < next) {
				next, some = rest[0].num, true
			}
		}
		if !some {
			break
		}
		first, bar := next-next%w.x.stripePages, w.best.floor()/slack
		for i, t := range p.order {
			scores := &l.scores[0]
			if i >= p.strong {
				scores = &l.scores[1]
			}
			for j := l.starts[i]; j < l.starts[i+1]; j++ {
				for r := &l.lists[j]; len(r.rest) > 0 && r.rest[0].num < first+w.x.stripePages; {
					n := w.addAlone(l, r.rest, first, word{term: t, weight: p.weight[t]}, bar-l.follow[i+1], scores)
					if r.rest = r.rest[n:]; len(r.rest) == 0 {
						w.decode(r)
					}
				}
			}
		}
		w.offerAlone(l, first)
	}
	for i := range l.lists {
		r := &l.lists[i]
		if r.part == nil && !r.cursor.end() {
			return corrupt(segmentKey(rowTerm, r.segment), "postings are damaged or outside the segment")
		}
		r.cursor, r.part, r.posts = cursor{}, nil, nil // they point into the owner's transaction
	}
	unread.Put(l)
	return nil
}

// open opens the lists of all words of the plan.
func (w *work) open(l *alone, p plan) {
	n := len(p.order)
	l.starts, l.follow = l.starts[:0], slices.Grow(l.follow[:0], n+1)[:n+1]
	l.follow[n] = 0
	for i := n - 1; i >= 0; i-- {
		l.follow[i] = l.follow[i+1] + p.weight[p.order[i]]*most*slack
	}
	l.lists = slices.Grow(l.lists[:0], len(w.lists)+len(w.tails))
	add := func() *reading {
		l.lists = l.lists[:len(l.lists)+1]
		return &l.lists[len(l.lists)-1]
	}
	for _, t := range p.order {
		l.starts = append(l.starts, len(l.lists))
		for _, o := range w.lists[w.start[t]:w.start[t+1]] {
			r := add()
			r.cursor, r.part, r.segment, r.removed = o.cursor(), nil, o.segment.id, o.removed
			w.decode(r)
		}
		for _, ref := range w.tails {
			if ref.term == t {
				r := add()
				r.part, r.posts, r.removed = ref.part, ref.part.lists.posts[ref.at], ref.part.removed > 0
				w.decode(r)
			}
		}
	}
	l.starts = append(l.starts, len(l.lists))
}

// decode decodes the next postings of a list.
func (w *work) decode(r *reading) {
	for {
		if r.part == nil {
			r.rest = r.cursor.next(&r.block)
		} else {
			n := min(len(r.posts), blockSize)
			r.rest, r.posts = r.part.decode(r.posts[:n], &r.block), r.posts[n:]
		}
		if !r.removed || len(r.rest) == 0 {
			return
		}
		if r.rest = w.present(r.rest); len(r.rest) > 0 {
			return
		}
	}
}

// addAlone adds a word to the pages of a stripe that have a rarer one, and to others that get more than threshold from it. It
// returns how many of the postings are of the stripe.
func (w *work) addAlone(l *alone, rest []posting, first uint64, x word, threshold float64, scores *[stripePages]float64) int {
	shape, base, weight, has := w.x.cols.shape, w.x.cols.base, x.weight, bitOf(x.term)
	for i, p := range rest {
		at := p.num - first
		if at >= w.x.stripePages {
			return i
		}
		at %= stripePages
		bit := uint64(1) << (at % 64)
		known := l.hit[at/64]&bit != 0
		if !known && weight*mostOf(p.tf) <= threshold || w.only != nil && !w.may(p.num) {
			continue
		}
		v := float64(weight * w.sat.of(p.tf, shape[p.num-base]))
		if v <= 0 || !known && v <= threshold {
			continue
		}
		l.hit[at/64] |= bit
		l.has[at] |= has
		scores[at] += v
	}
	return len(rest)
}

// offerAlone offers the pages of a stripe that reach the bar, and clears it. The better ones are offered first: they raise the
// bar, so that most of the others need not be resolved.
func (w *work) offerAlone(l *alone, first uint64) {
	own, found, bar := &l.scores[0], l.found[:0], w.best.floor()
	for i, set := range l.hit[:(w.x.stripePages+63)/64] {
		l.hit[i] = 0
		for ; set != 0; set &= set - 1 {
			at := (64*i + bits.TrailingZeros64(set)) % stripePages
			own[at] += l.scores[1][at]
			l.scores[1][at] = 0
			if own[at] < bar {
				own[at], l.has[at] = 0, 0
				continue
			}
			found = append(found, uint16(at))
		}
	}
	better := l.better(found, w.best.k)
	w.offerFound(l, found, first, better, math.Inf(1))
	w.offerFound(l, found, first, math.Inf(-1), better)
	for _, at := range found {
		own[at], l.has[at] = 0, 0
	}
}

// touched is the number of pages that are touched at once.
const touched = 32

// offerFound offers those of a stripe's pages whose scores are in a range.
func (w *work) offerFound(l *alone, found []uint16, first uint64, least, below float64) {
	own := &l.scores[0]
	for some := range slices.Chunk(found, touched) {
		for bar, i := max(least, w.best.floor()), 0; i < len(some); i++ {
			if at := some[i]; own[at] >= bar && own[at] < below {
				w.corpus.Touch(first + uint64(at))
			}
		}
		for _, at := range some {
			if own[at] >= least && own[at] < below {
				w.offerPage(first+uint64(at), own[at], l.has[at])
			}
		}
	}
}

// offerPage offers a page, unless its score is below the bar.
func (w *work) offerPage(num uint64, own float64, has uint32) {
	if own < w.best.floor() {
		return
	}
	live, ok := w.resolve(uint32(num - w.x.cols.base))
	if !ok {
		return
	}
	h := Hit{Num: live, Score: own, Own: own, Has: has}
	if live != num {
		h.Via, h.Has = num, 0
	}
	w.best.offer(&h)
}

// better returns a score that k pages of a stripe reach, and few others.
func (l *alone) better(found []uint16, k int) float64 {
	if len(found) <= k {
		return 0
	}
	own := &l.scores[0]
	least, most := own[found[0]], own[found[0]]
	for _, at := range found {
		least, most = min(least, own[at]), max(most, own[at])
	}
	var count [256]int
	step := (most - least) / float64(len(count)-1)
	if step <= 0 {
		return 0
	}
	for _, at := range found {
		count[int((own[at]-least)/step)%len(count)]++
	}
	at := len(count)
	for n := 0; n < k; n += count[at] {
		at--
	}
	return least + float64(float64(at)*step)
}
