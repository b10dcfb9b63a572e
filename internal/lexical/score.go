package lexical

import (
	"math"
)

// bm25 scores a term in a page by its rarity and its occurrences.
type bm25 struct{ k1, b float64 }

// ofPages are the constants that Lucene uses for documents. ofTurns suits turns: they are short, and a long one says more.
var (
	ofPages = bm25{1.2, .75}
	ofTurns = bm25{.9, .4}
)

// most is a bound that saturation never exceeds: the greater k1, and 1.
const most = 1.2 + 1

// mostOf bounds the saturation of tf occurrences: that of a text without length. Turns have less.
func mostOf(tf uint32) float64 {
	if tf >= tableTF {
		return most
	}
	return ofOccurrences[tf]
}

var ofOccurrences = [tableTF]float64{1: ofPages.saturation(1, 0, 1), ofPages.saturation(2, 0, 1), ofPages.saturation(3, 0, 1)}

// rarity is the weight of a term that df of n pages contain: ln(1 + (n − df + ½) / (df + ½)), positive for every df ≤ n.
func rarity(df, n uint64) float64 {
	df = min(df, n)
	return ln(1 + (float64(n-df)+.5)/(float64(df)+.5))
}

// saturation is the factor for tf occurrences in a text of length terms, where a text has average terms on average:
// tf·(k1+1) / (tf + k1·(1 − b + b·length/average)). It rises with tf.
func (r bm25) saturation(tf, length uint64, average float64) float64 {
	if average <= 0 {
		average = 1
	}
	norm := float64(r.k1 * (1 - r.b + float64(r.b*float64(length)/average)))
	return float64(float64(tf)*(r.k1+1)) / (float64(tf) + norm)
}

// ln is the natural logarithm in plain arithmetic. math.Log is assembly on some
// machines and may differ there in the last bit; scores must not. Products are
// converted so that no compiler fuses them with a sum.
func ln(x float64) float64 {
	m, e := math.Frexp(x)
	if m < math.Sqrt2/2 {
		m, e = m*2, e-1
	}
	s := (m - 1) / (m + 1)
	s2 := float64(s * s)
	sum := 0.0
	for k := 23; k > 0; k -= 2 {
		sum = float64(sum*s2) + 1/float64(k)
	}
	return float64(float64(e)*math.Ln2) + float64(2*s*sum)
}

// positive maps weights that make no sense to zero.
func positive(v float64) float64 {
	if v > 0 && !math.IsInf(v, 1) {
		return v
	}
	return 0
}

// average is the mean length of n texts.
func average(length, n uint64) float64 {
	if n == 0 {
		return 0
	}
	return float64(length) / float64(n)
}

// Weights say what the place of a page adds to the score of its own words.
type Weights struct {
	Near1 float64 // share of the scores of the page before and the page after
	Near2 float64 // the same, two places away
	Group float64 // share of the score of the group as one text
	Turns bool    // turns are also scored by speaker, date and conversation; see Search
	Fill  bool    // turns without a word of the question are found, too, where fewer than Query.K pages have one

	Spread bool // turns beside better ones score less; for questions that Course reports
}

// DefaultWeights were found on real two-person conversations: a turn is explained
// by the one it answers (one away) and by what its author said before (two away),
// about equally. The figures change slowly around them.
func DefaultWeights() Weights { return Weights{Near1: .45, Near2: .4, Group: 1.2, Turns: true} }

// clean maps weights that make no sense to zero.
func (w Weights) clean() Weights {
	w.Near1, w.Near2, w.Group = positive(w.Near1), positive(w.Near2), positive(w.Group)
	return w
}

// saturations remembers the saturation of words in small texts within one query: the same few
// thousand pairs of count and length occur a million times. It is 32 KiB of a query's scratch
// memory; larger counts and longer texts are computed each time.
type saturations struct {
	average [2]float64                        // length of pages that are no turns, and of turns
	known   [tableTF][2 * tableLength]float64 // by shape; 0: not asked yet
}

const (
	tableTF     = 4
	tableLength = 512
)

// of returns the score of tf occurrences of a word of weight 1 in a text.
func (s *saturations) of(tf uint32, text shape) float64 {
	if tf >= tableTF || text >= 2*tableLength {
		return s.ask(tf, text)
	}
	v := &s.known[tf][text]
	if *v == 0 {
		*v = s.ask(tf, text)
	}
	return *v
}

// ask computes it.
func (s *saturations) ask(tf uint32, text shape) float64 {
	formula := ofPages
	if text.turn() {
		formula = ofTurns
	}
	return formula.saturation(uint64(tf), uint64(text.length()), s.average[text&1])
}

// number is the page number of a place in the columns.
func (w *work) number(v uint32) uint64 { return uint64(v) + w.x.cols.base }

// plain is the score of a page version by itself, without common words. It is a lower bound of the
// score in the first stage: common words and neighbours only add.
func (w *work) plain(v uint32) float64 {
	return w.own[v] + w.groupPart(v) + w.formPart(v) + w.bonus(v)
}

func (w *work) groupPart(v uint32) float64 { return float64(w.weights.Group * w.groupOf(v)) }

// groupOf is the score of the group of a page as one text; 0 for a page that gets nothing from
// others.
func (w *work) groupOf(v uint32) float64 {
	if len(w.groupTouch) == 0 || !w.lentTo(v) {
		return 0
	}
	return w.groupScore[w.x.cols.group[v]]
}

// lentTo reports whether a page gets something from its neighbours and its group.
func (w *work) lentTo(v uint32) bool { return !w.turns || w.x.cols.shape[v].turn() }

// formPart returns the score that irregular forms of the words add to a page; see addForms.
func (w *work) formPart(v uint32) float64 {
	if w.mostForms == 0 {
		return 0
	}
	return w.forms[v]
}

// resolve returns the live page that answers for a page version, if the question may see it.
func (w *work) resolve(v uint32) (uint64, bool) {
	live, ok := w.corpus.Resolve(w.number(v))
	return live, ok && w.x.cols.has(live)
}

// near is the score that its neighbours lend to a live page.
func (w *work) near(live uint64) float64 {
	if w.weights.Near1 == 0 && w.weights.Near2 == 0 || !w.lentTo(uint32(live-w.x.cols.base)) {
		return 0
	}
	group, pos := w.corpus.Group(live)
	if group == 0 {
		return 0
	}
	one := w.ownAt(group, pos-1) + w.ownAt(group, pos+1)
	two := w.ownAt(group, pos-2) + w.ownAt(group, pos+2)
	return float64(w.weights.Near1*one) + float64(w.weights.Near2*two)
}

// ownAt returns the score of the page at a position of a group by words that are not common; 0 if the
// question may not see it.
func (w *work) ownAt(group uint64, pos int) float64 {
	v, ok := w.at(group, pos)
	if !ok || w.own[v] == 0 || !w.corpus.Shown(w.number(v)) { // most neighbours have none of the words
		return 0
	}
	return w.own[v]
}

// at returns the place in the columns of the page at a position of a group.
func (w *work) at(group uint64, pos int) (uint32, bool) {
	live, ok := w.corpus.At(group, pos)
	if !ok || !w.x.cols.has(live) {
		return 0, false
	}
	return uint32(live - w.x.cols.base), true
}

// A page that cannot be among the best K is passed over: words that are still to come can add at most so much to it. What a
// word adds is bounded by its weight and most.

// slack makes bounds safe against the rounding of sums in another order.
const slack = 1 + 1e-9

// most is the most that some of the words can add to a page by itself.
func (w *work) most(p plan, terms []int) float64 {
	sum := 0.0
	for _, t := range terms {
		sum += p.weight[t] * most
	}
	return sum * slack
}

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

// floor is a score that the K-th best page has at least: the K-th best
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
		group := float64(w.weights.Group * w.groupScore[w.x.cols.groupOf(int(v))])
		if slack*(w.own[v]*window+group+w.mostForms+w.spoken)+extra < floor {
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
