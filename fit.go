package ctxpage

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ctxpage/ctxpage/budget"
	"github.com/ctxpage/ctxpage/internal/journal"
	"github.com/ctxpage/ctxpage/internal/shown"
	"github.com/ctxpage/ctxpage/internal/talk"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/render"
	"github.com/ctxpage/ctxpage/store"
)

// fit decides what goes in.
func (a *assembling) fit(ctx context.Context) error {
	count := a.s.db.opts.Counter.Count
	preamble := 0
	if a.q.Charge != ChargeContents {
		preamble = a.s.db.preamble()
	}
	a.leaveUnpaired()
	a.dropDuplicates()
	for shrink := 0; ; {
		req := budget.Request{Budget: a.q.Budget - preamble - shrink, Reserve: a.q.Reserve, Overflow: a.q.Overflow, InOrder: a.q.Session == ""}
		if a.q.Session != "" { // recency has a claim of its own in a conversation; elsewhere it only costs recall
			req.RecentShare = recentShare
		}
		at := a.winners()
		req.Items = slices.Grow(a.room.offered[:0], len(at))[:len(at)]
		for j, i := range at {
			a.offer(i, &req.Items[j])
		}
		if a.window.Managed() { // else they compete as pages do
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
		case it.turn != nil && it.turn.Newest:
			turns -= b.Tokens
		case it.turn == nil && it.scored.semantic > 0 && b.Tokens <= found:
			found -= b.Tokens
			b.Score += talk.MaxTurnScore * float64(b.Tokens)
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

// unplace takes back the reasons of a placing that burst.
func (a *assembling) unplace() {
	for i := range a.ranked {
		if it := a.ranked[i]; it.tokens > 0 || slices.Contains(budgetReasons, it.reason) {
			it.reason, it.tokens, it.form = "", 0, it.fixed()
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
	// order of their scores: taking short ones first loses evidence (.46 for .80 at 512 tokens on conversations), and so
	// does leaving out a better one to fill the last token with two others (.01 there).
	b.Score = it.scored.score * float64(b.Tokens)
	if c.Kind == KindMessage && a.q.Session != "" && c.GroupName == a.q.Session {
		b.Class, b.Position = budget.History, a.standsAt(c)
	}
	if it.protected() {
		b.Position = it.stand
	}
	if journal.IsPage(c.Kind, c.Ref.ID) {
		b.Place = budget.PlaceDirectives
	}
	if len(it.head.ToolCalls) > 0 || it.head.ToolCallID != "" {
		b.Group = c.GroupName + "\x00" + turnOf(it.head)
	}
	if t := a.window.Found(c.Key.Num); t != nil && t.Group != "" {
		b.Group = t.Group
	}
	if it.turn != nil {
		it.fitTurn(b)
	}
}

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

// place takes over the allocator's answer and renders it.
func (a *assembling) place(res budget.Result, at []int) {
	a.out = &Assembly{Trace: a.q.Trace, LSN: a.cands.LSN, Tier: res.Tier, Limit: a.q.Budget - a.q.Reserve, Review: res.Review, seed: a.s.db.fence + "/" + a.s.name, session: a.q.Session}
	a.placed = make([]*item, 0, len(res.Placed))
	a.out.Blocks = make([]Block, 0, len(res.Placed))
	a.out.shown = make([]shown.Page, 0, len(res.Placed))
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
			it.form = it.fixed()
		}
		it.tokens = p.Tokens
		a.placed = append(a.placed, it)
		a.out.shown = append(a.out.shown, a.shownAs(it, text))
		a.out.Blocks = append(a.out.Blocks, it.block(text))
	}
	a.out.Left = a.left()
	a.room.pages = shown.Pages(a.room.pages[:0], a.out.shown, a.q.Session)
	a.room.text = render.AppendText(a.room.text[:0], a.out.seed, a.room.pages)
	a.out.text = string(a.room.text)
}
