package vector

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/internal/loop"
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
	vecs, err := loop.Call(ctx, func() ([][]float32, error) { return m.By.Embed(ctx, texts) })
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

// All makes the vectors that the pages of scopes lack. What is made is stored part by part: a run that is cut short lost
// nothing, and the next goes on. If a part fails, its pages are tried one by one; those that fail are in the report. The
// error is for a run that could not go on: the caller's context, the store, or an embedder that takes no page at all.
func (m *Maker) All(ctx context.Context, o store.EmbedOptions) (store.EmbedReport, error) {
	out := store.EmbedReport{Model: m.By.Model(), Scopes: []store.EmbeddedIn{}, Failed: []store.EmbedFailure{}, DryRun: o.DryRun}
	scopes, err := m.scopes(ctx, o.Scope)
	if err != nil {
		return out, err
	}
	want, err := m.current(ctx)
	if err != nil {
		return out, err
	}
	total := 0
	for _, name := range scopes {
		page, err := m.lacking(ctx, store.Scopes{name}, want, "", 1)
		if err != nil {
			return out, err
		}
		if total += page.Count; page.Count > 0 {
			out.Scopes = append(out.Scopes, store.EmbeddedIn{Scope: name, Pages: page.Count})
		}
	}
	out.Left = total
	if o.DryRun {
		return out, nil
	}
	for i := range out.Scopes {
		if err := m.allOf(ctx, &out, &out.Scopes[i], want, o.Progress, total); err != nil {
			return out, err
		}
	}
	return out, nil
}

// current finds out how long the vectors of the embedder are now. If it does not answer, any length will do: the pages
// say what is wrong with it.
func (m *Maker) current(ctx context.Context) (lack, error) {
	m.Forget() // questions may be remembered with another length
	probe, err := m.Question(ctx, "How long is a vector of this model?", nil)
	switch {
	case errors.Is(err, ErrZeros): // a static model that knows no word of it, or an endpoint that is broken: the pages tell
		return lack{zeros: true, broken: true}, nil
	case ctx.Err() != nil:
		return lack{}, ctx.Err()
	}
	return lack{length: len(probe), zeros: len(probe) > 0}, nil
}

// scopes are the names of those that are asked for.
func (m *Maker) scopes(ctx context.Context, only string) (names []string, err error) {
	if only != "" {
		return []string{only}, store.CheckScope(only)
	}
	for cursor := ""; ; {
		page, err := m.Store.Scan(ctx, store.ScanQuery{What: store.ScanScopes, Cursor: cursor})
		if err != nil {
			return nil, err
		}
		for _, s := range page.Names {
			names = append(names, s.Name)
		}
		if cursor = page.Next; cursor == "" {
			return names, nil
		}
	}
}

func (m *Maker) allOf(ctx context.Context, out *store.EmbedReport, in *store.EmbeddedIn, want lack, progress store.Progress, total int) error {
	chain := store.Scopes{in.Scope}
	for cursor := ""; ; {
		page, err := m.lacking(ctx, chain, want, cursor, listed)
		if err != nil {
			return err
		}
		for keys := range slices.Chunk(page.Keys, chunk) {
			made, err := m.makeSome(ctx, chain, keys, want)
			if err != nil {
				if made, err = m.oneByOne(ctx, out, chain, keys, want, err); err != nil {
					return err
				}
			}
			in.Made, out.Made, out.Left = in.Made+made, out.Made+made, out.Left-made
			if progress != nil {
				progress("embed", uint64(out.Made+len(out.Failed)), uint64(total))
			}
		}
		if cursor = page.Next; cursor == "" {
			return nil
		}
	}
}

// oneByOne tries the pages of a part that failed. If every one fails, and nothing was made yet, the embedder is at fault and
// not the pages.
func (m *Maker) oneByOne(ctx context.Context, out *store.EmbedReport, chain store.Scopes, keys []store.PageKey, want lack, whole error) (made int, err error) {
	failed := []store.EmbedFailure{}
	for _, k := range keys {
		if err := ctx.Err(); err != nil {
			return made, err
		}
		n, err := m.makeSome(ctx, chain, []store.PageKey{k}, want)
		if made += n; err != nil {
			failed = append(failed, store.EmbedFailure{Ref: m.refOf(ctx, chain, k), Err: err.Error()})
		}
		if made == 0 && out.Made == 0 && len(failed) == 3 {
			break
		}
	}
	if made == 0 && out.Made == 0 {
		return 0, fmt.Errorf("no page could be embedded: %w", whole)
	}
	out.Failed = append(out.Failed, failed...)
	return made, nil
}

func (m *Maker) refOf(ctx context.Context, chain store.Scopes, k store.PageKey) store.Ref {
	if pages, err := m.Store.Load(ctx, chain, []store.PageKey{k}, store.WantHead); err == nil && pages[0].Head != nil {
		return pages[0].Head.PageRef(pages[0].Page)
	}
	return store.Ref{Scope: chain[0], ID: fmt.Sprintf("page %d", k.Num)}
}

// A page is found by its meaning when it has a vector, and a put makes none: it must not wait for an embedder, nor fail
// with it. So a question first has the vectors made that its scopes lack, up to aheadPages. What is left after it is made in
// the background, part by part, and each part is stored: work that ends halfway goes on where it ended, in this process or
// the next. Another model has no vectors under its name, so all pages lack one: a change of models is the same work.
//
// The question that sees pages without vectors says how many, since it may have missed what they say.

// aheadPages is the most pages that a question has embedded before it is asked.
const aheadPages = 256

// listed is the number of pages without a vector in one listing where all are made. Each listing
// counts all pages, so to list a chunk at a time cost the square of their number.
const listed = 8192

// behind is the work in the background.
type behind struct {
	mu   sync.Mutex
	now  store.Embedding
	stop context.CancelFunc // nil: it does not run
	done chan struct{}
	shut bool
}

// Ahead makes the vectors that pages of a chain lack, at most aheadPages, and has the rest made in the background. It
// returns how many are left.
func (m *Maker) Ahead(ctx context.Context, scopes store.Scopes, length int) (left int, err error) {
	want := lack{length: length, zeros: m.suspects(scopes)}
	page, err := m.lacking(ctx, scopes, want, "", aheadPages)
	if errors.Is(err, context.DeadlineExceeded) {
		return 0, fmt.Errorf("%w: %w", ErrReading, err)
	}
	if err != nil || page.Count == 0 || m.ReadOnly {
		return page.Count, err
	}
	made, err := m.make(ctx, scopes, page.Keys, want)
	m.behind.count(made, page.Count-made)
	if err != nil {
		return page.Count - made, err
	}
	if left = page.Count - made; page.Next != "" {
		m.inBackground(scopes, want)
	}
	if want.zeros {
		m.unsuspect(scopes)
	}
	return left, nil
}

// lack selects the pages that lack a vector: pages without one of this length (0: of any), and with zeros those whose vector is
// of zeros.
type lack struct {
	length int
	zeros  bool
	broken bool // the embedder gave zeros before; texts of which all get zeros are an error
}

func (m *Maker) lacking(ctx context.Context, scopes store.Scopes, want lack, cursor string, limit int) (store.ScanPage, error) {
	return m.Store.Scan(ctx, store.ScanQuery{What: store.ScanUnembedded, Scopes: scopes, Model: m.By.Model(), Numbers: want.length, Zeros: want.zeros, Cursor: cursor, Limit: limit})
}

// suspects reports whether vectors of zeros of a chain are made again. A broken embedder returns them, and some
// models do for texts of which they know no word, so each process tries once.
func (m *Maker) suspects(scopes store.Scopes) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !m.tried[strings.Join(scopes, "\x00")]
}

func (m *Maker) unsuspect(scopes store.Scopes) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.tried == nil {
		m.tried = map[string]bool{}
	}
	m.tried[strings.Join(scopes, "\x00")] = true
}

// make embeds pages, a part at a time, and stores each part. A page without text gets a vector that points nowhere, so that
// it is not asked for again; one that cannot be read gets none. It counts those that have a vector now.
func (m *Maker) make(ctx context.Context, scopes store.Scopes, keys []store.PageKey, want lack) (made int, err error) {
	for part := range slices.Chunk(keys, chunk) {
		some, err := m.makeSome(ctx, scopes, part, want)
		made += some
		if err != nil {
			return made, err
		}
	}
	return made, nil
}

func (m *Maker) makeSome(ctx context.Context, scopes store.Scopes, keys []store.PageKey, want lack) (made int, err error) {
	pages, err := m.Store.Load(ctx, scopes, keys, store.WantText)
	if err != nil {
		return 0, err
	}
	var nums []uint64
	var texts []string
	var vecs [][]float32
	for i := range pages {
		switch p := &pages[i]; {
		case p.Err != nil:
		case strings.TrimSpace(p.Text) == "":
			if want.length > 0 {
				nums, vecs = append(nums, p.Key.Num), append(vecs, make([]float32, want.length))
			}
		default:
			texts = append(texts, p.Text)
		}
	}
	if len(texts) > 0 {
		made, err := m.embed(ctx, texts)
		if err != nil {
			return 0, err
		}
		if want.length > 0 && len(made[0]) != want.length {
			return 0, lengthError(len(made[0]), want.length)
		}
		if want.broken && !slices.ContainsFunc(made, points) {
			return 0, fmt.Errorf("%w: a vector of zeros for each of %d texts", ErrAnswer, len(texts))
		}
		vecs = append(vecs, made...)
		for i := range pages {
			if p := &pages[i]; p.Err == nil && strings.TrimSpace(p.Text) != "" {
				nums = append(nums, p.Key.Num)
			}
		}
	}
	if len(nums) == 0 {
		return 0, nil
	}
	if err := m.Store.PutVectors(ctx, m.By.Model(), nums, vecs); err != nil {
		m.Unkept(err)
		return 0, nil
	}
	return len(nums), nil
}

// inBackground makes what the pages of a chain lack. One chain at a time: the next question of another has it made after.
func (m *Maker) inBackground(scopes store.Scopes, want lack) {
	b := &m.behind
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stop != nil || b.shut {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	b.stop, b.done, b.now.Running, b.now.Failure = cancel, done, true, ""
	go func() {
		defer close(done)
		err := m.makeAll(ctx, scopes, want)
		b.mu.Lock()
		defer b.mu.Unlock()
		cancel()
		b.stop, b.now.Running = nil, false
		if err != nil && !errors.Is(err, context.Canceled) {
			b.now.Failure = err.Error()
			m.Unmade(err)
		}
	}()
}

// makeAll makes all that pages of a chain lack. A page that cannot be read is passed over.
func (m *Maker) makeAll(ctx context.Context, scopes store.Scopes, want lack) error {
	for cursor := ""; ; {
		page, err := m.lacking(ctx, scopes, want, cursor, listed)
		if err != nil {
			return err
		}
		left := page.Count
		for part := range slices.Chunk(page.Keys, chunk) {
			made, err := m.makeSome(ctx, scopes, part, want)
			left -= made
			m.behind.count(made, left)
			if err != nil {
				return err
			}
		}
		if cursor = page.Next; cursor == "" {
			return nil
		}
	}
}

func (b *behind) count(made, left int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now.Made += made
	b.now.Left = left
}

// Progress reports how far the work in the background is.
func (m *Maker) Progress() *store.Embedding {
	if m.By == nil {
		return nil
	}
	m.behind.mu.Lock()
	defer m.behind.mu.Unlock()
	out := m.behind.now
	out.Model = m.By.Model()
	return &out
}

// Stop ends the work in the background for good and waits for it.
func (m *Maker) Stop() {
	b := &m.behind
	b.mu.Lock()
	b.shut = true
	stop, done := b.stop, b.done
	b.mu.Unlock()
	if stop != nil {
		stop()
		<-done
	}
}
