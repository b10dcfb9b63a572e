package lexical

import (
	"math"
	"slices"
)

// Turns of a conversation are scored in two stages. A turn is short and says little by itself.
// Whether it answers a question depends also on its speaker and date, on the turns around it and on
// its conversation. The first stage keeps the stageDepth best by
//
//	own + .45·(±1) + .4·(±2) + 1.2·group + spoken + forms
//
// and the second orders them by
//
//	(.4·own + cov + .7·group + spoken + 8·date + first + .8·forms) / 1.4
//
//	own     BM25 of the words of the question in what was said, but for names of speakers
//	cov     Σ over the words: the most of c(i), .6·c(i±1), .5·c(i±2), .35·c(i±3), where c is the score of a word there
//	group   BM25 of the conversation as one text
//	spoken  2.5 + 3.6·ln(turns / turns of the named speakers), if its speaker is named
//	date    1 in a month that is named, .3 if only the month matches and the year does not
//	first   1 if its author speaks in the first person, + 4 for a standing instruction, + 2 for a preference (traits.go)
//	forms   Σ over the words: the most that an irregular form of it scores (bought for buy)
//
// The score of a turn, all its parts, is divided by
//
//	√max(1, √(L·M) / 32)
//
// where L is its length in terms and M the mean length of its speaker's turns. A long answer of an assistant has many words
// of any question. Chosen by words alone, a few such answers would take the budget of many short turns that say what was
// asked for. The mean holds back who always speaks at length, and hardly touches the one long turn of somebody brief. No turn
// of people who chat is that long.
//
// A word counts once, at the place where it scores most: cov looks for different words around a
// turn, not for repetitions of one. The division makes a turn without context score like its words,
// as other pages do. A page that is no turn gets the full score for speaker and month in both
// stages. So turns compete with each other by speaker, and with other pages by their words.
const (
	stageDepth = 500

	spokenBase = 2.5
	spokenRare = 3.6
	otherYear  = .3

	ofOwn         = .4
	ofGroup       = .7
	ofDate        = 8.
	ofFirst       = 1.
	ofInstruction = 4.
	ofPreference  = 2.
	ofForms       = .8
	brief         = 32. // terms, about a hundred tokens
	unit          = ofOwn + 1
)

// lends has the weights of a word one, two and three turns away.
var lends = [...]float64{.6, .5, .35}

// lenders is the number of words of a question, the rarest, that lend to neighbours in cov: where a page has
// them is kept in four bits each. Longer questions have rare words enough.
const (
	lenders  = 16
	lendBits = 64 / lenders
	lendMost = 1<<lendBits - 1
)

// bonus is the score of a page for its speaker in the first stage.
func (w *work) bonus(v uint32) float64 {
	if w.spoken == 0 || w.x.cols.shape[v].turn() && !w.speaks[w.x.cols.speaker[v]] {
		return 0
	}
	return w.spoken
}

// levelOf is the second-stage score, for speaker and date, of a page that is no turn.
func levelOf(spoken float64, dates Dates) float64 {
	if dates.Months == 0 {
		return spoken / unit
	}
	return (spoken + ofDate) / unit
}

// addForms scores the irregular forms of words in turns. It is done before anything else, so that a
// page which has one is never passed over.
func (w *work) addForms(st Stats, first int, of []int) error {
	for i := 0; i < len(of); {
		next := i + 1
		for next < len(of) && of[next] == of[i] {
			next++
		}
		for j := first + i; j < first+next; j++ {
			if df := st.DF[j]; df > 0 && df <= max(st.Pages/commonShare, w.x.commonPages) {
				if err := w.addForm(j, rarity(df, st.Pages)); err != nil {
					return err
				}
			}
		}
		wipe(w.form, w.formed)
		w.formed = w.formed[:0]
		i = next
	}
	return nil
}

// addForm takes a form where it scores more than other forms of its word.
func (w *work) addForm(t int, weight float64) error {
	c := w.x.cols
	return w.eachBlock(t, func(block []posting) {
		for _, p := range block {
			at := uint32(p.num - c.base)
			if !c.shape[at].turn() {
				continue
			}
			v := float64(weight * w.sat.of(p.tf, c.shape[at]))
			if v <= w.form[at] {
				continue
			}
			w.touch(at)
			w.forms[at] += v - w.form[at]
			w.mostForms = max(w.mostForms, w.forms[at])
			w.form[at] = v
			w.formed = append(w.formed, at)
		}
	})
}

// touch remembers that a page was hit.
func (w *work) touch(at uint32) {
	if bit := uint64(1) << (at % 64); w.seen[at/64]&bit == 0 {
		w.seen[at/64] |= bit
		w.touched = append(w.touched, at)
	}
}

// fillUp adds turns without a word of the question where fewer than asked for have one: turns of
// the conversations that contain the words, of the named speakers, and of the month.
func (w *work) fillUp(scopes []uint32) {
	free := w.k - len(w.best.hits)
	if free <= 0 {
		return
	}
	more := w.top(&w.heaps[1])
	more.k = free
	for _, g := range w.groupTouch {
		w.fillFrom(&more, &w.x.cols.groups[g])
	}
	w.fillAll(&more, scopes)
	for i := range more.hits {
		w.best.heap = append(w.best.heap, uint32(len(w.best.hits)))
		w.best.hits = append(w.best.hits, more.hits[i])
	}
	w.heaps[1] = more
}

// fillSteps bounds how many turns of one conversation are looked at, as a multiple of the hits that
// are wanted. In a huge conversation only the newest turns are looked at.
const fillSteps = 8

// fillFrom adds turns of one conversation, newest first.
func (w *work) fillFrom(more *top, g *groupStats) {
	if g.turns == 0 {
		return
	}
	left := fillSteps * more.k
	for pos := int(g.pages) - 1; pos >= 0 && left > 0; pos-- {
		if v, ok := w.at(g.id, pos); ok {
			left--
			w.fill(more, v)
		}
	}
}

// fillAll adds turns of the named speakers and of the month, newest first. It walks back over all
// pages of the index, and ends once each that it keeps has the full score for speaker and date.
func (w *work) fillAll(more *top, scopes []uint32) {
	c := w.x.cols
	most := w.spoken
	if w.dates.Months != 0 {
		most += ofDate
	}
	for at := len(c.scope) - 1; most > 0 && at >= 0 && more.floor() < most; at-- {
		v := uint32(at)
		if c.shape[at].turn() && (w.spoken > 0 && w.speaks[c.speaker[at]] || w.dates.match(c.said[at].month()) > 0) &&
			slices.Contains(scopes, c.scopes[c.scope[at]].id) {
			w.fill(more, v)
		}
	}
}

// fill offers a turn that no word found.
func (w *work) fill(more *top, v uint32) {
	num := w.number(v)
	if !w.x.cols.shape[v].turn() || w.slot[num-more.base] != 0 {
		return
	}
	h := Hit{Num: num, Group: w.groupPart(v), Speaker: w.bonus(v), Date: ofDate * w.dates.match(w.x.cols.said[v].month())}
	if h.Score = h.Group + h.Speaker + h.Date; h.Score <= 0 || h.Score < more.floor() {
		return
	}
	if live, ok := w.resolve(v); ok && live == num {
		more.offer(&h)
	}
}

// rescore applies the second stage to the turns that the first kept.
func (w *work) rescore() {
	for i := range w.best.hits {
		h := &w.best.hits[i]
		v := uint32(h.Num - w.x.cols.base)
		if h.Via != 0 {
			v = uint32(h.Via - w.x.cols.base)
		}
		if !w.x.cols.shape[v].turn() {
			h.Speaker, h.Level = 0, levelOf(w.spoken, w.dates)
			h.Score = h.Own + h.Near + h.Group + h.Level
			continue
		}
		h.Near = 0
		if h.Via == 0 {
			h.Near = w.lent(h.Num) / unit
		}
		h.Group = ofGroup * w.groupOf(v) / unit
		said := w.x.cols.said[v]
		h.turn(w.bonus(v), w.dates.match(said.month()), said.traits(), h.Forms)
		h.divide(w.x.cols.longer(v))
	}
}

// turn fills in the parts of a turn's score that do not come from words.
func (h *Hit) turn(spoken, date float64, traits Traits, forms float64) {
	h.Speaker, h.Date, h.First, h.Forms = spoken/unit, float64(ofDate*date)/unit, traits.score()/unit, float64(ofForms*forms)/unit
	h.Score = h.Own + h.Near + h.Group + h.Speaker + h.Date + h.First + h.Forms
}

// longer returns the divisor of a turn's score for its length. A speaker who is not known speaks always as long as here.
func (c *columns) longer(v uint32) float64 {
	length := float64(c.shape[v].length())
	mean := length
	if s := &c.speakers[c.speaker[v]]; s.turns > 0 {
		mean = float64(s.length) / float64(s.turns)
	}
	return longer(length, mean)
}

func longer(length, mean float64) float64 {
	return math.Sqrt(max(1, math.Sqrt(length*mean)/brief))
}

// divide divides the score of a turn, by parts.
func (h *Hit) divide(by float64) {
	for _, part := range []*float64{&h.Own, &h.Near, &h.Group, &h.Speaker, &h.Date, &h.First, &h.Forms} {
		*part /= by
	}
	h.Score = h.Own + h.Near + h.Group + h.Speaker + h.Date + h.First + h.Forms
}

// lent returns the score that neighbours add to the words of a turn: cov without what its own words score. The
// window reaches three turns to either side. Turns that the question may not see lend nothing.
func (w *work) lent(live uint64) float64 {
	group, pos := w.corpus.Group(live)
	if group == 0 {
		return 0
	}
	var best [lenders]float64
	any := uint64(0)
	for d, share := range lends {
		for _, at := range [2]int{pos - d - 1, pos + d + 1} {
			v, ok := w.at(group, at)
			if !ok || w.where[v] == 0 || !w.corpus.Shown(w.number(v)) {
				continue
			}
			any |= w.where[v]
			for s, found := 0, w.where[v]; found != 0; s, found = s+1, found>>lendBits {
				if n := uint32(found & lendMost); n > 0 {
					best[s] = max(best[s], float64(share*w.word(s, n, v)))
				}
			}
		}
	}
	sum, v := 0.0, uint32(live-w.x.cols.base)
	for s, own := 0, w.where[v]; any != 0; s, any, own = s+1, any>>lendBits, own>>lendBits {
		mine := 0.0
		if n := uint32(own & lendMost); n > 0 {
			mine = w.word(s, n, v)
		}
		sum += max(0, best[s]-mine)
	}
	return sum
}

// word returns the score of n occurrences of a lender on a page.
func (w *work) word(lender int, n uint32, v uint32) float64 {
	return float64(w.lender[lender] * w.sat.of(n, w.x.cols.shape[v]))
}
