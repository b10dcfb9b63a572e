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

// The budget stage. Winners are offered to the allocator (package budget), and its answer is rendered:
//
//	leaveUnpaired, dropDuplicates ─▶ offer ─▶ budget.Fit ─▶ all whole ────────────────▶ place ─▶ count ─▶ fits: done
//	                                   ▲          │ not all whole                        ▲        │
//	                                   │          └▶ compress ─▶ budget.Fit ─▶ summarise ┘        │ too large
//	                                   └────────────── shrink, unplace ◀──────────────────────────┘
//
// Invariants: the rendered context, counted as a whole, is never above Budget − Reserve. Costs are counted page by page
// first, and a counter may count the whole above the sum of its parts; then the same is tried with that much less, so
// the loop ends. Compression runs only when not all pages fit whole: cutting costs more than all the rest.
//
// Worth: the allocator weighs worth per token, and a page is worth its score for each of its tokens, so pages are taken
// in the order of their scores. Two other ways lost evidence on conversations: short pages first (recall .46 for .80 at
// 512 tokens), and leaving out a better page to fill the last tokens with two others (.01 less).
//
// Extracts: chunks of documents leave the last quarter of the room to their extracts, so that more of them have a place
// (shortShare). Extracts everywhere lost the passage that answers too often. Messages, facts and tool results are cut only
// where nothing whole fits. In a session the shares of turns decide instead.

// fit decides which winners go into the context.
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
		if a.q.Session != "" { // a share for the newest pages helps in a conversation; elsewhere it only costs recall
			req.RecentShare = recentShare
		} else if a.s.db.opts.Summarizer == nil { // each short form would be a call
			req.ShortShare = shortShare
		}
		at := a.winners()
		req.Items = slices.Grow(a.scratch.offered[:0], len(at))[:len(at)]
		for j, i := range at {
			a.offer(i, &req.Items[j])
		}
		if a.window.Managed() { // otherwise turns compete as pages do
			a.shareOut(&req, at)
		}
		a.scratch.offered = req.Items
		res, err := budget.Fit(req)
		if err == nil && res.Tier != budget.TierFull {
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
		if a.q.Charge == ChargeContents {
			a.out.Tokens = res.Used
			return nil
		}
		a.out.Tokens = count(a.out.text)
		excess := a.out.Tokens - (a.q.Budget - a.q.Reserve)
		if opening := render.OpeningCost(a.scratch.pages); opening != "" {
			excess += count(opening)
		}
		if excess <= 0 {
			return nil
		}
		if len(res.Placed) == 0 {
			return fmt.Errorf("%w: the frame of an empty context needs %d tokens more; raise Budget by %d", ErrBudget, excess, excess)
		}
		shrink += excess
		a.unplace()
	}
}

// shareOut divides a budget between the turns of a window and what the question found outside it. A window is often
// larger than the budget of one context, and its turns outscore every page. Without shares they would keep every page
// out, and one large old turn would keep out the newest ones.
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

// preamble is what the fixed beginning of a context costs.
func (db *DB) preamble() int {
	n := int(db.begins.Load())
	if n == 0 {
		n = db.opts.Counter.Count(render.PreambleCost())
		db.begins.Store(int64(n))
	}
	return n
}

// withPreamble adds the beginning of a context to the figures of a budget error, so that they match the caller's
// budget.
func withPreamble(err error, preamble int) error {
	var short *budget.BudgetError
	if !errors.As(err, &short) {
		return err
	}
	whole := *short
	whole.Need, whole.Have = short.Need+preamble, short.Have+preamble
	return &whole
}

// unplace clears the reasons and forms of a placing that was too large.
func (a *assembling) unplace() {
	for i := range a.ranked {
		if it := a.ranked[i]; it.tokens > 0 || slices.Contains(budgetReasons, it.reason) {
			it.reason, it.tokens, it.form = "", 0, it.fixed()
		}
	}
}

var budgetReasons = []string{budget.ReasonBudget, budget.ReasonLarge, budget.ReasonGroup, budget.ReasonLow, budget.ReasonTier, budget.ReasonSystem}

// offer describes a winner to the allocator.
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
		Pinned: c.Pinned, Core: c.Provenance == HumanVerified, Recent: c.Recent, Short: c.Kind == KindChunk,
	}
	b.Score = it.scored.score * float64(b.Tokens)
	if c.Kind == KindMessage && a.q.Session != "" && c.GroupName == a.q.Session {
		b.Class, b.Position = budget.History, a.positionOf(c)
	}
	if it.protected() {
		b.Position = it.place
	}
	if journal.IsPage(c.Kind, c.Ref.ID) {
		b.Place = budget.PlaceDirectives
	}
	if len(it.head.ToolCalls) > 0 || it.head.ToolCallID != "" {
		b.Group = c.GroupName + "\x00" + callOf(it.head)
	}
	if t := a.window.Found(c.Key.Num); t != nil && t.Group != "" {
		b.Group = t.Group
	}
	if it.turn != nil {
		it.fitTurn(b)
	}
}

// callOf names the call that a message makes or answers. A call and its results enter a context together or not at all.
func callOf(h *store.Head) string {
	if h.ToolCallID != "" {
		return h.ToolCallID
	}
	return h.ToolCalls[0].ID
}

// classOf gives the allocator's class of a kind. Facts, chunks, tool results and summaries compete as RAG; trust is not
// a class, it is part of their score.
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

// place takes the allocator's answer and renders it.
func (a *assembling) place(res budget.Result, at []int) {
	a.out = &Assembly{Trace: a.q.Trace, LSN: a.cands.LSN, Tier: res.Tier, Limit: a.q.Budget - a.q.Reserve, Review: res.Review, seed: a.s.db.fence + "/" + a.s.name, session: a.q.Session}
	a.placed = make([]*item, 0, len(res.Placed))
	a.out.Blocks = make([]Block, 0, len(res.Placed))
	a.out.shown = make([]shown.Page, 0, len(res.Placed))
	if a.out.Degraded = a.degraded(); a.wordsErr != nil {
		a.out.Degraded = a.wordsErr.Error()
	}
	for _, l := range res.Left {
		a.ranked[at[l.Index]].reason = l.Reason
	}
	for _, p := range a.besideCalls(res.Placed, at) {
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
	a.scratch.pages = shown.Pages(a.scratch.pages[:0], a.out.shown, a.q.Session)
	a.scratch.text = render.AppendText(a.scratch.text[:0], a.out.seed, a.scratch.pages)
	a.out.text = string(a.scratch.text)
}
