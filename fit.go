package ctxpage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"

	"github.com/ctxpage/ctxpage/internal/conversation"
	"github.com/ctxpage/ctxpage/internal/directivelog"
	"github.com/ctxpage/ctxpage/internal/rendering"
	"github.com/ctxpage/ctxpage/internal/triage"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/render"
	"github.com/ctxpage/ctxpage/store"
)

// The budget stage. Winners are offered to the allocator (package budget), and its answer is rendered:
//
//	                                 offer ─▶ triage.Fit ─▶ all whole ────────────────▶ place ─▶ count ─▶ fits: done
//	                                   ▲          │ not all whole                        ▲        │
//	                                   │          └▶ compress ─▶ triage.Fit ─▶ summarise ┘        │ too large
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
// Extracts: chunks of documents, and long turns that are yellow, leave the last quarter of the room to their extracts, so that
// more pages have a place (shortShare, brief). Extracts everywhere lost the passage that answers too often. What room is left
// makes extracts whole again before pages enter that match nothing of the question, such as recent ones (Unasked). Facts, tool
// results and other messages are cut only where nothing whole fits. In a session the shares of turns decide instead.
//
// Rejected for long turns: extracts that compete by their own length, without the rule that divides the score of a turn by its
// length. They took the place of two short turns each, and those answer more often (bench/README.md, Long answers).

// fit decides which winners go into the context.
func (a *assembling) fit(ctx context.Context) error {
	preamble := a.preamble()
	recounted, least := false, 0 // least: how often the system part alone was tried
	for shrink := 0; ; {
		req := triage.Request{Budget: a.q.Budget - preamble - shrink, Reserve: a.q.Reserve, Overflow: a.q.overflow(), InOrder: a.q.Session == ""}
		if a.q.Session != "" { // a share for the newest pages helps in a conversation; elsewhere it only costs recall
			req.RecentShare = recentShare
		} else if a.s.db.opts.Summarizer == nil { // each short form would be a call
			req.ShortShare = shortShare
		}
		at := a.winners()
		req.Items = slices.Grow(a.scratch.offered[:0], len(at))[:len(at)]
		clear(a.opened)
		a.paid = opened{}
		for j, i := range at {
			a.offer(i, &req.Items[j])
		}
		if a.window.Managed() { // otherwise turns compete as pages do
			at = a.shareOut(&req, at)
		}
		a.scratch.offered = req.Items
		res, err := triage.Fit(req)
		if err == nil && (res.Tier != triage.TierFull || res.Demand > res.Limit) {
			for j, i := range at {
				if err := a.compress(ctx, a.ranked[i], &req.Items[j]); err != nil {
					return err
				}
			}
			req.Exact = func(j int) { a.extract(a.ranked[at[j]], &req.Items[j]) }
			if res, err = triage.Fit(req); err == nil {
				a.summarise(ctx, res, at)
			}
		}
		if err != nil {
			// What other pages took for their frame is free again without them, and pages that are counted apart take a little
			// more than the whole: the system part gets what it asks for, and is counted where it stands. A recount may ask for more.
			var short *triage.BudgetError
			if errors.As(err, &short) && least < 2 && !a.q.ContentsOnly {
				shrink, least = a.q.Budget-preamble-a.q.Reserve-short.Need, least+1
				continue
			}
			return fmt.Errorf("%w: %w", store.ErrBudget, withPreamble(err, preamble+shrink))
		}
		a.place(res, at)
		if a.q.ContentsOnly {
			a.out.Tokens = res.Used
			return nil
		}
		a.out.Tokens = a.countShown()
		excess := a.out.Tokens - (a.q.Budget - a.q.Reserve)
		if _, before := render.Frame(a.scratch.pages, a.q.LongForm); before != "" {
			excess += a.counter.Count(before)
		}
		if excess <= 0 {
			a.apportion()
			return nil
		}
		if !recounted && a.recount() {
			recounted = true
			a.unplace()
			continue
		}
		if len(res.Placed) == 0 || least > 0 {
			has := a.q.Budget - a.q.Reserve
			return fmt.Errorf("%w: %w", store.ErrBudget, &triage.BudgetError{Need: has + excess, Have: has, Shortfall: excess})
		}
		shrink += excess
		a.unplace()
	}
}

// shareOut divides a budget between the newest turns of a window and what the question found, outside the window and in it.
// A window is often larger than the budget of one context, and its turns outscore every page. Without shares they would
// keep every page out, one large old turn would keep out the newest ones, and the turn that answers would give way to
// newer ones that do not. It returns at without the turns that are left out.
func (a *assembling) shareOut(req *triage.Request, at []int) []int {
	at, turns := a.cutHistory(req, at)
	limit := req.Budget - req.Reserve
	share := limit / foundPart
	best, found := 0.0, make([]int, 0, len(at)) // places in at
	for j, i := range at {
		it := a.ranked[i]
		if it.turn == nil && it.scored.semantic > 0 || it.cand.Lexical.Score > 0 && !it.steady && (it.turn == nil || !it.turn.Newest) {
			best, found = max(best, it.cand.Lexical.Score), append(found, j)
		}
	}
	worth := func(j int) float64 { // pages and turns are judged apart, so their scores do not compare
		it := a.ranked[at[j]]
		if it.cand.Lexical.Score > 0 {
			return it.cand.Lexical.Score / best
		}
		return it.scored.semantic
	}
	slices.SortStableFunc(found, func(x, y int) int { return cmp.Compare(worth(y), worth(x)) })
	for _, j := range found {
		b := &req.Items[j]
		if a.ranked[at[j]].quoted && b.Tokens > 0 {
			b.Score = worth(j) * float64(b.Tokens)
		}
		if b.Tokens <= share {
			share -= b.Tokens
			b.Score += conversation.MaxTurnScore * float64(b.Tokens)
		}
	}
	req.RecentShare = max(recentShare, float64(turns)/float64(max(limit, 1)))
	return at
}

// cutHistory chooses where the history of a context begins, if the turns of the window are more than the budget holds, less
// what the question found. Providers cache the beginning of a request, so the history must begin with the same turn in as
// many calls as possible, whatever they ask. Of the user turns whose history takes between historyLeast and all of that
// share it takes the one whose number divides by the highest power of two: the choice stays the same until that turn leaves
// the range. Of older turns, and of turns larger than half of the share, those that the question found come after the
// history as quoted pages, and the others are left out. Turns that a pass has judged compete by its scores instead. It
// returns at without the turns that are left out, and the share of the history.
func (a *assembling) cutHistory(req *triage.Request, at []int) (kept []int, most int) {
	limit, groups := max(req.Budget-req.Reserve, 0), map[string]*turnGroup{}
	var turns []int // places in at
	for j, i := range at {
		it, b := a.ranked[i], &req.Items[j]
		it.steady, it.quoted = false, false
		switch {
		case b.Class == triage.System || b.Pinned || b.Core || it.turn != nil && (it.turn.Newest || it.turn.Asks):
			limit -= b.Tokens
		case it.turn == nil:
			if it.quoted = a.quotes(it); it.quoted {
				b.Class, b.Place, b.Position = triage.RAG, triage.PlaceChunks, b.Position-quotedFirst
			}
		case it.turn.Score == conversation.MaxTurnScore:
			turns = append(turns, j)
			g := groups[cmp.Or(b.Group, b.Key)]
			if g == nil {
				g = &turnGroup{first: it.turn.Index}
				groups[cmp.Or(b.Group, b.Key)] = g
			}
			g.first, g.tokens, g.cut = min(g.first, it.turn.Index), g.tokens+b.Tokens, g.cut || it.turn.Pages != nil
		}
	}
	slices.SortStableFunc(turns, func(x, y int) int { return cmp.Compare(req.Items[y].Position, req.Items[x].Position) })
	limit = max(limit, 0)
	most = historyShare(limit, a.foundBeside(req, at, turns, limit))
	fits := func(j int) bool {
		g := groups[cmp.Or(req.Items[j].Group, req.Items[j].Key)]
		return g.tokens <= most/2 && !g.cut
	}
	begin := a.historyFrom(req, at, slices.DeleteFunc(slices.Clone(turns), func(j int) bool { return !fits(j) }), most)
	for _, j := range turns {
		it, b := a.ranked[at[j]], &req.Items[j]
		switch {
		case fits(j) && groups[cmp.Or(b.Group, b.Key)].first >= begin:
			it.steady = true
		case !it.turn.Found:
			it.reason = triage.OverBudget
		default:
			if it.quoted = !conversation.UsesTools(it.head); it.quoted {
				b.Class, b.Place, b.Position, b.Recent = triage.RAG, triage.PlaceChunks, b.Position-quotedFirst, false
			}
		}
	}
	parted := map[string]bool{} // of a call and its results, some may have been judged by a pass and others not
	for _, i := range at {
		if it := a.ranked[i]; it.pair != "" && it.reason != "" {
			parted[it.pair] = true
		}
	}
	items, kept := req.Items[:0], at[:0]
	for j, i := range at {
		if it := a.ranked[i]; it.reason == "" && parted[it.pair] {
			it.reason = triage.OverBudget
		}
		if a.ranked[i].reason == "" {
			items, kept = append(items, req.Items[j]), append(kept, i)
		}
	}
	req.Items = items
	return kept, most
}

// foundBeside counts the tokens of what the question found beside the longest history that fits a limit. turns are places in at, newest first.
func (a *assembling) foundBeside(req *triage.Request, at, turns []int, limit int) (tokens int) {
	for j, i := range at {
		if it := a.ranked[i]; it.turn == nil && (it.scored.semantic > 0 || it.cand.Lexical.Score > 0) {
			tokens += req.Items[j].Tokens
		}
	}
	for _, j := range turns {
		if limit -= req.Items[j].Tokens; limit < 0 && a.ranked[at[j]].turn.Found {
			tokens += req.Items[j].Tokens
		}
	}
	return tokens
}

// historyShare returns the tokens that the history may take: all, less what the question found, which takes a quarter at most. That is
// rounded up to an eighth of the limit: with each other share the history may begin with another turn.
func historyShare(limit, found int) int {
	step := limit / (2 * foundPart)
	if step == 0 {
		return limit
	}
	return limit - min((found+step-1)/step, 2)*step
}

// turnGroup has turns that enter together: a turn with its calls, their results and all of its pages.
type turnGroup struct {
	first  int // index of its first turn
	tokens int
	cut    bool // only pieces of it are offered, which depend on the question
}

// historyFrom returns the index of the turn with which the history begins. turns are places in at, newest first.
func (a *assembling) historyFrom(req *triage.Request, at, turns []int, most int) (begin int) {
	size, best := 0, -1
	for _, j := range turns {
		it := a.ranked[at[j]]
		if size += req.Items[j].Tokens; size > most {
			if best < 0 && begin == 0 {
				begin = it.turn.Index + 1
			}
			return begin
		}
		if size < int(historyLeast*float64(most)) {
			begin = 0
			continue
		}
		if n := bits.TrailingZeros64(uint64(it.head.Seq) >> 1); it.head.Role == render.RoleUser && it.page == 1 && n >= best {
			best, begin = n, it.turn.Index
		}
	}
	return 0
}

// quotes reports whether a turn of the session that competes with pages is shown as a quotation after the history. Calls
// and results keep their places, because providers accept them there only.
func (a *assembling) quotes(it *item) bool {
	return it.own == nil && rendering.IsTurn(it.head, a.q.Session) && !conversation.UsesTools(it.head) && it.head.Provenance != store.HumanVerified
}

// recount counts the placed pages anew. It reports whether one takes more than its stored count says, which another program
// may have written: that page pays for it, not all others. Its frame does not keep that, or other contexts would depend on this one.
func (a *assembling) recount() (more bool) {
	for i, it := range a.placed {
		if it.frame == nil || a.foreign || a.q.LongForm || it.form != manifest.FormFull || a.out.shown[i].Text != it.text || it.continues() {
			continue
		}
		if n := a.counter.Count(render.Cost(a.renderAs(it, it.text), false)); n > a.cost(it, it.text) {
			more, it.again = true, n
		}
	}
	return more
}

// apportion sets the share of each block of the tokens of the context, so that the shares add up. What pages cost before they
// stood together is a little more: each was counted apart.
func (a *assembling) apportion() {
	cost, costs, given := 0, 0, 0
	for _, it := range a.placed {
		costs += it.tokens
	}
	for _, it := range a.placed {
		cost += it.tokens
		upTo := int(int64(a.out.Tokens) * int64(cost) / int64(max(costs, 1)))
		it.tokens, given = upTo-given, upTo
	}
}

// handOut makes what the caller gets of the pages, and ends the assembly. A client does so while its manifest is under way.
func (a *assembling) handOut() {
	if a.scratch == nil { // it has done so
		return
	}
	a.out.Blocks, a.out.Refs = make([]Block, 0, len(a.placed)), make([]Ref, 0, len(a.placed))
	for i, it := range a.placed {
		a.out.Blocks = append(a.out.Blocks, it.block(a.out.shown[i].Text))
		a.out.Refs = append(a.out.Refs, it.ref())
	}
	a.out.Left = a.left()
	a.end()
}

// preamble returns the tokens of the fixed beginning of a context.
func (a *assembling) preamble() int {
	if a.q.ContentsOnly {
		return 0
	}
	kept, pages := &a.s.db.begins[0], []render.Page(nil)
	if a.q.Session != "" || slices.ContainsFunc(a.ranked, func(it *item) bool { return it.cand.Kind == store.KindSystem }) {
		kept, pages = &a.s.db.begins[1], []render.Page{{Role: render.RoleUser}}
	}
	n := int(kept.Load())
	if n == 0 || a.foreign || a.q.LongForm {
		text, _ := render.Frame(pages, a.q.LongForm)
		if n = a.counter.Count(text); !a.foreign && !a.q.LongForm {
			kept.Store(int64(n))
		}
	}
	return n
}

// withPreamble adds the beginning of a context to the figures of a budget error, so that they match the caller's
// budget.
func withPreamble(err error, preamble int) error {
	var short *triage.BudgetError
	if !errors.As(err, &short) {
		return err
	}
	whole := *short
	whole.Need, whole.Have = short.Need+preamble, short.Have+preamble
	return &whole
}

// tier is the allocator's tier. Under Fill it also reports pages that were left out before the allocator was asked: turns
// before the history, pages beyond the top K, or pages that cannot be served.
func (a *assembling) tier(t triage.Tier) triage.Tier {
	if a.q.Ladder || t >= triage.TierCore {
		return t
	}
	for _, it := range a.ranked {
		switch it.reason {
		case "", triage.Duplicate, reasonSummed, triage.OtherSession: // the context has what it says, or must not have it
		default:
			if it.matters() {
				return triage.TierCore
			}
		}
	}
	return t
}

// unplace clears the reasons and forms of a placing that was too large.
func (a *assembling) unplace() {
	for i := range a.ranked {
		if it := a.ranked[i]; it.tokens > 0 || slices.Contains(budgetReasons, it.reason) {
			it.reason, it.tokens, it.form = "", 0, it.fixed()
		}
	}
}

var budgetReasons = []string{triage.OverBudget, triage.ReasonLarge, triage.ReasonGroup, triage.ReasonLow, triage.ReasonTier, triage.ReasonSystem}

// offer describes a winner to the allocator.
func (a *assembling) offer(i int, b *triage.Item) {
	it := a.ranked[i]
	c := it.cand
	text := it.text
	if it.whole && len(it.cuts) > 0 {
		it.form, text = manifest.FormRange, it.cut()
	}
	it.name = it.refText()
	*b = triage.Item{
		Key: it.name, Class: classOf(c.Kind), Position: -i, Tokens: a.cost(it, text) + a.opening(it),
		Pinned: c.Pinned, Core: c.Provenance == store.HumanVerified, Recent: c.Recent, Short: it.brief(),
		Unasked: it.scored.semantic == 0, Minor: !it.matters(),
	}
	b.Score = it.scored.score * float64(b.Tokens)
	if c.Kind == store.KindMessage && a.q.Session != "" && c.GroupName == a.q.Session {
		b.Class, b.Position = triage.History, a.positionOf(c)
	} else if c.Kind == store.KindMessage && a.q.Session != "" && !c.Pinned && c.Provenance != store.HumanVerified {
		b.Place, b.Position = triage.PlaceChunks, b.Position-quotedFirst // of another conversation: the question changes them
	}
	if it.protected() || a.q.Session != "" && c.Provenance == store.HumanVerified {
		b.Position = it.place
	}
	if directivelog.IsPage(c.Kind, c.Ref.ID) {
		b.Place = triage.PlaceDirectives
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
	if it.pair != "" {
		if b.Group = it.pair; it.turn == nil { // also where it is pinned or verified, it stands beside its call
			b.Place, b.Position = triage.PlaceHistory, a.positionOf(c)
		}
	}
}

// brief reports whether a page may enter as an extract in the room that is kept for extracts: a chunk, or a long turn whose
// words answer the question less well than the best. A turn that is red by words stands whole, and one that is green is not
// worth a cut. Meaning has no part in this: it lowers the score of long turns, so that more of the good ones would be cut.
func (it *item) brief() bool {
	return it.cand.Kind == store.KindChunk || it.cand.Kind == store.KindMessage && it.cand.Tokens > longTurn && it.scored.byWords == triage.Yellow
}

// callOf names the call that a message makes or answers. A call and its results enter a context together or not at all.
func callOf(h *store.Head) string {
	if h.ToolCallID != "" {
		return h.ToolCallID
	}
	return h.ToolCalls[0].ID
}

// classOf returns the allocator's class of a kind. Facts, chunks, tool results and summaries compete as RAG; trust is not
// a class, it is part of their score.
func classOf(k store.Kind) triage.Class {
	switch k {
	case store.KindSystem:
		return triage.System
	case store.KindMessage:
		return triage.History
	case store.KindScratch:
		return triage.Scratchpad
	}
	return triage.RAG
}

// place takes the allocator's answer and renders it.
func (a *assembling) place(res triage.Result, at []int) {
	a.out = &Assembly{Trace: a.q.Trace, LSN: a.cands.LSN, Limit: a.q.Budget - a.q.Reserve, Review: res.Review, seed: a.s.db.fence + "/" + a.s.name, session: a.q.Session, long: a.q.LongForm}
	a.placed = make([]*item, 0, len(res.Placed))
	a.out.shown = make([]rendering.Page, 0, len(res.Placed))
	if a.out.Degraded = a.degraded(); a.wordsErr != nil {
		a.out.Degraded = a.wordsErr.Error()
	}
	for _, l := range res.Left {
		a.ranked[at[l.Index]].reason = l.Reason
	}
	a.out.Tier = a.tier(res.Tier)
	for _, p := range a.together(a.besideCalls(res.Placed, at), at) {
		it := a.ranked[at[p.Index]]
		text := it.text
		switch {
		case p.Form == triage.Compressed && it.sum != nil:
			it.form, text, p.Tokens = manifest.FormSummary, it.sum.text, it.sum.tokens
		case p.Form == triage.Compressed, it.whole && len(it.cuts) > 0:
			it.form, text = manifest.FormRange, it.cut()
		default:
			it.form = it.fixed()
		}
		it.tokens = p.Tokens
		a.placed = append(a.placed, it)
		a.out.shown = append(a.out.shown, a.shownAs(it, text))
	}
	a.scratch.pages = rendering.Pages(a.scratch.pages[:0], a.out.shown, a.q.Session)
	a.scratch.text = render.Text(a.scratch.text[:0], a.out.seed, a.scratch.pages, a.q.LongForm)
	a.out.text = string(a.scratch.text)
}
