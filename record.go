package ctxpage

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"
	"slices"
	"sort"
	"sync"

	"github.com/ctxpage/ctxpage/internal/remote"
	"github.com/ctxpage/ctxpage/internal/rendering"
	"github.com/ctxpage/ctxpage/internal/triage"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/render"
)

// The last stage writes what the model is about to see. The order is fixed: drafts that the context shows are stored
// first (keepDrafts), then the leaf is written (emit), and only then is the context returned. A crash in between leaves
// a row of drafts that no leaf names, which gc drops, and never a context without a leaf.
//
// What a leaf holds of an assembly: its parameters; a keyed digest of the rendered bytes; every page shown, with form,
// scores and ranges, so that shown.Replayer can render the same bytes; and what was left out, counted by reason. Winners
// that found no place are all named; of the others the nearest namedLeft per reason. Texts never enter a leaf:
// questions and renderings are digested with the database's secret, so they cannot be guessed from the log, and the
// text of a question is kept beside the leaf, where it can be erased.

// record writes the manifest and lets the transaction remember what the model saw.
func (a *assembling) record(ctx context.Context) error {
	q := &a.q
	leaf := &manifest.Record{
		Type: manifest.TypeAssemble, Trace: q.Trace, LSN: a.cands.LSN, Session: q.Session,
		AsOf: int64(q.AsOf), Budget: q.Budget, Reserve: q.Reserve, Tokens: a.out.Tokens, Tier: int(a.out.Tier), Review: a.out.Review,
		Overflow: q.overflow().String(), Preset: q.Preset, Counter: a.counter.Name(), Renderer: render.Version, Shape: rendering.Form(q.LongForm),
		Rendered: a.s.db.keyed("rendered", a.scratch.text), ServeStale: q.ServeStale,
		Embedder: a.embedder, Note: a.note(), Filter: q.Filter.JSON(), Match: a.out.Match, Covered: manifest.Quantise(a.out.Covered),
	}
	if q.Dry {
		leaf.Action = "dry"
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
	if err := a.s.emit(remote.Meanwhile(ctx, a.handOut), leaf); err != nil {
		return err
	}
	a.handOut()
	a.out.Manifest = leaf
	return nil
}

// bestLexical is the greatest score by words, against which scores by words are recorded as shares.
func (a *assembling) bestLexical() float64 {
	best := 0.0
	for i := range a.ranked {
		best = max(best, a.ranked[i].cand.Lexical.Score)
	}
	return best
}

// leafPage is the item as the manifest records it. Scores are quantised, so that equal assemblies have equal leaves on
// every machine.
func (it *item) leafPage(best float64) manifest.Page {
	p := rendering.CandidatePage(it.cand, best)
	p.Form = it.form
	if it.reason == "" { // otherwise the cost of the whole text stays
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
	p.Tag = rendering.Tag(it.scored.tag)
	p.Reason = cmp.Or(it.reason, note, it.fresh.Note())
	if it.via != 0 {
		p.Via = it.via
	}
	p.Dirty, p.Refetched, p.Stale = it.fresh.Dirty, it.fresh.Refetched, it.stale
	return p
}

// exclusions counts by reason what was left out. It names all winners that found no place, and the nearest of the rest.
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
			p := rendering.CandidatePage(&e.Nearest[i], best)
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
		if it.head != nil || len(x.Nearest) < namedLeft || it.fresh.Reason != "" && len(x.Nearest) < a.q.TopK {
			p := it.leafPage(best)
			p.Reason = ""
			name(x, p)
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Reason < out[j].Reason })
	return out
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

// ask writes the question into a leaf: its text, of which the store keeps a row and a salted digest, or a keyed digest
// alone. An empty question leaves neither.
func (db *DB) ask(leaf *manifest.Record, text string) {
	if text == "" {
		return
	}
	leaf.Query = db.keyed("query", []byte(text))
	if !db.opts.DigestQuestions && !db.opts.ReadOnly {
		leaf.Question = text
	}
}

// namedScopes bounds the scopes whose digest is remembered.
const namedScopes = 4096

// digestOfScope returns a function that makes a digest of a scope, keyed by the secret of the database.
func (db *DB) digestOfScope() func(scope string) string {
	var mu sync.Mutex
	known := map[string]string{}
	return func(scope string) string {
		mu.Lock()
		defer mu.Unlock()
		d, ok := known[scope]
		if !ok && scope != "" {
			d = hex.EncodeToString(db.keyed("observed scope", []byte(scope))[:8])
			if len(known) >= namedScopes {
				clear(known)
			}
			known[scope] = d
		}
		return d
	}
}
