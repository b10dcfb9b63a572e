package ctxpage

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/ctxpage/ctxpage/budget"
	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/render"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/triage"
)

// How a session enters a context. Turns that pass and watcher left whole are whole, compacted ones stand as the derived
// page or the stub that was made of them, evicted ones are left out and counted; the newest turn stands at the end.
// Until a session has had a pass, a window or a pin nothing has judged its turns, and they compete as any page does.

const (
	newestShare = 2  // the newest turn is set aside up to a half of the budget
	turnHeader  = 24 // tokens a header takes at least; bounds how many turns are looked at

	offeredShare = 8 // a turn counts as at most an eighth of the budget when it is decided how many are offered

	maxTurnScore = 4 // of a turn that no pass has judged, or that is pinned; no page is worth more than 1
)

// turnIn is a turn on its way into a context.
type turnIn struct {
	block
	index   int
	group   string // its unit, when that has several pages
	level   session.Level
	why     string
	size    int
	pinned  bool
	newest  bool
	managed bool // pass, window or pin decide; else it competes
	score   float64
	late    float64 // 0 to 1: how much of the budget those before it in order may take
	recency float64
	similar float64
	form    string // id of the derived page that stands for it
}

// stubOf is what stands for a turn whose title is known.
func stubOf(h *store.Head, title string) string {
	return session.StubText(Ref{Scope: h.Scope, ID: h.ID}.String(), hex.EncodeToString(h.Rows[0].Digest[:6]), sumTokens(h.Rows), title)
}

// candidates asks the store while nothing of the session can change.
func (a *assembling) candidates(ctx context.Context, q store.CandidateQuery) (err error) {
	if a.q.Session == "" {
		a.cands, err = a.s.db.store.Candidates(ctx, q)
		return err
	}
	if err := store.CheckID("session", a.q.Session); err != nil {
		return err
	}
	talk := a.s.db.conversation(a.s.name, a.q.Session)
	return talk.exclusively(ctx, func() error {
		if err := talk.there(ctx); err != nil {
			return err
		}
		if a.cands, err = a.s.db.store.Candidates(ctx, q); err == nil && a.q.AsOf == 0 {
			a.turnsIn(talk)
		}
		return err
	})
}

// there refuses a session that nobody has begun: a context without the conversation it was asked for misleads.
func (c *conversation) there(ctx context.Context) error {
	if len(c.blocks) > 0 || c.state.Created != 0 {
		return nil
	}
	if err := c.db.readable(ctx, c.scope); err != nil { // a damaged row may hide the turns
		return err
	}
	return fmt.Errorf("%w: scope %s has no session %q; append its first turn or set its window first", ErrNotFound, c.scope, c.id)
}

// turnsIn takes in what a context needs of the session: in their order the turns that it may take, and of those that are
// out of the window the ones that were found or are named. The others are counted.
func (a *assembling) turnsIn(c *conversation) {
	if len(c.blocks) == 0 {
		return
	}
	managed, from := c.managed(), c.newestFrom(a.q.Budget)
	last := c.blocks[len(c.blocks)-1]
	a.talkLen, a.talkSeq = len(c.blocks), last.seq
	at, found := slices.Clone(c.units[last.unit].members), make(map[uint64]int)
	for _, h := range a.cands.Hits {
		if i := c.find(h.Ref.ID); i >= 0 && h.Ref.Scope == c.scope && slices.Contains(c.blocks[i].nums, h.Key.Num) {
			at, found[h.Key.Num] = append(at, c.units[c.blocks[i].unit].members...), i
		}
	}
	for i := from; i < len(c.blocks); i++ {
		at = append(at, i)
	}
	if managed {
		at = c.standing(at)
		a.more = c.outside.counts()
	}
	slices.Sort(at)
	at = slices.Compact(at)
	a.turns = make([]turnIn, len(at))
	for k, i := range at {
		t := &a.turns[k]
		c.describe(t, i)
		t.managed = managed
		t.newest = t.level != session.Cold && (t.unit == last.unit || c.units[t.unit].members[0] >= from)
		if t.level == session.Cold && t.expires == 0 {
			a.more[outReason{t.kind, t.why}]--
		}
	}
	a.turnOf = make(map[uint64]int, len(found))
	for num, i := range found {
		a.turnOf[num], _ = slices.BinarySearch(at, i)
	}
}

// standing adds the turns that are in the window, and of the others those that may have to be named.
func (c *conversation) standing(at []int) []int {
	c.list()
	for _, u := range c.inside {
		at = append(at, c.units[u].members...)
	}
	at = append(at, c.outside.expiring...)
	for _, o := range c.outside.sums { // they are sorted before anybody sees them
		for _, f := range o.first {
			at = append(at, f.at)
		}
	}
	return at
}

func (c *conversation) describe(t *turnIn, i int) {
	b := &c.blocks[i]
	u := &c.units[b.unit]
	*t = turnIn{block: *b, index: i, level: c.shown(i), pinned: c.pinned(u), why: c.why(i)}
	t.size = c.size(b, t.level)
	if len(u.members) > 1 || len(b.nums) > 1 && t.level == session.Raw {
		t.group = c.id + "\x00" + c.blocks[u.members[0]].id
	}
	if t.score = c.score(i); b.judged && !t.pinned {
		s := c.judgement(i)
		t.recency, t.similar = s.Recency, s.Similarity
	}
	if t.level == session.Trimmed || t.level == session.Summary {
		t.form = c.formID(b, t.level)
	}
}

// score orders the turns that want room in a context.
func (c *conversation) score(i int) float64 {
	b := &c.blocks[i]
	if !b.judged || c.pinned(&c.units[b.unit]) {
		return maxTurnScore
	}
	score := min(max(c.judgement(i).R, 0), 1)
	if b.verdict.action == session.Retain {
		score += 2
	}
	return score
}

// judgement is the verdict of the pass in force on a turn that it judged.
func (c *conversation) judgement(i int) session.Verdict {
	force := Pass{Result: session.Result{Params: c.force.Params, Keywords: c.force.Tokens}}
	return force.verdict(c.blocks[i].id, i, c.blocks[i].verdict)
}

// newestFrom gives where what answers to the newest words of the user begins: everything from them on, or nothing where
// that is too large to be set aside.
func (c *conversation) newestFrom(limit int) int {
	size := 0
	for i := len(c.blocks) - 1; i >= 0; i-- {
		b := &c.blocks[i]
		if size += c.size(b, c.shown(i)) + turnHeader; size > limit/newestShare {
			break
		}
		if b.role == "user" {
			return i
		}
	}
	return len(c.blocks)
}

// managed says whether anything has decided about the turns of the session.
func (c *conversation) managed() bool {
	return c.state.InForce != 0 || c.state.Config != nil || slices.ContainsFunc(c.units, func(u unit) bool { return c.pinned(&u) || c.blocks[u.members[0]].row.Level > 0 })
}

// enter makes items of the turns: those that stand in the window and may find room, while the rest is left out with its
// reason. It gives what it made, and takes their pages out of the hits, which keep their lexical scores.
func (a *assembling) enter(hits []store.Candidate) (turns []*item, rest []store.Candidate) {
	if len(a.turns) == 0 {
		return nil, hits
	}
	found := map[uint64]*store.Candidate{}
	for i, c := range hits {
		t, ok := a.turnOf[c.Key.Num]
		if !ok {
			rest = append(rest, c)
			continue
		}
		found[c.Key.Num] = &hits[i]
		if !a.turns[t].managed && !a.turns[t].newest {
			rest = append(rest, c)
		}
	}
	room, left := a.q.Budget, map[string]*store.Excluded{}
	for _, i := range a.order() {
		t := &a.turns[i]
		if !t.managed && !t.newest {
			continue
		}
		reason := a.refuse(t)
		if reason == "" && !t.newest && !t.pinned && room < 0 {
			reason = string(budget.ReasonBudget)
		}
		if reason != "" {
			a.leave(left, t, reason, found)
			continue
		}
		t.late = 1 - max(float64(room), 0)/float64(a.q.Budget)
		room -= min(t.size, a.q.Budget/offeredShare) + turnHeader // a large turn may find no place: older ones are offered, too
		turns = append(turns, a.turnItems(t, found)...)
	}
	for of, n := range a.more { // some of each were named
		if n > 0 && len(a.q.Kinds) > 0 && !slices.Contains(a.q.Kinds, of.kind) {
			left[store.ReasonKind].Count += n
		} else if n > 0 {
			left[of.why].Count += n
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(left)) {
		a.cands.Excluded = append(a.cands.Excluded, *left[reason])
	}
	return turns, rest
}

// complete adds to hits that compete the calls and results they go with, which the question may not have found: they are
// worth what the one is worth that was.
func (a *assembling) complete(hits []store.Candidate) []store.Candidate {
	units := map[int]*store.Candidate{} // the best of each
	there := map[uint64]bool{}
	for i := range hits {
		c := &hits[i]
		there[c.Key.Num] = true
		if t, ok := a.turnOf[c.Key.Num]; ok && a.turns[t].tool != nil {
			if best := units[a.turns[t].unit]; best == nil || best.Lexical.Score < c.Lexical.Score {
				units[a.turns[t].unit] = c
			}
		}
	}
	if len(units) == 0 {
		return hits
	}
	out := slices.Clip(hits)
	for i := range a.turns {
		t := &a.turns[i]
		best := units[t.unit]
		if best == nil || a.refuse(t) != "" {
			continue
		}
		for p, num := range t.nums {
			if !there[num] {
				c := *a.candidate(t, p, nil)
				c.Lexical.Score, c.Lexical.Near = best.Lexical.Score, best.Lexical.Score
				out = append(out, c)
				a.turnOf[num] = i
			}
		}
	}
	return out
}

// order is the order in which turns are given room: whole ones before stubs, the better before the worse, the newer
// before the older.
func (a *assembling) order() []int {
	type place struct {
		at, stub int
		score    float64
	}
	order := make([]place, len(a.turns))
	for i := range a.turns {
		t := &a.turns[i]
		p := &order[len(order)-1-i] // of equal ones the newest is first: then there is little to sort
		if *p = (place{at: i, score: t.score}); t.level == session.Stub && t.group == "" {
			p.stub = 1
		}
	}
	slices.SortFunc(order, func(x, y place) int {
		return cmp.Or(x.stub-y.stub, cmp.Compare(y.score, x.score), y.at-x.at)
	})
	at := make([]int, len(order))
	for i := range order {
		at[i] = order[i].at
	}
	return at
}

// refuse is the rule that keeps a turn out, "" when none does.
func (a *assembling) refuse(t *turnIn) string {
	switch {
	case t.expires != 0 && t.expires <= codec.Micros(a.now):
		return store.ReasonExpired
	case len(a.q.Kinds) > 0 && !slices.Contains(a.q.Kinds, t.kind):
		return store.ReasonKind
	case t.level == session.Cold:
		return t.why
	case a.tx != nil && (a.tx.writes[t.id] != nil || a.tx.drop[t.id]):
		return string(triage.Masked)
	}
	return ""
}

// leave counts a turn that is left out, and names it while there is room, those the question asks for first.
func (a *assembling) leave(left map[string]*store.Excluded, t *turnIn, reason string, found map[uint64]*store.Candidate) {
	e := left[reason]
	if e == nil {
		e = &store.Excluded{Reason: reason}
		left[reason] = e
	}
	e.Count++
	score := 0.0
	if hit := found[t.nums[0]]; hit != nil {
		score = hit.Lexical.Score
	}
	if n := len(e.Nearest); n == namedLeft && e.Nearest[n-1].Lexical.Score >= score {
		return
	}
	c := *a.candidate(t, 0, found)
	if k := slices.IndexFunc(e.Nearest, func(o store.Candidate) bool { return o.Lexical.Score < c.Lexical.Score }); k >= 0 {
		e.Nearest = slices.Insert(e.Nearest, k, c)
	} else {
		e.Nearest = append(e.Nearest, c)
	}
	e.Nearest = e.Nearest[:min(len(e.Nearest), namedLeft)]
}

func (a *assembling) candidate(t *turnIn, page int, found map[uint64]*store.Candidate) *store.Candidate {
	if c := found[t.nums[page]]; c != nil {
		return c
	}
	return &store.Candidate{
		Key: store.PageKey{Num: t.nums[page], Version: t.version}, Ref: Ref{Scope: a.s.name, ID: t.id, Page: page + 1, Version: t.version}, Kind: t.kind, Provenance: t.prov,
		AsOf: t.asOf, Tokens: t.stored / len(t.nums), GroupName: a.q.Session, Seq: t.seq,
	}
}

// turnItems are the pages of a turn, or the one that stands for it.
func (a *assembling) turnItems(t *turnIn, found map[uint64]*store.Candidate) []*item {
	scored := judged{score: t.score, recency: t.recency, semantic: t.similar, tag: triage.Red}
	note := cmp.Or(t.why, "in the window of the session")
	forms := map[session.Level]manifest.Form{session.Trimmed: manifest.FormSummary, session.Summary: manifest.FormSummary, session.Stub: manifest.FormStub}
	if form := forms[t.level]; form != manifest.FormFull {
		scored.tag = triage.Green
		return []*item{{cand: a.candidate(t, 0, found), turn: t, scored: scored, note: note, fixed: form, form: form}}
	}
	out := make([]*item, len(t.nums))
	for p := range t.nums {
		out[p] = &item{cand: a.candidate(t, p, found), turn: t, scored: scored, note: note}
	}
	return out
}

// loadForms pages in what stands for compacted turns: heads for stubs, derived pages for the others. A form that is not
// there any more gives way to the turn itself.
func (a *assembling) loadForms(ctx context.Context, at []int) (whole []int, err error) {
	keys := make([]store.PageKey, len(at))
	for j, i := range at {
		keys[j] = a.ranked[i].cand.Key
	}
	heads, err := a.s.db.store.Load(ctx, a.s.chain[:1], keys, store.WantHead)
	if err != nil {
		return nil, err
	}
	for j, i := range at {
		it := a.ranked[i]
		if heads[j].Err != nil {
			it.reason = store.ReasonGone
			continue
		}
		it.head, it.page = heads[j].Head, 1
		if it.fixed == manifest.FormStub {
			it.text = stubOf(it.head, it.turn.row.Title)
			continue
		}
		num, text, err := a.s.db.formText(ctx, a.s.chain[:1], it.turn.form)
		switch {
		case errors.Is(err, ErrNotFound), errors.Is(err, ErrGone):
			it.fixed, it.form, it.head = manifest.FormFull, manifest.FormFull, nil
			whole = append(whole, i)
		case err != nil:
			return nil, err
		default:
			it.text, it.via = text, num
		}
	}
	return whole, nil
}

func (db *DB) formText(ctx context.Context, scopes store.Scopes, id string) (num uint64, text string, err error) {
	l, err := db.store.Resolve(ctx, scopes, Ref{ID: id})
	if err != nil {
		return 0, "", err
	}
	if len(l.Pages) != 1 {
		return 0, "", fmt.Errorf("%w: %s has %d pages", ErrNotFound, id, len(l.Pages))
	}
	texts, err := db.texts(ctx, scopes, l.Pages)
	if err != nil {
		return 0, "", err
	}
	return l.Pages[0].Num, texts[0], nil
}

// reasonUnpaired is of a call or a result that no context can have alone.
const reasonUnpaired = "its call, or a result of it, is not in the context"

// leaveUnpaired leaves out, of the session's turns that have won a place, results whose call has not, and calls of which a
// result has not: one of them may have expired, been deleted, or not been found. No provider takes such a request. A call
// behind which nothing else was said waits for its results, and stays.
func (a *assembling) leaveUnpaired() {
	if a.q.Session == "" {
		return
	}
	var turns []*item
	tools := false
	for _, i := range a.winners() {
		it := a.ranked[i]
		if h := it.head; h != nil && isTurn(h, a.q.Session) {
			turns = append(turns, it)
			tools = tools || len(h.ToolCalls) > 0 || isResult(h)
		}
	}
	if !tools {
		return
	}
	at := map[Ref][]*item{} // of one turn, which may have several pages
	var heads []*store.Head
	for _, it := range turns {
		ref := Ref{Scope: it.head.Scope, ID: it.head.ID}
		if at[ref] == nil {
			heads = append(heads, it.head)
		}
		at[ref] = append(at[ref], it)
	}
	slices.SortFunc(heads, func(x, y *store.Head) int { return cmp.Or(cmp.Compare(x.Seq, y.Seq), cmp.Compare(x.ID, y.ID)) })
	type call struct{ missing int } // results
	open, by, last := map[string]*call{}, map[*store.Head]*call{}, (*call)(nil)
	for _, h := range heads {
		if last = open[h.ToolCallID]; h.ToolCallID == "" || last == nil {
			last = &call{}
		}
		if by[h] = last; isResult(h) {
			last.missing--
			delete(open, h.ToolCallID)
		}
		for _, c := range h.ToolCalls {
			last.missing++
			open[c.ID] = last
		}
	}
	for _, h := range heads {
		if c := by[h]; c.missing < 0 || c.missing > 0 && c != last {
			for _, it := range at[Ref{Scope: h.Scope, ID: h.ID}] {
				it.reason = reasonUnpaired
			}
		}
	}
}

// isTurn says whether a page is a message of a session's requests. One with a role that no provider takes is data, whatever
// calls it has.
func isTurn(h *store.Head, session string) bool {
	return session != "" && h.Group == session && h.Kind == KindMessage && (h.Role == "" || slices.Contains(store.Roles, h.Role))
}

func isResult(h *store.Head) bool { return h.ToolCallID != "" || h.Role == render.RoleTool }

// fitTurn tells the allocator about a turn. It keeps its place in the conversation whatever holds it.
func (it *item) fitTurn(b *budget.Item) {
	t := it.turn
	b.Class, b.Place, b.Position, b.Group = budget.History, budget.PlaceHistory, position(t.index, it.page), t.group
	b.Pinned, b.Recent = t.pinned, b.Recent || t.score == maxTurnScore
	b.Score *= 1 - t.late/2 // of equal ones the newer, not the longer
	if t.newest {
		b.Place = budget.PlaceNewest
	}
	if it.fixed == manifest.FormStub && t.group == "" && !t.newest {
		b.MustStub, b.StubTokens = true, b.Tokens
	}
}

// position orders pages of a conversation.
func position(turn, page int) int { return (turn+1)<<12 + page }

// standsAt orders a page of the session that competes; drafts come after all turns.
func (a *assembling) standsAt(c *store.Candidate) int {
	if i, ok := a.turnOf[c.Key.Num]; ok {
		return position(a.turns[i].index, c.Ref.Page)
	}
	if a.talkLen == 0 {
		return position(int(c.Seq), c.Ref.Page)
	}
	return position(a.talkLen+int(max(c.Seq-a.talkSeq, 0)), c.Ref.Page)
}

// turnMerger puts the pages of one turn together again: a provider takes one message for a call or a result.
type turnMerger struct {
	pages []render.Page
	last  *store.Head
	page  int
}

func (m *turnMerger) add(h *store.Head, page int, p render.Page) {
	whole := p.Form == manifest.FormFull.String()
	if n := len(m.pages); n > 0 && whole && p.Role != "" && p.Role != render.RoleSystem && m.last != nil && m.last.ID == h.ID && m.last.Scope == h.Scope && page == m.page+1 {
		m.pages[n-1].Text += p.Text
		m.page = page
		return
	}
	m.pages = append(m.pages, p)
	if m.last, m.page = nil, page; whole {
		m.last = h
	}
}
