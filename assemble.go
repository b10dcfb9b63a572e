package ctxpage

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ctxpage/ctxpage/budget"
	"github.com/ctxpage/ctxpage/filestore"
	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/lexical"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/render"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/triage"
)

// An assembly goes through five stages, one call each, data flowing one way:
//
//	ahead     files of the visible scopes that changed are fetched anew (ahead.go)
//	propose   the store's candidates at one LSN, and the transaction's own drafts; triage orders them
//	page in   winners are loaded, their sources checked, dirty ones fetched anew; then once more from propose
//	fit       the budget decides what goes in, in which form
//	record    rendering, its digest, and the manifest leaf, written before the answer

// Defaults and limits of a query.
const (
	DefaultTopK = 50
	MaxTopK     = 2000
	recentTail  = 10  // newest pages that are always candidates
	recentShare = .10 // of the budget, tried for them first
	newestTurns = .50 // the same for the turns of a window that no pass has judged, less what the newest one takes
	foundShare  = .25 // of the budget, tried next for what the question found beside the window of a session
	namedLeft   = 8   // left-out pages named per reason, beside the winners, which all are
)

// Query asks for a context.
type Query struct {
	// Text is the question; it finds pages and is not itself part of the context.
	Text string
	// Budget is how many tokens the context may take, by Options.Counter; Reserve of them are kept free.
	Budget  int
	Reserve int
	// TopK bounds the pages that may win a place; 0: 50, and one for every 32 tokens of a large budget. Pinned and
	// system pages come on top.
	TopK int
	// Kinds restricts what may enter; empty: all but scratch, which Floor keeps out. Directives enter always.
	Kinds []Kind
	// Floor is the lowest provenance that may enter; 0: Tool, which keeps drafts and notes out.
	Floor Provenance
	// Session is the conversation that asks: its turns enter whatever their provenance, as its window shows them. What
	// a pass retained is whole, what it paged is a stub, what it evicted is left out and counted; the newest turn comes
	// last. Where the window is larger than the budget, half of that goes to its newest turns first, and a quarter is tried
	// for what the question found. ErrNotFound where the scope itself has no such session: append the turn first. Before a
	// session has had a pass, a window or a pin, and with AsOf, its turns compete as other pages do.
	Session string
	// Vector is the vector of the question, by the model of Options.Embedder, for hosts that have it already; nil: the
	// embedder is asked, if there is one and Text is not empty.
	Vector []float32
	// Preset weighs recency, provenance and relevance; "": "default". "START" is the published two-pass form.
	Preset string
	// Overflow is what happens when not all winners fit: budget.Fill (default) or budget.Ladder.
	Overflow budget.Overflow
	// Check says when sources are probed; ServeStale serves what is dirty and cannot be fetched, marked as stale.
	Check      CheckPolicy
	ServeStale bool
	// AsOf assembles from the past, as of an LSN; sources are then not probed. 0: now. One beyond the newest commit is an
	// *InvalidError: what will stand there is not known yet, so the context could not be made again.
	AsOf uint64
	// Charge says what a page costs: what it takes as rendered text, header and fence included (default), or its
	// contents alone, for hosts that render the blocks themselves.
	Charge Charge
	// Trace names the assembly in the manifest: a ULID that names nothing there yet. "": a new one.
	Trace string
}

// Charge is what the budget is charged for.
type Charge uint8

// The charges.
const (
	ChargeRendered Charge = iota
	ChargeContents
)

// Assembly is a context ready for a model.
type Assembly struct {
	Trace  string      `json:"trace"`
	LSN    uint64      `json:"lsn"`
	Tier   budget.Tier `json:"tier"`
	Tokens int         `json:"tokens"`
	Limit  int         `json:"limit"`
	// Review: not even what is protected fitted; a person should look.
	Review bool      `json:"review,omitempty"`
	Blocks []Block   `json:"blocks"`
	Left   []LeftOut `json:"left,omitempty"`
	// Degraded says why relevance was judged by words alone although there is an embedder.
	Degraded string `json:"degraded,omitempty"`
	// Manifest is the leaf that was written.
	Manifest *manifest.Record `json:"manifest"`
	seed     string
	session  string
	shown    []shownPage
	text     string
}

// shownPage is a page of a context and the form it was given.
type shownPage struct {
	head  *Head
	ref   string
	text  string
	page  int
	form  manifest.Form
	stale bool
}

// Block is one page of a context, in the order of the context.
type Block struct {
	Ref    Ref           `json:"ref"`
	Num    uint64        `json:"num"`
	Form   manifest.Form `json:"form"`
	Tokens int           `json:"tokens"`
	Score  float64       `json:"score"`
	Text   string        `json:"text"`
	Stale  bool          `json:"stale,omitempty"`

	Kind       Kind              `json:"kind"`
	Provenance Provenance        `json:"provenance"`
	Role       string            `json:"role,omitempty"`
	Name       string            `json:"name,omitempty"`
	Source     string            `json:"source,omitempty"`
	AsOf       time.Time         `json:"as_of"`
	Meta       map[string]string `json:"meta,omitempty"`
}

// LeftOut is a page that was considered and is not in the context, and why.
type LeftOut struct {
	Ref    Ref     `json:"ref"`
	Reason string  `json:"reason"`
	Score  float64 `json:"score"`
	// Err is what went wrong when its source was checked or fetched, such as a *FileRootError; nil for other reasons.
	Err error `json:"-"`
}

// Text is the context as plain text: a header and a fence for each page. The same assembly always gives the same bytes.
func (a *Assembly) Text() string { return a.text }

// Messages is the context as neutral messages, for render.OpenAI, render.Anthropic and render.Gemini.
func (a *Assembly) Messages() []render.Message {
	return render.Messages(a.seed, renderPages(nil, a.shown, a.session))
}

// Assemble makes a context for a question: a read on its own. The answer to it can be committed later with Resume.
// ErrBudget when the system part alone does not fit; the error tells the shortfall.
func (s *Scope) Assemble(ctx context.Context, q Query) (*Assembly, error) {
	release, err := s.takeTrace(ctx, q.Trace)
	if err != nil {
		return nil, err
	}
	defer release()
	return s.assemble(ctx, q, nil)
}

// Assemble makes a context that also has the transaction's own drafts; its pages join the read set.
func (tx *Txn) Assemble(ctx context.Context, q Query) (*Assembly, error) {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if tx.state == txnDone {
		return nil, ErrTxnDone
	}
	release, err := tx.s.takeTrace(ctx, q.Trace)
	if err != nil {
		return nil, err
	}
	defer release()
	if q.Trace == "" && tx.first {
		q.Trace, tx.first = tx.trace, false
	}
	return tx.s.assemble(ctx, q, tx)
}

// takeTrace makes sure that a trace the caller gives names nothing yet: two assemblies under one trace would answer for
// each other, in replays, in reviews, and as the read set of a commit. release lets go of it; from then on the audit has it.
// Whose the trace is, or of what, is not told.
func (s *Scope) takeTrace(ctx context.Context, trace string) (release func(), err error) {
	release = func() {}
	if id, err := parseBatchID(trace); s.err != nil || err != nil {
		return release, nil // told where the query is checked
	} else {
		trace = id.String()
	}
	_, taken := s.db.traces.LoadOrStore(trace, true)
	if !taken {
		release = func() { s.db.traces.Delete(trace) }
		if taken, err = s.db.store.Audit().Named(ctx, trace); err != nil {
			err = filestore.LogError(err)
		}
	}
	if taken && err == nil {
		err = store.Invalid("trace", strconv.Quote(trace), "a ULID that names nothing yet, or nothing: then a new one is made")
	}
	if err != nil {
		release()
	}
	return release, err
}

func (q Query) withDefaults() (Query, error) {
	if q.TopK == 0 {
		// 50 short pages leave a large budget empty: on conversations recall at 8k tokens falls from .958 to .907.
		q.TopK = min(max(DefaultTopK, q.Budget/32), MaxTopK)
	}
	if q.Floor == 0 {
		q.Floor = Tool
	}
	if q.Preset == "" {
		q.Preset = "default"
	}
	var errs []error
	bad := func(field, got, exp string) { errs = append(errs, store.Invalid(field, got, exp)) }
	if q.Budget <= 0 {
		bad("budget", strconv.Itoa(q.Budget), "a number of tokens above 0")
	}
	if q.Reserve < 0 || q.Budget > 0 && q.Reserve >= q.Budget {
		bad("reserve", strconv.Itoa(q.Reserve), "0 or more, below the budget")
	}
	if q.TopK < 0 || q.TopK > MaxTopK {
		bad("top_k", strconv.Itoa(q.TopK), "1 to "+strconv.Itoa(MaxTopK))
	}
	if len(q.Text) > store.MaxQueryText {
		bad("text", strconv.Itoa(len(q.Text))+" bytes", "at most "+strconv.Itoa(store.MaxQueryText))
	}
	if len(q.Vector) > maxVector || !store.Finite(q.Vector) {
		bad("vector", strconv.Itoa(len(q.Vector))+" numbers", "finite numbers, at most "+strconv.Itoa(maxVector))
	}
	if !q.Floor.Valid() {
		bad("floor", strconv.Itoa(int(q.Floor)), "a provenance")
	}
	if q.Charge > ChargeContents {
		bad("charge", strconv.Itoa(int(q.Charge)), "rendered or contents")
	}
	if slices.ContainsFunc(q.Kinds, func(k Kind) bool { return k == KindAuto || int(k) >= len(store.KindNames) }) {
		bad("kinds", fmt.Sprint(q.Kinds), "kinds such as fact or chunk")
	}
	if q.Overflow != budget.Fill && q.Overflow != budget.Ladder {
		bad("overflow", strconv.Itoa(int(q.Overflow)), "fill or ladder")
	}
	if q.Trace != "" {
		id, err := parseBatchID(q.Trace)
		if err != nil {
			bad("trace", strconv.Quote(q.Trace), "a ULID, or nothing")
		}
		q.Trace = id.String() // in one spelling
	}
	return q, errors.Join(errs...)
}

// assembling is the state that the four stages hand on.
type assembling struct {
	s      *Scope
	q      Query
	tx     *Txn
	now    time.Time
	cands  Candidates
	ranked []*item // best first, excluded ones last
	frames []*frame
	turns  []turnIn          // of the session: those that may be in the context, or are named
	turnOf map[uint64]int    // page number → turns, of those that were found
	more   map[outReason]int // turns out of the window that are not among them
	placed []*item           // in the order of the context; they point into ranked
	out    *Assembly
	asked  []uint64 // for cuts: the terms of the question

	talkLen int   // how many turns the session has
	talkSeq int64 // number of the newest

	sweep    uint64               // of the look ahead; 0: there was none
	fresh    map[origin]freshness // what a check found, by artefact; clean files that were looked at ahead are not in it
	lost     int                  // pages of those that cannot be served
	moved    bool                 // the check of the winners changed what there is to find
	unprobed int                  // sources that were not looked at ahead
	full     bool                 // a search found as many as it asked for

	embedder string // model whose vectors took part
	wordsErr error  // why none did

	room *scratch
}

// scratch is memory that an assembly works in and that nothing it gives points into; the next one uses it again. What is
// weighed for a context is several times what is served, and would keep the garbage collector busy. Pages are let go at
// its end: under a constant load the collector never empties the pool, and a smaller assembly does not write over all that
// a larger one left.
type scratch struct {
	items   []item
	triaged []triage.Candidate
	ranker  triage.Ranker
	order   []*item
	keys    []PageKey
	paged   []int
	offered []budget.Item
	pages   []render.Page
	text    []byte
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

// item is a page on its way into a context.
type item struct {
	cand   *Candidate
	cosine *float64 // of its vector and the question's
	own    *ownPage // a draft of the transaction, which has no number yet
	scored judged
	reason string // why it is out, "": in
	frame  *frame // pinned; nil for a draft
	head   *Head
	page   int
	name   string // its reference as text, once the budget was asked
	text   string
	fresh  freshness
	slot   int // among what freshen checks
	stale  bool
	form   manifest.Form
	tokens int
	cuts   [][2]uint32
	sum    *summary      // stands in for the page in a short form
	asked  bool          // the summarizer was
	stand  int           // place among the protected pages
	whole  bool          // never compressed: with cuts, those are what holds of it (overrule)
	note   string        // why it is in as it is
	turn   *turnIn       // of the session; nil for other pages and turns that compete
	fixed  manifest.Form // the form the session shows it in
	via    uint64        // derived page that stands for it
}

// judged is what an item keeps of triage's judgement.
type judged struct {
	score, recency, trust, semantic float64
	tag                             triage.Tag
}

func (s *Scope) assemble(ctx context.Context, q Query, tx *Txn) (*Assembly, error) {
	if s.err != nil {
		return nil, s.err
	}
	q, err := q.withDefaults()
	if err != nil {
		return nil, err
	}
	if newest := s.db.store.LSN(); q.AsOf > newest {
		return nil, store.Invalid("as_of", fmt.Sprintf("LSN %d", q.AsOf), "0 for now, or the LSN of an assembly or a version that was read here; nothing has been committed at this one yet")
	}
	if q.Trace == "" {
		id, err := s.db.newID()
		if err != nil {
			return nil, err
		}
		q.Trace = id.String()
	}
	a := s.begin(q, tx)
	defer a.end()
	defer s.db.readers.leave(s.db.readers.enter(a.reader()))
	again := func(ctx context.Context) error { return a.rescore(ctx, a.propose) }
	for _, stage := range [...]func(context.Context) error{a.ahead, a.propose, a.pageIn, again, a.fit, a.record} {
		if err := stage(ctx); err != nil {
			return nil, err
		}
	}
	return a.out, nil
}

// propose gathers candidates at one LSN and orders them.
func (a *assembling) propose(ctx context.Context) (err error) {
	preset, err := presetOf(a.q.Preset)
	if err != nil {
		return err
	}
	terms := a.s.db.lexer.Terms(a.q.Text)
	weights := lexical.DefaultWeights()
	cq := CandidateQuery{
		Scopes: a.s.chain, Terms: terms, Kinds: a.q.Kinds, Floor: a.q.Floor, Session: a.q.Session, Now: a.now, AsOf: a.q.AsOf,
		K: a.widen(a.q.TopK + DefaultTopK), Recent: recentTail, Newest: preset.Keep, Weights: &weights,
	}
	if a.tx != nil {
		cq.Mask = a.tx.mask()
	}
	if err := a.candidates(ctx, cq); err != nil {
		return err
	}
	turns, hits := a.enter(a.cands.Hits)
	items := append(appendItems(a.room.items[:0], a.complete(hits)), a.drafts(terms)...)
	a.room.items = items
	preset.Floor = a.q.Floor
	if a.s.db.opts.Embedder != nil {
		if err := a.compare(ctx, preset, items); err != nil {
			return err
		}
	}
	a.room.order = append(a.room.order[:0], turns...)
	a.rank(preset, items)
	a.ranked = a.room.order
	a.leaveLost(a.ranked)
	return nil
}

func appendItems(items []item, hits []Candidate) []item {
	items = slices.Grow(items, len(hits))
	for i := range hits {
		items = append(items, item{cand: &hits[i]})
	}
	return items
}

func presetOf(name string) (triage.Preset, error) {
	switch name {
	case "default":
		return triage.Default(), nil
	case "START":
		return triage.START(), nil
	}
	return triage.Preset{}, store.Invalid("preset", strconv.Quote(name), "default or START")
}

// mask names the artefacts whose committed pages the transaction's drafts replace.
func (tx *Txn) mask() []Ref {
	var refs []Ref
	for _, id := range tx.order {
		refs = append(refs, Ref{Scope: tx.s.name, ID: id})
	}
	for _, id := range slices.Sorted(maps.Keys(tx.drop)) {
		refs = append(refs, Ref{Scope: tx.s.name, ID: id})
	}
	return refs
}

// drafts are always candidates, scored with the statistics of the store.
func (a *assembling) drafts(terms []string) []item {
	if a.tx == nil {
		return nil
	}
	var out []item
	for _, o := range a.tx.ownDocs() {
		w := o.put
		c := &Candidate{
			Kind: w.Artefact.Kind, Provenance: w.Artefact.Provenance, AsOf: codec.Micros(w.Artefact.CurrentAsOf), Pinned: w.Artefact.Pinned,
			Tokens: w.Pages[o.page-1].Tokens, GroupName: w.Artefact.Group, Seq: w.Artefact.Seq,
			Ref: Ref{Scope: a.s.name, ID: w.Artefact.ID, Page: o.page},
		}
		if len(a.cands.Stats.DF) == len(terms) {
			c.Lexical.Own = lexical.ScoreDoc(a.cands.Stats, *o.analysis, terms)
			c.Lexical.Score = c.Lexical.Own
		}
		if e := w.Artefact.ExpiresAt; !e.IsZero() && !e.After(a.now) {
			c.Excluded = store.ReasonExpired
		}
		out = append(out, item{cand: c, own: &o})
	}
	return out
}

// rank lets triage judge. The items stay where they are; their order goes behind what a.room.order has.
func (a *assembling) rank(preset triage.Preset, items []item) {
	scored := a.room.ranker.Rank(preset, a.triage(items))
	for i := range scored {
		sc := &scored[i]
		it := &items[sc.ID]
		it.scored = judged{sc.Score, sc.Recency, sc.Trust, sc.Semantic, sc.Tag}
		it.reason = string(sc.Reason)
		a.room.order = append(a.room.order, it)
	}
}

// triage gives the items as triage sees them; the id is the position here, so that drafts without a number have one too.
func (a *assembling) triage(items []item) []triage.Candidate {
	cs := slices.Grow(a.room.triaged[:0], len(items))
	for i := range items {
		c := items[i].cand
		cs = append(cs, triage.Candidate{
			ID: uint64(i), Provenance: c.Provenance, Age: a.now.Sub(codec.FromMicros(c.AsOf)), Lexical: c.Lexical.Score, Cosine: items[i].cosine,
			Excluded: triage.Reason(c.Excluded), Pinned: c.Pinned, System: c.Kind == KindSystem, Directive: isDirectives(c.Kind, c.Ref.ID),
			Own: items[i].own != nil || a.q.Session != "" && c.GroupName == a.q.Session,
		})
	}
	a.room.triaged = cs
	return cs
}

// protected pages come before anything scored.
func (it *item) protected() bool { return it.cand.Pinned || it.cand.Kind == KindSystem }

// pageIn loads the winners, checks their sources and fetches anew what is dirty.
func (a *assembling) pageIn(ctx context.Context) error {
	left := a.q.TopK
	keys, at := a.room.keys[:0], a.room.paged[:0]
	var forms []int
	for i := range a.ranked {
		it := a.ranked[i]
		if it.reason != "" {
			continue
		}
		if it.fixed != manifest.FormFull {
			forms = append(forms, i)
			continue
		}
		if !it.protected() && it.turn == nil {
			if left == 0 {
				it.reason = string(triage.BeyondTopK)
				continue
			}
			left--
		}
		if it.own != nil {
			it.head, it.page = draftHead(it.own.put, a.s.name, a.s.actor), it.own.page
			it.text = it.own.put.Pages[it.page-1].Text
			continue
		}
		keys, at = append(keys, it.cand.Key), append(at, i)
	}
	whole, err := a.loadForms(ctx, forms)
	if err != nil {
		return err
	}
	for _, i := range whole {
		keys, at = append(keys, a.ranked[i].cand.Key), append(at, i)
	}
	a.room.keys, a.room.paged = keys, at
	if err := a.load(ctx, keys, at); err != nil {
		return err
	}
	a.overrule()
	a.stand()
	if err := a.dropSummaries(ctx, at); err != nil {
		return err
	}
	if a.q.AsOf == 0 {
		return a.freshen(ctx, at)
	}
	return nil
}

// stand puts the protected pages in an order that stays the same from call to call, so that the prefix of a context
// does, too: those of ancestors first, then by id, which the host chooses, then by page.
func (a *assembling) stand() {
	var at []int
	for i := range a.ranked {
		if a.ranked[i].protected() {
			at = append(at, i)
		}
	}
	slices.SortFunc(at, func(i, j int) int {
		x, y := a.ranked[i].cand.Ref, a.ranked[j].cand.Ref
		return cmp.Or(strings.Count(x.Scope, "/")-strings.Count(y.Scope, "/"), cmp.Compare(x.ID, y.ID), cmp.Compare(x.Page, y.Page))
	})
	for n, i := range at {
		a.ranked[i].stand = n
	}
}

// load pages winners in, in one call. What gc took, or what is damaged, is left out and says so; without the directives
// there is no context at all.
func (a *assembling) load(ctx context.Context, keys []PageKey, at []int) error {
	frames, errs, err := a.s.db.table.load(ctx, a.s.chain, keys)
	if err != nil {
		return err
	}
	if len(a.frames) == 0 {
		a.frames = frames
	} else {
		a.frames = append(a.frames, frames...)
	}
	for j, i := range at {
		it := a.ranked[i]
		switch {
		case frames[j] != nil:
			it.frame, it.head, it.page, it.text = frames[j], frames[j].head, frames[j].page, frames[j].text
		case isDirectives(it.cand.Kind, it.cand.Ref.ID):
			return fmt.Errorf("ctxpage: directives of %s: %w", it.cand.Ref.Scope, errs[j])
		case errors.Is(errs[j], ErrCorrupt):
			it.reason = store.ReasonDamaged
		default:
			it.reason = store.ReasonGone
		}
	}
	return nil
}

// freshen checks each artefact once and replaces what was fetched anew by its new pages. What is known already in this
// assembly is not asked again, and its candidates are from after it.
func (a *assembling) freshen(ctx context.Context, at []int) error {
	heads, open := a.unsettled(at)
	if len(heads) == 0 {
		return ctx.Err()
	}
	found, wrote := a.s.bringUpToDate(ctx, heads, a.q.Check)
	if err := ctx.Err(); err != nil {
		return err // the caller gave up: that his sources did not answer says nothing about them
	}
	var keys []PageKey
	var again []int
	refused := false
	for _, i := range open {
		it := a.ranked[i]
		if it.fresh = found[it.slot]; it.fresh.refetched {
			if key, ok := a.renumber(ctx, it); ok {
				keys, again = append(keys, key), append(again, i)
			}
		}
		refused = a.refuseDirty(it) || refused
	}
	for i, h := range heads {
		a.settle(checkKeyOf(h).origin(), found[i], len(h.Rows))
	}
	a.moved = a.moved || wrote || refused && a.crowded()
	if len(keys) == 0 {
		return nil
	}
	return a.load(ctx, keys, again)
}

// unsettled gives the heads that are still to be checked, each once, and the places of their items; of the others it
// takes over what is known.
func (a *assembling) unsettled(at []int) (heads []*Head, open []int) {
	slot := map[checkKey]int{} // pages that came into memory one by one have a head each
	for _, i := range at {
		it := a.ranked[i]
		if it.head == nil || !ages(it.head) {
			continue
		}
		if f, ok := a.settled(it.head); ok {
			it.fresh = f
			a.refuseDirty(it)
			continue
		}
		k := checkKeyOf(it.head)
		n, ok := slot[k]
		if !ok {
			n = len(heads)
			slot[k] = n
			heads = append(heads, it.head)
		}
		it.slot, open = n, append(open, i)
	}
	return heads, open
}

// refuseDirty leaves out an item that is dirty and could not be fetched anew, or marks it where that is wanted.
func (a *assembling) refuseDirty(it *item) bool {
	switch {
	case it.fresh.reason == "" || it.fresh.refetched:
		return false
	case a.q.ServeStale:
		it.stale = true
		return false
	}
	it.reason = it.fresh.reason
	return true
}

// renumber finds the page that took the place of one whose artefact was fetched anew.
func (a *assembling) renumber(ctx context.Context, it *item) (PageKey, bool) {
	l, err := a.s.db.store.Resolve(ctx, Scopes{it.head.Scope}, Ref{ID: it.head.ID})
	if err != nil || len(l.Pages) == 0 {
		it.reason = store.ReasonGone
		return PageKey{}, false
	}
	if it.page > len(l.Pages) {
		it.reason = "the source became shorter"
		return PageKey{}, false
	}
	it.cand.Key = l.Pages[it.page-1]
	return it.cand.Key, true
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
func turnOf(h *Head) string {
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

func renderPage(h *Head, ref, text string, form manifest.Form, stale bool, session string) render.Page {
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

// What an assembly itself commits: it names the assembly, but nobody has answered yet.
const (
	actionSummary = "summary"
	actionDrafts  = "drafts"
)

// record writes the manifest, and lets the transaction remember what the model saw.
func (a *assembling) record(ctx context.Context) error {
	q := &a.q
	leaf := &manifest.Record{
		Type: manifest.TypeAssemble, Trace: q.Trace, LSN: a.cands.LSN, Session: q.Session,
		AsOf: int64(q.AsOf), Budget: q.Budget, Reserve: q.Reserve, Tokens: a.out.Tokens, Tier: int(a.out.Tier), Review: a.out.Review,
		Overflow: q.Overflow.String(), Preset: q.Preset, Counter: a.s.db.opts.Counter.Name(), Renderer: render.Version, Shape: "text",
		Rendered: a.s.db.keyed("rendered", a.room.text), ServeStale: q.ServeStale,
		Embedder: a.embedder, Note: a.note(),
	}
	a.s.db.ask(leaf, q.Text)
	if a.tx != nil && a.tx.trace != q.Trace {
		leaf.Parent = a.tx.trace
	}
	best := a.bestLexical()
	leaf.Pages = make([]manifest.Page, 0, len(a.placed))
	for _, it := range a.placed {
		leaf.Pages = append(leaf.Pages, it.leafPage(best))
		if a.tx != nil && it.own == nil {
			a.tx.see(it.head, it.page, it.cand.Key.Num)
			if it.form == manifest.FormSummary && it.sum != nil {
				a.tx.see(it.sum.head, 1, it.sum.num)
			}
		}
	}
	leaf.Excluded = a.exclusions(best)
	if err := a.keepDrafts(ctx, leaf); err != nil {
		return err
	}
	if err := a.s.emit(ctx, leaf); err != nil {
		return err
	}
	a.out.Manifest = leaf
	return nil
}

func (a *assembling) bestLexical() float64 {
	best := 0.0
	for i := range a.ranked {
		best = max(best, a.ranked[i].cand.Lexical.Score)
	}
	return best
}

func (it *item) leafPage(best float64) manifest.Page {
	p := candidatePage(it.cand, best)
	p.Form = it.form
	if it.reason == "" { // else it keeps what its text alone would have taken
		p.Tokens = it.tokens
	}
	note := it.note
	switch it.form {
	case manifest.FormRange:
		p.Ranges = it.cuts
		if it.asked {
			note = noteNoSummary
		}
	case manifest.FormSummary:
		if it.sum != nil {
			p.Via = it.sum.num
		}
	}
	p.Score, p.R, p.P, p.S = manifest.Quantise(it.scored.score), manifest.Quantise(it.scored.recency), manifest.Quantise(it.scored.trust), manifest.Quantise(it.scored.semantic)
	if it.cosine != nil {
		p.Vector = manifest.Quantise(triage.Semantic(*it.cosine))
	}
	p.Tag = leafTag(it.scored.tag)
	p.Reason = cmp.Or(it.reason, note)
	if it.via != 0 {
		p.Via = it.via
	}
	p.Dirty, p.Refetched, p.Stale = it.fresh.dirty, it.fresh.refetched, it.stale
	return p
}

func leafTag(t triage.Tag) manifest.Tag {
	switch t {
	case triage.Red:
		return manifest.TagRed
	case triage.Yellow:
		return manifest.TagYellow
	case triage.Green:
		return manifest.TagGreen
	case triage.Black:
		return manifest.TagBlack
	}
	return manifest.TagNone
}

func candidatePage(c *Candidate, best float64) manifest.Page {
	p := manifest.Page{Num: c.Key.Num, Version: c.Key.Version, Tokens: c.Tokens, Via: c.Lexical.Via}
	if best > 0 {
		p.LexOwn, p.LexNear, p.LexGroup = manifest.Quantise(c.Lexical.Own/best), manifest.Quantise(c.Lexical.Near/best), manifest.Quantise(c.Lexical.Group/best)
	}
	return p
}

// exclusions counts what was left out by reason. Winners that found no place are all named, of the rest the nearest.
func (a *assembling) exclusions(best float64) []manifest.Exclusion {
	out := make([]manifest.Exclusion, 0, len(a.cands.Excluded)+4)
	get := func(reason string) *manifest.Exclusion {
		i := slices.IndexFunc(out, func(x manifest.Exclusion) bool { return x.Reason == reason })
		if i < 0 {
			i = len(out)
			out = append(out, manifest.Exclusion{Reason: reason})
		}
		return &out[i]
	}
	name := func(x *manifest.Exclusion, p manifest.Page) {
		if x.Nearest == nil {
			x.Nearest = make([]manifest.Page, 0, namedLeft)
		}
		x.Nearest = append(x.Nearest, p)
	}
	for _, e := range a.cands.Excluded {
		x := get(e.Reason)
		x.Count += e.Count
		for i := range e.Nearest {
			p := candidatePage(&e.Nearest[i], best)
			p.Tag = manifest.TagBlack
			name(x, p)
		}
	}
	for i := range a.ranked {
		it := a.ranked[i]
		if it.reason == "" {
			continue
		}
		x := get(it.reason)
		x.Count++
		if it.head != nil || len(x.Nearest) < namedLeft || it.fresh.reason != "" && len(x.Nearest) < a.q.TopK {
			p := it.leafPage(best)
			p.Reason = ""
			name(x, p)
		}
	}
	slices.SortFunc(out, func(x, y manifest.Exclusion) int { return cmp.Compare(x.Reason, y.Reason) })
	return out
}

// ask writes into a leaf what was asked: the text, of which the store keeps a row and a salted digest, or a keyed digest
// alone. Where nothing was asked there is neither.
func (db *DB) ask(leaf *manifest.Record, text string) {
	if text == "" {
		return
	}
	leaf.Query = db.keyed("query", []byte(text))
	if db.opts.Questions == KeepQuestions && !db.opts.ReadOnly {
		leaf.Question = text
	}
}

// keyed digests what must not be guessed from the log: questions and rendered contexts.
func (db *DB) keyed(what string, text []byte) []byte {
	m, _ := db.macs.Get().(hash.Hash)
	if m == nil {
		m = hmac.New(sha256.New, db.secret)
	}
	defer db.macs.Put(m)
	m.Reset()
	io.WriteString(m, what)
	m.Write([]byte{0})
	m.Write(text)
	return m.Sum(make([]byte, 0, sha256.Size))
}
