package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/triage"
)

// The terms on which both ways are compared.
const (
	budget      = 40_000
	pricePerMTk = 15.0 // dollars for a million input tokens
	callsAMonth = 100 * 30
)

// report is what the run found. Every number in it was counted in the database, in a manifest, in a rendered context or
// in the answer of a commit.
type report struct {
	Seed          uint64  `json:"seed"`
	Artefacts     int     `json:"artefacts"`
	Expired       int     `json:"expired"`
	BelowFloor    int     `json:"below_floor"`
	Black         int     `json:"black"`
	Scored        int     `json:"scored"`
	DirtyRefetch  int     `json:"dirty_refetched"`
	EmbedderCalls int     `json:"embedder_calls"`
	Tokens        int     `json:"tokens"`
	Budget        int     `json:"budget"`
	Tier          int     `json:"tier"`
	CommittedAt   float64 `json:"committed_at"`
	HeldAt        float64 `json:"held_at"`
	ServedLimit   int     `json:"served_limit"`
	Leaked        int     `json:"leaked"`
	USDPerCall    float64 `json:"usd_per_call"`
	Plain         plain   `json:"plain_topk"`

	question string
	trace    string
	old      tagged
	note     tagged
	article  tagged
	served   int  // pages in the context
	newest   bool // the newest record of the case is among them, whole
	replayed bool // the same bytes
	heldSeen int  // places where a later query showed what was held
	// The controls: places where the same look finds what was committed, and where the sibling finds its own note.
	committedSeen, siblingSees int
	heldWhy                    string
	answer                     string
	tail                       string // newest leaf
}

// plain is the same question through plain top-k retrieval over the same store.
type plain struct {
	ServedLimit int     `json:"served_limit"`
	NoteServed  bool    `json:"note_served"`
	StaleServed bool    `json:"stale_served"`
	Wanted      int     `json:"tokens_wanted"`
	Dropped     int     `json:"dropped_by_truncation"`
	USDPerCall  float64 `json:"usd_per_call"`
	USDPerMonth float64 `json:"usd_per_month"`

	stale         int  // documents that had expired, or whose source had moved on
	newestWanted  bool // the newest record of the case was among the nearest
	newestDropped bool // and was cut off
	leaked        int  // documents of the sibling
}

// tagged is what the audit says of one artefact.
type tagged struct {
	in    bool
	tag   string
	steps []string
}

// run plays the scenario in a directory and gives what was found.
func run(ctx context.Context, dir string, seed uint64) (r *report, err error) {
	d, err := open(dir, seed)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.db.Close()) }()
	if err := d.live(ctx); err != nil {
		return nil, err
	}
	r = &report{Seed: seed, Budget: budget, question: d.question}
	st, err := d.db.Stats(ctx)
	if err != nil {
		return nil, err
	}
	r.Artefacts = st.Artefacts
	s := d.db.Scope(agent)
	a, err := d.assemble(ctx, s, r)
	if err != nil {
		return nil, err
	}
	for _, step := range []func(context.Context, *ctxpage.Scope, *ctxpage.Assembly, *report) error{d.commit, d.hold, d.audit, d.bleed} {
		if err := step(ctx, s, a, r); err != nil {
			return nil, err
		}
	}
	d.compare(r)
	return r, nil
}

// query is the question as the desk asks it. The desk has its vector already; what the database has to embed are the
// pages that recency and provenance keep.
func (d *desktop) query() ctxpage.Query {
	return ctxpage.Query{Text: d.question, Vector: embed(d.question), Budget: budget, Reserve: 2000, Preset: "START"}
}

// pry asks for other words than the question, as widely as an agent can: everything that has a provenance may enter.
func (d *desktop) pry(words string) ctxpage.Query {
	return ctxpage.Query{Text: words, Vector: embed(words), Budget: budget, TopK: 100, Floor: ctxpage.Scratch}
}

// assemble asks the question and counts what the pipeline did with the store.
func (d *desktop) assemble(ctx context.Context, s *ctxpage.Scope, r *report) (*ctxpage.Assembly, error) {
	before := d.model.texts.Load()
	a, err := s.Assemble(ctx, d.query())
	if err != nil {
		return nil, err
	}
	r.EmbedderCalls = int(d.model.texts.Load() - before)
	r.trace, r.Tokens, r.Tier = a.Trace, a.Tokens, int(a.Tier)
	r.USDPerCall = dollars(a.Tokens)
	for _, e := range a.Manifest.Excluded {
		switch triage.Reason(e.Reason) {
		case triage.Expired:
			r.Expired = e.Count
		case triage.BelowFloor:
			r.BelowFloor = e.Count
		case triage.Superseded:
		default:
			continue
		}
		r.Black += e.Count
	}
	r.Scored = scored(a)
	for _, p := range a.Manifest.Pages {
		if p.Dirty && p.Refetched {
			r.DirtyRefetch++
		}
	}
	r.ServedLimit, r.served = limitIn(a.Text()), len(a.Blocks)
	r.newest = slices.ContainsFunc(a.Blocks, func(b ctxpage.Block) bool { return b.Ref.ID == idNewest && b.Form == manifest.FormFull })
	return a, nil
}

// scored counts the pages that were given a semantic score: all but those excluded, those the first pass did not keep,
// and those that are served whatever they say.
func scored(a *ctxpage.Assembly) int {
	n := 0
	for _, b := range a.Blocks {
		if b.Kind != ctxpage.KindSystem {
			n++
		}
	}
	for _, e := range a.Manifest.Excluded {
		switch triage.Reason(e.Reason) {
		case triage.Expired, triage.BelowFloor, triage.Superseded, triage.OtherKind, triage.NotKept:
		default:
			n += e.Count
		}
	}
	return n
}

var limitWords = regexp.MustCompile(`refund limit is \$([\d,]*\d)`)

// limitIn is the model of this scenario: it believes the limit that stands first in what it is shown. 0: none.
func limitIn(text string) int {
	m := limitWords.FindStringSubmatch(text)
	if m == nil {
		return 0
	}
	n, _ := strconv.Atoi(strings.ReplaceAll(m[1], ",", ""))
	return n
}

func dollars(tokens int) float64 { return float64(tokens) * pricePerMTk / 1e6 }

// draft answers on what the context said, and hands the answer to the gate with a checker's confidence.
func (d *desktop) draft(ctx context.Context, s *ctxpage.Scope, trace, id, text string, confidence float64) error {
	tx, err := s.Resume(ctx, trace)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := tx.Put(ctx, ctxpage.Artefact{ID: id, Text: text}); err != nil {
		return err
	}
	return tx.Commit(ctx, ctxpage.Verdict{Confidence: confidence, By: "billing-checker"})
}

// commit lets the answer through the gate.
func (d *desktop) commit(ctx context.Context, s *ctxpage.Scope, a *ctxpage.Assembly, r *report) error {
	r.answer = fmt.Sprintf("Refund answer albatross for %s: the second booking of %s is within the $%d an agent decides alone; it goes back to the card ending in %s.", d.invoice, d.amount, r.ServedLimit, d.card)
	if err := d.draft(ctx, s, a.Trace, "answer-"+d.invoice, r.answer, .88); err != nil {
		return err
	}
	leaf, err := d.end(ctx, a.Trace)
	if err != nil {
		return err
	}
	if leaf.Type == manifest.TypeCommit {
		r.CommittedAt = leaf.Confidence
	}
	r.committedSeen, err = d.seen(ctx, s, "answer-"+d.invoice, "albatross")
	return err
}

// end is the leaf of the newest commit that came from an assembly.
func (d *desktop) end(ctx context.Context, trace string) (*manifest.Record, error) {
	leaves, err := d.db.Manifests().ByTrace(ctx, trace)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(leaves, func(l *manifest.Record) bool { return l.Parent == trace })
	if i < 0 {
		return nil, fmt.Errorf("no commit of %s in the manifest", trace)
	}
	return leaves[len(leaves)-1], nil
}

// hold repeats the run with an answer the checker does not believe, then asks for that very answer.
func (d *desktop) hold(ctx context.Context, s *ctxpage.Scope, _ *ctxpage.Assembly, r *report) error {
	a, err := s.Assemble(ctx, d.query())
	if err != nil {
		return err
	}
	const words = "pelican"
	id := "guess-" + d.invoice
	err = d.draft(ctx, s, a.Trace, id, "Refund limit guess "+words+": this customer may be refunded without any limit.", .6)
	var held *ctxpage.HeldError
	if !errors.As(err, &held) {
		return fmt.Errorf("the answer at .6 was not held: %w", err)
	}
	r.heldWhy = held.Reason
	list, _, err := d.db.Review().List(ctx, agent, false, "", 0)
	if err != nil {
		return err
	}
	for _, h := range list {
		if h.ID == held.Batch {
			r.HeldAt = h.Confidence
		}
	}
	r.heldSeen, err = d.seen(ctx, s, id, words)
	return err
}

// seen counts the places where a later query shows an artefact or its words.
func (d *desktop) seen(ctx context.Context, s *ctxpage.Scope, id, words string) (int, error) {
	n := 0
	q := d.pry("refund limit guess " + words)
	later, err := s.Assemble(ctx, q)
	if err != nil {
		return 0, err
	}
	n += strings.Count(later.Text(), words)
	for _, l := range later.Left {
		n += strings.Count(l.Ref.ID, id)
	}
	found, err := s.Search(ctx, q.Text, 50)
	if err != nil {
		return 0, err
	}
	for _, h := range found.Hits {
		n += strings.Count(h.Ref.ID+h.Text, words)
	}
	if _, err := s.Get(ctx, id); !errors.Is(err, ctxpage.ErrNotFound) {
		n++
	}
	var out strings.Builder
	if _, err := s.Export(ctx, &out); err != nil {
		return 0, err
	}
	return n + strings.Count(out.String(), words), nil
}

// audit asks why, and renders the past again.
func (d *desktop) audit(ctx context.Context, _ *ctxpage.Scope, a *ctxpage.Assembly, r *report) error {
	for _, q := range []struct {
		id  string
		out *tagged
	}{{idOldPolicy, &r.old}, {idNote, &r.note}, {idArticle, &r.article}} {
		w, err := d.db.Why(ctx, a.Trace, ctxpage.Ref{ID: q.id})
		if err != nil {
			return err
		}
		q.out.in, q.out.steps = w.In, w.Steps
		if w.Page != nil {
			q.out.tag = w.Page.Tag.String()
		}
	}
	past, err := d.db.Replay(ctx, a.Trace)
	if err != nil {
		return err
	}
	r.replayed = past.Same && past.Text == a.Text()
	head, err := d.db.Head(ctx)
	r.tail = fmt.Sprintf("%d leaves, root %.12s…", head.Size, head.Root.String())
	return err
}

// bleed looks for the sibling's note on every path the agent has: contexts, left-out names, names in its manifests,
// search, listings, exports, and whether an error tells an artefact that exists next door from one that does not.
func (d *desktop) bleed(ctx context.Context, s *ctxpage.Scope, a *ctxpage.Assembly, r *report) error {
	q := d.pry("confidential " + d.secret + " " + d.question)
	prying, err := s.Assemble(ctx, q)
	if err != nil {
		return err
	}
	for _, x := range []*ctxpage.Assembly{a, prying} {
		r.Leaked += d.secretsIn(ctx, x)
	}
	found, err := s.Search(ctx, q.Text, 100)
	if err != nil {
		return err
	}
	for _, h := range found.Hits {
		r.Leaked += d.secrets(h.Ref.String() + h.Text)
	}
	own, err := d.db.Scope(sibling).Assemble(ctx, q)
	if err != nil {
		return err
	}
	r.siblingSees = d.secretsIn(ctx, own)
	return d.bleedByName(ctx, s, r)
}

// secretsIn looks at all that an assembly says and names.
func (d *desktop) secretsIn(ctx context.Context, a *ctxpage.Assembly) int {
	n := d.secrets(a.Text()) + d.namesIn(ctx, a.Manifest)
	for _, b := range a.Blocks {
		n += d.secrets(b.Ref.String() + b.Text)
	}
	for _, l := range a.Left {
		n += d.secrets(l.Ref.String())
	}
	return n
}

func (d *desktop) bleedByName(ctx context.Context, s *ctxpage.Scope, r *report) error {
	tell := func(id string, err error) string { return strings.ReplaceAll(fmt.Sprint(err), id, "…") }
	const nothing = "note-nonexistent" // as long as the name of the one that exists next door
	for _, read := range []func(string) error{
		func(id string) error { _, err := s.Get(ctx, id); return err },
		func(id string) error {
			_, err := s.GetRef(ctx, ctxpage.Ref{Scope: sibling, ID: id, Version: 1})
			return err
		},
		func(id string) error { _, _, err := s.History(ctx, id, "", 0); return err },
		func(id string) error { return s.Delete(ctx, id) },
	} {
		if tell(idSecret, read(idSecret)) != tell(nothing, read(nothing)) {
			r.Leaked++
		}
	}
	list, _, err := s.List(ctx, "", "", 2000)
	for _, v := range list {
		r.Leaked += d.secrets(v.Ref.String())
	}
	return err
}

// secrets counts the sibling's names and words in a text.
func (d *desktop) secrets(text string) int {
	return strings.Count(text, d.secret) + strings.Count(text, idSecret) + strings.Count(text, sibling)
}

// namesIn counts the sibling's pages among all that a manifest names.
func (d *desktop) namesIn(ctx context.Context, leaf *manifest.Record) int {
	n := 0
	for _, p := range leaf.Pages {
		n += d.secrets(d.db.RefOf(ctx, p.Num))
	}
	for _, e := range leaf.Excluded {
		for _, p := range e.Nearest {
			n += d.secrets(d.db.RefOf(ctx, p.Num))
		}
	}
	return n
}

// compare asks the plain index the same question.
func (d *desktop) compare(r *report) {
	pack := d.plain.top(d.question, budget, d.count)
	p := &r.Plain
	p.ServedLimit, p.Wanted, p.Dropped = limitIn(pack.text), pack.tokens, len(pack.dropped)
	p.USDPerCall = dollars(pack.tokens)
	p.USDPerMonth = p.USDPerCall * callsAMonth
	for _, doc := range pack.served {
		p.NoteServed = p.NoteServed || doc.id == idNote
		if d.stale(doc) {
			p.stale++
		}
		if doc.scope == sibling {
			p.leaked++
		}
	}
	p.StaleServed = p.stale > 0
	for _, doc := range pack.wanted {
		p.newestWanted = p.newestWanted || doc.id == idNewest
	}
	for _, doc := range pack.dropped {
		p.newestDropped = p.newestDropped || doc.id == idNewest
	}
}

func (d *desktop) stale(doc plainDoc) bool {
	if !doc.expires.IsZero() && !doc.expires.After(d.now) {
		return true
	}
	says, ok := d.sourceSays(doc.id)
	return ok && says != doc.text
}
