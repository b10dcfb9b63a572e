package lexical

// number is the page number of a place in the columns.
func (w *work) number(v uint32) uint64 { return uint64(v) + w.x.cols.base }

// plain is the score of a page version by itself, without common words. It is a lower bound of the
// score in the first stage: common words and neighbours only add.
func (w *work) plain(v uint32) float64 {
	return w.own[v] + w.groupPart(v) + w.formPart(v) + w.bonus(v)
}

func (w *work) groupPart(v uint32) float64 { return float64(w.weights.Group * w.groupOf(v)) }

// groupMost is the groupPart of the pages in the group of v that get the most for it.
func (w *work) groupMost(v uint32) float64 {
	return float64(w.weights.Group * w.groupScore[w.x.cols.groupOf(int(v))])
}

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

// formPart is what irregular forms of the words add to a page; see addForms.
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

// ownAt is what the page at a position of a group scores by words that are not common; 0 if the
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
