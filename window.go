package ctxpage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/conversation"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/internal/rendering"
	"github.com/ctxpage/ctxpage/internal/triage"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/render"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
)

// How a session enters a context. Passes and the watcher have given each turn a level, and the context follows it:
//
//	raw                    whole, its pages as items with the newest turn last
//	trimmed, summary       the derived page that was made of the turn (formText); the turn itself if that is gone
//	stub                   one line with the title
//	cold                   left out and counted
//
// The best of the stubs and cold turns that the question found compete whole, as pages do, unless the pass in force gave
// them their level. What it found with its words in the window enters wherever it is (talk.Offer).
//
// Until a session has had a pass, a window or a pin nothing has judged its turns, and they compete as other pages do.
//
// Invariants: the turns are read under the lock of the session and at the LSN of the candidates, so a context never
// mixes two states of a session. A call and its results enter together or not at all (Group, leaveUnpaired), and the
// results follow it even if they came late (besideCalls), because no provider accepts anything else.

// candidates queries the store while nothing of the session can change.
func (a *assembling) candidates(ctx context.Context, q store.CandidateQuery) (err error) {
	if a.q.Session == "" {
		if a.cands.Hits == nil { // what is asked for again stands beside it
			ctx = format.WithRoom(ctx, &a.planned.Room)
		}
		a.cands, err = a.s.db.store.Candidates(ctx, q)
		return err
	}
	if err := store.CheckID("session", a.q.Session); err != nil {
		return err
	}
	conv := a.s.db.sessions.Of(a.s.name, a.q.Session)
	return conv.Exclusively(ctx, func() error {
		if err := conv.Exists(ctx); err != nil {
			return err
		}
		if a.cands, err = a.s.db.store.Candidates(ctx, q); err == nil && a.q.AsOf == 0 {
			a.turnsIn(conv)
			err = a.besideLarge(ctx, conv, q)
		}
		return err
	})
}

// besideLarge asks for candidates again without large turns whose pages took the places of others. Their pages that
// are shown stay.
func (a *assembling) besideLarge(ctx context.Context, conv *conversation.Conversation, q store.CandidateQuery) error {
	large, kept := a.window.Crowding(a.cands.Hits, defaultTopK)
	if large == nil {
		return nil
	}
	q.Mask, q.AsOf = append(slices.Clip(q.Mask), large...), a.cands.LSN
	more, err := a.s.db.store.Candidates(ctx, q)
	if err != nil {
		return err
	}
	more.Hits = append(more.Hits, kept...)
	a.cands = more
	a.turnsIn(conv)
	return nil
}

// turnsIn takes what a context needs of the session.
func (a *assembling) turnsIn(c *conversation.Conversation) {
	q := conversation.Question{
		Budget: a.q.Budget, Room: a.q.Budget - a.q.Reserve, Kinds: a.q.Kinds, Now: codec.Micros(a.now), NoRoom: string(triage.OverBudget), Hidden: triage.Masked, Hits: a.cands.Hits,
	}
	if a.tx != nil {
		q.Masked = append(slices.Collect(maps.Keys(a.tx.writes)), slices.Collect(maps.Keys(a.tx.drop))...)
	}
	a.window = c.Offer(q)
}

// enter makes items of the turns that enter the context and records why the others do not. It removes their pages from
// the hits.
func (a *assembling) enter(hits []store.Candidate) (turns []*item, rest []store.Candidate) {
	in, rest, left := a.window.Enter(hits)
	for _, t := range in {
		turns = append(turns, a.turnItems(t)...)
	}
	a.exclude(left)
	return turns, rest
}

// exclude adds turns that do not enter. Those that a rule of the store excludes, too, are counted there, and may be named.
func (a *assembling) exclude(left []store.Excluded) {
	out := slices.Clone(a.cands.Excluded)
	for _, e := range left {
		i := slices.IndexFunc(a.cands.Excluded, func(x store.Excluded) bool { return x.Reason == e.Reason })
		if i < 0 {
			out = append(out, e)
			continue
		}
		named := slices.Clip(out[i].Nearest)
		for _, c := range e.Nearest {
			if !slices.ContainsFunc(named, func(n store.Candidate) bool { return n.Key.Num == c.Key.Num }) {
				named = append(named, c)
			}
		}
		out[i].Nearest = named
	}
	a.cands.Excluded = out
}

// turnItems returns the pages of a turn, or the one item of its short form.
func (a *assembling) turnItems(t *conversation.TurnIn) []*item {
	scored := judged{score: t.Score, recency: t.Recency, semantic: t.Similar, tag: triage.Red}
	note := cmp.Or(t.Why, "in the window of the session")
	forms := map[session.Level]manifest.Form{session.Trimmed: manifest.FormSummary, session.Summary: manifest.FormSummary, session.Stub: manifest.FormStub}
	if form := forms[t.Level]; form != manifest.FormFull {
		scored.tag = triage.Green
		return []*item{{cand: a.window.Candidate(t, 0), turn: &sessionTurn{TurnIn: t, fixed: form}, scored: scored, note: note, form: form}}
	}
	out, whole := make([]*item, 0, len(t.Nums)), &sessionTurn{TurnIn: t}
	for p := range t.Nums {
		if t.Shows(p) {
			out = append(out, &item{cand: a.window.Candidate(t, p), turn: whole, scored: scored, note: note})
		}
	}
	return out
}

// loadStubs loads the turns that stubs stand for: a stub has the first words of its turn. A turn that cannot be read has none.
func (a *assembling) loadStubs(ctx context.Context, at []int) error {
	if len(at) == 0 {
		return nil
	}
	keys := make([]store.PageKey, len(at))
	for j, i := range at {
		keys[j] = a.ranked[i].cand.Key
	}
	frames, errs, err := a.s.db.table.load(ctx, a.s.chain[:1], keys, nil)
	if err != nil {
		return err
	}
	defer a.s.db.table.unpin(frames)
	for j, i := range at {
		it := a.ranked[i]
		switch f := frames[j]; {
		case f != nil:
			it.head, it.page, it.text = f.head, 1, rendering.Stub(f.head, f.text)
		case errors.Is(errs[j], store.ErrCorrupt):
			it.reason = triage.Damaged
		default:
			it.reason = triage.Gone
		}
	}
	return nil
}

// loadForms loads the short forms of compacted turns: the turns of stubs, derived pages for the others. If a derived page is
// gone, the turn itself takes its place (whole).
func (a *assembling) loadForms(ctx context.Context, forms []int) (whole []int, err error) {
	var stubs, at []int
	for _, i := range forms {
		if a.ranked[i].fixed() == manifest.FormStub {
			stubs = append(stubs, i)
		} else {
			at = append(at, i)
		}
	}
	if err := a.loadStubs(ctx, stubs); err != nil || len(at) == 0 { // a store elsewhere need not be asked
		return nil, err
	}
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
			it.reason = triage.Gone
			continue
		}
		it.head, it.page = heads[j].Head, 1
		num, text, err := a.s.db.formText(ctx, a.s.chain[:1], it.turn.Form)
		switch {
		case errors.Is(err, store.ErrNotFound), errors.Is(err, store.ErrGone):
			it.turn.fixed, it.form, it.head = manifest.FormFull, manifest.FormFull, nil
			whole = append(whole, i)
		case err != nil:
			return nil, err
		default:
			it.text, it.via = text, num
		}
	}
	return whole, nil
}

// formText reads the derived page that is shown in place of a turn.
func (db *DB) formText(ctx context.Context, scopes store.Scopes, id string) (num uint64, text string, err error) {
	l, err := db.store.Resolve(ctx, scopes, Ref{ID: id})
	if err != nil {
		return 0, "", err
	}
	if len(l.Pages) != 1 {
		return 0, "", fmt.Errorf("%w: %s has %d pages", store.ErrNotFound, id, len(l.Pages))
	}
	texts, err := db.texts(ctx, scopes, l.Pages)
	if err != nil {
		return 0, "", err
	}
	return l.Pages[0].Num, texts[0], nil
}

// reasonUnpaired is the reason for a call or a result that must not be in a context alone.
const reasonUnpaired = "its call, or a result of it, is not in the context"

// leaveUnpaired leaves out results whose call is not in the context, and calls of which a result is missing: one of
// them may have expired, been deleted, not been found, or not be there yet, and no provider takes such a request
// (talk.Pair). The others get the name of their pair, by which the budget takes or leaves them together.
func (a *assembling) leaveUnpaired() {
	if a.q.Session == "" {
		return
	}
	at := map[Ref][]*item{} // a turn may have several pages
	var heads []*store.Head
	tools := false
	for _, i := range a.winners() {
		it := a.ranked[i]
		if it.head == nil || !rendering.IsTurn(it.head, a.q.Session) {
			continue
		}
		ref := Ref{Scope: it.head.Scope, ID: it.head.ID}
		if at[ref] == nil {
			heads, tools = append(heads, it.head), tools || conversation.UsesTools(it.head)
		}
		at[ref] = append(at[ref], it)
	}
	if !tools {
		return
	}
	slices.SortFunc(heads, func(x, y *store.Head) int { return cmp.Or(cmp.Compare(x.Seq, y.Seq), cmp.Compare(x.ID, y.ID)) })
	for i, call := range conversation.Pair(heads) {
		for _, it := range at[Ref{Scope: heads[i].Scope, ID: heads[i].ID}] {
			switch {
			case call >= 0:
				it.pair = Ref{Scope: heads[call].Scope, ID: heads[call].ID}.String()
			case call == conversation.Refused:
				it.reason = reasonUnpaired
			}
		}
	}
}

// besideCalls puts each result behind its call (talk.Beside). Turns of the role system come before all others: two providers
// take none behind a turn.
func (a *assembling) besideCalls(placed []triage.Placed, at []int) []triage.Placed {
	later := func(p triage.Placed) int {
		if h := a.ranked[at[p.Index]].head; h.Kind == store.KindSystem || rendering.IsTurn(h, a.q.Session) && store.SpokenAs(h.Role) == render.RoleSystem {
			return 0
		}
		return 1
	}
	if a.q.Session != "" {
		slices.SortStableFunc(placed, func(x, y triage.Placed) int { return later(x) - later(y) })
	}
	heads, tools := make([]*store.Head, len(placed)), false
	for n, p := range placed {
		if it := a.ranked[at[p.Index]]; it.head != nil && rendering.IsTurn(it.head, a.q.Session) {
			heads[n], tools = it.head, tools || conversation.UsesTools(it.head)
		}
	}
	if !tools {
		return placed
	}
	order := conversation.Beside(heads)
	if order == nil {
		return placed
	}
	out := make([]triage.Placed, len(placed))
	for n, i := range order {
		out[n] = placed[i]
	}
	return out
}

// fitTurn describes a turn to the allocator. The turn keeps its place in the conversation.
func (it *item) fitTurn(b *triage.Item) {
	t := it.turn
	b.Class, b.Place, b.Position, b.Group = triage.History, triage.PlaceHistory, position(t.Index, it.page), t.Group
	b.Pinned, b.Newest, b.Recent = t.Pinned, t.Asks, b.Recent || t.Score == conversation.MaxTurnScore
	b.Score *= 1 - t.Late/2 // of equal turns the newer one wins, not the longer one
	if t.Newest {
		b.Place = triage.PlaceNewest
	}
	if t.fixed == manifest.FormStub && t.Group == "" && !t.Newest {
		b.MustStub, b.StubTokens = true, b.Tokens
	}
}

// position orders the pages of a conversation.
func position(turn, page int) int { return (turn+1)<<12 + page }

// positionOf orders a page of the session that competes with other pages. Drafts come after all turns.
func (a *assembling) positionOf(c *store.Candidate) int {
	if t := a.window.Found(c.Key.Num); t != nil {
		return position(t.Index, c.Ref.Page)
	}
	if a.window.Len == 0 {
		return position(int(c.Seq), c.Ref.Page)
	}
	return position(a.window.Len+int(max(c.Seq-a.window.Seq, 0)), c.Ref.Page)
}

// together puts pages that were found side by side where the context says once what they have in common: the turns of a
// conversation in their order, conversations by their time, the pages of one artefact or source beside the best of them. Pages
// that are protected, and turns of the session that asks, keep their places.
func (a *assembling) together(placed []triage.Placed, at []int) []triage.Placed {
	of := func(p triage.Placed) *item { return a.ranked[at[p.Index]] }
	moves := func(it *item) bool {
		return it.head != nil && !it.protected() && (it.turn == nil || it.quoted) && (it.quoted || !rendering.IsTurn(it.head, a.q.Session))
	}
	for from := 0; from < len(placed); {
		to := from + 1
		for moves(of(placed[from])) && to < len(placed) && moves(of(placed[to])) && of(placed[to]).head.Kind == of(placed[from]).head.Kind {
			to++
		}
		if to-from > 1 {
			a.gather(placed[from:to], of)
		}
		from = to
	}
	return placed
}

// gather sorts pages of one kind. The last one is the best.
func (a *assembling) gather(placed []triage.Placed, of func(triage.Placed) *item) {
	type run struct {
		place int
		first time.Time
	}
	runs, in := map[opened]*run{}, make([]*run, len(a.ranked)) // by index
	var last opened
	var r *run
	for n, p := range placed {
		it := of(p)
		k := *a.opens(it)
		if k.clock = ""; it.head.Kind == store.KindMessage {
			k.line = ""
		}
		if r == nil || k != last {
			if last, r = k, runs[k]; r == nil {
				r = &run{first: it.head.CurrentAsOf}
				runs[k] = r
			}
		}
		in[p.Index] = r
		if r.place = n; it.head.CurrentAsOf.Before(r.first) {
			r.first = it.head.CurrentAsOf
		}
	}
	slices.SortStableFunc(placed, func(p, q triage.Placed) int {
		x, y := of(p), of(q)
		r, s := in[p.Index], in[q.Index]
		switch {
		case r != s && x.head.Kind == store.KindMessage:
			return cmp.Or(r.first.Compare(s.first), cmp.Compare(r.place, s.place))
		case r != s:
			return cmp.Compare(r.place, s.place)
		case x.head.Kind == store.KindMessage:
			return cmp.Or(cmp.Compare(x.head.Seq, y.head.Seq), cmp.Compare(x.head.ID, y.head.ID), cmp.Compare(x.page, y.page))
		case x.head.ID == y.head.ID:
			return cmp.Compare(x.page, y.page)
		}
		return 0
	})
}
