package ctxpage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/conversation"
	"github.com/ctxpage/ctxpage/internal/directivelog"
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/internal/freshness"
	"github.com/ctxpage/ctxpage/internal/lexical"
	"github.com/ctxpage/ctxpage/internal/remote"
	"github.com/ctxpage/ctxpage/internal/rendering"
	"github.com/ctxpage/ctxpage/internal/triage"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// The stages of an assembly. Data flows one way; each stage is one call and takes what the previous one left in
// assembling:
//
//	ahead     files of the visible scopes that changed are fetched again, so that the index knows their words (ahead.go)
//	propose   the index proposes at one LSN, the transaction adds its drafts, triage orders: candidates, none loaded
//	pageIn    winners are loaded and pinned, and checked against their sources; dirty ones are fetched again
//	rescore   what was fetched again is proposed and scored again: back to propose, a bounded number of times
//	places    calls without results and duplicates are left out, and their places given to the next pages
//	fit       the budget decides what goes in, in which form (fit.go)
//	match     how much of the question the context covers; if nothing, pages that are only recent leave it (match.go)
//	record    the manifest is written; only then is the context returned (record.go)
//
// Ownership: assembling belongs to one goroutine. The store keeps what was current at the start until the end (hold),
// and end unpins the frames, so no stage has to clean up after an error.
//
// Rejected: checking sources before proposing for all kinds of sources. It cost a network call per source and question;
// so only files are looked at ahead, and the others when they win.

// Assemble makes a context for a question. The answer to it can be committed later with Resume.
//
// ErrBudget when the system part alone does not fit; the error names the shortfall.
func (s *Scope) Assemble(ctx context.Context, q Query) (*Assembly, error) {
	release, err := s.takeTrace(ctx, q.Trace)
	if err != nil {
		return nil, err
	}
	defer release()
	return s.assemble(ctx, q, nil)
}

// Assemble makes a context that also contains the transaction's own drafts. Its pages join the read set.
func (tx *Txn) Assemble(ctx context.Context, q Query) (*Assembly, error) {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if tx.done {
		return nil, store.ErrTxnDone
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

// takeTrace makes sure that a given trace names nothing yet. Two assemblies under one trace would be confused in
// replays, in reviews and as the read set of a commit. release ends the reservation; from then on the audit has the
// trace. The error does not say what the trace names or whose it is.
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

// assemble runs the stages for one question.
func (s *Scope) assemble(ctx context.Context, q Query, tx *Txn) (_ *Assembly, err error) {
	ctx = s.db.timed(ctx)
	defer func() { _ = s.failed(ctx, manifest.TypeAssemble, err) }()
	if q.Dry {
		looking := *s
		looking.view = s.view.Looking()
		s = &looking
	}
	if s.err != nil {
		return nil, s.err
	}
	q.Session = store.Canonical(q.Session)
	if err := s.windowBudget(ctx, &q); err != nil {
		return nil, err
	}
	if q, err = q.withDefaults(); err != nil {
		return nil, err
	}
	if err := s.db.reaches(ctx, q.AsOf); err != nil {
		return nil, err
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
	if ctx, err = a.plan(ctx); err != nil {
		return nil, err
	}
	held, err := a.hold(ctx)
	if err != nil {
		return nil, err
	}
	defer s.db.store.Release(held)
	rescore := func(ctx context.Context) error { return a.rescore(ctx, a.propose) }
	for _, stage := range [...]func(context.Context) error{a.ahead, a.propose, a.pageIn, rescore, a.places, a.fit, a.match, a.record} {
		if err := stage(ctx); err != nil {
			return nil, err
		}
	}
	return a.out, nil
}

// reaches refuses an LSN that no commit has. Another process may have committed since the store last looked.
func (db *DB) reaches(ctx context.Context, asOf uint64) error {
	if asOf <= db.store.Mark().LSN {
		return nil
	}
	_, err := db.store.Refresh(ctx, asOf)
	if errors.Is(err, store.ErrInvalid) {
		err = store.Invalid("as_of", fmt.Sprintf("LSN %d", asOf), "0 for now, or the LSN of an assembly or a version that was read here; nothing has been committed at this one yet")
	}
	return err
}

// windowBudget takes the budget from the session's window if the question has none.
func (s *Scope) windowBudget(ctx context.Context, q *Query) error {
	if q.Budget != 0 || q.Session == "" || store.CheckID("session", q.Session) != nil {
		return nil
	}
	conv := s.db.sessions.Of(s.name, q.Session)
	return conv.Exclusively(ctx, func() error {
		if cfg := conv.State.Config; cfg.Total != 0 {
			q.Budget = cfg.Thresholds().Usable
		}
		return nil
	})
}

// plan says in the context what the assembly is going to ask, so that a store elsewhere answers it with the hold.
func (a *assembling) plan(ctx context.Context) (context.Context, error) {
	cq, err := a.askFor()
	if err != nil {
		return ctx, err
	}
	p := &remote.Plan{Candidates: cq}
	if a.q.Session == "" { // a window may keep candidates
		p.Room = a.scratch.found
	}
	if a.looksAhead() {
		for _, name := range a.s.chain {
			p.Scans = append(p.Scans, a.s.db.checker.AsksOf(name))
		}
	}
	a.planned = p
	return remote.WithPlan(ctx, p), nil
}

// readQuestion analyses the text of the question, once.
func (a *assembling) readQuestion() {
	if a.terms == nil {
		a.terms, a.words = a.s.db.lexer.Terms(a.q.Text), a.s.db.lexer.Words(a.q.Text)
	}
}

// askFor returns the query for candidates.
func (a *assembling) askFor() (cq store.CandidateQuery, err error) {
	preset, err := presetOf(a.q.Preset)
	if err != nil {
		return cq, err
	}
	a.readQuestion()
	weights := lexical.DefaultWeights()
	weights.Fill, weights.Spread = true, lexical.Course(a.q.Text)
	cq = store.CandidateQuery{
		Scopes: a.s.chain, Terms: a.terms, Words: a.words, Dates: lexical.DatesOf(a.q.Text), Kinds: a.q.Kinds, Floor: a.q.Floor, Session: a.q.Session, Now: a.now, AsOf: a.q.AsOf,
		K: a.widen(a.q.TopK + defaultTopK), Recent: recentTail, Newest: preset.Keep, Weights: &weights, Filter: &a.q.Filter,
	}
	if a.tx != nil {
		cq.Mask = a.tx.mask()
	}
	return cq, nil
}

// propose gathers candidates at one LSN and orders them. The store proposes by words, dates and recency; turns come
// from the window of the session, and drafts, which have no page number, from the transaction.
func (a *assembling) propose(ctx context.Context) (err error) {
	cq := a.planned.Candidates
	if a.lost > 0 { // since then
		if cq, err = a.askFor(); err != nil {
			return err
		}
	}
	preset, err := presetOf(a.q.Preset)
	if err != nil {
		return err
	}
	if err := a.near(ctx, &cq, preset); err != nil {
		return err
	}
	if err := a.candidates(ctx, cq); err != nil {
		return err
	}
	if err := a.directivesThere(); err != nil {
		return err
	}
	turns, hits := a.enter(a.cands.Hits)
	items := append(appendItems(a.scratch.items[:0], a.window.Complete(hits)), a.drafts(&cq)...)
	a.scratch.items = items
	preset.Floor = a.q.Floor
	if err := a.compare(ctx, preset, items); err != nil {
		return err
	}
	a.scratch.best = append(a.scratch.best[:0], turns...)
	a.rank(preset, items)
	a.ranked = a.scratch.best
	a.leaveLost(a.ranked)
	return nil
}

// directivesThere refuses a context when damage hides the directives of a scope: the context could say what they
// forbid.
func (a *assembling) directivesThere() error {
	for _, e := range a.cands.Excluded {
		for i := range e.Nearest {
			if c := &e.Nearest[i]; e.Reason == triage.Damaged && c.Ref.ID == directivelog.PageID {
				return &store.CorruptError{File: a.s.db.path, Err: fmt.Errorf("directives of %s: their row is not the one that was committed", c.Ref.Scope), Hint: store.HintSalvage}
			}
		}
	}
	return nil
}

// mask names the artefacts whose committed pages the transaction's drafts replace.
func (tx *Txn) mask() []Ref {
	var refs []Ref
	for _, id := range tx.putOrder {
		refs = append(refs, Ref{Scope: tx.s.name, ID: id})
	}
	for _, id := range sortedKeys(tx.drop) {
		refs = append(refs, Ref{Scope: tx.s.name, ID: id})
	}
	return refs
}

// drafts returns the transaction's drafts. They are always candidates, scored with the statistics of the store.
func (a *assembling) drafts(q *store.CandidateQuery) []item {
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
		terms := a.searched()
		if len(a.cands.Stats.DF) == len(terms) {
			d := lexical.Doc{Analysis: *o.analysis, Turn: format.TurnOf(&w.Artefact)}
			c.Lexical = lexical.ScoreDoc(a.cands.Stats, d, lexical.Query{Terms: terms, Dates: q.Dates, Weights: *q.Weights})
		}
		if e := w.Artefact.ExpiresAt; !e.IsZero() && !e.After(a.now) {
			c.Excluded = triage.Expired
		}
		if format.LeavesOut(q, rendering.DraftHead(w, a.s.name, a.s.actor), a.now) {
			continue
		}
		out = append(out, item{cand: c, own: &o})
	}
	return out
}

// rank lets triage judge. The items stay in place; their order is appended to scratch.order.
func (a *assembling) rank(preset triage.Preset, items []item) {
	scored := a.scratch.ranker.Rank(preset, a.triage(items))
	for i := range scored {
		sc := &scored[i]
		it := &items[sc.ID]
		it.scored = judged{sc.Score, sc.Recency, sc.Trust, sc.Semantic, sc.Tag, sc.TagByWords()}
		it.reason = string(sc.Reason)
		a.scratch.best = append(a.scratch.best, it)
	}
}

// pageIn loads the winners, checks their sources, and fetches dirty ones again.
func (a *assembling) pageIn(ctx context.Context) error {
	left := a.q.TopK
	at := make([]int, 0, len(a.ranked))
	for i, it := range a.ranked {
		if it.reason != "" {
			continue
		}
		if it.scores() {
			if left == 0 {
				it.reason = triage.BeyondTopK
				continue
			}
			left--
		}
		at = append(at, i)
	}
	if err := a.bringIn(ctx, at); err != nil {
		return err
	}
	a.overrule()
	a.orderProtected()
	return nil
}

// places lets pages beyond the top K take the places of pages that were left out after they were loaded, until
// all have a page or no page is left. It ends, because each round loads further pages.
func (a *assembling) places(ctx context.Context) error {
	for {
		a.leaveUnpaired()
		a.dropDuplicates()
		left, at := a.q.TopK, []int(nil)
		for _, it := range a.ranked {
			if it.reason == "" && it.scores() {
				left--
			}
		}
		for i := 0; i < len(a.ranked) && left > 0; i++ {
			if it := a.ranked[i]; it.reason == triage.BeyondTopK {
				it.reason = ""
				at, left = append(at, i), left-1
			}
		}
		if len(at) == 0 {
			return nil
		}
		if err := a.bringIn(ctx, at); err != nil {
			return err
		}
	}
}

// scores reports whether an item takes one of the K places.
func (it *item) scores() bool {
	return it.fixed() == manifest.FormFull && !it.protected() && it.turn == nil
}

// bringIn loads items and checks their sources.
func (a *assembling) bringIn(ctx context.Context, want []int) error {
	keys, at := a.scratch.keys[:0], a.scratch.paged[:0]
	var forms []int
	for _, i := range want {
		it := a.ranked[i]
		if it.fixed() != manifest.FormFull {
			forms = append(forms, i)
			continue
		}
		if it.own != nil {
			it.head, it.page = rendering.DraftHead(it.own.put, a.s.name, a.s.actor), it.own.page
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
	a.scratch.keys, a.scratch.paged = keys, at
	if err := a.load(ctx, keys, at); err != nil {
		return err
	}
	if err := a.dropSummaries(ctx); err != nil {
		return err
	}
	if a.q.AsOf == 0 {
		return a.freshen(ctx, at)
	}
	return nil
}

// orderProtected puts the protected pages in an order that is equal in every call, so that contexts share a prefix:
// pages of ancestors first, then by id, which the host chooses, then by page.
func (a *assembling) orderProtected() {
	var at []int
	for i := range a.ranked {
		if it := a.ranked[i]; it.protected() || a.q.Session != "" && it.cand.Provenance == store.HumanVerified {
			at = append(at, i)
		}
	}
	slices.SortFunc(at, func(i, j int) int {
		x, y := a.ranked[i].cand.Ref, a.ranked[j].cand.Ref
		return cmp.Or(strings.Count(x.Scope, "/")-strings.Count(y.Scope, "/"), cmp.Compare(x.ID, y.ID), cmp.Compare(x.Page, y.Page))
	})
	for n, i := range at {
		a.ranked[i].place = n
	}
}

// load reads the winners into memory in one call. A page that gc dropped, or that is damaged, is left out with that
// reason. Without the directives there is no context.
func (a *assembling) load(ctx context.Context, keys []store.PageKey, at []int) error {
	frames, errs, err := a.s.db.table.load(ctx, a.s.chain, keys, nil)
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
		case directivelog.IsPage(it.cand.Kind, it.cand.Ref.ID), it.cand.Ref.ID == directivelog.PageID && errors.Is(errs[j], store.ErrCorrupt):
			return fmt.Errorf("ctxpage: directives of %s: %w", it.cand.Ref.Scope, errs[j])
		case errors.Is(errs[j], store.ErrCorrupt):
			it.reason = triage.Damaged
		default:
			it.reason = triage.Gone
		}
	}
	return nil
}

// freshen checks each artefact once and replaces pages that were fetched again. It does not ask again for what this
// assembly already knows.
func (a *assembling) freshen(ctx context.Context, at []int) error {
	heads, open := a.unsettled(at)
	if len(heads) == 0 {
		return ctx.Err()
	}
	found, wrote := a.s.view.BringUpToDate(ctx, heads, a.q.Check)
	if err := ctx.Err(); err != nil {
		return err // the caller gave up: that sources did not answer in time says nothing about them
	}
	var keys []store.PageKey
	var replaced []int
	refused := false
	for _, i := range open {
		it := a.ranked[i]
		if it.fresh = found[it.slot]; it.fresh.Refetched {
			if key, ok := a.renumber(ctx, it); ok {
				keys, replaced = append(keys, key), append(replaced, i)
			}
		}
		refused = a.refuseDirty(it) || refused
	}
	for i, h := range heads {
		a.settle(freshness.OriginOf(h), found[i], len(h.Rows))
	}
	a.moved = a.moved || wrote || refused && a.crowded()
	if len(keys) == 0 {
		return nil
	}
	return a.load(ctx, keys, replaced)
}

// unsettled returns the heads still to be checked, each once, and the places of their items. Items whose state is known
// get it here.
func (a *assembling) unsettled(at []int) (heads []*store.Head, open []int) {
	slot := map[freshness.VersionKey]int{} // pages that came into memory one by one have a head each
	for _, i := range at {
		it := a.ranked[i]
		if it.head == nil || !freshness.Ages(it.head) {
			continue
		}
		if f, ok := a.settled(it.head); ok {
			it.fresh = f
			a.refuseDirty(it)
			continue
		}
		k := freshness.KeyOf(it.head)
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

// refuseDirty leaves out a dirty item that could not be fetched, or marks it as stale if the query serves stale pages.
func (a *assembling) refuseDirty(it *item) bool {
	switch {
	case it.fresh.Reason == "" || it.fresh.Refetched:
		return false
	case a.q.ServeStale:
		it.stale = true
		return false
	}
	it.reason = it.fresh.Reason
	return true
}

// renumber finds the page that replaced one whose artefact was fetched again.
func (a *assembling) renumber(ctx context.Context, it *item) (store.PageKey, bool) {
	l, err := a.s.db.store.Resolve(ctx, store.Scopes{it.head.Scope}, Ref{ID: it.head.ID})
	if err != nil || len(l.Pages) == 0 {
		it.reason = triage.Gone
		return store.PageKey{}, false
	}
	if it.page > len(l.Pages) {
		it.reason = "the source became shorter"
		return store.PageKey{}, false
	}
	it.cand.Key = l.Pages[it.page-1]
	return it.cand.Key, true
}

// hold keeps from gc what the assembly may read, now or as of the past.
func (a *assembling) hold(ctx context.Context) (store.Ticket, error) {
	m := store.Moment{LSN: a.s.db.store.Mark().LSN, Time: a.now}
	if a.q.AsOf != 0 && a.q.AsOf < m.LSN {
		m = store.Moment{LSN: a.q.AsOf}
	}
	return a.s.db.store.Hold(ctx, m)
}

// rescore proposes and pages in once more when the check of the winners changed what there is to find: a page was
// fetched again, or was left out while others compete for its place. A winner of that round may be fetched again too;
// the next round scores it by its new words. The rounds end, because each source is asked once per assembly. What the
// last of maxRescores rounds fetches is served with its new text and its old score.
func (a *assembling) rescore(ctx context.Context, propose func(context.Context) error) error {
	for round := 0; a.moved && round < maxRescores; round++ {
		a.moved = false
		a.window, a.vector, a.embedder, a.wordsErr = conversation.Offer{}, nil, "", nil
		if err := propose(ctx); err != nil {
			return err
		}
		if err := a.pageIn(ctx); err != nil {
			return err
		}
	}
	return nil
}

// maxRescores bounds the rounds: a scope whose every source changed must not keep a question waiting.
const maxRescores = 4
