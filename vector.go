package ctxpage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ctxpage/ctxpage/internal/triage"
	"github.com/ctxpage/ctxpage/internal/vector"
	"github.com/ctxpage/ctxpage/store"
)

// Relevance by vectors beside words. Before a question is asked, it gets its vector, and pages of its scopes that have
// none get theirs (near, internal/vector). The store then proposes the nearest pages beside those that words find, with
// the cosines of all that have a vector. Those that have none yet, drafts of the transaction above all, get theirs here
// (compare). triage joins both.
//
// Invariant: a page whose vector happened to be stored must not rank above one whose vector could not be made. So when any
// part fails the question is answered by words only and says so (degraded); and it says how many pages of its scopes have
// no vector yet, when there are more than one question may have made.
//
// A preset in two passes judges few pages, chosen without a look at the question: the nearest do not join them, and what it
// compares does not depend on what is stored.

// Limits of comparing by vectors.
const (
	comparedPages = 4   // times TopK: candidates without a vector that get one for the question, best words first
	moreWords     = 100 // pages more that words propose: one that is near and that words place further down has both
	twoPassTexts  = 20  // texts that an assembly in two passes may have embedded, the question included
)

// near lets the store propose the pages nearest to the question beside those that words find. The error is the error of the
// caller's context; a failing embedder is no error.
func (a *assembling) near(ctx context.Context, q *store.CandidateQuery, preset triage.Preset) error {
	if a.s.db.opts.Embedder == nil || a.q.WordsOnly || len(a.q.Vector) == 0 && strings.TrimSpace(a.q.Text) == "" {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, a.s.db.opts.EmbedTimeout)
	defer cancel()
	a.embedBy, _ = limited.Deadline()
	made := &a.s.db.vectors
	ask := func() (question []float32, err error) {
		if question, err = made.Question(limited, a.q.Text, a.q.Vector); err == nil && preset.Keep == 0 {
			a.unseen, err = made.Ahead(limited, a.s.chain, len(question))
		}
		return question, err
	}
	question, err := ask()
	if errors.Is(err, vector.ErrLength) && len(a.q.Vector) == 0 { // the question's may be remembered from before a change
		made.Forget()
		question, err = ask()
	}
	if err != nil {
		return a.byWords(ctx, err)
	}
	if a.vector = question; preset.Keep == 0 {
		q.Near = &store.Near{Model: a.s.db.opts.Embedder.Model(), Vector: question, K: min(q.K, MaxTopK)}
		q.K = min(q.K+moreWords, MaxTopK)
	}
	return nil
}

// byWords notes why the embedder takes no part. It returns the error of the caller's context.
func (a *assembling) byWords(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, vector.ErrAnswer) {
		a.s.db.vectors.Forget() // a question's vector may be what was wrong
	}
	a.wordsErr, a.vector = err, nil
	return nil
}

// compare sets the cosines of candidates: of their vector and the question's. It returns the error of the caller's context.
func (a *assembling) compare(ctx context.Context, preset triage.Preset, items []item) error {
	if a.vector == nil {
		return nil
	}
	limited, cancel := context.WithDeadline(ctx, a.embedBy)
	defer cancel()
	for i := range items {
		items[i].cosine = items[i].cand.Cosine
	}
	cosine := vector.Cosine // as the store has it: a score must not depend on whether the vector was stored before
	if preset.Keep > 0 {    // whose candidates the store does not compare
		cosine = func(x, y []float32) (float64, bool) { return triage.Cosine(x, y), true }
	}
	if err := a.cosines(limited, items, a.comparable(preset, items), cosine); err != nil {
		for i := range items {
			items[i].cosine = nil
		}
		return a.byWords(ctx, err)
	}
	a.embedder = a.s.db.opts.Embedder.Model()
	return nil
}

// comparable chooses the candidates worth a vector that have none: those on which triage has not decided, and of many those
// with the best words. With a preset in two passes it takes those that recency and provenance keep, few enough to embed all
// and the question.
func (a *assembling) comparable(preset triage.Preset, items []item) []int {
	if preset.Keep == 0 && !slices.ContainsFunc(items, func(it item) bool { return it.cosine == nil }) {
		return nil
	}
	ids := triage.Shortlist(preset, a.triage(items))
	limit := comparedPages * a.q.TopK
	if preset.Keep > 0 {
		limit = twoPassTexts
		if len(a.q.Vector) == 0 {
			limit--
		}
	} else {
		slices.SortStableFunc(ids, func(x, y uint64) int {
			return cmp.Compare(items[y].cand.Lexical.Score, items[x].cand.Lexical.Score)
		})
	}
	ids = slices.DeleteFunc(ids, func(id uint64) bool { return items[id].cosine != nil })
	at := make([]int, 0, min(limit, len(ids)))
	for _, id := range ids[:min(limit, len(ids))] {
		at = append(at, int(id))
	}
	return at
}

// cosines makes the vectors of some items and sets their cosines.
func (a *assembling) cosines(ctx context.Context, items []item, at []int, cosine func(x, y []float32) (float64, bool)) error {
	if len(at) == 0 {
		return nil
	}
	wanted := make([]vector.Item, len(at))
	for j, i := range at {
		if wanted[j].Key = items[i].cand.Key; items[i].own != nil {
			wanted[j].Draft, wanted[j].Text = true, items[i].own.put.Pages[items[i].own.page-1].Text
		}
	}
	vecs, err := a.s.db.vectors.Of(ctx, a.s.chain, wanted, len(a.vector))
	for j, i := range at {
		if err != nil || vecs[j] == nil {
			continue
		}
		if c, ok := cosine(a.vector, vecs[j]); ok {
			items[i].cosine = &c
		}
	}
	return err
}

// degraded returns what the manifest says of a failed embedder. The words are ours: a server's words may quote the text
// that it was sent, and no content enters the audit.
func (a *assembling) degraded() string {
	kind := "failed"
	switch {
	case a.wordsErr == nil && a.unseen > 0:
		return fmt.Sprintf("by meaning, %d pages could not be found: they have no vector by %s yet", a.unseen, a.s.db.opts.Embedder.Model())
	case a.wordsErr == nil:
		return ""
	case errors.Is(a.wordsErr, vector.ErrReading):
		return "relevance by words alone: the vectors by " + a.s.db.opts.Embedder.Model() + " are still being read"
	case errors.Is(a.wordsErr, vector.ErrZeros):
		kind = "gave the question a vector of zeros"
	case errors.Is(a.wordsErr, context.DeadlineExceeded):
		kind = "took too long"
	case errors.Is(a.wordsErr, vector.ErrAnswer):
		kind = "answered wrongly"
	case errors.Is(a.wordsErr, store.ErrCorrupt):
		kind = "could not be asked, the database is damaged"
	}
	return "relevance by words alone: embedder " + a.s.db.opts.Embedder.Model() + " " + kind
}

// Embed makes the vectors that pages lack by the model of Options.Embedder, so that questions find them by their
// meaning. The vectors are stored part by part, so a run that was interrupted is continued by the next. Pages that the
// embedder refuses are in the report. Errors: ErrReadOnly, and an *InvalidError without an embedder.
func (ad *Admin) Embed(ctx context.Context, o store.EmbedOptions) (store.EmbedReport, error) {
	switch {
	case ad.db.opts.Embedder == nil:
		return store.EmbedReport{}, store.Invalid("Options.Embedder", "nothing", "an embedder, such as package embed has")
	case ad.db.opts.ReadOnly && !o.DryRun:
		return store.EmbedReport{}, fmt.Errorf("ctxpage: embed: %w", store.ErrReadOnly)
	}
	return ad.db.vectors.All(ctx, o)
}
