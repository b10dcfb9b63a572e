package ctxpage

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage/internal/budget"
	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/conversation"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/triage"
	rules "github.com/ctxpage/ctxpage/internal/window"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
)

// What enters a context from a session, and what is said of the rest, is what looking at every turn there ever was gives:
// over random sessions before and after they have a window, with turns that expire, turns of several pages and other
// artefacts of the group.
func TestEnterLooksAtAll(t *testing.T) {
	t.Parallel()
	for _, seed := range []uint64{2, 3, 4} {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			enterRandom(t, seed)
		})
	}
}

func enterRandom(t *testing.T, seed uint64) {
	now := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	db := openTest(t, dbtest.MemoryPath(t), Options{Clock: func() time.Time { return now }})
	defer func() { require.NoError(t, db.Close()) }()
	k := &randomTalk{t: t, r: rand.New(rand.NewPCG(seed, 13)), chat: db.Scope("acme/agent").Session("chat"), leaps: true}
	var w *Watcher
	looked := entered{}
	for i := range 400 {
		now = now.Add(time.Minute)
		switch {
		case i < 40:
			refs := must(k.chat.Append(ctx, k.turns()...))(t)
			k.ids = append(k.ids, refs[0].ID)
		case w == nil:
			if k.done(k.chat.SetWindow(ctx, session.Config{Total: 24_000})) {
				w = must(k.chat.Watch(ctx))(t)
			}
		default:
			k.operate(ctx)
		}
		switch k.r.IntN(10) {
		case 0:
			_, err := k.chat.Append(ctx, Turn{Role: "assistant", Text: longProse(k.r, 30), ExpiresAt: now.Add(time.Duration(k.r.IntN(200)) * time.Minute)})
			k.done(err)
		case 1:
			require.NoError(t, errOf(db.Scope("acme/agent").Put(ctx, Artefact{ID: fmt.Sprint("fact-", i), Kind: KindFact, Text: longProse(k.r, 20), Group: "chat", Seq: int64(1 + k.r.IntN(2*i+2))})))
		}
		if w != nil && k.r.IntN(3) > 0 {
			must(w.Step(ctx, now))(t)
		}
		for range 3 {
			looked.compare(ctx, t, k)
		}
	}
	require.Greater(t, looked.turns, 1000)
	require.Greater(t, looked.reasons, 1000)
	require.Greater(t, looked.found, 200, "turns out of the window that were found")
	require.Greater(t, looked.back, 200, "of those, which compete")
	require.Greater(t, looked.more, 10_000, "turns that were only counted")
	require.Greater(t, looked.whole, 50, "sessions that nothing has judged")
}

// entered counts what was compared.
type entered struct{ turns, reasons, found, back, more, whole int }

func (e *entered) compare(ctx context.Context, t *testing.T, k *randomTalk) {
	s := k.chat.s
	q := Query{Budget: 300 << k.r.IntN(8), Session: "chat"}
	for range k.r.IntN(30) {
		q.Text += fmt.Sprintf("w%d ", k.r.IntN(5000))
	}
	if k.r.IntN(3) == 0 {
		q.Kinds = []Kind{[]Kind{KindFact, KindMessage}[k.r.IntN(2)]}
	}
	q = must(q.withDefaults())(t)
	a := s.begin(q, nil)
	defer a.end()
	require.NoError(t, a.candidates(ctx, store.CandidateQuery{
		Scopes: s.chain, Terms: s.db.lexer.Terms(q.Text), Kinds: q.Kinds, Floor: q.Floor, Session: q.Session, Now: a.now, K: 60, Recent: recentTail,
	}))
	all := &everyTurn{assembling: &assembling{s: s, q: q, now: a.now, cands: a.cands, scratch: a.scratch}}
	all.cands.Hits, all.cands.Excluded = slices.Clone(a.cands.Hits), slices.Clone(a.cands.Excluded)
	conv := must(k.chat.conversation())(t)
	require.NoError(t, conv.Exclusively(ctx, func() error {
		all.turnsIn(conv)
		for i := range a.window.Turns { // TestLargeToolResult looks at the pieces of large turns
			all.turns[a.window.Turns[i].Index].Pages = a.window.Turns[i].Pages
		}
		return nil
	}))
	turns, rest := a.enter(a.cands.Hits)
	wantTurns, wantRest := all.enter(all.cands.Hits)
	require.Equal(t, wantRest, rest)
	all.sameLeft(t, a)
	require.Equal(t, len(wantTurns), len(turns))
	for i, want := range wantTurns {
		require.Equal(t, want, turns[i])
	}
	for i := range rest {
		require.Equal(t, all.positionOf(&rest[i]), a.positionOf(&rest[i]))
		if k, ok := all.placeByPage[rest[i].Key.Num]; ok {
			require.Equal(t, all.turns[k].Group, a.window.Found(rest[i].Key.Num).Group)
		}
	}
	require.Equal(t, all.positionOf(&store.Candidate{Seq: 10_000}), a.positionOf(&store.Candidate{Seq: 10_000}))
	e.count(all, a, len(turns), rest)
}

func (e *entered) count(all *everyTurn, a *assembling, turns int, rest []store.Candidate) {
	e.turns += turns
	for i := range all.turns {
		if t := &all.turns[i]; !t.Managed && a.window.Managed() {
			e.back++
		}
	}
	e.reasons += len(a.cands.Excluded)
	e.more += len(all.turns) - len(a.window.Turns)
	if len(rest) > 0 && !a.window.Managed() {
		e.whole++
	}
	for _, h := range all.cands.Hits {
		if i, ok := all.placeByPage[h.Key.Num]; ok && all.turns[i].Level == session.Cold {
			e.found++
		}
	}
}

// everyTurn is an assembly that looks at all turns of its session.
type everyTurn struct {
	*assembling
	turns       []conversation.TurnIn
	placeByPage map[uint64]int
	talkLen     int
	talkSeq     int64
}

func (a *everyTurn) turnsIn(c *conversation.Conversation) {
	a.placeByPage, a.turns = make(map[uint64]int, len(c.Blocks)), make([]conversation.TurnIn, 0, len(c.Blocks))
	for i := range c.Blocks {
		b := &c.Blocks[i]
		u := &c.Units[b.Unit]
		t := conversation.TurnIn{Block: *b, Index: i, Level: c.Shown(i), Pinned: c.Pinned(u), Managed: c.Managed(), Score: 4, Why: c.Why(i)}
		t.Size = c.Size(b, t.Level)
		if len(u.Members) > 1 || len(b.Nums) > 1 && t.Level == session.Raw {
			t.Group = c.ID + "\x00" + c.Blocks[u.Members[0]].ID
		}
		if b.Judged && !t.Pinned {
			s := rules.Judged(&c.Force.Params, c.Force.Tokens, i, b.ID, b.Verdict)
			t.Recency, t.Similar, t.Score = s.Recency, s.Similarity, min(max(s.R, 0), 1)
			if b.Verdict.Action == session.Retain {
				t.Score += 2
			}
		}
		if t.Level == session.Trimmed || t.Level == session.Summary {
			t.Form = c.FormID(b, t.Level)
		}
		for _, n := range b.Nums {
			a.placeByPage[n] = i
		}
		a.turns = append(a.turns, t)
	}
	if a.talkLen = len(a.turns); a.talkLen == 0 {
		return
	}
	a.talkSeq = a.turns[a.talkLen-1].Seq
	from, size := a.talkLen-1, 0
	for from > 0 && a.turns[from].Role != "user" {
		from--
	}
	last := a.turns[a.talkLen-1].Unit
	for i := from; i < a.talkLen; i++ {
		n := a.turns[i].Size + conversation.TurnHeader
		if a.turns[i].Unit == last && len(a.turns[i].Nums) > 1 {
			n = min(n, a.q.Budget/(2*conversation.NewestShare))
		}
		size += n
	}
	for i := range a.turns {
		t := &a.turns[i]
		tail := c.Units[t.Unit].Members[0] >= from && a.turns[from].Role == "user" && size <= a.q.Budget/conversation.NewestShare
		t.Newest = (tail || t.Unit == last) && t.Level != session.Cold
		t.Asks = i == from && t.Role == "user" && t.Level != session.Cold
	}
	a.answers(c)
}

// answers lets in what the question found: whole turns of the window wherever they are, and of those that want of room
// shortened or left out the best, as much as a quarter of the budget holds.
func (a *everyTurn) answers(c *conversation.Conversation) {
	var hits []store.Candidate
	for _, h := range a.cands.Hits {
		if i, ok := a.placeByPage[h.Key.Num]; ok && h.Lexical.Score > 0 && a.turns[i].Managed {
			hits = append(hits, h)
		}
	}
	slices.SortStableFunc(hits, func(x, y store.Candidate) int {
		return cmp.Or(cmp.Compare(y.Lexical.Score, x.Lexical.Score), a.turns[a.placeByPage[y.Key.Num]].Unit-a.turns[a.placeByPage[x.Key.Num]].Unit)
	})
	room, done := a.q.Budget/conversation.ReturnShare, map[int]bool{}
	for _, h := range hits {
		unit := a.turns[a.placeByPage[h.Key.Num]].Unit
		members, size, judged, whole := c.Units[unit].Members, 0, false, true
		for _, i := range members {
			b := &c.Blocks[i]
			size += c.Size(b, session.Raw) + conversation.TurnHeader
			judged = judged || b.Judged && b.Verdict.Action != session.Retain
			whole = whole && a.turns[i].Level < session.Stub
		}
		if done[unit] || judged || !whole && size > room {
			continue
		}
		if done[unit] = true; !whole {
			room -= size
		}
		for _, i := range members {
			if t := &a.turns[i]; !t.Newest && !t.Pinned {
				if t.Found = true; t.Level >= session.Stub {
					t.Managed, t.Level = false, session.Raw
				}
			}
		}
	}
}

// sameLeft compares what is left out, and why. Of turns outside the window few are described, and some of those may
// return, so that others are named than the very best.
func (a *everyTurn) sameLeft(t *testing.T, got *assembling) {
	require.Len(t, got.cands.Excluded, len(a.cands.Excluded))
	for i, want := range a.cands.Excluded {
		left := got.cands.Excluded[i]
		require.Equal(t, []any{want.Reason, want.Count}, []any{left.Reason, left.Count})
		if !slices.ContainsFunc(a.turns, func(t conversation.TurnIn) bool { return t.Found }) {
			require.Equal(t, want.Nearest, left.Nearest)
			continue
		}
		for _, c := range left.Nearest {
			if k, ok := a.placeByPage[c.Key.Num]; ok {
				require.Equal(t, want.Reason, cmp.Or(a.refuse(&a.turns[k]), string(budget.ReasonBudget)))
			}
		}
	}
}

// reasonPart is the reason that package conversation records for pages of a large turn that are not shown.
const reasonPart = "part of a large turn, of which other parts are shown"

func (a *everyTurn) enter(hits []store.Candidate) (turns []*item, rest []store.Candidate) {
	found := map[uint64]*store.Candidate{}
	for i, c := range hits {
		t, ok := a.placeByPage[c.Key.Num]
		if ok {
			found[c.Key.Num] = &hits[i]
		}
		if !ok || !a.turns[t].Managed && !a.turns[t].Newest && !a.turns[t].Asks {
			if ok && !a.turns[t].Shows(c.Ref.Page-1) {
				c.Excluded = reasonPart
			}
			rest = append(rest, c)
		}
	}
	room, left := a.q.Budget, map[string]*store.Excluded{}
	for _, i := range a.order() {
		t := &a.turns[i]
		if !t.Managed && !t.Newest && !t.Asks {
			continue
		}
		reason := a.refuse(t)
		if reason == "" && !t.Newest && !t.Asks && !t.Pinned && !t.Found && (room < 0 || t.Size > a.q.Budget) {
			reason = string(budget.ReasonBudget)
		}
		if reason != "" {
			a.leave(left, t, reason, found)
			continue
		}
		if t.Pages != nil {
			if left[reasonPart] == nil {
				left[reasonPart] = &store.Excluded{Reason: reasonPart}
			}
			left[reasonPart].Count += len(t.Nums) - len(t.Pages)
		}
		t.Late = 1 - max(float64(room), 0)/float64(a.q.Budget)
		room -= min(t.Size, a.q.Budget/conversation.OfferedShare) + conversation.TurnHeader
		turns = append(turns, a.items(t, found)...)
	}
	for _, reason := range slices.Sorted(maps.Keys(left)) {
		a.cands.Excluded = append(a.cands.Excluded, *left[reason])
	}
	return turns, rest
}

// items are those of a turn, from what the question found.
func (a *everyTurn) items(t *conversation.TurnIn, found map[uint64]*store.Candidate) []*item {
	made := a.turnItems(t)
	for p, it := range made {
		if t.Pages != nil && t.Level == session.Raw {
			p = t.Pages[p]
		}
		it.cand = a.candidate(t, p, found)
	}
	return made
}

// positionOf orders a page of the session that competes.
func (a *everyTurn) positionOf(c *store.Candidate) int {
	if i, ok := a.placeByPage[c.Key.Num]; ok {
		return position(a.turns[i].Index, c.Ref.Page)
	}
	if a.talkLen == 0 {
		return position(int(c.Seq), c.Ref.Page)
	}
	return position(a.talkLen+int(max(c.Seq-a.talkSeq, 0)), c.Ref.Page)
}

// order is the order in which turns are given room: whole ones before stubs, the better before the worse, the newer
// before the older.
func (a *everyTurn) order() []int {
	type place struct {
		at, stub int
		score    float64
	}
	order := make([]place, len(a.turns))
	for i := range a.turns {
		t := &a.turns[i]
		p := &order[len(order)-1-i] // of equal ones the newest is first: then there is little to sort
		if *p = (place{at: i, score: t.Score}); t.Level == session.Stub && t.Group == "" {
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
func (a *everyTurn) refuse(t *conversation.TurnIn) string {
	switch {
	case t.Expires != 0 && t.Expires <= codec.Micros(a.now):
		return triage.Expired
	case len(a.q.Kinds) > 0 && !slices.Contains(a.q.Kinds, t.Kind):
		return triage.OtherKind
	case t.Level == session.Cold:
		return t.Why
	case a.tx != nil && (a.tx.writes[t.ID] != nil || a.tx.drop[t.ID]):
		return triage.Masked
	}
	return ""
}

// leave counts a turn that is left out, and names it while there is room, those the question asks for first.
func (a *everyTurn) leave(left map[string]*store.Excluded, t *conversation.TurnIn, reason string, found map[uint64]*store.Candidate) {
	e := left[reason]
	if e == nil {
		e = &store.Excluded{Reason: reason}
		left[reason] = e
	}
	e.Count++
	score := 0.0
	if hit := found[t.Nums[0]]; hit != nil {
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

func (a *everyTurn) candidate(t *conversation.TurnIn, page int, found map[uint64]*store.Candidate) *store.Candidate {
	if c := found[t.Nums[page]]; c != nil {
		return c
	}
	return &store.Candidate{
		Key: store.PageKey{Num: t.Nums[page], Version: t.Version}, Ref: Ref{Scope: a.s.name, ID: t.ID, Page: page + 1, Version: t.Version}, Kind: t.Kind, Provenance: t.Prov,
		AsOf: t.AsOf, Tokens: t.Stored / len(t.Nums), GroupName: a.q.Session, Seq: t.Seq,
	}
}

// A question in a session needs no budget where the session has a window: its usable part is taken, and kept to. The
// control is the same question before there is one.
func TestBudgetOfTheWindow(t *testing.T) {
	db := openTest(t, dbtest.MemoryPath(t), Options{})
	defer func() { require.NoError(t, db.Close()) }()
	s := db.Scope("acme")
	chat := s.Session("chat")
	for i := range 60 {
		must(chat.Append(ctx, Turn{Role: []string{"user", "assistant"}[i%2], Text: fmt.Sprint("turn ", i, " says many words ", i*i)}))(t)
	}
	require.ErrorIs(t, errOf(s.Assemble(ctx, Query{Text: "many words", Session: "chat"})), ErrInvalid)
	require.NoError(t, chat.SetWindow(ctx, session.Config{Total: 400}))
	w := must(chat.Inspect(ctx))(t)
	a := must(s.Assemble(ctx, Query{Text: "many words", Session: "chat"}))(t)
	require.Equal(t, w.Limits.Usable, a.Manifest.Budget)
	require.LessOrEqual(t, a.Tokens, w.Limits.Usable)
	require.NotEmpty(t, a.Blocks)
	b := must(s.Assemble(ctx, Query{Text: "many words", Session: "chat", Budget: 200}))(t)
	require.Equal(t, 200, b.Manifest.Budget, "what is asked for holds")
}
