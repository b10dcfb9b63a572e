package lexical

import (
	"cmp"
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
//	own(i) + near1·(s(i−1) + s(i+1)) + near2·(s(i−2) + s(i+2)) + group·BM25(group)
//
// where i is its position in its group, own is the BM25 of its words, s the part
// of own that comes from words that are not common, and the group is scored as
// one text of all its page versions. A group alone brings nobody in: a page with
// neither own nor neighbours' words is no hit. A hit on a superseded version gives its
// successor what that version scores by its own words and its group; the
// successor keeps the greatest, and nothing is summed over versions.
//
// A common word (see plan) orders pages, but lends nothing to neighbours: its
// postings are read, not collected, which is what keeps large scopes fast.
func (x *Index) Search(rows Rows, c Corpus, q Query) ([]Hit, error) {
	if q.K <= 0 || len(q.Terms) == 0 {
		return nil, nil
	}
	w := x.borrow()
	defer x.release(w)
	w.corpus, w.k, w.weights, w.ranker = c, q.K, q.Weights.clean(), q.Ranker
	if w.ranker == nil {
		w.ranker = DefaultRanker()
	}
	if err := w.run(rows, q); err != nil {
		return nil, err
	}
	return append([]Hit(nil), w.best.sorted()...), nil
}

// plan orders the terms of a query and tells which are common.
type plan struct {
	order  []int     // of terms that occur: rarest first, of equal ones the first asked for
	weight []float64 // by term
	strong int       // order[:strong] are not common
	group  int       // order[:group] count for groups
}

const (
	// A word is common when more than one page in commonShare has it, and more
	// than commonPages. In small scopes no word is: there recall is worth more
	// than the time.
	commonShare = 16
	commonPages = 2048
	// A word says nothing of a group when more than one page in commonShare has
	// it, and more than groupPages: nearly every group has it then.
	groupPages = 16
)

// newPlan decides from integers only, so that it is the same wherever the
// postings lie. The rarest word of a query is never common.
func newPlan(r Ranker, st Stats, commonPages uint64) plan {
	p := plan{weight: make([]float64, len(st.DF))}
	for t, df := range st.DF {
		if df > 0 {
			p.order = append(p.order, t)
			p.weight[t] = positive(r.Rarity(df, st.Pages))
		}
	}
	slices.SortStableFunc(p.order, func(a, b int) int { return cmp.Compare(st.DF[a], st.DF[b]) })
	for i, t := range p.order {
		if i == 0 || st.DF[t] <= max(st.Pages/commonShare, commonPages) {
			p.strong = i + 1
		}
		if i == 0 || st.DF[t] <= max(st.Pages/commonShare, groupPages) {
			p.group = i + 1
		}
	}
	p.group = min(p.group, p.strong)
	return p
}

// work is one query and its scratch memory. The dense arrays are all zero
// between queries; what was touched is remembered and wiped on release.
type work struct {
	x       *Index
	corpus  Corpus
	weights Weights
	ranker  Ranker
	k       int
	groups  bool // some count
	best    top
	heaps   [2][]Hit // two at a time are in use

	lists []list    // of all terms; starts tells whose
	start []int     // lists[start[t]:start[t+1]] belong to term t
	tails []tailRef // likewise the lists in the tail
	key   []byte
	sat   saturations
	block [blockSize]posting

	own     []float64 // by page number − base, from words that are not common
	touched []uint32  // pages with own > 0
	common  []float64 // the same from common words, for candidates
	wanted  []bool    // candidates
	list    []uint32  // the candidates
	slot    []uint32  // for top
	seen    []uint64  // a bit for each of touched: unlike own it stays in the cache

	tf         []uint64  // by group, for the term at hand
	hit        []uint32  // groups with the term at hand
	groupScore []float64 // by group
	groupTouch []uint32
}

type tailRef struct {
	term int // of the query
	part *part
	at   uint32 // the term in the part
}

func (x *Index) borrow() *work {
	x.settle()
	w, _ := x.work.Get().(*work)
	if w == nil {
		w = &work{}
	}
	w.x = x
	return w
}

func (x *Index) release(w *work) {
	for _, v := range w.touched {
		w.own[v], w.seen[v/64] = 0, 0
	}
	wipe(w.common, w.list)
	wipe(w.wanted, w.list)
	wipe(w.tf, w.hit)
	wipe(w.groupScore, w.groupTouch)
	w.touched, w.list, w.hit, w.groupTouch = w.touched[:0], w.list[:0], w.hit[:0], w.groupTouch[:0]
	clear(w.lists) // they point into the owner's transaction
	clear(w.tails)
	w.lists, w.tails, w.start = w.lists[:0], w.tails[:0], w.start[:0]
	w.x, w.corpus, w.ranker, w.sat.ranker = nil, nil, nil, nil
	w.heaps[0], w.best = w.best.hits, top{}
	x.work.Put(w)
}

func wipe[T any](dense []T, at []uint32) {
	var zero T
	for _, i := range at {
		dense[i] = zero
	}
}

// grown returns a slice of at least n zero elements; s is all zero already.
func grown[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n+n/8)
	}
	return s[:cap(s)]
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
	for _, p := range w.x.tail {
		if at, ok := p.find(scope, term); ok && p.terms[at].df > 0 {
			df += uint64(p.terms[at].df)
			w.tails = append(w.tails, tailRef{t, p, at})
		}
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
		return 0, corrupt(w.key, "postings are damaged or outside the segment")
	}
	return n, nil
}

// run collects the scores of words that are not common, finds out who can still
// be among the best, reads the common words for those, and scores them in full.
func (w *work) run(rows Rows, q Query) error {
	scopes := distinct(q.Scopes)
	st, err := w.gather(rows, scopes, q.Terms)
	if err != nil {
		return err
	}
	p := newPlan(w.ranker, st, w.x.commonPages)
	total := w.x.cols.total(scopes)
	w.prepare(st)
	extra := w.extra(p)
	alone := total.groupLength < total.length/2 // else looking for the bar is in vain
	w.groups = w.weights.Group > 0 && total.groups > 0
	for i, t := range p.order[:p.strong] {
		grouped := i < p.group && w.groups
		over := math.Inf(-1)
		if alone && st.DF[t] > uint64(len(w.touched)) {
			over = w.bar() - w.most(p, p.order[i+1:p.strong]) - extra
		}
		if err := w.collect(t, p.weight[t], over, grouped); err != nil {
			return err
		}
		if grouped {
			w.addGroups(total)
		}
	}
	floor := w.floor()
	w.candidates(floor, extra)
	for _, t := range p.order[p.strong:] {
		if err := w.addCommon(t, p.weight[t], floor-extra); err != nil {
			return err
		}
	}
	w.selectBest(floor)
	return nil
}

func (w *work) prepare(st Stats) {
	pages, groups := len(w.x.cols.scope), len(w.x.cols.groups)
	w.own, w.common, w.wanted = grown(w.own, pages), grown(w.common, pages), grown(w.wanted, pages)
	w.slot, w.seen = grown(w.slot, pages), grown(w.seen, pages/64+1)
	w.tf, w.groupScore = grown(w.tf, groups), grown(w.groupScore, groups)
	w.sat.reset(w.ranker, average(st.Length, st.Pages))
}

// collect adds a word to own and, when grouped, counts it in its groups. A page
// that has none of the rarer words, and no neighbours to lend to, is passed over
// unless it gets more than over from this one: what is still to come would not
// bring it among the best.
func (w *work) collect(t int, weight, over float64, grouped bool) error {
	return w.eachBlock(t, func(block []posting) {
		w.addOwn(block, weight, over)
		if grouped {
			w.addTF(block)
		}
	})
}

func (w *work) addOwn(block []posting, weight, over float64) {
	length, own, seen := w.x.cols.length, w.own, w.seen
	hopeless := weight*w.ranker.Most() <= over
	for _, p := range block {
		at := p.num - w.x.cols.base
		bit := uint64(1) << (at % 64)
		if hopeless && seen[at/64]&bit == 0 && w.alone(p.num) {
			continue
		}
		v := float64(weight * w.sat.of(p.tf, length[at]))
		if v <= 0 {
			continue
		}
		if seen[at/64]&bit == 0 {
			if v <= over && w.alone(p.num) {
				continue
			}
			seen[at/64] |= bit
			w.touched = append(w.touched, uint32(at))
		}
		own[at] += v
	}
}

// alone reports that a page version gets nothing from others and lends nothing.
func (w *work) alone(num uint64) bool {
	return w.corpus.Alone(num) && (!w.groups || w.x.cols.group[num-w.x.cols.base] == 0)
}

func (w *work) addTF(block []posting) {
	group, tf := w.x.cols.group, w.tf
	for _, p := range block {
		g := group[p.num-w.x.cols.base]
		if tf[g] == 0 {
			if g == 0 {
				continue
			}
			w.hit = append(w.hit, g)
		}
		tf[g] += uint64(p.tf)
	}
}

// eachBlock calls fn for the postings of a term whose pages were not removed.
func (w *work) eachBlock(t int, fn func(block []posting)) error {
	for _, l := range w.lists[w.start[t]:w.start[t+1]] {
		c, removed := l.cursor(), w.x.pending[l.segment.id] > 0
		for block := c.next(&w.block); len(block) > 0; block = c.next(&w.block) {
			if removed {
				block = w.present(block)
			}
			fn(block)
		}
		if !c.end() {
			return corrupt(segmentKey(rowTerm, l.segment.id), "postings are damaged or outside the segment")
		}
	}
	for _, ref := range w.tails {
		if ref.term != t {
			continue
		}
		l := ref.part.list(ref.at)
		for block := l.next(&w.block); len(block) > 0; block = l.next(&w.block) {
			if ref.part.removed > 0 {
				block = w.present(block)
			}
			fn(block)
		}
	}
	return nil
}

func (w *work) present(block []posting) []posting {
	return slices.DeleteFunc(block, func(p posting) bool { return !w.x.cols.has(p.num) })
}

// addGroups scores the groups that have the term at hand.
func (w *work) addGroups(total scopeStats) {
	weight := positive(w.ranker.Rarity(uint64(len(w.hit)), total.groups))
	avg := average(total.groupLength, total.groups)
	for _, g := range w.hit {
		v := float64(weight * positive(w.ranker.Saturation(w.tf[g], w.x.cols.groups[g].length, avg)))
		w.tf[g] = 0
		if v <= 0 {
			continue
		}
		if w.groupScore[g] == 0 {
			w.groupTouch = append(w.groupTouch, g)
		}
		w.groupScore[g] += v
	}
	w.hit = w.hit[:0]
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
		sum += p.weight[t] * w.ranker.Most()
	}
	return sum * slack
}

// leaders are the best pages by what is known of them, without their neighbours.
func (w *work) leaders() top {
	first := w.top(w.heaps[0])
	for _, v := range w.touched {
		if s := w.plain(v); s >= first.floor() {
			if live, ok := w.resolve(v); ok {
				first.offer(Hit{Num: live, Score: s, Via: w.number(v)})
			}
		}
	}
	first.end()
	w.heaps[0] = first.hits
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
	better := w.top(w.heaps[1])
	defer better.end()
	for _, h := range first.hits {
		if h.Num == h.Via {
			h.Score += w.near(h.Num)
		}
		better.offer(h)
	}
	w.heaps[1] = better.hits
	return better.floor() / slack
}

// candidates marks the pages that can reach floor without common words of their
// own or with them: a page that was hit, and the pages that it lends to. Pages
// that only common words hit are added by addCommon. A page without neighbours
// lends to none, and is not resolved before its score says that it can win.
func (w *work) candidates(floor, extra float64) {
	window := 1 + 2*w.weights.Near1 + 2*w.weights.Near2
	for _, v := range w.touched {
		if slack*(w.own[v]*window+w.groupPart(v))+extra < floor {
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
		w.want(v)
		if live == w.number(v) && window > 1 {
			w.wantWindow(live)
		}
	}
}

func (w *work) want(v uint32) {
	if !w.wanted[v] {
		w.wanted[v] = true
		w.list = append(w.list, v)
	}
}

func (w *work) wantWindow(live uint64) {
	group, pos := w.corpus.Group(live)
	if group == 0 {
		return
	}
	for d := -2; d <= 2; d++ {
		if d == 0 {
			continue
		}
		if v, ok := w.at(group, pos+d); ok {
			w.want(v)
		}
	}
}

// addCommon adds a common word to the candidates, and to pages that can become
// one by common words and their group alone.
func (w *work) addCommon(t int, weight, least float64) error {
	c := w.x.cols
	return w.eachBlock(t, func(block []posting) {
		for _, p := range block {
			at := uint32(p.num - c.base)
			if !w.wanted[at] {
				if slack*w.groupPart(at) < least {
					continue
				}
				w.want(at)
			}
			w.common[at] += float64(weight * w.sat.of(p.tf, c.length[at]))
		}
	})
}

// selectBest scores the candidates in full. What is below floor is not offered:
// it would only pass through the heap. Nor is what the heap would refuse; of a
// page without neighbours that is known before it is resolved, and to resolve is
// most of the time of a search in a large scope.
func (w *work) selectBest(floor float64) {
	w.best = w.top(w.heaps[0])
	defer w.best.end()
	for _, v := range w.list {
		h := Hit{Own: w.own[v] + w.common[v], Group: w.groupPart(v)}
		if s := h.Own + h.Group; s < max(floor, w.best.floor()) && w.corpus.Alone(w.number(v)) {
			continue
		}
		live, ok := w.resolve(v)
		if !ok {
			continue
		}
		h.Num = live
		if live == w.number(v) {
			h.Near = w.near(live)
		} else {
			h.Via = w.number(v)
		}
		if h.Own == 0 && h.Near == 0 {
			continue // a group alone brings nobody in
		}
		h.Score = h.Own + h.Near + h.Group
		if h.Score > 0 && h.Score >= floor {
			w.best.offer(h)
		}
	}
}

func (w *work) number(v uint32) uint64 { return uint64(v) + w.x.cols.base }

// plain is what a page version scores by itself, without common words.
func (w *work) plain(v uint32) float64 { return w.own[v] + w.groupPart(v) }

func (w *work) groupPart(v uint32) float64 {
	if len(w.groupTouch) == 0 {
		return 0
	}
	return float64(w.weights.Group * w.groupScore[w.x.cols.group[v]])
}

func (w *work) resolve(v uint32) (uint64, bool) {
	live, ok := w.corpus.Resolve(w.number(v))
	return live, ok && w.x.cols.has(live)
}

// near is what the neighbours lend to a live page.
func (w *work) near(live uint64) float64 {
	if w.weights.Near1 == 0 && w.weights.Near2 == 0 {
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

func (w *work) ownAt(group uint64, pos int) float64 {
	v, ok := w.at(group, pos)
	if !ok || w.own[v] == 0 || !w.corpus.Shown(w.number(v)) { // most neighbours have none of the words
		return 0
	}
	return w.own[v]
}

func (w *work) at(group uint64, pos int) (uint32, bool) {
	live, ok := w.corpus.At(group, pos)
	if !ok || !w.x.cols.has(live) {
		return 0, false
	}
	return uint32(live - w.x.cols.base), true
}

// top keeps the best k hits of distinct pages in a heap, the worst on top.
type top struct {
	k    int
	hits []Hit
	base uint64   // page number of slot 0
	slot []uint32 // by page: its place in the heap + 1; 0 when it is not there
}

// top borrows the slots of the query; end gives them back, all zero. Its hits
// take the place of those in buf.
func (w *work) top(buf []Hit) top {
	return top{k: w.k, hits: buf[:0], base: w.x.cols.base, slot: w.slot}
}

func (t *top) end() {
	for i := range t.hits {
		t.place(i, 0)
	}
}

func (t *top) place(i int, slot uint32) { t.slot[t.hits[i].Num-t.base] = slot }

// floor is the score that a hit must have to get in.
func (t *top) floor() float64 {
	if len(t.hits) < t.k {
		return math.Inf(-1)
	}
	return t.hits[0].Score
}

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
func (t *top) offer(n Hit) {
	if n.Score < t.floor() {
		return
	}
	if at := t.slot[n.Num-t.base]; at > 0 {
		if i := int(at - 1); worse(&t.hits[i], &n) {
			t.hits[i] = n
			t.down(i)
		}
		return
	}
	if len(t.hits) < t.k {
		t.hits = append(t.hits, n)
		i := len(t.hits) - 1
		t.place(i, uint32(i+1))
		t.up(i)
		return
	}
	if worse(&t.hits[0], &n) {
		t.place(0, 0)
		t.hits[0] = n
		t.place(0, 1)
		t.down(0)
	}
}

func (t *top) swap(i, j int) {
	t.hits[i], t.hits[j] = t.hits[j], t.hits[i]
	t.place(i, uint32(i+1))
	t.place(j, uint32(j+1))
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

// sorted returns the hits, best first.
func (t *top) sorted() []Hit {
	slices.SortFunc(t.hits, func(a, b Hit) int {
		if worse(&b, &a) {
			return -1
		}
		return 1
	})
	return t.hits
}
