package lexical

import (
	"math"
	"slices"
)

// Query asks for the best K pages of a chain of scopes.
type Query struct {
	Scopes  []uint32
	Terms   []string // from Analyzer.Terms
	K       int
	Weights Weights // zero: no neighbours, no groups; see DefaultWeights
	Ranker  Ranker  // nil: DefaultRanker
}

// Hit is a live page with the parts of its score: Score = Own + Near + Group.
type Hit struct {
	Num              uint64
	Score            float64
	Own, Near, Group float64
	Via              uint64 // the superseded version that was hit, 0: the page itself
}

// Search returns the best K pages, best first; of equal scores the greater
// number, which is the later page, comes first. Errors wrap ErrCorrupt.
//
// A page scores
//
//	own(i) + near1·(own(i−1) + own(i+1)) + near2·(own(i−2) + own(i+2)) + group·BM25(group)
//
// where own is the BM25 of a page version and i its position in its group. A hit
// on a superseded version makes its successor score own(version) + group: the
// successor keeps the greater of the two, and nothing is summed over versions.
// The group is scored as one text of all its page versions.
func (x *Index) Search(rows Rows, c Corpus, q Query) ([]Hit, error) {
	if q.K <= 0 || len(q.Terms) == 0 {
		return nil, nil
	}
	w := x.borrow()
	defer x.release(w)
	if err := w.score(rows, q); err != nil {
		return nil, err
	}
	s := selection{work: w, corpus: c, k: q.K, weights: q.Weights.clean()}
	return s.run(), nil
}

// work is the scratch memory of one query. The dense arrays are all zero between
// queries; what was touched is remembered and wiped on release.
type work struct {
	x     *Index
	lists []list    // of all terms; starts tells whose
	start []int     // lists[start[t]:start[t+1]] belong to term t
	tails []tailRef // likewise the lists in the tail
	key   []byte
	sat   saturations
	group saturations

	own     []float64 // by page number − base
	touched []uint32  // pages with own > 0
	done    []bool    // pages that selection has seen
	seen    []uint32

	tf          []uint64  // by group, for the term at hand
	hit         []uint32  // groups with the term at hand
	groupScore  []float64 // by group
	groupTouch  []uint32
	groupHigher float64 // the greatest group score
}

type tailRef struct {
	term int
	list *tailList
}

func (x *Index) borrow() *work {
	w, _ := x.work.Get().(*work)
	if w == nil {
		w = &work{}
	}
	w.x = x
	return w
}

func (x *Index) release(w *work) {
	for _, i := range w.touched {
		w.own[i] = 0
	}
	for _, i := range w.seen {
		w.done[i] = false
	}
	for _, g := range w.hit {
		w.tf[g] = 0
	}
	for _, g := range w.groupTouch {
		w.groupScore[g] = 0
	}
	w.touched, w.seen, w.hit, w.groupTouch = w.touched[:0], w.seen[:0], w.hit[:0], w.groupTouch[:0]
	clear(w.lists) // they point into the owner's transaction
	clear(w.tails)
	w.lists, w.tails, w.start = w.lists[:0], w.tails[:0], w.start[:0]
	w.groupHigher, w.x = 0, nil
	x.work.Put(w)
}

// gather finds the lists of all terms and sums the statistics.
func (w *work) gather(rows Rows, scopes []uint32, terms []string) (Stats, error) {
	total := w.x.cols.total(scopes)
	st := Stats{Pages: total.pages, Length: total.length, DF: make([]uint64, len(terms))}
	for t, term := range terms {
		w.start = append(w.start, len(w.lists))
		for _, scope := range scopes {
			df, err := w.find(rows, t, scope, term)
			if err != nil {
				return Stats{}, err
			}
			st.DF[t] += df
		}
	}
	w.start = append(w.start, len(w.lists))
	return st, nil
}

// find collects the lists of one term in one scope and counts their pages.
func (w *work) find(rows Rows, t int, scope uint32, term string) (uint64, error) {
	if w.x.cols.scopes[w.x.cols.scopeAt[scope]].pages == 0 {
		return 0, nil
	}
	df := uint64(0)
	for _, s := range w.x.manifest.segments {
		w.key = appendTermKey(w.key[:0], s.id, scope, term)
		row := rows.Get(w.key)
		if row == nil {
			continue
		}
		l, err := parseList(s, w.key, row)
		if err != nil {
			return 0, err
		}
		n, err := w.live(l)
		if err != nil {
			return 0, err
		}
		df += n
		w.lists = append(w.lists, l)
	}
	if l := w.x.tail.lists[scope][term]; l != nil && len(*l) > 0 {
		df += uint64(len(*l))
		w.tails = append(w.tails, tailRef{t, l})
	}
	return df, nil
}

// live counts the postings of a list whose pages were not removed. The stored
// count answers unless the segment waits for being written anew.
func (w *work) live(l list) (uint64, error) {
	if w.x.pending[l.segment.id] == 0 {
		return l.df, nil
	}
	n := uint64(0)
	if !l.each(func(num uint64, _ uint32) {
		if w.x.cols.has(num) {
			n++
		}
	}) {
		return 0, w.damaged()
	}
	return n, nil
}

func (w *work) damaged() error {
	return corrupt(w.key, "postings are damaged or outside the segment")
}

// score fills own and groupScore. Terms are taken in the order of the query, so
// every sum has one order of its addends wherever the postings lie.
func (w *work) score(rows Rows, q Query) error {
	scopes := distinct(q.Scopes)
	st, err := w.gather(rows, scopes, q.Terms)
	if err != nil {
		return err
	}
	r := q.Ranker
	if r == nil {
		r = DefaultRanker()
	}
	w.own = grown(w.own, len(w.x.cols.scope))
	w.done = grown(w.done, len(w.x.cols.scope))
	total := w.x.cols.total(scopes)
	w.sat.reset(r, average(st.Length, st.Pages))
	grouped := q.Weights.Group > 0 && total.groups > 0
	if grouped {
		w.tf = grown(w.tf, len(w.x.cols.groups))
		w.groupScore = grown(w.groupScore, len(w.x.cols.groups))
	}
	for t := range q.Terms {
		if st.DF[t] == 0 {
			continue
		}
		if err := w.addTerm(t, positive(r.Rarity(st.DF[t], st.Pages)), grouped); err != nil {
			return err
		}
		if grouped {
			w.addGroups(r, total)
		}
	}
	return nil
}

// grown returns a slice of at least n zero elements; s is all zero already.
func grown[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n+n/8)
	}
	return s[:cap(s)]
}

func (w *work) addTerm(t int, weight float64, grouped bool) error {
	for _, l := range w.lists[w.start[t]:w.start[t+1]] {
		if !w.addList(l, weight, grouped) {
			w.key = segmentKey(rowTerm, l.segment.id)
			return w.damaged()
		}
	}
	for _, ref := range w.tails {
		if ref.term != t {
			continue
		}
		for _, p := range *ref.list {
			w.addPosting(p.num, p.tf, weight, grouped)
		}
	}
	return nil
}

// addList is list.each with the scoring inside: it is the loop that a query
// spends its time in.
func (w *work) addList(l list, weight float64, grouped bool) bool {
	b, num, n := l.body, l.segment.first, uint64(0)
	for len(b) > 0 {
		d, tf, size := posting(b)
		if size <= 0 || d == 0 && n > 0 || d > l.segment.last-num {
			return false
		}
		b = b[size:]
		num += d
		n++
		w.addPosting(num, tf, weight, grouped)
	}
	return n == l.df
}

func (w *work) addPosting(num uint64, tf uint32, weight float64, grouped bool) {
	c := w.x.cols
	at := num - c.base
	if at >= uint64(len(c.scope)) || c.scope[at] == 0 {
		return
	}
	v := float64(weight * w.sat.of(tf, c.length[at]))
	if v > 0 {
		if w.own[at] == 0 {
			w.touched = append(w.touched, uint32(at))
		}
		w.own[at] += v
	}
	if g := c.group[at]; grouped && g != 0 {
		if w.tf[g] == 0 {
			w.hit = append(w.hit, g)
		}
		w.tf[g] += uint64(tf)
	}
}

// addGroups scores the groups that have the term at hand.
func (w *work) addGroups(r Ranker, total scopeStats) {
	weight := positive(r.Rarity(uint64(len(w.hit)), total.groups))
	avg := average(total.groupLength, total.groups)
	for _, g := range w.hit {
		v := float64(weight * positive(r.Saturation(w.tf[g], w.x.cols.groups[g].length, avg)))
		w.tf[g] = 0
		if v <= 0 {
			continue
		}
		if w.groupScore[g] == 0 {
			w.groupTouch = append(w.groupTouch, g)
		}
		w.groupScore[g] += v
		w.groupHigher = max(w.groupHigher, w.groupScore[g])
	}
	w.hit = w.hit[:0]
}

// slack makes bounds safe against the rounding of sums in another order.
const slack = 1 + 1e-9

// selection finds the best pages without looking at every one that was hit: a
// page cannot be among them unless one page of its window has enough by itself.
type selection struct {
	*work
	corpus  Corpus
	k       int
	weights Weights
	best    top
}

func (s *selection) run() []Hit {
	s.first()
	floor := s.best.floor()
	winners := s.best.hits
	s.best = top{k: s.k}
	for _, h := range winners {
		s.visit(h.at, 0)
	}
	for _, v := range s.touched {
		if s.bound(s.own[v], s.groupHigher) < max(floor, s.best.floor()) {
			continue
		}
		s.visit(v, floor)
	}
	return s.best.sorted()
}

// bound is the most that a page can reach when no page of its window has more
// than own and its group has group.
func (s *selection) bound(own, group float64) float64 {
	return slack * (own*(1+2*s.weights.Near1+2*s.weights.Near2) + group*s.weights.Group)
}

// first takes the best K by own words and group alone. What the last of them
// has, the K-th of the result has at least.
func (s *selection) first() {
	s.best = top{k: s.k}
	for _, v := range s.touched {
		if s.plain(v, v) < s.best.floor() {
			continue
		}
		if live, ok := s.resolve(v); ok {
			s.best.offer(Hit{Num: live, Score: s.plain(v, uint32(live-s.x.cols.base))}, v)
		}
	}
}

// plain is the score of a version for its successor.
func (s *selection) plain(v, live uint32) float64 {
	return s.own[v] + s.groupPart(live)
}

func (s *selection) groupPart(v uint32) float64 {
	if g := s.x.cols.group[v]; g != 0 && s.weights.Group > 0 {
		return float64(s.weights.Group * s.groupScore[g])
	}
	return 0
}

func (s *selection) resolve(v uint32) (uint64, bool) {
	live, ok := s.corpus.Resolve(uint64(v) + s.x.cols.base)
	return live, ok && s.x.cols.has(live)
}

// visit scores the page that answers for a version, and its neighbours.
func (s *selection) visit(v uint32, floor float64) {
	num := uint64(v) + s.x.cols.base
	live, ok := s.resolve(v)
	if !ok {
		return
	}
	if live != num {
		to := uint32(live - s.x.cols.base)
		h := Hit{Num: live, Own: s.own[v], Group: s.groupPart(to), Via: num}
		h.Score = h.Own + h.Group
		s.best.offer(h, v)
		return
	}
	if s.bound(s.own[v], s.groupScoreOf(v)) < max(floor, s.best.floor()) {
		return
	}
	s.page(v, live)
	if s.weights.Near1 == 0 && s.weights.Near2 == 0 {
		return
	}
	group, pos := s.corpus.Group(live)
	if group == 0 {
		return
	}
	for d := -2; d <= 2; d++ {
		if j, ok := s.at(group, pos+d); ok && d != 0 {
			s.page(j, uint64(j)+s.x.cols.base)
		}
	}
}

func (s *selection) groupScoreOf(v uint32) float64 {
	if g := s.x.cols.group[v]; g != 0 && s.weights.Group > 0 {
		return s.groupScore[g]
	}
	return 0
}

func (s *selection) at(group uint64, pos int) (uint32, bool) {
	live, ok := s.corpus.At(group, pos)
	if !ok || !s.x.cols.has(live) {
		return 0, false
	}
	return uint32(live - s.x.cols.base), true
}

// page scores a live page in full, once.
func (s *selection) page(v uint32, live uint64) {
	if s.done[v] {
		return
	}
	s.done[v] = true
	s.seen = append(s.seen, v)
	h := Hit{Num: live, Own: s.own[v], Near: s.near(live), Group: s.groupPart(v)}
	h.Score = h.Own + h.Near + h.Group
	s.best.offer(h, v)
}

func (s *selection) near(live uint64) float64 {
	if s.weights.Near1 == 0 && s.weights.Near2 == 0 {
		return 0
	}
	group, pos := s.corpus.Group(live)
	if group == 0 {
		return 0
	}
	one := s.ownAt(group, pos-1) + s.ownAt(group, pos+1)
	two := s.ownAt(group, pos-2) + s.ownAt(group, pos+2)
	return float64(s.weights.Near1*one) + float64(s.weights.Near2*two)
}

func (s *selection) ownAt(group uint64, pos int) float64 {
	if v, ok := s.at(group, pos); ok {
		return s.own[v]
	}
	return 0
}

// top keeps the best k hits of distinct pages in a heap, the worst on top.
type top struct {
	k     int
	hits  []scored
	index map[uint64]int // page number → place in the heap
}

type scored struct {
	Hit
	at uint32 // the version that was offered
}

// floor is the score that a hit must have to get in.
func (t *top) floor() float64 {
	if len(t.hits) < t.k {
		return math.Inf(-1)
	}
	return t.hits[0].Score
}

func worse(a, b *scored) bool {
	if a.Score != b.Score {
		return a.Score < b.Score
	}
	if a.Num != b.Num {
		return a.Num < b.Num
	}
	return a.Via > b.Via // of equal ways to one page: by itself, then the oldest version
}

// offer takes a hit when it is among the best; of two for one page the better.
func (t *top) offer(h Hit, at uint32) {
	n := scored{h, at}
	if i, ok := t.index[h.Num]; ok {
		if worse(&t.hits[i], &n) {
			t.hits[i] = n
			t.down(i)
		}
		return
	}
	if len(t.hits) < t.k {
		if t.index == nil {
			t.index = make(map[uint64]int, min(t.k, 1024))
		}
		t.hits = append(t.hits, n)
		t.index[h.Num] = len(t.hits) - 1
		t.up(len(t.hits) - 1)
		return
	}
	if !worse(&t.hits[0], &n) {
		return
	}
	delete(t.index, t.hits[0].Num)
	t.hits[0] = n
	t.index[h.Num] = 0
	t.down(0)
}

func (t *top) swap(i, j int) {
	t.hits[i], t.hits[j] = t.hits[j], t.hits[i]
	t.index[t.hits[i].Num], t.index[t.hits[j].Num] = i, j
}

func (t *top) up(i int) {
	for i > 0 {
		p := (i - 1) / 2
		if !worse(&t.hits[i], &t.hits[p]) {
			return
		}
		t.swap(i, p)
		i = p
	}
}

func (t *top) down(i int) {
	for {
		c := 2*i + 1
		if c >= len(t.hits) {
			return
		}
		if c+1 < len(t.hits) && worse(&t.hits[c+1], &t.hits[c]) {
			c++
		}
		if !worse(&t.hits[c], &t.hits[i]) {
			return
		}
		t.swap(i, c)
		i = c
	}
}

func (t *top) sorted() []Hit {
	slices.SortFunc(t.hits, func(a, b scored) int {
		if worse(&b, &a) {
			return -1
		}
		return 1
	})
	out := make([]Hit, len(t.hits))
	for i, h := range t.hits {
		out[i] = h.Hit
	}
	return out
}
