package ctxpage

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/ctxpage/ctxpage/budget"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/render"
	"github.com/ctxpage/ctxpage/store"
)

// shownPage is a page of a context and the form it was given.
type shownPage struct {
	head  *store.Head
	ref   string
	text  string
	page  int
	form  manifest.Form
	stale bool
}

// fit decides what goes in.
func (a *assembling) fit(ctx context.Context) error {
	count := a.s.db.opts.Counter.Count
	preamble := 0
	if a.q.Charge != ChargeContents {
		preamble = a.s.db.preamble()
	}
	a.leaveUnpaired()
	for shrink := 0; ; {
		req := budget.Request{Budget: a.q.Budget - preamble - shrink, Reserve: a.q.Reserve, Overflow: a.q.Overflow}
		if a.q.Session != "" { // recency has a claim of its own in a conversation; elsewhere it only costs recall
			req.RecentShare = recentShare
		}
		at := a.winners()
		req.Items = slices.Grow(a.room.offered[:0], len(at))[:len(at)]
		for j, i := range at {
			a.offer(i, &req.Items[j])
		}
		if len(a.turns) > 0 && a.turns[0].managed { // else they compete as pages do
			a.shareOut(&req, at)
		}
		a.room.offered = req.Items
		res, err := budget.Fit(req)
		if err == nil && res.Tier != budget.TierFull { // what all fits is not cut: cutting costs more than all the rest
			for j, i := range at {
				if err := a.compress(ctx, a.ranked[i], &req.Items[j]); err != nil {
					return err
				}
			}
			if res, err = budget.Fit(req); err == nil {
				a.summarise(ctx, res, at)
			}
		}
		if err != nil {
			return fmt.Errorf("%w: %w", ErrBudget, withPreamble(err, preamble+shrink))
		}
		a.place(res, at)
		// Costs are counted page by page. A counter that counts the whole above the sum of its pages must not make
		// the context burst: then the same is tried with that much less.
		if a.q.Charge == ChargeContents {
			a.out.Tokens = res.Used
			return nil
		}
		a.out.Tokens = count(a.out.text)
		over := a.out.Tokens - (a.q.Budget - a.q.Reserve)
		if opening := render.OpeningCost(a.room.pages); opening != "" {
			over += count(opening)
		}
		if over <= 0 {
			return nil
		}
		if len(res.Placed) == 0 {
			return fmt.Errorf("%w: the frame of a context alone needs %d tokens more", ErrBudget, over)
		}
		shrink += over
		a.unplace()
	}
}

// shareOut divides a budget between the turns of a window and what the question found beside them. A window is often
// larger than the budget of one context, and its turns are worth more than any page: without shares they would keep every
// page out, and a large old turn the newest ones.
func (a *assembling) shareOut(req *budget.Request, at []int) {
	limit := req.Budget - req.Reserve
	turns, found := int(newestTurns*float64(limit)), int(foundShare*float64(limit))
	for j, i := range at {
		it, b := a.ranked[i], &req.Items[j]
		switch {
		case it.turn != nil && it.turn.newest:
			turns -= b.Tokens
		case it.turn == nil && it.scored.semantic > 0 && b.Tokens <= found:
			found -= b.Tokens
			b.Score += maxTurnScore * float64(b.Tokens)
		}
	}
	req.RecentShare = max(recentShare, float64(turns)/float64(max(limit, 1)))
}

// preamble is what the beginning of a context costs, which is always the same.
func (db *DB) preamble() int {
	n := int(db.begins.Load())
	if n == 0 {
		n = db.opts.Counter.Count(render.PreambleCost())
		db.begins.Store(int64(n))
	}
	return n
}

// withPreamble counts what a context begins with into what its system part needs, so that people see their own budget.
func withPreamble(err error, preamble int) error {
	var short *budget.BudgetError
	if !errors.As(err, &short) {
		return err
	}
	whole := *short
	whole.Need, whole.Have = short.Need+preamble, short.Have+preamble
	return &whole
}

// winners are the places in ranked of what may go in.
func (a *assembling) winners() []int {
	at := a.room.paged[:0] // what was paged in has been seen to
	for i := range a.ranked {
		if a.ranked[i].reason == "" {
			at = append(at, i)
		}
	}
	a.room.paged = at
	return at
}

// unplace takes back the reasons of a placing that burst.
func (a *assembling) unplace() {
	for i := range a.ranked {
		if it := a.ranked[i]; it.tokens > 0 || slices.Contains(budgetReasons, it.reason) {
			it.reason, it.tokens, it.form = "", 0, it.fixed
		}
	}
}

var budgetReasons = []string{budget.ReasonBudget, budget.ReasonLarge, budget.ReasonGroup, budget.ReasonLow, budget.ReasonTier, budget.ReasonSystem}

// offer tells the allocator of a winner.
func (a *assembling) offer(i int, b *budget.Item) {
	it := a.ranked[i]
	c := it.cand
	text := it.text
	if it.whole && len(it.cuts) > 0 {
		it.form, text = manifest.FormRange, it.cut()
	}
	it.name = it.refText()
	*b = budget.Item{
		Key: it.name, Class: classOf(c.Kind), Position: -i, Tokens: a.cost(it, text),
		Pinned: c.Pinned, Core: c.Provenance == HumanVerified, Recent: c.Recent,
	}
	// The allocator weighs worth per token. A page is worth its score for each of its tokens, so pages are taken in the
	// order of their scores: taking short ones first loses evidence (.46 for .80 at 512 tokens on conversations).
	b.Score = it.scored.score * float64(b.Tokens)
	if c.Kind == KindMessage && a.q.Session != "" && c.GroupName == a.q.Session {
		b.Class, b.Position = budget.History, a.standsAt(c)
	}
	if it.protected() {
		b.Position = it.stand
	}
	if isDirectives(c.Kind, c.Ref.ID) {
		b.Place = budget.PlaceDirectives
	}
	if len(it.head.ToolCalls) > 0 || it.head.ToolCallID != "" {
		b.Group = c.GroupName + "\x00" + turnOf(it.head)
	}
	if i, ok := a.turnOf[c.Key.Num]; ok && a.turns[i].group != "" {
		b.Group = a.turns[i].group
	}
	if it.turn != nil {
		it.fitTurn(b)
	}
}

// refText is the reference as text, which a frame has.
func (it *item) refText() string {
	if it.frame != nil {
		return it.frame.name
	}
	return it.ref().String()
}

func (it *item) cut() string { return cutShown(it.cand.Kind, it.cand.Ref.ID, it.text, it.cuts) }

// turnOf names the turn a call and its results belong to: they go together or not at all.
func turnOf(h *store.Head) string {
	if h.ToolCallID != "" {
		return h.ToolCallID
	}
	return h.ToolCalls[0].ID
}

func classOf(k Kind) budget.Class {
	switch k {
	case KindSystem:
		return budget.System
	case KindMessage:
		return budget.History
	case KindScratch:
		return budget.Scratchpad
	}
	return budget.RAG
}

// cost is what a page takes, header and escapes included. That of a whole page outside a session is always the same and
// is kept with its frame.
func (a *assembling) cost(it *item, text string) int {
	if it.frame == nil || it.stale || a.q.Session != "" || a.q.Charge == ChargeContents || text != it.text {
		return a.count(it, text)
	}
	n := it.frame.cost.Load()
	if n == 0 {
		n = int32(a.count(it, text))
		it.frame.cost.Store(n)
	}
	return int(n)
}

// count counts a page. A text that needs no escapes costs what was counted when it was written; only its header is
// counted now.
func (a *assembling) count(it *item, text string) int {
	count := a.s.db.opts.Counter.Count
	if a.q.Charge == ChargeContents {
		if text == it.text && it.fixed == manifest.FormFull {
			return a.s.db.tokens(it.head, it.page, text)
		}
		return count(text)
	}
	shown := a.shownAs(it, text)
	p := shown.render(a.q.Session)
	if text == it.text && it.fixed == manifest.FormFull && render.Escape(text) == text {
		p.Text = ""
		return count(render.Cost(p, render.ProviderText)) + a.s.db.tokens(it.head, it.page, text) + 1
	}
	return count(render.Cost(p, render.ProviderText))
}

// shownAs is a page as the model will see it. It depends on what is stored and on the leaf alone, so that a replay gives
// the same.
func (a *assembling) shownAs(it *item, text string) shownPage {
	return shownPage{head: it.head, ref: it.name, text: text, page: it.page, form: it.form, stale: it.stale}
}

func (p *shownPage) render(session string) render.Page {
	return renderPage(p.head, p.ref, p.text, p.form, p.stale, session)
}

// renderPages appends the pages of a context, turns of several pages put together.
func renderPages(dst []render.Page, shown []shownPage, session string) []render.Page {
	merged := turnMerger{pages: slices.Grow(dst, len(shown))}
	for i := range shown {
		merged.add(shown[i].head, shown[i].page, shown[i].render(session))
	}
	return merged.pages
}

func renderPage(h *store.Head, ref, text string, form manifest.Form, stale bool, session string) render.Page {
	p := render.Page{
		Ref: ref, Kind: h.Kind.String(), Provenance: shownProvenance(h, form).String(), Source: h.Artefact.Source, Date: h.CurrentAsOf,
		Stale: stale, Form: form.String(), Name: h.Name, Text: text,
	}
	switch {
	case h.Kind == KindSystem:
		p.Role, p.Stable = render.RoleSystem, true
		if isDirectives(h.Kind, h.ID) {
			p.Kind = "directive"
		}
	case isTurn(h, session):
		p.Role, p.ToolCallID = store.SpokenAs(h.Role), h.ToolCallID
		for _, c := range h.ToolCalls {
			if form == manifest.FormStub {
				c.Arguments = "{}" // a stub says that there is more, and how to get it
			}
			p.ToolCalls = append(p.ToolCalls, render.ToolCall{ID: c.ID, Type: c.Type, Name: c.Name, Arguments: c.Arguments})
		}
	}
	p.Stable = p.Stable || h.Pinned
	return p
}

// place takes over the allocator's answer and renders it.
func (a *assembling) place(res budget.Result, at []int) {
	a.out = &Assembly{Trace: a.q.Trace, LSN: a.cands.LSN, Tier: res.Tier, Limit: a.q.Budget - a.q.Reserve, Review: res.Review, seed: a.s.db.fence + "/" + a.s.name, session: a.q.Session}
	a.placed = make([]*item, 0, len(res.Placed))
	a.out.Blocks = make([]Block, 0, len(res.Placed))
	a.out.shown = make([]shownPage, 0, len(res.Placed))
	if a.wordsErr != nil {
		a.out.Degraded = a.wordsErr.Error()
	}
	for _, l := range res.Left {
		a.ranked[at[l.Index]].reason = l.Reason
	}
	for _, p := range res.Placed {
		it := a.ranked[at[p.Index]]
		text := it.text
		switch {
		case p.Form == budget.Compressed && it.sum != nil:
			it.form, text, p.Tokens = manifest.FormSummary, it.sum.text, it.sum.tokens
		case p.Form == budget.Compressed, it.whole && len(it.cuts) > 0:
			it.form, text = manifest.FormRange, it.cut()
		default:
			it.form = it.fixed
		}
		it.tokens = p.Tokens
		a.placed = append(a.placed, it)
		a.out.shown = append(a.out.shown, a.shownAs(it, text))
		a.out.Blocks = append(a.out.Blocks, it.block(text))
	}
	a.out.Left = a.left()
	a.room.pages = renderPages(a.room.pages[:0], a.out.shown, a.q.Session)
	a.room.text = render.AppendText(a.room.text[:0], a.out.seed, a.room.pages)
	a.out.text = string(a.room.text)
}

func (it *item) block(text string) Block {
	h := it.head
	return Block{
		Ref: it.ref(), Num: it.cand.Key.Num, Form: it.form, Tokens: it.tokens, Score: it.scored.score, Text: text, Stale: it.stale,
		Kind: h.Kind, Provenance: h.Provenance, Role: h.Role, Name: h.Name, Source: h.Artefact.Source, AsOf: h.CurrentAsOf, Meta: maps.Clone(h.Meta),
	}
}

func (it *item) ref() Ref {
	if it.head == nil {
		return it.cand.Ref
	}
	return it.head.PageRef(it.page)
}
