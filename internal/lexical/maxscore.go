package lexical

// A page that cannot be among the best K is passed over: words that are still to come can add at most so much to it. What a
// word adds is bounded by its weight and most.

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
