package ctxpage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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

// assembling is the state that the four stages hand on.
type assembling struct {
	s      *Scope
	q      Query
	tx     *Txn
	now    time.Time
	cands  store.Candidates
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
	keys    []store.PageKey
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
	cand   *store.Candidate
	cosine *float64 // of its vector and the question's
	own    *ownPage // a draft of the transaction, which has no number yet
	scored judged
	reason string // why it is out, "": in
	frame  *frame // pinned; nil for a draft
	head   *store.Head
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
	cq := store.CandidateQuery{
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

func appendItems(items []item, hits []store.Candidate) []item {
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
		c := &store.Candidate{
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
func (a *assembling) load(ctx context.Context, keys []store.PageKey, at []int) error {
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
	var keys []store.PageKey
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
func (a *assembling) unsettled(at []int) (heads []*store.Head, open []int) {
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
func (a *assembling) renumber(ctx context.Context, it *item) (store.PageKey, bool) {
	l, err := a.s.db.store.Resolve(ctx, store.Scopes{it.head.Scope}, Ref{ID: it.head.ID})
	if err != nil || len(l.Pages) == 0 {
		it.reason = store.ReasonGone
		return store.PageKey{}, false
	}
	if it.page > len(l.Pages) {
		it.reason = "the source became shorter"
		return store.PageKey{}, false
	}
	it.cand.Key = l.Pages[it.page-1]
	return it.cand.Key, true
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
