package ctxpage

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage/budget"
	"github.com/ctxpage/ctxpage/internal/dbtest"
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
	ctx := context.Background()
	now := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	db := openTest(t, dbtest.MemoryPath(t), Options{noSync: true, Clock: func() time.Time { return now }})
	defer func() { require.NoError(t, db.Close()) }()
	k := &randomTalk{t: t, r: rand.New(rand.NewPCG(seed, 13)), chat: db.Scope("acme/agent").Session("chat"), leaps: true}
	var w *Watcher
	looked := entered{}
	for i := range 400 {
		now = now.Add(time.Minute)
		switch {
		case i < 40:
			refs, err := k.chat.Append(ctx, k.turns()...)
			require.NoError(t, err)
			k.ids = append(k.ids, refs[0].ID)
		case w == nil:
			if k.done(k.chat.SetWindow(ctx, session.Config{Total: 24_000, UserCap: 4000})) {
				var err error
				w, err = k.chat.Watch(ctx)
				require.NoError(t, err)
			}
		default:
			k.operate(ctx)
		}
		switch k.r.IntN(10) {
		case 0:
			_, err := k.chat.Append(ctx, Turn{Role: "assistant", Text: prose(k.r, 30), ExpiresAt: now.Add(time.Duration(k.r.IntN(200)) * time.Minute)})
			k.done(err)
		case 1:
			_, err := db.Scope("acme/agent").Put(ctx, Artefact{ID: fmt.Sprint("fact-", i), Kind: KindFact, Text: prose(k.r, 20), Group: "chat", Seq: int64(1 + k.r.IntN(2*i+2))})
			require.NoError(t, err)
		}
		if w != nil && k.r.IntN(3) > 0 {
			_, err := w.Step(ctx, now)
			require.NoError(t, err)
		}
		for range 3 {
			looked.compare(ctx, t, k)
		}
	}
	require.Greater(t, looked.turns, 1000)
	require.Greater(t, looked.reasons, 1000)
	require.Greater(t, looked.found, 200, "turns out of the window that were found")
	require.Greater(t, looked.more, 10_000, "turns that were only counted")
	require.Greater(t, looked.whole, 50, "sessions that nothing has judged")
}

// entered counts what was compared.
type entered struct{ turns, reasons, found, more, whole int }

func (e *entered) compare(ctx context.Context, t *testing.T, k *randomTalk) {
	s := k.chat.s
	q := Query{Budget: 300 << k.r.IntN(8), Session: "chat"}
	for range k.r.IntN(30) {
		q.Text += fmt.Sprintf("w%d ", k.r.IntN(5000))
	}
	if k.r.IntN(3) == 0 {
		q.Kinds = []Kind{[]Kind{KindFact, KindMessage}[k.r.IntN(2)]}
	}
	q, err := q.withDefaults()
	require.NoError(t, err)
	a := s.begin(q, nil)
	defer a.end()
	require.NoError(t, a.candidates(ctx, store.CandidateQuery{
		Scopes: s.chain, Terms: s.db.lexer.Terms(q.Text), Kinds: q.Kinds, Floor: q.Floor, Session: q.Session, Now: a.now, K: 60, Recent: recentTail,
	}))
	all := &everyTurn{assembling: &assembling{s: s, q: q, now: a.now, cands: a.cands, room: a.room}}
	all.cands.Hits, all.cands.Excluded = slices.Clone(a.cands.Hits), slices.Clone(a.cands.Excluded)
	talk, err := k.chat.talk()
	require.NoError(t, err)
	require.NoError(t, talk.exclusively(ctx, func() error {
		all.turnsIn(talk)
		return nil
	}))
	turns, rest := a.enter(a.cands.Hits)
	wantTurns, wantRest := all.enter(all.cands.Hits)
	require.Equal(t, wantRest, rest)
	require.Equal(t, all.cands.Excluded, a.cands.Excluded)
	require.Equal(t, len(wantTurns), len(turns))
	for i, want := range wantTurns {
		require.Equal(t, want, turns[i])
	}
	for i := range rest {
		require.Equal(t, all.standsAt(&rest[i]), a.standsAt(&rest[i]))
		if k, ok := all.turnOf[rest[i].Key.Num]; ok {
			require.Equal(t, all.turns[k].group, a.turns[a.turnOf[rest[i].Key.Num]].group)
		}
	}
	require.Equal(t, all.standsAt(&store.Candidate{Seq: 10_000}), a.standsAt(&store.Candidate{Seq: 10_000}))
	e.count(all, a, len(turns), rest)
}

func (e *entered) count(all *everyTurn, a *assembling, turns int, rest []store.Candidate) {
	e.turns += turns
	e.reasons += len(a.cands.Excluded)
	e.more += len(all.turns) - len(a.turns)
	if len(rest) > 0 && !a.turns[0].managed {
		e.whole++
	}
	for _, h := range all.cands.Hits {
		if i, ok := all.turnOf[h.Key.Num]; ok && all.turns[i].level == session.Cold {
			e.found++
		}
	}
}

// everyTurn is an assembly that looks at all turns of its session.
type everyTurn struct{ *assembling }

func (a *everyTurn) turnsIn(c *conversation) {
	a.turnOf, a.turns = make(map[uint64]int, len(c.blocks)), make([]turnIn, 0, len(c.blocks))
	for i := range c.blocks {
		b := &c.blocks[i]
		u := &c.units[b.unit]
		t := turnIn{block: *b, index: i, level: c.shown(i), pinned: c.pinned(u), managed: c.managed(), score: 4, why: c.why(i)}
		t.size = c.size(b, t.level)
		if len(u.members) > 1 || len(b.nums) > 1 && t.level == session.Raw {
			t.group = c.id + "\x00" + c.blocks[u.members[0]].id
		}
		if b.judged && !t.pinned {
			force := Pass{Result: session.Result{Params: c.force.Params, Keywords: c.force.Tokens}}
			s := force.verdict(b.id, i, b.verdict)
			t.recency, t.similar, t.score = s.Recency, s.Similarity, min(max(s.R, 0), 1)
			if b.verdict.action == session.Retain {
				t.score += 2
			}
		}
		if t.level == session.Trimmed || t.level == session.Summary {
			t.form = c.formID(b, t.level)
		}
		for _, n := range b.nums {
			a.turnOf[n] = i
		}
		a.turns = append(a.turns, t)
	}
	if a.talkLen = len(a.turns); a.talkLen == 0 {
		return
	}
	a.talkSeq = a.turns[a.talkLen-1].seq
	from, size := a.talkLen-1, 0
	for from > 0 && a.turns[from].role != "user" {
		from--
	}
	for i := from; i < a.talkLen; i++ {
		size += a.turns[i].size + turnHeader
	}
	last := a.turns[a.talkLen-1].unit
	for i := range a.turns {
		t := &a.turns[i]
		tail := c.units[t.unit].members[0] >= from && a.turns[from].role == "user" && size <= a.q.Budget/newestShare
		t.newest = (tail || t.unit == last) && t.level != session.Cold
	}
}

func (a *everyTurn) enter(hits []store.Candidate) (turns []*item, rest []store.Candidate) {
	found := map[uint64]*store.Candidate{}
	for i, c := range hits {
		t, ok := a.turnOf[c.Key.Num]
		if ok {
			found[c.Key.Num] = &hits[i]
		}
		if !ok || !a.turns[t].managed && !a.turns[t].newest {
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
		room -= min(t.size, a.q.Budget/offeredShare) + turnHeader
		turns = append(turns, a.turnItems(t, found)...)
	}
	for _, reason := range slices.Sorted(maps.Keys(left)) {
		a.cands.Excluded = append(a.cands.Excluded, *left[reason])
	}
	return turns, rest
}
