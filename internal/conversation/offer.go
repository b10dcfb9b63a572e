package conversation

import (
	"cmp"
	"math"
	"slices"

	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
)

const (
	NewestShare = 2 // the newest turn may take half of the budget before others compete
	ReturnShare = 4 // turns that left the window and are found may take a quarter
	TurnHeader  = 4 // the fewest tokens of a header; bounds how many turns are looked at

	OfferedShare = 8 // OfferedSize counts a turn as at most an eighth of the budget

	MaxTurnScore = 4 // of a turn that no pass has judged, or that is pinned; no page is worth more than 1
)

// TurnIn describes a turn that may enter a context.
type TurnIn struct {
	Block
	Index   int
	Group   string // its unit, when that has several pages
	Level   session.Level
	Why     string
	Size    int
	Pinned  bool
	Newest  bool
	Asks    bool // the newest user turn: a context without it would answer nothing
	Managed bool // pass, window or pin decide; else it competes
	Found   bool // the question found its unit, which no pass has left out: it enters wherever it is
	Score   float64
	Late    float64 // 0 to 1: the share of the budget that the turns before it in order may take
	Recency float64
	Similar float64
	masked  bool
	Form    string // id of the derived page that stands for it
	Pages   []int  // the pages of it that enter, from 0; nil: all
}

// Question is a context's request to a session.
type Question struct {
	Budget int               // tokens
	Room   int               // tokens of it that are not kept free
	Kinds  []store.Kind      // of the turns that may enter; none: all
	Now    int64             // microseconds
	Masked []string          // ids of turns that a transaction hides
	NoRoom string            // the reason given for turns of the window that exceed the budget
	Hidden string            // the reason given for masked turns
	Hits   []store.Candidate // what the index found; a hit in the session brings in its whole unit
}

// Offer is the answer to a Question: the turns that may enter, in the order of the conversation, with those that are left
// out and named, and the number of all others by reason.
type Offer struct {
	Turns []TurnIn
	More  map[OutReason]int // turns that are not among them
	Len   int               // turns of the session
	Seq   int64             // of the newest

	managed        bool
	q              Question
	scope, session string
	placeByPage    map[uint64]int // place in Turns of a turn that was found, by the number of the page
	found          map[uint64]*store.Candidate
}

// Offer answers a question. It looks at the turns that fit into the budget, those that were found, and a few more to be
// named. It looks neither at the history nor at the whole window.
func (c *Turns) Offer(q Question) (o Offer) {
	o.q, o.scope, o.session = q, c.Scope, c.ID
	if len(c.Blocks) == 0 {
		return o
	}
	from := c.NewestFrom(q.Budget)
	o.managed = c.Managed()
	last := &c.Blocks[len(c.Blocks)-1]
	o.Len, o.Seq = len(c.Blocks), last.Seq
	at, found := slices.Clone(c.Units[last.Unit].Members), make(map[uint64]int)
	for i := range q.Hits {
		h := &q.Hits[i]
		if i := c.Find(h.Ref.ID); i >= 0 && h.Ref.Scope == c.Scope && slices.Contains(c.Blocks[i].Nums, h.Key.Num) {
			at, found[h.Key.Num] = append(at, c.Units[c.Blocks[i].Unit].Members...), i
		}
	}
	for i := from; i < len(c.Blocks); i++ {
		at = append(at, i)
	}
	asks := len(c.Blocks) - 1
	for asks >= 0 && c.Blocks[asks].Role != "user" {
		asks--
	}
	if asks >= 0 && asks < from {
		at = append(at, asks)
	}
	newest := func(i int) bool {
		u := c.Blocks[i].Unit
		return u == last.Unit || c.Units[u].Members[0] >= from
	}
	answers := c.answers(&q, found)
	if o.managed {
		enters := func(i int) bool { return newest(i) || i == asks }
		at = c.addWindow(at, &q, enters, answers)
		o.More = c.Outside.counts()
		for kind, n := range c.ranked.kinds {
			o.More[OutReason{kind, q.NoRoom}] = n
		}
	}
	slices.Sort(at)
	at = slices.Compact(at)
	o.Turns = make([]TurnIn, len(at))
	for k, i := range at {
		t := &o.Turns[k]
		c.Describe(t, i)
		t.Managed, t.masked = o.managed, slices.Contains(q.Masked, t.ID)
		t.Newest = t.Level != session.Cold && newest(i)
		t.Asks = t.Level != session.Cold && i == asks
		if t.Level != session.Cold {
			o.more(t.Kind, q.NoRoom)
		} else if t.Expires == 0 {
			o.more(t.Kind, t.Why)
		}
		if o.managed && answers[t.Unit] && !t.Newest && !t.Pinned {
			if t.Found = true; hidesWords(t.Level) {
				t.Managed, t.Level = false, session.Raw
			}
		}
	}
	o.placeByPage = make(map[uint64]int, len(found))
	for num, i := range found {
		o.placeByPage[num], _ = slices.BinarySearch(at, i)
	}
	o.cutLarge(c)
	return o
}

// answers picks the units that the question found and that enter a context wherever they are: those in the window with
// their words, and the best of those that are stubs or left it, while these take no more than ReturnShare of the budget. Want
// of room decided about them, and what the user said long ago may be the answer. A unit that the pass in force has paged or
// evicted keeps that form.
func (c *Turns) answers(q *Question, found map[uint64]int) map[int]bool {
	type hit struct {
		unit  int
		score float64
	}
	var hits []hit
	units := map[int]bool{}
	for i := range q.Hits {
		h := &q.Hits[i]
		at, ok := found[h.Key.Num]
		if !ok || h.Lexical.Score == 0 && h.Cosine == nil {
			continue
		}
		hits = append(hits, hit{c.Blocks[at].Unit, h.Lexical.Score})
	}
	slices.SortStableFunc(hits, func(x, y hit) int { return cmp.Or(cmp.Compare(y.score, x.score), y.unit-x.unit) })
	remaining := q.Budget / ReturnShare
	for _, h := range hits {
		if size, ok := c.returnSize(h.unit); ok && !units[h.unit] && size <= remaining {
			units[h.unit] = true
			remaining -= size
		}
	}
	return units
}

// returnSize returns what a unit takes whole, 0 if the window shows its words; false if the pass in force has paged or
// evicted one of its turns.
func (c *Turns) returnSize(u int) (size int, ok bool) {
	words := true
	for _, i := range c.Units[u].Members {
		b := &c.Blocks[i]
		if b.Judged && b.Verdict.Action != session.Retain {
			return 0, false
		}
		size += c.Size(b, session.Raw) + TurnHeader
		words = words && !hidesWords(c.Shown(i))
	}
	if words {
		size = 0
	}
	return size, true
}

// hidesWords reports whether a turn at a level has none of its words in the window, or only those
// of its stub.
func hidesWords(l session.Level) bool { return l >= session.Stub }

// more takes a turn that is described out of those that are counted.
func (o *Offer) more(kind store.Kind, why string) {
	if o.More != nil {
		o.More[OutReason{kind, why}]--
	}
}

// addWindow adds the turns of the window that fit into the budget, and those that may be named or may enter regardless of
// it: pinned, expiring and masked ones. Stubs of units that answer compete as pages do and take no room here.
func (c *Turns) addWindow(at []int, q *Question, enters func(int) bool, answers map[int]bool) []int {
	c.list()
	for i := range c.ranked.pinned { // map order does not show: the caller sorts at
		at = append(at, i)
	}
	for i := range c.ranked.expiring {
		at = append(at, i)
	}
	at = append(at, c.Outside.expiring...)
	for _, o := range c.Outside.sums {
		for _, f := range o.first {
			at = append(at, f.at)
		}
	}
	masked := map[int]bool{}
	for _, id := range q.Masked {
		if i := c.Find(id); i >= 0 {
			at, masked[i] = append(at, i), true
		}
	}
	remaining, named, other := q.Budget, 0, 0 // named for want of room, and for their kind
	for k := range c.ranked.list {
		p := &c.ranked.list[k]
		if remaining < 0 && named >= MaxNamed && (len(q.Kinds) == 0 || other >= MaxNamed) {
			break
		}
		c.looked++
		at = append(at, p.at)
		b := &c.Blocks[p.at]
		switch {
		case b.Expired(q.Now), masked[p.at]:
		case len(q.Kinds) > 0 && !slices.Contains(q.Kinds, p.kind):
			other++
		case answers[p.unit] && hidesWords(c.Shown(p.at)) && !enters(p.at) && !c.ranked.isPinned(p.at):
		case c.Size(b, c.Shown(p.at)) > q.Budget && !enters(p.at) && !c.ranked.isPinned(p.at) && !answers[p.unit]:
			named++
		case remaining >= 0:
			remaining -= OfferedSize(c.Size(b, c.Shown(p.at)), q.Budget)
		case !c.ranked.isPinned(p.at) && !enters(p.at):
			named++
		}
	}
	return at
}

// OfferedSize is the size of a turn where Offer and Enter decide how many turns to offer. It is capped: a large turn may not
// fit in the end, so older ones must be offered, too.
func OfferedSize(size, budget int) int { return min(size, budget/OfferedShare) + TurnHeader }

// Describe fills t with how turn i would enter a context.
func (c *Turns) Describe(t *TurnIn, i int) {
	c.looked++
	b := &c.Blocks[i]
	u := &c.Units[b.Unit]
	*t = TurnIn{Block: *b, Index: i, Level: c.Shown(i), Pinned: c.Pinned(u), Why: c.Why(i)}
	t.Size = c.Size(b, t.Level)
	if len(u.Members) > 1 || len(b.Nums) > 1 && t.Level == session.Raw {
		t.Group = c.ID + "\x00" + c.Blocks[u.Members[0]].ID
	}
	if t.Score = c.score(i); b.Judged && !t.Pinned {
		s := c.judgement(i)
		t.Recency, t.Similar = s.Recency, s.Similarity
	}
	if t.Level == session.Trimmed || t.Level == session.Summary {
		t.Form = c.FormID(b, t.Level)
	}
}

// score orders the turns that want room in a context.
func (c *Turns) score(i int) float64 {
	b := &c.Blocks[i]
	if !b.Judged || c.Pinned(&c.Units[b.Unit]) {
		return MaxTurnScore
	}
	score := min(max(c.judgement(i).R, 0), 1)
	if b.Verdict.Action == session.Retain {
		score += 2
	}
	return score
}

// judgement is the verdict of the pass in force on a turn that it judged.
func (c *Turns) judgement(i int) session.Verdict {
	return Judged(&c.Force.Params, c.Force.Tokens, i, c.Blocks[i].ID, c.Blocks[i].Verdict)
}

// NewestFrom returns the index of the newest user turn, from which on all turns are set aside for a context, or the number
// of turns if those are too large for that. Large turns of the newest unit enter in pieces.
func (c *Turns) NewestFrom(limit int) int {
	size := 0
	for i := len(c.Blocks) - 1; i >= 0; i-- {
		b := &c.Blocks[i]
		n := c.Size(b, c.Shown(i)) + TurnHeader
		if len(b.Nums) > 1 && b.Unit == c.Blocks[len(c.Blocks)-1].Unit {
			n = min(n, limit/(2*NewestShare))
		}
		if size += n; size > limit/NewestShare {
			break
		}
		if b.Role == "user" {
			return i
		}
	}
	return len(c.Blocks)
}

// Managed reports whether a pass, a window or a pin decides about the turns of the session.
func (c *Turns) Managed() bool {
	return c.State.InForce != 0 || c.State.limited() || c.summed().decided > 0
}

// A unit that is too large for a context is shown in pieces: of each of its turns the pages that match the question best, or
// else its beginning and its end. Without that one large result of a tool, with its call, would be left out as a whole, and
// before that its pages would take all places of a context. The newest unit may take more than others.

// Shares of the budget, in eighths: what a unit may take whole, and what its pieces take if that is more.
const (
	newestWhole, newestPieces = 6, 3
	othersWhole, othersPieces = 4, 2
)

// reasonPart leaves out pages of a large turn.
const reasonPart = "part of a large turn, of which other parts are shown"

// cutLarge chooses the pieces of the units among o.Turns that are too large. Turns of the window that are neither newest nor
// pinned, and that the question did not find, are not cut: the window decides about them as a whole.
func (o *Offer) cutLarge(c *Turns) {
	units := map[int][]*TurnIn{}
	for i := range o.Turns {
		if t := &o.Turns[i]; t.Level == session.Raw {
			units[t.Unit] = append(units[t.Unit], t)
		}
	}
	var score map[uint64]float64
	for _, turns := range units {
		size, newest, competes := 0, false, false
		for _, t := range turns {
			size += t.Size + TurnHeader
			newest, competes = newest || t.Newest, competes || !t.Managed || t.Found || t.Pinned || t.Asks
		}
		whole, room := o.q.Room*othersWhole/8, o.q.Room*othersPieces/8
		if newest {
			whole, room = o.q.Room*newestWhole/8, o.q.Room*newestPieces/8
		}
		if size <= whole || !newest && !competes {
			continue
		}
		if score == nil {
			score = o.q.scores()
		}
		cutUnit(turns, score, room)
	}
}

// scores returns how well each page that was found matches the question.
func (q *Question) scores() map[uint64]float64 {
	out := make(map[uint64]float64, len(q.Hits))
	for i := range q.Hits {
		h := &q.Hits[i]
		if out[h.Key.Num] = h.Lexical.Own; h.Lexical.Own == 0 && h.Cosine != nil {
			out[h.Key.Num] = *h.Cosine / 1e6 // below all words
		}
	}
	return out
}

// cutUnit chooses which pages of the turns of a unit are shown in a room of so many tokens: one of each turn at least.
func cutUnit(turns []*TurnIn, score map[uint64]float64, room int) {
	type piece struct {
		turn  *TurnIn
		page  int
		score float64
		edge  int // distance from the beginning, or from the end
	}
	var pieces []piece
	for _, t := range turns {
		if len(t.Nums) < 2 {
			room -= t.Size + TurnHeader
			continue
		}
		t.Pages = []int{}
		for p, num := range t.Nums {
			edge := min(2*p, 2*(len(t.Nums)-1-p)+1)
			if score := score[num]; t.Role == "user" && edge < 2 { // people ask before what they paste, or behind it
				pieces = append(pieces, piece{t, p, math.Inf(1), edge})
			} else {
				pieces = append(pieces, piece{t, p, score, edge})
			}
		}
	}
	slices.SortStableFunc(pieces, func(x, y piece) int { return cmp.Or(cmp.Compare(y.score, x.score), x.edge-y.edge) })
	take := func(p piece) {
		room -= p.turn.Stored/len(p.turn.Nums) + TurnHeader
		p.turn.Pages = append(p.turn.Pages, p.page)
	}
	for _, p := range pieces {
		if len(p.turn.Pages) == 0 {
			take(p)
		}
	}
	for _, p := range pieces {
		if !slices.Contains(p.turn.Pages, p.page) && room >= p.turn.Stored/len(p.turn.Nums)+TurnHeader {
			take(p)
		}
	}
	for _, t := range turns {
		if slices.Sort(t.Pages); len(t.Pages) == len(t.Nums) {
			t.Pages = nil
		}
	}
}

// Shows reports whether a page of the turn, from 0, is among those that enter.
func (t *TurnIn) Shows(page int) bool { return t.Pages == nil || slices.Contains(t.Pages, page) }

// Crowding returns the turns of several pages if so many of their pages were found for nothing that they took the places of
// other pages: because the turn enters anyway, or in other pieces. It also returns the hits that stay: the pieces, and the best
// of each turn that enters.
func (o *Offer) Crowding(hits []store.Candidate, most int) (of []store.Ref, stay []store.Candidate) {
	lost, best := 0, map[string]int{} // place in stay of the best hit of a turn
	for i := range hits {
		t := o.Found(hits[i].Key.Num)
		if t == nil || len(t.Nums) < 2 {
			continue
		}
		at, seen := best[t.ID]
		if !seen {
			of = append(of, store.Ref{Scope: o.scope, ID: t.ID})
		}
		piece := t.Pages != nil && t.Shows(hits[i].Ref.Page-1)
		if t.enters() || !t.Shows(hits[i].Ref.Page-1) {
			lost++
		}
		switch {
		case !seen, piece, !t.enters() && t.Pages == nil:
			best[t.ID] = len(stay)
			stay = append(stay, hits[i])
		case t.Pages == nil && stay[at].Lexical.Score < hits[i].Lexical.Score:
			stay[at] = hits[i]
		}
	}
	if lost < most {
		return nil, nil
	}
	return of, stay
}
