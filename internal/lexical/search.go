package lexical

import (
	"cmp"
	"math"
	"slices"
)

// How a search scores few pages in full:
//
//	gather       the lists of all terms, and the integers behind the scores
//	hits         words that are not common into own, rarest first; after each word the groups that have it
//	floor        a score that the K-th best page has at least
//	candidates   pages that can still reach the floor, by themselves or by what neighbours and group add
//	addCommon    common words, for the candidates, and for pages that can become one by those and their group
//	selectBest   the full scores of the candidates
//	rescore      turns only: the second stage (recipe.go), over the best of the first
//	spread       turns only, where asked for: fewer of one passage (course.go)
//
// Invariant: a page that is passed over scores less than K others. A bound is the known score of a
// page plus the most that the rest can add, times slack for sums in another order. So the result
// does not depend on what was passed over, nor on which segment or part of the tail has the
// postings.
//
// Cost: the arrays of work have a place for each page version, so adding to a score is one write;
// touched and list name the places in use, and release wipes those alone.

// Query asks for the best K pages of a chain of scopes.
type Query struct {
	Scopes  []uint32
	Terms   []string // from Analyzer.Terms
	Dates   Dates    // from DatesOf
	K       int
	Weights Weights // zero: no neighbours, no groups, turns are pages like others; see DefaultWeights
	// Only has a bit for each page number, from 0, that the search looks at; nil: all. A page
	// without its bit must be one that Corpus.Resolve refuses, so Only never changes the result. It
	// makes a search for a few pages among many cheap.
	Only []uint64
	// Typed has the words of the question, and receives how they were read where no page has them; nil: they are searched
	// for as they are.
	Typed *Typed
}

// Hit is a live page with the parts of its score, which is their sum.
type Hit struct {
	Num              uint64
	Score            float64
	Own, Near, Group float64

	// The other parts of a turn's score: for its speaker, its date, the first person, and irregular
	// forms of the words. A page that is no turn gets Level instead.
	Speaker, Date, First, Forms, Level float64

	Via uint64 // the superseded version that was hit, 0: the page itself

	// Has has a bit for each term of the query that the page has itself, the last one for all from the 32nd on; 0: not known.
	Has uint32
}

// bitOf is the bit of a term in Has.
func bitOf(term int) uint32 { return 1 << min(term, 31) }

// Search returns the best K pages, best first; of equal scores the greater
// number, which is the later page, comes first. Errors wrap ErrCorrupt.
//
// A page scores
//
//	own(i) + near1·(s(i−1) + s(i+1)) + near2·(s(i−2) + s(i+2)) + group·BM25(group)
//
// where i is its position in its group, own is the BM25 of its words, s the part of own that comes
// from words that are not common, and the group is scored as one text of all its page versions. The
// score of a group adds no page: a page is a hit only if it, or a neighbour, has a word of the
// query. A hit on a superseded version adds to its successor what that version scores by its own
// words and its group; the successor keeps the greatest, and nothing is summed over versions.
//
// With Weights.Turns only turns get a score from neighbours and groups, and they are scored by the
// recipe in recipe.go. Pages of documents get none: with it, the pages of long documents came
// before all short ones.
//
// A common word (see plan) adds to the score of its page, but not of neighbours: its
// postings are read and not collected, which keeps large scopes fast.
func (x *Index) Search(rows Rows, c Corpus, q Query) ([]Hit, error) {
	if q.K <= 0 || len(q.Terms) == 0 {
		return nil, nil
	}
	w := x.borrow()
	defer x.release(w)
	w.corpus, w.k, w.weights, w.only = c, q.K, q.Weights.clean(), q.Only
	if err := w.run(rows, q); err != nil {
		return nil, err
	}
	return w.best.sorted(q.K), nil
}

// plan orders the terms of a query and tells which are common. It follows from counts alone, so the
// same question has the same plan wherever its postings lie, and its sums are formed in the same
// order.
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
// postings lie. The rarest word of a query is never common, nor is the rarest that
// is no name.
func newPlan(st Stats, commonPages uint64) plan {
	p := plan{weight: make([]float64, len(st.DF))}
	for t, df := range st.DF {
		if df > 0 {
			p.order = append(p.order, t)
			p.weight[t] = rarity(df, st.Pages)
		}
	}
	slices.SortStableFunc(p.order, func(a, b int) int { return cmp.Compare(st.DF[a], st.DF[b]) })
	names := true // all so far
	for i, t := range p.order {
		if names || st.DF[t] <= max(st.Pages/commonShare, commonPages) {
			p.strong = i + 1
		}
		if names || st.DF[t] <= max(st.Pages/commonShare, groupPages) {
			p.group = i + 1
		}
		names = names && t < len(st.Names) && st.Names[t]
	}
	p.group = min(p.group, p.strong)
	return p
}

// run collects the scores of words that are not common, finds the pages that can still be among the
// best, reads the common words for those, and scores them in full.
func (w *work) run(rows Rows, q Query) error {
	scopes := distinct(q.Scopes)
	total := w.x.cols.total(scopes)
	if w.weights.Turns && total.turns == 0 {
		w.weights.Near1, w.weights.Near2, w.weights.Group = 0, 0, 0
	}
	if w.turns = w.weights.Turns && total.turns > 0; w.turns {
		w.k = max(w.k, w.x.stageDepth)
	}
	st, forms, err := w.ask(rows, scopes, total, q)
	if err != nil {
		return err
	}
	if q.Typed != nil && slices.Contains(st.DF[:len(q.Terms)], 0) {
		if q, err = w.read(rows, scopes, q, st); err != nil {
			return err
		}
		if q.Typed.Read != nil {
			w.forget()
			if st, forms, err = w.ask(rows, scopes, total, q); err != nil {
				return err
			}
		}
	}
	alone := w.standAlone()
	w.prepare(st, alone)
	if err := w.addForms(st, len(q.Terms), forms); err != nil {
		return err
	}
	st.DF, st.Names = st.DF[:len(q.Terms)], w.name
	plan := newPlan(st, w.x.commonPages)
	if alone {
		err := w.selectAlone(plan)
		w.best.end()
		return err
	}
	floor, err := w.hits(plan, st, total)
	if err != nil {
		return err
	}
	w.selectBest(floor)
	if w.turns && (w.weights.Fill || w.spoken > 0 && w.name == nil) {
		w.fillUp(scopes)
	}
	w.best.end()
	if w.turns {
		w.rescore()
		if w.weights.Spread {
			w.spread()
		}
	}
	return nil
}

// ask understands a question, and finds the lists of its terms and of their irregular forms; forms has the term of each form.
func (w *work) ask(rows Rows, scopes []uint32, total scopeStats, q Query) (st Stats, forms []int, err error) {
	terms := q.Terms
	if w.turns {
		w.asking = w.x.cols.understand(scopes, total, q.Terms, q.Dates)
		terms, forms = w.alsoForms(q.Terms)
	}
	st, err = w.gather(rows, scopes, terms)
	return st, forms, err
}

// prepare makes the dense arrays long enough for this question; alone: those that standAlone needs.
func (w *work) prepare(st Stats, alone bool) {
	c := w.x.cols
	pages, groups := len(c.scope), len(c.groups)
	w.slot = grown(w.slot, pages)
	if average := st.averages(); w.sat.average != average {
		w.sat = saturations{average: average}
	}
	if alone {
		return
	}
	w.own, w.common, w.wanted = grown(w.own, pages), grown(w.common, pages), grown(w.wanted, pages)
	w.seen = grown(w.seen, pages/64+1)
	w.tf, w.groupScore = grown(w.tf, groups), grown(w.groupScore, groups)
	if w.turns {
		w.where, w.forms, w.form = grown(w.where, pages), grown(w.forms, pages), grown(w.form, pages)
		w.speaks = grown(w.speaks, len(c.speakers))
		for _, n := range w.named {
			w.speaks[n] = true
		}
	}
}

// word is a term of the query at hand.
type word struct {
	term   int
	weight float64
	name   bool // of a speaker: no word of turns
	lender int  // -1: none
}

// hits collects what can still be among the best, and returns a score that the last one has at
// least. The bar is computed only where it can pay: when the next word has more pages than were hit
// so far, and most of the text is in no group. It costs a pass over the touched pages.
func (w *work) hits(p plan, st Stats, total scopeStats) (floor float64, err error) {
	extra := w.most(p, p.order[p.strong:])      // of the common words
	alone := total.groupLength < total.length/2 // otherwise looking for the bar is in vain
	w.groups = w.weights.Group > 0 && total.groups > 0
	lender := 0
	for i, t := range p.order[:p.strong] {
		grouped := i < p.group && w.groups
		threshold := math.Inf(-1)
		if alone && st.DF[t] > uint64(len(w.touched)) {
			best := w.leaders()
			threshold = best.floor()/slack - w.most(p, p.order[i+1:p.strong]) - extra - w.spoken
		}
		x := word{term: t, weight: p.weight[t], name: w.isName(t), lender: -1}
		if w.turns && !x.name && lender < lenders {
			w.lender[lender], x.lender = x.weight, lender
			lender++
		}
		if err := w.collect(x, threshold, grouped); err != nil {
			return 0, err
		}
		if grouped {
			w.addGroups(total)
		}
	}
	floor = w.floor()
	w.candidates(floor, extra)
	for _, t := range p.order[p.strong:] {
		if err := w.addCommon(word{term: t, weight: p.weight[t], name: w.isName(t)}, floor-extra); err != nil {
			return 0, err
		}
	}
	return floor, nil
}

// collect adds a word to own and, when grouped, counts it in its groups. A page that has none of
// the rarer words, and no neighbours to lend to, is passed over unless it gets more than
// threshold from this one: the remaining words could not bring it among the best.
func (w *work) collect(x word, threshold float64, grouped bool) error {
	return w.eachBlock(x.term, func(block []posting) {
		if x.name {
			block = w.noTurns(block)
		}
		w.addOwn(block, x.weight, threshold)
		if x.lender >= 0 {
			w.lend(block, x.lender)
		}
		if grouped {
			w.addTF(block)
		}
	})
}

// noTurns takes turns out of a block: a word that is part of the name of a speaker is no word of
// his turns.
func (w *work) noTurns(block []posting) []posting {
	c := w.x.cols
	return slices.DeleteFunc(block, func(p posting) bool { return c.shape[p.num-c.base].turn() })
}

// addOwn adds the word at hand to the pages that have it; see collect for those that it passes
// over.
func (w *work) addOwn(block []posting, weight, threshold float64) {
	shape, own, seen := w.x.cols.shape, w.own, w.seen
	hopeless := weight*most <= threshold
	for _, p := range block {
		at := p.num - w.x.cols.base
		if w.only != nil && !w.may(p.num) {
			continue
		}
		bit := uint64(1) << (at % 64)
		if hopeless && seen[at/64]&bit == 0 && w.alone(p.num) {
			continue
		}
		v := float64(weight * w.sat.of(p.tf, shape[at]))
		if v <= 0 {
			continue
		}
		if seen[at/64]&bit == 0 {
			if v <= threshold && w.alone(p.num) {
				continue
			}
			seen[at/64] |= bit
			w.touched = append(w.touched, uint32(at))
		}
		own[at] += v
	}
}

// may reports whether the query may look at a page.
func (w *work) may(num uint64) bool {
	return num/64 < uint64(len(w.only)) && w.only[num/64]&(1<<(num%64)) != 0
}

// lend notes where a lender is.
func (w *work) lend(block []posting, lender int) {
	where, base, shift := w.where, w.x.cols.base, lendBits*lender
	for _, p := range block {
		if w.only == nil || w.may(p.num) { // otherwise it may stay out of touched, and would not be wiped
			where[p.num-base] |= min(uint64(p.tf), lendMost) << shift
		}
	}
}

// alone reports that a page version gets nothing from others and lends nothing. Such a page may be
// passed over by its own score; any other could raise the score of a neighbour or of its group.
func (w *work) alone(num uint64) bool {
	return w.corpus.Alone(num) && (!w.groups || w.x.cols.group[num-w.x.cols.base] == 0)
}

// addTF counts the word at hand in the groups of the pages that have it.
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

// addGroups scores the groups that have the term at hand.
func (w *work) addGroups(total scopeStats) {
	weight := rarity(uint64(len(w.hit)), total.groups)
	avg := average(total.groupLength, total.groups)
	for _, g := range w.hit {
		s := &w.x.cols.groups[g]
		formula := ofPages
		if w.turns && 2*s.turns > s.pages {
			formula = ofTurns
		}
		v := float64(weight * formula.saturation(w.tf[g], s.length, avg))
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

// addCommon adds a common word to the candidates, and to pages that can become
// one by common words and their group alone. least is the least that group and bonus of such a page must add; the common words are allowed for in it already.
func (w *work) addCommon(x word, least float64) error {
	c := w.x.cols
	return w.eachBlock(x.term, func(block []posting) {
		if x.name {
			block = w.noTurns(block)
		}
		for _, p := range block {
			at := uint32(p.num - c.base)
			if !w.wanted[at] {
				if w.only != nil && !w.may(p.num) {
					continue
				}
				if slack*(w.groupPart(at)+w.bonus(at)) < least {
					continue
				}
				w.want(at)
			}
			w.common[at] += float64(x.weight * w.sat.of(p.tf, c.shape[at]))
		}
	})
}

// selectBest scores the candidates in full. Pages below floor are not offered, because the heap
// would only drop them later. Pages that the heap would refuse are skipped too. For a page without
// neighbours this is known before it is resolved, and resolving takes most of the time of a search
// in a large scope.
func (w *work) selectBest(floor float64) {
	w.best = w.top(&w.heaps[0])
	for _, v := range w.list {
		h := Hit{Own: w.own[v] + w.common[v], Group: w.groupPart(v), Speaker: w.bonus(v), Forms: w.formPart(v)}
		s := h.Own + h.Group + h.Forms + h.Speaker
		if s < max(floor, w.best.floor()) && w.corpus.Alone(w.number(v)) {
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
		if h.Own == 0 && h.Near == 0 && h.Forms == 0 {
			continue // a group alone adds no page
		}
		h.Score = h.Own + h.Near + h.Group + h.Forms + h.Speaker
		if h.Score > 0 && h.Score >= floor {
			w.best.offer(&h)
		}
	}
}

// Ties are broken by page number, the greater first, so the best k do not depend on the order in
// which pages are offered.

// top keeps the best k hits of distinct pages. They stay where they came to; a heap of their places
// has the worst on top, for hits are large and a heap moves what it holds many times.
//
// Invariant: slot and heap agree, and every other slot is 0. slot is the query's, as long as the
// columns. The tops of a query share it: one ends before the next begins, or they have no page in
// common (fillUp). end returns it all zero.
type top struct {
	k    int
	hits []Hit
	heap []uint32 // places in hits
	base uint64   // page number of slot 0
	slot []uint32 // by page: where it stands in the heap + 1; 0 when it is not there
}

// top borrows the slots of the query; end returns them, all zero. Its hits
// take the place of those in buf.
func (w *work) top(buf *top) top {
	return top{k: w.k, hits: buf.hits[:0], heap: buf.heap[:0], base: w.x.cols.base, slot: w.slot}
}

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

// worse orders hits so that one of any two is worse. It is a total order, so
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
