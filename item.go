package ctxpage

import (
	"maps"
	"slices"
	"time"

	"github.com/ctxpage/ctxpage/budget"
	"github.com/ctxpage/ctxpage/internal/alike"
	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/freshness"
	"github.com/ctxpage/ctxpage/internal/journal"
	"github.com/ctxpage/ctxpage/internal/shown"
	"github.com/ctxpage/ctxpage/internal/talk"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/render"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/triage"
)

// What an assembly itself commits: it names the assembly, but nobody has answered yet.
const (
	actionSummary = "summary"
	actionDrafts  = "drafts"
)

// assembling is the state that the four stages hand on.
type assembling struct {
	s      *Scope
	q      Query
	tx     *Txn
	now    time.Time
	cands  store.Candidates
	ranked []*item // best first, excluded ones last
	frames []*frame
	window talk.Offer // of the session: the turns that may be in the context, or are named
	placed []*item    // in the order of the context; they point into ranked
	out    *Assembly
	asked  []uint64 // for cuts: the terms of the question

	sweep    uint64                                 // of the look ahead; 0: there was none
	fresh    map[freshness.Origin]freshness.Finding // what a check found, by artefact; clean files that were looked at ahead are not in it
	lost     int                                    // pages of those that cannot be served
	moved    bool                                   // the check of the winners changed what there is to find
	unprobed int                                    // sources that were not looked at ahead
	full     bool                                   // a search found as many as it asked for

	embedder string // model whose vectors took part
	wordsErr error  // why none did

	room *scratch
}

// scratch is memory that an assembly works in and that nothing it gives points into; the next one uses it again. What is
// weighed for a context is several times what is served, and would keep the garbage collector busy. Pages are let go at
// its end: under a constant load the collector never empties the pool, and a smaller assembly does not write over all that
// a larger one left.
type scratch struct {
	items    []item
	triaged  []triage.Candidate
	ranker   triage.Ranker
	order    []*item
	keys     []store.PageKey
	paged    []int
	offered  []budget.Item
	sketched alike.Seen[*item]
	pages    []render.Page
	text     []byte
}

// begin starts an assembly; its end must be called.
func (s *Scope) begin(q Query, tx *Txn) *assembling {
	room, _ := s.db.rooms.Get().(*scratch)
	if room == nil {
		room = new(scratch)
	}
	return &assembling{s: s, q: q, tx: tx, now: s.db.opts.Clock(), room: room}
}

func (a *assembling) end() {
	a.s.db.table.unpin(a.frames)
	clear(a.room.items)
	clear(a.room.pages)
	a.s.db.rooms.Put(a.room)
}

// item is a page on its way into a context: what every page has. The stages fill it in their order; what only some pages
// have stands in a part of its own.
type item struct {
	cand   *store.Candidate
	own    *ownPage // a draft of the transaction, which has no number yet
	scored judged
	cosine *float64 // of its vector and the question's
	reason string   // why it is out, "": in
	note   string   // why it is in as it is
	frame  *frame   // pinned; nil for a draft
	head   *store.Head
	page   int
	name   string // its reference as text, once the budget was asked
	text   string
	form   manifest.Form
	tokens int
	stand  int // place among the protected pages

	sourced            // what the check of its source found
	shortened          // its short form, where not all winners fit
	turn      *turning // of the session; nil for other pages and turns that compete
}

// sourced is what is known of the source of an item.
type sourced struct {
	fresh freshness.Finding
	slot  int // among what freshen checks
	stale bool
}

// shortened is what may stand in for an item.
type shortened struct {
	via   uint64 // derived page that stands for it, or the page that says the same
	twin  Ref    // of the latter
	cuts  [][2]uint32
	sum   *summary // stands in for the page in a short form
	asked bool     // the summarizer was
	whole bool     // never compressed: with cuts, those are what holds of it (overrule)
}

// turning is what a turn of the session has beside; the pages of a turn share it.
type turning struct {
	*talk.TurnIn
	fixed manifest.Form // the form the session shows it in
}

// fixed is the form that is not the budget's to choose: that of a turn which the session shows shortened.
func (it *item) fixed() manifest.Form {
	if it.turn == nil {
		return manifest.FormFull
	}
	return it.turn.fixed
}

// judged is what an item keeps of triage's judgement.
type judged struct {
	score, recency, trust, semantic float64
	tag                             triage.Tag
}

// protected pages come before anything scored.
func (it *item) protected() bool { return it.cand.Pinned || it.cand.Kind == KindSystem }

func appendItems(items []item, hits []store.Candidate) []item {
	items = slices.Grow(items, len(hits))
	for i := range hits {
		items = append(items, item{cand: &hits[i]})
	}
	return items
}

// refText is the reference as text, which a frame has.
func (it *item) refText() string {
	if it.frame != nil {
		return it.frame.name
	}
	return it.ref().String()
}

func (it *item) cut() string {
	return shown.Cut(it.cand.Kind, it.cand.Ref.ID, it.text, it.cuts)
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

// summary is a page that stands in for another.
type summary struct {
	num    uint64
	head   *store.Head
	text   string
	tokens int // header included
}

// triage gives the items as triage sees them; the id is the position here, so that drafts without a number have one too.
func (a *assembling) triage(items []item) []triage.Candidate {
	cs := slices.Grow(a.room.triaged[:0], len(items))
	for i := range items {
		c := items[i].cand
		cs = append(cs, triage.Candidate{
			ID: uint64(i), Provenance: c.Provenance, Age: a.now.Sub(codec.FromMicros(c.AsOf)), Lexical: c.Lexical.Score, Cosine: items[i].cosine,
			Excluded: triage.Reason(c.Excluded), Pinned: c.Pinned, System: c.Kind == KindSystem, Directive: journal.IsPage(c.Kind, c.Ref.ID),
			Own: items[i].own != nil || a.q.Session != "" && c.GroupName == a.q.Session,
		})
	}
	a.room.triaged = cs
	return cs
}
