package talk

import (
	"slices"

	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
)

const (
	NewestShare = 2  // the newest turn is set aside up to a half of the budget
	TurnHeader  = 24 // tokens a header takes at least; bounds how many turns are looked at

	OfferedShare = 8 // a turn counts as at most an eighth of the budget when it is decided how many are offered

	MaxTurnScore = 4 // of a turn that no pass has judged, or that is pinned; no page is worth more than 1
)

// TurnIn is a turn on its way into a context.
type TurnIn struct {
	Block
	Index   int
	Group   string // its unit, when that has several pages
	Level   session.Level
	Why     string
	Size    int
	Pinned  bool
	Newest  bool
	Managed bool // pass, window or pin decide; else it competes
	Score   float64
	Late    float64 // 0 to 1: how much of the budget those before it in order may take
	Recency float64
	Similar float64
	masked  bool
	Form    string // id of the derived page that stands for it
}

// Question is what a context asks of a session.
type Question struct {
	Budget int               // tokens
	Kinds  []store.Kind      // of the turns that may enter; none: all
	Now    int64             // microseconds
	Masked []string          // ids of turns that a transaction hides
	NoRoom string            // the reason of turns of the window for which the budget has no room
	Hidden string            // the reason of turns that are masked
	Hits   []store.Candidate // what the index found; those of the session are taken in with all of their unit
}

// Offer is what a context needs to know of a session: the turns that it may take, in the order of the conversation, those
// that are named among what it does not take, and how many others there are for which reason.
type Offer struct {
	Turns []TurnIn
	More  map[OutReason]int // turns that are not among them; at least one of each reason is
	Len   int               // turns of the session
	Seq   int64             // of the newest

	q              Question
	scope, session string
	turnOf         map[uint64]int // place in Turns of a turn that was found, by the number of the page
	found          map[uint64]*store.Candidate
}

// Offer answers a question. It looks at the turns that find room in the budget, those that were found, and a few more;
// not at the history, and not at all of the window.
func (c *Conversation) Offer(q Question) (o Offer) {
	o.q, o.scope, o.session = q, c.Scope, c.ID
	if len(c.Blocks) == 0 {
		return o
	}
	managed, from := c.Managed(), c.NewestFrom(q.Budget)
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
	newest := func(i int) bool {
		u := c.Blocks[i].Unit
		return u == last.Unit || c.Units[u].Members[0] >= from
	}
	if managed {
		at = c.standing(at, &q, newest)
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
		t.Managed, t.masked = managed, slices.Contains(q.Masked, t.ID)
		t.Newest = t.Level != session.Cold && newest(i)
		if t.Level != session.Cold {
			o.more(t.Kind, q.NoRoom)
		} else if t.Expires == 0 {
			o.more(t.Kind, t.Why)
		}
	}
	o.turnOf = make(map[uint64]int, len(found))
	for num, i := range found {
		o.turnOf[num], _ = slices.BinarySearch(at, i)
	}
	return o
}

// more takes a turn that is described out of those that are counted.
func (o *Offer) more(kind store.Kind, why string) {
	if o.More != nil {
		o.More[OutReason{kind, why}]--
	}
}

// standing adds what stands in the window, as far as there is room for it, and of the others those that may have to be named
// or come in all the same.
func (c *Conversation) standing(at []int, q *Question, newest func(int) bool) []int {
	c.list()
	for i := range c.ranked.pinned { // they are sorted before anybody sees them
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
	room, named, other := q.Budget, 0, 0 // named for want of room, and for their kind
	for k := range c.ranked.list {
		p := &c.ranked.list[k]
		if room < 0 && named >= MaxNamed && (len(q.Kinds) == 0 || other >= MaxNamed) {
			break
		}
		c.looked++
		at = append(at, p.at)
		b := &c.Blocks[p.at]
		switch {
		case b.Expires != 0 && b.Expires <= q.Now, masked[p.at]:
		case len(q.Kinds) > 0 && !slices.Contains(q.Kinds, p.kind):
			other++
		case room >= 0:
			room -= Room(c.Size(b, c.Shown(p.at)), q.Budget)
		case !c.ranked.isPinned(p.at) && !newest(p.at):
			named++
		}
	}
	return at
}

// Room is what a turn takes of a budget when it is decided how many are offered: a large one may find no place, and older
// ones are offered, too.
func Room(size, budget int) int { return min(size, budget/OfferedShare) + TurnHeader }

// Describe says how one turn would enter a context.
func (c *Conversation) Describe(t *TurnIn, i int) {
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
func (c *Conversation) score(i int) float64 {
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
func (c *Conversation) judgement(i int) session.Verdict {
	return c.Force.Verdict(c.Blocks[i].ID, i, c.Blocks[i].Verdict)
}

// NewestFrom gives where what answers to the newest words of the user begins: everything from them on, or nothing where
// that is too large to be set aside.
func (c *Conversation) NewestFrom(limit int) int {
	size := 0
	for i := len(c.Blocks) - 1; i >= 0; i-- {
		b := &c.Blocks[i]
		if size += c.Size(b, c.Shown(i)) + TurnHeader; size > limit/NewestShare {
			break
		}
		if b.Role == "user" {
			return i
		}
	}
	return len(c.Blocks)
}

// Managed says whether anything has decided about the turns of the session.
func (c *Conversation) Managed() bool {
	return c.State.InForce != 0 || c.State.Config != nil || c.summed().decided > 0
}
