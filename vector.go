package ctxpage

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/ctxpage/ctxpage/internal/vectors"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/triage"
)

// Relevance by vectors beside words. Candidates worth a vector are chosen (comparable), their vectors are read or made
// (internal/vectors), and each gets the cosine of its vector and the question's. triage weighs it beside the words.
//
// Invariant: all compared candidates have a cosine, or none has. A page whose vector happened to be stored must not
// rank above one whose vector could not be made; so when any part fails the assembly uses words only and says so
// (degraded). For the same reason the choice of what is compared does not depend on what is stored: an answer must not
// change because of an earlier question.

// Limits of comparing by vectors.
const (
	comparedPages = 4  // times TopK: the number of candidates whose vectors are compared, best words first
	twoPassTexts  = 20 // texts that an assembly in two passes may have embedded, the question included
)

// compare gives candidates the cosine of their vector and the question's. The error is that of the caller's context; a
// failing embedder is no error.
func (a *assembling) compare(ctx context.Context, preset triage.Preset, items []item) error {
	at := a.comparable(preset, items)
	if len(at) == 0 || len(a.q.Vector) == 0 && strings.TrimSpace(a.q.Text) == "" {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, a.s.db.opts.EmbedTimeout)
	defer cancel()
	err := a.cosines(limited, items, at)
	if err == nil {
		a.embedder = a.s.db.opts.Embedder.Model()
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	for i := range items {
		items[i].cosine = nil
	}
	if errors.Is(err, vectors.ErrAnswer) {
		a.s.db.vectors.Forget() // a question's vector may be what was wrong
	}
	a.wordsErr = err
	return nil
}

// comparable chooses the candidates worth a vector: those on which triage has not decided, and of many those with the
// best words. With a preset in two passes it takes those that recency and provenance keep, few enough that all of them
// and the question can be embedded.
func (a *assembling) comparable(preset triage.Preset, items []item) []int {
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
	at := make([]int, 0, min(limit, len(ids)))
	for _, id := range ids[:min(limit, len(ids))] {
		at = append(at, int(id))
	}
	return at
}

// cosines sets the cosine of each compared item, all or none.
func (a *assembling) cosines(ctx context.Context, items []item, at []int) error {
	question, err := a.question(ctx)
	if err != nil {
		return err
	}
	vecs, err := a.vectors(ctx, items, at, len(question))
	if err != nil {
		return err
	}
	for j, i := range at {
		if vecs[j] != nil {
			c := triage.Cosine(question, vecs[j])
			items[i].cosine = &c
		}
	}
	return nil
}

// question returns the vector of the question.
func (a *assembling) question(ctx context.Context) ([]float32, error) {
	if len(a.q.Vector) > 0 {
		return a.q.Vector, nil
	}
	vecs, err := a.s.db.vectors.Texts(ctx, []string{a.q.Text})
	if err != nil {
		return nil, err
	}
	return vecs[0], nil
}

// vectors returns the vectors of candidates, all as long as the question's; nil for a page without text.
func (a *assembling) vectors(ctx context.Context, items []item, at []int, length int) ([][]float32, error) {
	wanted := make([]vectors.Item, len(at))
	for j, i := range at {
		wanted[j] = vectors.Item{Num: items[i].cand.Key.Num, Draft: items[i].own != nil}
	}
	out, err := a.s.db.vectors.Stored(ctx, a.s.chain, wanted, length)
	if err != nil {
		return nil, err
	}
	if err := a.textsOf(ctx, items, at, wanted, out); err != nil {
		return nil, err
	}
	return out, a.s.db.vectors.Fill(ctx, wanted, out, length)
}

// textsOf loads the texts of candidates that have no vector. A page that cannot be read gets none.
func (a *assembling) textsOf(ctx context.Context, items []item, at []int, wanted []vectors.Item, have [][]float32) error {
	var keys []store.PageKey
	var js []int
	for j, i := range at {
		switch it := &items[i]; {
		case have[j] != nil:
		case it.own != nil:
			wanted[j].Text = it.own.put.Pages[it.own.page-1].Text
		default:
			keys, js = append(keys, it.cand.Key), append(js, j)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	frames, _, err := a.s.db.table.load(ctx, a.s.chain, keys)
	if err != nil {
		return err
	}
	a.frames = append(a.frames, frames...)
	for n, j := range js {
		if frames[n] != nil {
			wanted[j].Text = frames[n].text
		}
	}
	return nil
}

// degraded is what the manifest says of a failed embedder. The words are ours: those of a server may quote the text
// that it was sent, and no content enters the audit.
func (a *assembling) degraded() string {
	kind := "failed"
	switch {
	case a.wordsErr == nil:
		return ""
	case errors.Is(a.wordsErr, context.DeadlineExceeded):
		kind = "took too long"
	case errors.Is(a.wordsErr, vectors.ErrAnswer):
		kind = "answered wrongly"
	case errors.Is(a.wordsErr, ErrCorrupt):
		kind = "could not be asked, the database is damaged"
	}
	return "relevance by words alone: embedder " + a.s.db.opts.Embedder.Model() + " " + kind
}
