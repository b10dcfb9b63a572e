package ctxpage

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/triage"
)

// Embedder turns texts into vectors whose angle tells how near their meanings are. Package embed has a client for the
// endpoint that most servers speak.
type Embedder interface {
	// Model names what makes the vectors. Vectors are stored under it with their page and never compared across names,
	// so it changes when the vectors do.
	Model() string
	// Embed gives the vector of each text, in order, all of one length. It may be a network; it runs concurrently, under
	// a deadline (Options.EmbedTimeout) and under no lock of the database, and may call nothing of it. What it gives is
	// the database's from then on.
	Embed(ctx context.Context, texts []string) ([][]float32, error)
}

// Limits of comparing by vectors.
const (
	comparedPages = 4       // times TopK: candidates whose vectors are compared, those with the best words first
	twoPassTexts  = 20      // texts an assembly in two passes may have embedded, the question among them
	embedChunk    = 32      // pages a call asks for: what was embedded is kept though a later call fails
	maxVector     = 1 << 16 // numbers
)

// errVectors means that an embedder answered, but not with one vector of one length for each text.
var errVectors = errors.New("ctxpage: embedder answered wrongly")

// compare gives candidates the cosine of their vector and the question's. Pages without a stored vector are embedded and
// keep theirs. If anything of it fails, no candidate gets a cosine: a page whose vector happened to be stored must not
// be ahead of one whose was not. The error is the caller's own context.
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
	if errors.Is(err, errVectors) {
		a.s.db.embeds.forget() // a question's vector may be what was wrong
	}
	a.wordsErr = err
	return nil
}

// comparable chooses the candidates that are worth a vector: what triage still has a question about; of many, those
// whose words are nearest. In two passes those that recency and provenance keep, and only so many that all of them, and
// the question, may be embedded: which pages are compared must not depend on which vectors are stored.
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

// question is the vector of the question.
func (a *assembling) question(ctx context.Context) ([]float32, error) {
	if len(a.q.Vector) > 0 {
		return a.q.Vector, nil
	}
	vecs, err := a.s.db.embedKept(ctx, []string{a.q.Text})
	if err != nil {
		return nil, err
	}
	return vecs[0], nil
}

// vectors gives the vectors of candidates, all of the question's length; nil for a page without text. One that is stored
// with another length was made by another model of the same name, and is made anew.
func (a *assembling) vectors(ctx context.Context, items []item, at []int, length int) ([][]float32, error) {
	db := a.s.db
	out, err := a.stored(ctx, items, at, length)
	if err != nil {
		return nil, err
	}
	texts, err := a.textsOf(ctx, items, at, out)
	if err != nil {
		return nil, err
	}
	var pages, drafts []int // places in at
	for j, i := range at {
		switch {
		case out[j] != nil || strings.TrimSpace(texts[j]) == "":
		case items[i].own != nil:
			drafts = append(drafts, j)
		default:
			pages = append(pages, j)
		}
	}
	for part := range slices.Chunk(pages, embedChunk) {
		if err := fill(ctx, db.embed, texts, part, out, length); err != nil {
			return nil, err
		}
		a.keep(ctx, items, at, part, out)
	}
	return out, fill(ctx, db.embedKept, texts, drafts, out, length)
}

// fill embeds the texts at some places and puts their vectors there.
func fill(ctx context.Context, embed func(context.Context, []string) ([][]float32, error), texts []string, js []int, out [][]float32, length int) error {
	if len(js) == 0 {
		return nil
	}
	vecs, err := embed(ctx, pick(texts, js))
	if err != nil {
		return err
	}
	for n, j := range js {
		if len(vecs[n]) != length {
			return fmt.Errorf("%w: a page has a vector of %d numbers, the question of %d", errVectors, len(vecs[n]), length)
		}
		out[j] = vecs[n]
	}
	return nil
}

func pick[T any](all []T, at []int) []T {
	out := make([]T, len(at))
	for i, j := range at {
		out[i] = all[j]
	}
	return out
}

// stored reads the vectors that the store has.
func (a *assembling) stored(ctx context.Context, items []item, at []int, length int) ([][]float32, error) {
	nums := make([]uint64, len(at)) // 0, a draft: nobody's
	for j, i := range at {
		nums[j] = items[i].cand.Key.Num
	}
	out, err := a.s.db.store.Vectors(ctx, a.s.chain, a.s.db.opts.Embedder.Model(), nums)
	if err != nil {
		return nil, err
	}
	for j := range out {
		if len(out[j]) != length {
			out[j] = nil
		}
	}
	return out, nil
}

// textsOf loads the texts of candidates that have no vector; a page that cannot be read has none, as it will have when
// it is paged in.
func (a *assembling) textsOf(ctx context.Context, items []item, at []int, have [][]float32) ([]string, error) {
	out := make([]string, len(at))
	var keys []store.PageKey
	var js []int
	for j, i := range at {
		switch it := &items[i]; {
		case have[j] != nil:
		case it.own != nil:
			out[j] = it.own.put.Pages[it.own.page-1].Text
		default:
			keys, js = append(keys, it.cand.Key), append(js, j)
		}
	}
	if len(keys) == 0 {
		return out, nil
	}
	frames, _, err := a.s.db.table.load(ctx, a.s.chain, keys)
	if err != nil {
		return nil, err
	}
	a.frames = append(a.frames, frames...)
	for n, j := range js {
		if frames[n] != nil {
			out[j] = frames[n].text
		}
	}
	return out, nil
}

// keep stores vectors that were made. A failure costs making them again, and is the store's to report with the next
// write.
func (a *assembling) keep(ctx context.Context, items []item, at, js []int, vecs [][]float32) {
	if len(js) == 0 {
		return
	}
	nums := make([]uint64, len(js))
	for n, j := range js {
		nums[n] = items[at[j]].cand.Key.Num
	}
	if err := a.s.db.store.PutVectors(ctx, a.s.db.opts.Embedder.Model(), nums, pick(vecs, js)); err != nil {
		a.s.db.opts.Logger.Warn("vectors were not stored", "error", err)
	}
}

// degraded is what the manifest says of a failed embedder: what kind of failure, in our own words. Those of a server may
// quote the text it was sent, and no content enters the audit.
func (a *assembling) degraded() string {
	kind := "failed"
	switch {
	case a.wordsErr == nil:
		return ""
	case errors.Is(a.wordsErr, context.DeadlineExceeded):
		kind = "took too long"
	case errors.Is(a.wordsErr, errVectors):
		kind = "answered wrongly"
	case errors.Is(a.wordsErr, ErrCorrupt):
		kind = "could not be asked, the database is damaged"
	}
	return "relevance by words alone: embedder " + a.s.db.opts.Embedder.Model() + " " + kind
}

// embed asks the embedder and checks what it says. It waits no longer than the context, whatever the embedder does.
func (db *DB) embed(ctx context.Context, texts []string) ([][]float32, error) {
	vecs, err := callSource(ctx, func() ([][]float32, error) { return db.opts.Embedder.Embed(ctx, texts) })
	if err != nil {
		return nil, fmt.Errorf("ctxpage: embedder %s: %w", db.opts.Embedder.Model(), err)
	}
	if len(vecs) != len(texts) {
		return nil, fmt.Errorf("%w: %d vectors for %d texts", errVectors, len(vecs), len(texts))
	}
	for i, v := range vecs {
		if len(v) == 0 || len(v) > maxVector || len(v) != len(vecs[0]) || !store.Finite(v) {
			return nil, fmt.Errorf("%w: vector %d has %d numbers, expected as many as the first, 1 to %d, all finite", errVectors, i, len(v), maxVector)
		}
	}
	return vecs, nil
}

// embedded remembers the vectors of texts that have no page: questions, and drafts. It holds digests, no text.
type embedded struct {
	mu   sync.Mutex
	seen map[[sha256.Size]byte][]float32
}

const maxEmbedded = 1024

func (e *embedded) forget() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.seen = nil
}

// embedKept is embed for texts without a page.
func (db *DB) embedKept(ctx context.Context, texts []string) ([][]float32, error) {
	out := make([][]float32, len(texts))
	keys := make([][sha256.Size]byte, len(texts))
	var ask []int
	db.embeds.mu.Lock()
	for i, t := range texts {
		keys[i] = sha256.Sum256([]byte(db.opts.Embedder.Model() + "\x00" + t))
		if out[i] = db.embeds.seen[keys[i]]; out[i] == nil {
			ask = append(ask, i)
		}
	}
	db.embeds.mu.Unlock()
	if len(ask) == 0 {
		return out, nil
	}
	vecs, err := db.embed(ctx, pick(texts, ask))
	if err != nil {
		return nil, err
	}
	db.embeds.mu.Lock()
	defer db.embeds.mu.Unlock()
	if len(db.embeds.seen)+len(ask) > maxEmbedded || db.embeds.seen == nil {
		db.embeds.seen = map[[sha256.Size]byte][]float32{} // forgetting costs a call each, nothing else
	}
	for n, i := range ask {
		out[i] = vecs[n]
		db.embeds.seen[keys[i]] = vecs[n]
	}
	return out, nil
}
