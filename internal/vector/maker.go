package vector

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/ctxpage/ctxpage/internal/deadline"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/store"
)

const (
	// MaxNumbers is the length of the longest vector.
	MaxNumbers = 1 << 16
	// chunk is the number of pages of a call: earlier calls are kept though a later one fails.
	chunk = 32
	// maxKept is the number of vectors of texts without a page that are remembered.
	maxKept = 1024
)

// ErrAnswer means that an embedder answered, but not with one vector of one length for each text.
var ErrAnswer = errors.New("ctxpage: embedder answered wrongly")

// ErrLength is the ErrAnswer for a page whose vector is not as long as the question's.
var ErrLength = fmt.Errorf("%w: another length", ErrAnswer)

// ErrZeros means that the vector of a question is of zeros, so that no page is near to it.
var ErrZeros = errors.New("ctxpage: the vector of the question is of zeros")

// ErrReading means that the store had not yet read the vectors of the model when the question had to go on.
var ErrReading = errors.New("ctxpage: vectors are still being read")

// Embedder turns texts into vectors.
type Embedder interface {
	Model() string
	Embed(ctx context.Context, texts []string) ([][]float32, error)
}

// Maker returns vectors. It may be used concurrently; no lock of it is held while the embedder runs.
//
// Of texts that have no page, questions and drafts, it remembers the vectors in memory, under digests: it holds no text.
type Maker struct {
	By    Embedder
	Store store.Store
	// Unkept is told of vectors that could not be stored. That costs making them again, and is the store's to report with
	// the next write.
	Unkept func(error)
	// Unmade is told of work in the background that failed. The next question starts it again.
	Unmade func(error)

	// ReadOnly stores keep no vectors: nothing is made ahead.
	ReadOnly bool

	mu     sync.Mutex
	seen   map[[sha256.Size]byte][]float32
	tried  map[string]bool // chains whose vectors of zeros were made again
	behind behind
}

// Item is a page, or a draft, whose vector is wanted.
type Item struct {
	Key   store.PageKey // zero: a draft
	Draft bool
	Text  string // of a draft; that of a page is loaded. Blank: it gets no vector
}

// Stored reads the vectors that the store has; nil for the others. One of another length was made by another model of
// the same name, and is made anew.
func (m *Maker) Stored(ctx context.Context, scopes store.Scopes, items []Item, length int) ([][]float32, error) {
	nums := make([]uint64, len(items)) // 0, a draft: nobody's
	for i := range items {
		nums[i] = items[i].Key.Num
	}
	out, err := m.Store.Vectors(ctx, scopes, m.By.Model(), nums)
	if err != nil {
		return nil, err
	}
	for i := range out {
		if len(out[i]) != length {
			out[i] = nil
		}
	}
	return out, nil
}

// Of returns the vectors of pages and drafts, all of one length: those that are stored, and the rest made and, of pages,
// stored. Nil: a page without text, or one that cannot be read.
func (m *Maker) Of(ctx context.Context, scopes store.Scopes, items []Item, length int) ([][]float32, error) {
	out, err := m.Stored(ctx, scopes, items, length)
	if err != nil {
		return nil, err
	}
	if err := m.load(ctx, scopes, items, out); err != nil {
		return nil, err
	}
	return out, m.Fill(ctx, items, out, length)
}

// load fills in the texts of pages that have no vector.
func (m *Maker) load(ctx context.Context, scopes store.Scopes, items []Item, have [][]float32) error {
	var keys []store.PageKey
	var at []int
	for i := range items {
		if have[i] == nil && !items[i].Draft {
			keys, at = append(keys, items[i].Key), append(at, i)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	pages, err := m.Store.Load(ctx, scopes, keys, store.WantText)
	if err != nil {
		return err
	}
	for n, i := range at {
		if pages[n].Err == nil {
			items[i].Text = pages[n].Text
		}
	}
	return nil
}

// Fill makes the vectors that are missing, all of one length, and stores the vectors of pages.
func (m *Maker) Fill(ctx context.Context, items []Item, out [][]float32, length int) error {
	var pages, drafts []int
	for i := range items {
		switch {
		case out[i] != nil || strings.TrimSpace(items[i].Text) == "":
		case items[i].Draft:
			drafts = append(drafts, i)
		default:
			pages = append(pages, i)
		}
	}
	for part := range slices.Chunk(pages, chunk) {
		if err := fill(ctx, m.embed, items, part, out, length); err != nil {
			return err
		}
		m.keep(ctx, items, part, out)
	}
	return fill(ctx, m.Texts, items, drafts, out, length)
}

// fill embeds the texts at some places and puts their vectors there.
func fill(ctx context.Context, embed func(context.Context, []string) ([][]float32, error), items []Item, at []int, out [][]float32, length int) error {
	if len(at) == 0 {
		return nil
	}
	texts := make([]string, len(at))
	for n, i := range at {
		texts[n] = items[i].Text
	}
	vecs, err := embed(ctx, texts)
	if err != nil {
		return err
	}
	for n, i := range at {
		if len(vecs[n]) != length {
			return lengthError(len(vecs[n]), length)
		}
		out[i] = vecs[n]
	}
	return nil
}

func lengthError(page, question int) error {
	return fmt.Errorf("%w: a page has a vector of %d numbers, the question of %d", ErrLength, page, question)
}

// keep stores vectors that were made.
func (m *Maker) keep(ctx context.Context, items []Item, at []int, out [][]float32) {
	nums, vecs := make([]uint64, len(at)), make([][]float32, len(at))
	for n, i := range at {
		nums[n], vecs[n] = items[i].Key.Num, out[i]
	}
	if err := m.Store.PutVectors(ctx, m.By.Model(), nums, vecs); err != nil {
		m.Unkept(err)
	}
}

// Forget drops what is remembered of texts without a page.
func (m *Maker) Forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seen = nil
}

// Question returns the vector of a question: the host's, if it brought one. ErrZeros if it points nowhere.
func (m *Maker) Question(ctx context.Context, text string, have []float32) ([]float32, error) {
	if len(have) == 0 {
		vecs, err := m.Texts(ctx, []string{text})
		if err != nil {
			return nil, err
		}
		have = vecs[0]
	}
	if !points(have) {
		return nil, ErrZeros
	}
	return have, nil
}

// points reports whether a vector points anywhere: it is not of zeros.
func points(v []float32) bool { return slices.ContainsFunc(v, func(x float32) bool { return x != 0 }) }

// Texts returns the vectors of texts without a page.
func (m *Maker) Texts(ctx context.Context, texts []string) ([][]float32, error) {
	out := make([][]float32, len(texts))
	keys := make([][sha256.Size]byte, len(texts))
	var missing []string
	var at []int
	m.mu.Lock()
	for i, t := range texts {
		keys[i] = sha256.Sum256([]byte(m.By.Model() + "\x00" + t))
		if out[i] = m.seen[keys[i]]; out[i] == nil {
			missing, at = append(missing, t), append(at, i)
		}
	}
	m.mu.Unlock()
	if len(at) == 0 {
		return out, nil
	}
	vecs, err := m.embed(ctx, missing)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.seen)+len(at) > maxKept || m.seen == nil {
		m.seen = map[[sha256.Size]byte][]float32{} // forgetting costs a call each, nothing else
	}
	for n, i := range at {
		out[i] = vecs[n]
		m.seen[keys[i]] = vecs[n]
	}
	return out, nil
}

// embed asks the embedder and checks what it says. It waits no longer than the context, whatever the embedder does.
func (m *Maker) embed(ctx context.Context, texts []string) ([][]float32, error) {
	vecs, err := deadline.Call(ctx, func() ([][]float32, error) { return m.By.Embed(ctx, texts) })
	if err != nil {
		return nil, fmt.Errorf("ctxpage: embedder %s: %w", m.By.Model(), err)
	}
	if len(vecs) != len(texts) {
		return nil, fmt.Errorf("%w: %d vectors for %d texts", ErrAnswer, len(vecs), len(texts))
	}
	for i, v := range vecs {
		if len(v) == 0 || len(v) > MaxNumbers || len(v) != len(vecs[0]) || !format.Finite(v) {
			return nil, fmt.Errorf("%w: vector %d has %d numbers, expected as many as the first, 1 to %d, all finite", ErrAnswer, i, len(v), MaxNumbers)
		}
	}
	return vecs, nil
}
