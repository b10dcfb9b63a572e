package ctxpage

import (
	"maps"
	"slices"
	"time"

	"github.com/ctxpage/ctxpage/internal/conversation"
	"github.com/ctxpage/ctxpage/internal/freshness"
	"github.com/ctxpage/ctxpage/internal/prose"
	"github.com/ctxpage/ctxpage/internal/remote"
	"github.com/ctxpage/ctxpage/internal/rendering"
	"github.com/ctxpage/ctxpage/internal/triage"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/render"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/token"
)

// What an assembly commits itself. These commits name the assembly, but are not an answer to it.
const (
	actionSummary = "summary"
	actionDrafts  = "drafts"
)

// assembling is the state that the stages hand on. It belongs to one goroutine, from begin to end.
type assembling struct {
	s      *Scope
	q      Query
	tx     *Txn
	now    time.Time
	cands  store.Candidates
	ranked []*item // best first, excluded ones last
	frames []*frame
	window conversation.Offer // of the session: the turns that may be in the context, or are named
	placed []*item            // in the order of the context; they point into ranked
	out    *Assembly
	asked  []uint64 // for cuts: the terms of the question
	terms  []string // of the question; nil: not read yet
	words  []string // of the question, as they were typed

	opened map[opened]bool // what an offered page pays for
	paid   opened          // the last of them
	clock  int             // tokens of the time of a turn

	counter token.Counter // of the query
	foreign bool          // it is not that of the database: stored and kept counts are not its

	sweep    uint64                                 // of the look ahead; 0: there was none
	fresh    map[freshness.Origin]freshness.Finding // what a check found, by artefact; clean files that were looked at ahead are not in it
	lost     int                                    // pages of those that cannot be served
	moved    bool                                   // the check of the winners changed what there is to find
	unprobed int                                    // sources that were not looked at ahead
	full     bool                                   // a search may find more
	passed   map[Ref]bool                           // pages that a search could not serve: the next of their artefacts take their places
	long     bool                                   // an artefact of several pages matches a search

	vector   []float32 // of the question; nil: words alone
	embedBy  time.Time // when the embedder must have answered everything
	embedder string    // model whose vectors took part
	wordsErr error     // why none did
	unseen   int       // pages that have no vector yet

	planned *remote.Plan
	scratch *scratch
}

// scratch is the working memory of an assembly. Nothing that an assembly returns points into it, so the next assembly
// can use it again. What is weighed for a context is several times what is served and would keep the garbage collector
// busy. end clears the pages: under a constant load the collector never empties the pool, and a smaller assembly does
// not overwrite everything that a larger one left.
type scratch struct {
	items    []item
	found    []store.Candidate // not with a session, whose window may keep them
	triaged  []triage.Candidate
	ranker   triage.Ranker
	best     []*item
	keys     []store.PageKey
	paged    []int
	offered  []triage.Item
	sketched prose.Seen[*item]
	pages    []render.Page
	text     []byte
	runs     map[runOf]*keptRun
}

// begin starts an assembly. The caller must call end.
func (s *Scope) begin(q Query, tx *Txn) *assembling {
	mem, _ := s.db.scratches.Get().(*scratch)
	if mem == nil {
		mem = &scratch{runs: map[runOf]*keptRun{}}
	}
	a := &assembling{s: s, q: q, tx: tx, now: s.db.opts.Clock(), scratch: mem, counter: s.db.opts.Counter}
	if q.Counter != nil && q.Counter.Name() != a.counter.Name() {
		a.counter, a.foreign = q.Counter, true
	}
	return a
}

// end releases the frames and returns the scratch memory, after the last use of any item. Further calls do nothing.
func (a *assembling) end() {
	if a.scratch == nil {
		return
	}
	a.s.db.table.unpin(a.frames)
	clear(a.scratch.items)
	if a.planned != nil && a.q.Session == "" {
		a.scratch.found = a.planned.Room
		clear(a.scratch.found[:cap(a.scratch.found)])
	}
	clear(a.scratch.pages)
	if len(a.scratch.runs) > mostRuns {
		clear(a.scratch.runs)
	}
	a.s.db.scratches.Put(a.scratch)
	a.scratch = nil
}

// item is a page on its way into a context. The stages fill it in their order; what only some pages have is in a part
// of its own.
//
//	proposed (cand) ─▶ ranked (scored) ─▶ paged in (frame, head, text) ─▶ placed (form, tokens)
//	    └──────────────────┴──────────────────┴──▶ left out: reason is set
//
// Invariant: reason "" means that the item is still in. Any stage may set a reason; only unplace clears one, for the
// reasons of the budget.
type item struct {
	cand   *store.Candidate
	own    *ownPage // a draft of the transaction, which has no number yet
	scored judged
	cosine *float64 // of its vector and the question's
	reason string   // why it is left out; "": it is in
	note   string   // why it has its form
	frame  *frame   // pinned; nil for a draft
	head   *store.Head
	page   int
	name   string // its reference as text, set by offer
	text   string
	form   manifest.Form
	tokens int
	again  int      // its tokens by recount, if its stored count is too small; 0: not known
	place  int      // among the protected pages
	steady bool     // a turn of the history, which the next contexts begin with, too
	quoted bool     // a turn from before the history: it comes after it, as a page
	run    opened   // what is said once for it and the pages beside it
	kept   *keptRun // the same, if others share it
	pair   string   // of a call or a result: what it enters a context with

	sourced
	shortened
	more []Ref        // further pages of its artefact that a search found
	turn *sessionTurn // nil for pages that are not turns of the session, and for turns that compete as pages
}

// sourced has the result of the check of its source.
type sourced struct {
	fresh freshness.Finding
	slot  int // among what freshen checks
	stale bool
}

// shortened is the short form of an item, when not all winners fit.
type shortened struct {
	via   uint64 // derived page shown in its place, or the page that says the same
	twin  Ref    // reference of the latter
	cuts  [][2]uint32
	sum   *summary // shown in place of the page
	asked bool     // the summarizer was asked for it
	whole bool     // never compressed; its cuts, if any, keep what holds of it (overrule)

	cutCost   int  // tokens of the cuts in a context; 0: not counted yet
	cutQuoted bool // counted as a quoted turn, which has another header
}

// sessionTurn describes the turn of an item. The pages of one turn share it.
type sessionTurn struct {
	*conversation.TurnIn
	fixed manifest.Form // the form the session shows it in
}

// fixed is the form of a turn that the session shows shortened. The budget cannot choose another one.
func (it *item) fixed() manifest.Form {
	if it.turn == nil {
		return manifest.FormFull
	}
	return it.turn.fixed
}

// opened names a run of pages, or with a clock the turns of one minute in it.
type opened struct{ line, group, clock string }

// runOf has what the opening of a page depends on that is no message and no part of the system.
type runOf struct {
	kind              store.Kind
	provenance        store.Provenance
	form              manifest.Form
	stale             bool
	day               int64
	source, scope, id string // only of pages with a source
}

// keptRun is an opening that further assemblies use again, because most pages of a database share few.
type keptRun struct {
	opened
	tokens int // of the line, by the counter of the database; 0: not counted yet
}

const (
	mostRuns  = 256 // that a scratch keeps
	year10000 = 253402300800
)

// judged has the scores that triage gave an item.
type judged struct {
	score, recency, trust, semantic float64
	tag, byWords                    triage.Tag // byWords: what tag would be without vectors
}

// protected pages come before everything that is scored.
func (it *item) protected() bool { return it.cand.Pinned || it.cand.Kind == store.KindSystem }

// matters reports whether the tier of a context counts what happens to a page: it is red or yellow.
func (it *item) matters() bool { return it.scored.tag == triage.Red || it.scored.tag == triage.Yellow }

// appendItems makes items of hits. They point into hits, which must stay in place.
func appendItems(items []item, hits []store.Candidate) []item {
	items = slices.Grow(items, len(hits))
	for i := range hits {
		items = append(items, item{cand: &hits[i]})
	}
	return items
}

// refText returns the reference as text. A frame has it already.
func (it *item) refText() string {
	if it.frame != nil {
		return it.frame.name
	}
	return it.ref().String()
}

// cut is the text of the item's ranges, joined as its kind demands.
func (it *item) cut() string {
	return rendering.Cut(it.cand.Kind, it.cand.Ref.ID, it.text, it.cuts)
}

// block is the item as the caller of Assemble gets it: a copy that shares nothing with the working set.
func (it *item) block(text string) Block {
	h := it.head
	return Block{
		Ref: it.ref(), Pages: len(h.Rows), Num: it.cand.Key.Num, Form: it.form, Tokens: it.tokens, Score: it.scored.score, Text: text, Stale: it.stale,
		Kind: h.Kind, Provenance: h.Provenance, Pinned: h.Pinned, Role: h.Role, Name: h.Name, Source: h.Artefact.Source, AsOf: h.CurrentAsOf, Meta: maps.Clone(h.Meta),
	}
}

// ref names the page: by its head once that is loaded, because a page that was fetched again has another version than
// its candidate.
func (it *item) ref() Ref {
	if it.head == nil {
		return it.cand.Ref
	}
	return it.head.PageRef(it.page)
}

// winners returns the places in ranked of what may go in.
func (a *assembling) winners() []int {
	at := a.scratch.paged[:0] // what was paged in has been seen to
	for i := range a.ranked {
		if a.ranked[i].reason == "" {
			at = append(at, i)
		}
	}
	a.scratch.paged = at
	return at
}

// left names what was considered and is not served: winners that found no place, and the nearest misses of the rules.
func (a *assembling) left() []LeftOut {
	out := make([]LeftOut, 0, len(a.ranked)-len(a.placed))
	for i := range a.ranked {
		it := a.ranked[i]
		if it.reason == "" {
			continue
		}
		l := LeftOut{Ref: it.ref(), Reason: it.reason, Score: it.scored.score, DuplicateOf: it.twin}
		if it.reason == it.fresh.Reason {
			l.Err = it.fresh.Err
		}
		out = append(out, l)
	}
	for _, e := range a.cands.Excluded {
		for _, c := range e.Nearest {
			out = append(out, LeftOut{Ref: c.Ref, Reason: e.Reason})
		}
	}
	return out
}

// summary is a page that is shown in place of another one.
type summary struct {
	num    uint64
	head   *store.Head
	text   string
	tokens int // header included
}

// triage describes the items to package triage.
func (a *assembling) triage(items []item) []triage.Candidate {
	cs := slices.Grow(a.scratch.triaged[:0], len(items))
	for i := range items {
		it := &items[i]
		own := it.own != nil || a.q.Session != "" && it.cand.GroupName == a.q.Session
		lent := 0.0
		if a.vector != nil {
			lent = it.cand.Beside // the share of its neighbours' cosines
		}
		cs = append(cs, candidateOf(i, it.cand, a.now, it.cosine, lent, own))
	}
	a.scratch.triaged = cs
	return cs
}

// dropDuplicates leaves out the worse of two winners that say the same, and names the other one. Protected pages and
// pages that a person verified win over pages that are only ranked higher, so they are taken in a first round. Pages of
// one artefact are not compared, nor messages of different speakers, because the speaker is part of what a message says.
//
// Turns of the asking session are compared with nothing, however they entered: a result that says what an earlier one
// said answers another call, and a user who repeats himself asks again.
func (a *assembling) dropDuplicates() {
	seen := &a.scratch.sketched
	defer seen.Clear() // a page that was left out must not stay in memory
	for _, sure := range [...]bool{true, false} {
		for i := range a.ranked {
			it := a.ranked[i]
			if it.reason != "" || it.own != nil || rendering.IsTurn(it.head, a.q.Session) || (it.protected() || it.cand.Provenance == store.HumanVerified) != sure {
				continue
			}
			sketch := it.sketch()
			if other, found := seen.First(sketch, it.repeats); found && !sure {
				it.reason, it.via, it.twin = triage.Duplicate, other.cand.Key.Num, other.ref()
				continue
			}
			seen.Add(sketch, it)
		}
	}
}

// repeats reports whether one of two pages is enough.
func (it *item) repeats(other *item) bool {
	if it.head.Scope == other.head.Scope && it.head.ID == other.head.ID {
		return false
	}
	message := it.cand.Kind == store.KindMessage
	if message != (other.cand.Kind == store.KindMessage) || message && it.head.Name != other.head.Name {
		return false
	}
	if same, known := it.sketch().Same(other.sketch()); known {
		return same
	}
	return prose.SameText(it.text, other.text)
}

// sketch is computed once for each frame.
func (it *item) sketch() *prose.Sketch {
	if it.frame != nil {
		if s := it.frame.sketch.Load(); s != nil {
			return s
		}
	}
	s := prose.SketchOf(it.text)
	if it.frame != nil {
		it.frame.sketch.Store(&s)
	}
	return &s
}
