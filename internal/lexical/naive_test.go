package lexical

import "slices"

// naive scores every page by the definition in the comment of Search, without an
// index: it walks all documents for every word.
type naive struct {
	*world
	docs    []Doc // not removed
	common  uint64
	q       Query
	plan    plan
	stats   Stats
	groups  map[groupKey]float64
	strong  map[uint64]float64 // own from words that are not common
	own     map[uint64]float64
	visible map[uint32]bool
	asking  asking
	depth   int
}

func newNaive(w *world, removed map[uint64]bool, q Query, common uint64) *naive {
	n := &naive{world: w, q: q, groups: map[groupKey]float64{}, strong: map[uint64]float64{}, own: map[uint64]float64{}, visible: map[uint32]bool{}}
	for _, s := range q.Scopes {
		n.visible[s] = true
	}
	for num := uint64(1); num <= uint64(len(w.docs)); num++ {
		if d := w.docs[num]; !removed[num] && n.visible[d.Scope] {
			n.docs = append(n.docs, d)
		}
	}
	n.count()
	if n.common = common; q.Weights.Turns && n.stats.Turns > 0 {
		n.ask()
	}
	st := n.stats
	st.Names = n.asking.name
	n.plan = newPlan(st, common)
	n.scoreGroups()
	n.scorePages()
	return n
}

func tf(d Doc, term string) uint32 {
	for _, c := range d.Analysis.Terms {
		if c.Term == term {
			return c.N
		}
	}
	return 0
}

func (n *naive) count() {
	n.stats.DF = make([]uint64, len(n.q.Terms))
	for _, d := range n.docs {
		n.stats.Pages++
		n.stats.Length += uint64(d.Analysis.Length)
		if d.Turn != nil {
			n.stats.Turns++
			n.stats.TurnLength += uint64(d.Analysis.Length)
		}
		for i, t := range n.q.Terms {
			if tf(d, t) > 0 {
				n.stats.DF[i]++
			}
		}
	}
}

func (n *naive) scoreGroups() {
	length := map[groupKey]uint64{}
	turns := map[groupKey]int{} // less those that are none
	total := uint64(0)
	for _, d := range n.docs {
		if d.Group != 0 {
			if turns[groupKey{d.Scope, d.Group}]--; d.Turn != nil {
				turns[groupKey{d.Scope, d.Group}] += 2
			}
			length[groupKey{d.Scope, d.Group}] += uint64(d.Analysis.Length)
			total += uint64(d.Analysis.Length)
		}
	}
	for _, t := range n.plan.order[:n.plan.group] {
		count := map[groupKey]uint64{}
		for _, d := range n.docs {
			if c := tf(d, n.q.Terms[t]); c > 0 && d.Group != 0 && (d.Turn == nil || !n.asking.isName(t)) {
				count[groupKey{d.Scope, d.Group}] += uint64(c)
			}
		}
		weight := rarity(uint64(len(count)), uint64(len(length)))
		for g, c := range count {
			formula := ofPages
			if n.asks() && turns[g] > 0 {
				formula = ofTurns
			}
			n.groups[g] += float64(weight * formula.saturation(c, length[g], average(total, uint64(len(length)))))
		}
	}
}

func (n *naive) scorePages() {
	for _, d := range n.docs {
		part := [2]float64{}
		for i, t := range n.plan.order {
			if c := tf(d, n.q.Terms[t]); c > 0 && (d.Turn == nil || !n.asking.isName(t)) {
				v := n.word(d, n.plan.weight[t], c)
				if i < n.plan.strong {
					part[0] += v
				} else {
					part[1] += v
				}
			}
		}
		n.strong[d.Num], n.own[d.Num] = part[0], part[0]+part[1]
	}
}

func (n *naive) hits() []Hit {
	if n.asks() {
		return n.turnHits()
	}
	var all []Hit
	for _, d := range n.docs {
		live, ok := n.Resolve(d.Num)
		if !ok {
			continue
		}
		h := Hit{Num: live, Own: n.own[d.Num]}
		if d.Group != 0 && n.lentTo(d) {
			h.Group = float64(n.q.Weights.Group * n.groups[groupKey{d.Scope, d.Group}])
		}
		if live == d.Num {
			h.Near = n.near(live)
		} else {
			h.Via = d.Num
		}
		if h.Own == 0 && h.Near == 0 {
			continue // a group alone brings nobody in
		}
		h.Score = h.Own + h.Near + h.Group
		all = append(all, h)
	}
	return n.best(all, n.q.K)
}

// lentTo: where there are weights for turns, only they get something from others.
func (n *naive) lentTo(d Doc) bool { return !n.q.Weights.Turns || d.Turn != nil }

func (n *naive) near(live uint64) float64 {
	if !n.lentTo(n.world.docs[live]) {
		return 0
	}
	g, pos := n.Group(live)
	if g == 0 {
		return 0
	}
	at := func(p int) float64 {
		if j, ok := n.At(g, p); ok && n.Shown(j) {
			return n.strong[j]
		}
		return 0
	}
	one, two := at(pos-1)+at(pos+1), at(pos-2)+at(pos+2)
	return float64(n.q.Weights.Near1*one) + float64(n.q.Weights.Near2*two)
}

func (n *naive) best(all []Hit, k int) []Hit {
	slices.SortFunc(all, func(a, b Hit) int {
		if worse(&b, &a) {
			return -1
		}
		return 1
	})
	seen := map[uint64]bool{}
	all = slices.DeleteFunc(all, func(h Hit) bool {
		again := seen[h.Num]
		seen[h.Num] = true
		return again
	})
	return all[:min(len(all), k)]
}
