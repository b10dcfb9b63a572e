package ctxpage_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	. "github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/storetest"
)

// meanings is an embedder that knows a few words: each of its dimensions is a meaning.
type meanings struct {
	mu    sync.Mutex
	model string
	texts []string // all it was asked for
	calls int
	fail  func(ctx context.Context, call int, texts []string) ([][]float32, error)
}

var dimensions = [][]string{
	{"refund", "reimbursement", "money", "repay"}, {"limit", "ceiling", "maximum"}, {"parcel", "freight", "delivery"},
	{"weather", "rain"}, {"contract", "agreement"},
}

func (m *meanings) Model() string {
	if m.model != "" {
		return m.model
	}
	return "meanings-5"
}

func meaningOf(text string) []float32 {
	v := make([]float32, len(dimensions)+1)
	v[len(dimensions)] = .1
	for i, words := range dimensions {
		for _, w := range words {
			v[i] += float32(strings.Count(strings.ToLower(text), w))
		}
	}
	return v
}

func (m *meanings) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	m.mu.Lock()
	m.calls++
	call := m.calls
	m.texts = append(m.texts, texts...)
	fail := m.fail
	m.mu.Unlock()
	if fail != nil {
		return fail(ctx, call, texts)
	}
	out := make([][]float32, len(texts))
	for i, t := range texts {
		out[i] = meaningOf(t)
	}
	return out, nil
}

// take returns what was asked for since the last take.
func (m *meanings) take() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	texts := m.texts
	m.texts, m.calls = nil, 0
	return texts
}

// work lets it do its work from now on; a call that was given up may still be under way.
func (m *meanings) work() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fail = nil
}

// library puts pages of which the words of the question find the wrong one first.
func library(t testing.TB, db *DB) *Scope {
	s := db.Scope("acme")
	put(t, s, Artefact{ID: "weather", Text: "the maximum of rain: the weather report"})
	put(t, s, Artefact{ID: "ceiling", Text: "the reimbursement ceiling is 400 dollars"})
	put(t, s, Artefact{ID: "freight", Text: "freight leaves at noon"})
	return s
}

const howMuch = "how much money may I repay at maximum?"

// ranked are the artefacts of an assembly, best first.
func ranked(a *Assembly) []string {
	blocks := slices.Clone(a.Blocks)
	slices.SortStableFunc(blocks, func(x, y Block) int { return cmp.Compare(y.Score, x.Score) })
	out := []string{}
	for _, b := range blocks {
		out = append(out, b.Ref.ID)
	}
	return out
}

func TestVectorsJoinWords(t *testing.T) {
	words := assemble(t, library(t, open(t, Options{})), Query{Text: howMuch})
	require.Equal(t, "weather", ranked(words)[0], "the control: by words alone the wrong page is first")
	require.Empty(t, words.Degraded)
	require.Empty(t, words.Manifest.Embedder)

	m := &meanings{}
	db := open(t, Options{Embedder: m})
	s := library(t, db)
	a := assemble(t, s, Query{Text: howMuch})
	require.Equal(t, "weather", ranked(a)[0], "first by words, second by meaning")
	require.Equal(t, "ceiling", ranked(a)[1])
	require.Equal(t, "meanings-5", a.Manifest.Embedder)
	require.Empty(t, a.Manifest.Note)
	require.Len(t, m.take(), 4)
	// Words that find nothing: meaning decides.
	a = assemble(t, s, Query{Text: "greatest amount we repay"})
	require.Equal(t, "ceiling", ranked(a)[0])
	require.InDelta(t, 1/math.Sqrt2, 2*a.Manifest.Pages[len(a.Blocks)-1].Vector.Float()-1, .02)
	require.Equal(t, []string{"greatest amount we repay"}, m.take(), "pages keep their vectors")
	require.Contains(t, strings.Join(must(db.Why(ctx, a.Trace, Ref{ID: "ceiling"}))(t).Steps, "\n"), "near in meaning: 0.7")

	require.Equal(t, a.Text(), must(db.Replay(ctx, a.Trace))(t).Text)
	require.Empty(t, m.take(), "replay asks nobody")
	again := assemble(t, s, Query{Text: "greatest amount we repay"})
	require.Equal(t, a.Text(), again.Text())
	require.Empty(t, m.take(), "nor does a question that was asked before")
	given := assemble(t, s, Query{Text: "something else", Vector: meaningOf("weather")})
	require.Equal(t, "weather", ranked(given)[0])
	require.Empty(t, m.take(), "nor one whose vector the host has")
	assemble(t, s, Query{})
	require.Empty(t, m.take(), "nor one without a text")
}

func TestVectorsStay(t *testing.T) {
	m := &meanings{}
	path := dbtest.Path(t)
	db := openAt(t, path, Options{Embedder: m})
	s := library(t, db)
	first := assemble(t, s, Query{Text: howMuch})
	lsn := first.LSN
	require.Len(t, m.take(), 4)

	db = reopen(t, db, Options{Embedder: m})
	a := assemble(t, db.Scope("acme"), Query{Text: howMuch})
	require.Equal(t, []string{howMuch}, m.take(), "only the question is embedded again")
	require.Equal(t, lsn, a.LSN, "vectors move no LSN")
	require.Equal(t, first.Manifest.Pages, a.Manifest.Pages)

	// Another scope's handle, another model, a new version: each asks for what it needs.
	put(t, db.Scope("acme"), Artefact{ID: "ceiling", Text: "the reimbursement ceiling is 200 dollars"})
	assemble(t, db.Scope("acme/support"), Query{Text: howMuch})
	require.Equal(t, []string{"the reimbursement ceiling is 200 dollars"}, m.take())
	m.model = "other"
	db = reopen(t, db, Options{Embedder: m})
	assemble(t, db.Scope("acme"), Query{Text: howMuch})
	require.Len(t, m.take(), 4)
	m.model = ""
	assemble(t, db.Scope("acme"), Query{Text: howMuch})
	require.Equal(t, []string{howMuch}, m.take())
}

// TestOnlyVectorsInCheckpoint: no commit came since the database was opened, so no LSN may move, or the log would be
// replayed, or cut, wrongly.
func TestOnlyVectorsInCheckpoint(t *testing.T) {
	m := &meanings{}
	db := open(t, Options{})
	library(t, db)
	db = reopen(t, db, Options{Embedder: m, DigestQuestions: true})
	before := must(db.Stats(ctx))(t)
	s := db.Scope("acme")
	a := assemble(t, s, Query{Text: howMuch})
	rep := must(db.Admin().Checkpoint(ctx))(t)
	require.Equal(t, 3, rep.Rows)
	require.Equal(t, before.Applied, rep.Applied)
	must(db.Admin().Checkpoint(ctx))(t)
	put(t, s, Artefact{ID: "later", Text: "a page after it"})

	copied := filepath.Join(t.TempDir(), "crashed.ctx")
	require.NoError(t, dbtest.Copy(db.Path(), copied))
	crashed := openAt(t, copied, Options{Embedder: m})
	m.take()
	b := assemble(t, crashed.Scope("acme"), Query{Text: howMuch, AsOf: a.LSN})
	require.Equal(t, ids(a), ids(b))
	require.NotEmpty(t, get(t, crashed.Scope("acme"), "later").Text)
}

func TestVectorsAfterACrash(t *testing.T) {
	m := &meanings{}
	db := open(t, Options{Embedder: m})
	a := assemble(t, library(t, db), Query{Text: howMuch})
	m.take()
	copied := filepath.Join(t.TempDir(), "crashed.ctx") // before any checkpoint
	require.NoError(t, dbtest.Copy(db.Path(), copied))
	b := assemble(t, openAt(t, copied, Options{Embedder: m}).Scope("acme"), Query{Text: howMuch})
	require.Equal(t, a.Manifest.Pages, b.Manifest.Pages)
	require.Len(t, m.take(), 4, "made again")
}

func TestBackupHasVectors(t *testing.T) {
	m := &meanings{}
	db := open(t, Options{Embedder: m})
	assemble(t, library(t, db), Query{Text: howMuch})
	to := filepath.Join(t.TempDir(), "backup.ctx")
	must(db.Admin().Backup(ctx, to, nil))(t)
	m.take()
	assemble(t, openAt(t, to, Options{Embedder: m}).Scope("acme"), Query{Text: howMuch})
	require.Equal(t, []string{howMuch}, m.take())
}

func TestTwoPassesEmbedTwentyTexts(t *testing.T) {
	m, now := &meanings{}, newClock()
	db := open(t, Options{Embedder: m, Clock: now.now})
	s := db.Scope("acme")
	for i := range 120 {
		put(t, s, Artefact{ID: fmt.Sprint("p", i), Text: fmt.Sprintf("refund case %d: %s", i, words(i, 20)), CurrentAsOf: now.now().Add(-time.Duration(i) * time.Hour)})
	}
	q := Query{Text: "refund limit", Preset: "START", Budget: 20000}
	a := assemble(t, s, q)
	asked := m.take()
	require.LessOrEqual(t, len(asked), 20)
	require.Len(t, slices.Compact(slices.Sorted(slices.Values(asked))), 20, "the question and 19 pages")
	scored := 0
	for _, p := range a.Manifest.Pages {
		if p.Vector > 0 {
			scored++
		}
	}
	require.Equal(t, 19, scored)
	b := assemble(t, s, q)
	require.Empty(t, m.take())
	require.Equal(t, a.Manifest.Pages, b.Manifest.Pages, "what is stored decides nothing")

	q.Vector = meaningOf(q.Text)
	assemble(t, s, q)
	require.Len(t, m.take(), 1, "without the question there is room for the twentieth page")

	assemble(t, s, Query{Text: "refund limit", TopK: 10, Budget: 20000})
	require.Len(t, m.take(), 100, "in one pass every page of the scope may be the nearest, so all get vectors")
}

// Each case has a clock of its own, which stands still while anybody works: a busy machine takes nothing of the deadline.
func TestEmbedderFails(t *testing.T) {
	var want *Assembly
	synctest.Test(t, func(t *testing.T) {
		want = assemble(t, library(t, open(t, Options{Exclusive: true, Rand: seeded(1)})), Query{Text: howMuch})
	})
	right := func(texts []string) [][]float32 {
		var out [][]float32
		for _, text := range texts {
			out = append(out, meaningOf(text))
		}
		return out
	}
	for name, c := range map[string]struct {
		fail func(context.Context, int, []string) ([][]float32, error)
		note string
	}{
		"error": {func(context.Context, int, []string) ([][]float32, error) {
			return nil, errors.New("you sent: the reimbursement")
		}, "failed"},
		"error at the second call": {func(_ context.Context, n int, ts []string) ([][]float32, error) { return right(ts), errIf(n == 2) }, "failed"},
		"panic":                    {func(context.Context, int, []string) ([][]float32, error) { panic("no") }, "failed"},
		"too slow":                 {func(ctx context.Context, _ int, _ []string) ([][]float32, error) { <-ctx.Done(); return nil, ctx.Err() }, "took too long"},
		"too few":                  {func(_ context.Context, _ int, ts []string) ([][]float32, error) { return right(ts[1:]), nil }, "answered wrongly"},
		"not finite": {func(_ context.Context, _ int, ts []string) ([][]float32, error) {
			v := right(ts)
			v[0][0] = float32(math.NaN())
			return v, nil
		}, "answered wrongly"},
		"empty": {func(_ context.Context, _ int, ts []string) ([][]float32, error) {
			return make([][]float32, len(ts)), nil
		}, "answered wrongly"},
		"two lengths": {func(_ context.Context, _ int, ts []string) ([][]float32, error) {
			v := right(ts)
			v[len(v)-1] = v[0][:2]
			return v, errIf(len(v) == 1)
		}, "failed"},
		"other length for pages": {func(_ context.Context, n int, ts []string) ([][]float32, error) {
			v := right(ts)
			for i := range v {
				v[i] = v[i][:4-n]
			}
			return v, nil
		}, "answered wrongly"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := &meanings{fail: c.fail}
				db := open(t, Options{Exclusive: true, Embedder: m, EmbedTimeout: 100 * time.Millisecond, Rand: seeded(1)})
				s := library(t, db)
				a := assemble(t, s, Query{Text: howMuch})
				require.Equal(t, ids(want), ids(a), "as without an embedder")
				require.NotEmpty(t, a.Degraded)
				require.Empty(t, a.Manifest.Embedder)
				require.Equal(t, "relevance by words alone: embedder meanings-5 "+c.note, a.Manifest.Note)
				for i, p := range a.Manifest.Pages {
					require.Zero(t, p.Vector)
					require.Equal(t, want.Manifest.Pages[i].Score, p.Score)
				}
				w := must(db.Why(ctx, a.Trace, Ref{ID: "ceiling"}))(t)
				require.Contains(t, strings.Join(w.Steps, "\n"), "relevance by words alone")
				m.work()
				require.Empty(t, assemble(t, s, Query{Text: howMuch}).Degraded, "it recovers by itself")
			})
		})
	}
}

// readingStore takes as long as somebody wants to read the vectors of a model.
type readingStore struct {
	store.Store
	read chan struct{}
}

func (s *readingStore) Scan(ctx context.Context, q store.ScanQuery) (store.ScanPage, error) {
	if q.What == store.ScanUnembedded {
		select {
		case <-s.read:
		case <-ctx.Done():
			return store.ScanPage{}, ctx.Err()
		}
	}
	return s.Store.Scan(ctx, q)
}

// TestVectorsStillBeingRead: the question is answered by words in time, and says why.
func TestVectorsStillBeingRead(t *testing.T) { synctest.Test(t, vectorsStillBeingRead) }

func vectorsStillBeingRead(t *testing.T) {
	mem := must(storetest.NewMemory(storetest.Config{State: StateKinds()}))(t)
	slow := &readingStore{Store: mem, read: make(chan struct{})}
	db := must(Open("in memory", Options{Store: slow, Embedder: &meanings{}, EmbedTimeout: 50 * time.Millisecond}))(t)
	t.Cleanup(func() { _ = db.Close() })
	s := library(t, db)
	found := must(s.Search(ctx, howMuch, 10))(t)
	require.NotEmpty(t, found.Hits)
	require.Equal(t, "relevance by words alone: the vectors by meanings-5 are still being read", found.Degraded)
	a := assemble(t, s, Query{Text: howMuch})
	require.Equal(t, found.Degraded, a.Manifest.Note)
	require.Contains(t, a.Degraded, "still being read")
	close(slow.read)
	require.Empty(t, assemble(t, s, Query{Text: howMuch}).Degraded)
}

func errIf(fail bool) error {
	if fail {
		return errors.New("out of order")
	}
	return nil
}

func TestEmbedderAndTheCallersContext(t *testing.T) {
	own, cancel := context.WithCancel(ctx)
	m := &meanings{fail: func(ctx context.Context, _ int, _ []string) ([][]float32, error) {
		cancel()
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	s := library(t, open(t, Options{Embedder: m}))
	require.ErrorIs(t, errOf(s.Assemble(own, Query{Text: howMuch, Budget: 1000})), context.Canceled, "who gave up gets no context by words alone")
}

// TestProgressOverTimeouts: a slow embedder is not asked for the same pages forever.
func TestProgressOverTimeouts(t *testing.T) {
	m := &meanings{}
	m.fail = func(_ context.Context, n int, ts []string) ([][]float32, error) {
		if n > 2 {
			return nil, errors.New("overloaded")
		}
		var out [][]float32
		for _, text := range ts {
			out = append(out, meaningOf(text))
		}
		return out, nil
	}
	s := open(t, Options{Embedder: m}).Scope("acme")
	for i := range 70 {
		put(t, s, Artefact{ID: fmt.Sprint("p", i), Text: fmt.Sprintf("refund case %d", i)})
	}
	q := Query{Text: "refund limit"}
	require.NotEmpty(t, assemble(t, s, q).Degraded)
	require.Len(t, m.take(), 1+32+32)
	require.Empty(t, assemble(t, s, q).Degraded)
	require.Len(t, m.take(), 70-32, "what was embedded before the failure is kept")
}

func TestDraftsHaveVectors(t *testing.T) {
	m := &meanings{}
	s := library(t, open(t, Options{Embedder: m}))
	tx := begin(t, s)
	defer tx.Rollback()
	require.NoError(t, tx.Put(ctx, Artefact{ID: "draft", Text: "we repay money up to a maximum of 400", Provenance: store.Validated}))
	a := must(tx.Assemble(ctx, Query{Text: "reimbursement ceiling", Budget: 2000}))(t)
	i := slices.Index(ids(a), "draft")
	require.GreaterOrEqual(t, i, 0)
	require.Positive(t, a.Manifest.Pages[i].Vector)
	require.Contains(t, m.take(), "we repay money up to a maximum of 400")
	must(tx.Assemble(ctx, Query{Text: "reimbursement ceiling", Budget: 2000}))(t)
	require.Empty(t, m.take())
}

func TestReadOnlyKeepsNoVectors(t *testing.T) {
	m := &meanings{}
	db := open(t, Options{})
	library(t, db)
	path := db.Path()
	checkAndClose(t, db)
	for range 2 {
		ro := must(Open(path, Options{ReadOnly: true, Embedder: m}))(t)
		assemble(t, ro.Scope("acme"), Query{Text: howMuch})
		require.Len(t, m.take(), 4)
		require.NoError(t, ro.Close())
	}
}

func TestVectorOfAQuestionIsChecked(t *testing.T) {
	s := library(t, open(t, Options{Embedder: &meanings{}}))
	for _, v := range [][]float32{{float32(math.Inf(1))}, make([]float32, 1<<16+1)} {
		require.ErrorIs(t, errOf(s.Assemble(ctx, Query{Text: "x", Budget: 100, Vector: v})), store.ErrInvalid)
	}
	a := assemble(t, s, Query{Text: howMuch, Vector: []float32{1, 2}})
	require.Contains(t, a.Degraded, "the question of 2")
}

func TestAssembleConcurrentlyWithVectors(t *testing.T) {
	m := &meanings{}
	db := open(t, Options{Embedder: m})
	s := library(t, db)
	want := assemble(t, s, Query{Text: howMuch}).Text()
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for range 5 {
				if a, err := s.Assemble(ctx, Query{Text: howMuch, Budget: 4000}); err != nil || a.Text() != want {
					t.Error(err)
				}
				if _, err := db.Scope("other").Put(ctx, Artefact{ID: fmt.Sprint(g), Text: words(g, 10)}); err != nil {
					t.Error(err)
				}
				if g == 0 {
					if _, err := db.Admin().Checkpoint(ctx); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
}

// allergies puts a page that the question of the issue has no word of, among others.
func allergies(t testing.TB, s *Scope) {
	put(t, s, Artefact{ID: "peanuts", Text: "never agreement to freight"})
	for i := range 40 {
		put(t, s, Artefact{ID: fmt.Sprint("p", i), Text: fmt.Sprintf("lunch number %d is served at noon", i)})
	}
}

// TestFoundByMeaning: no word in common, neither recent nor pinned, and found with the defaults; without an embedder it is
// not.
func TestFoundByMeaning(t *testing.T) {
	const question = "which parcel contract?"
	for _, c := range []struct {
		with Embedder
		in   bool
	}{{&meanings{}, true}, {nil, false}} {
		db := open(t, Options{Embedder: c.with})
		s := db.Scope("acme")
		allergies(t, s)
		a := assemble(t, s, Query{Text: question, Budget: 4000})
		require.Equal(t, c.in, slices.Contains(ids(a), "peanuts"))
		found := must(s.Search(ctx, question, 1))(t)
		w := must(db.Why(ctx, a.Trace, Ref{ID: "peanuts"}))(t)
		if !c.in {
			require.Empty(t, found.Hits)
			require.NotContains(t, strings.Join(w.Steps, "\n"), "meaning")
			continue
		}
		require.Equal(t, "peanuts", ranked(a)[0])
		require.Equal(t, "peanuts", found.Hits[0].Ref.ID)
		require.Empty(t, found.Degraded)
		require.Contains(t, strings.Join(w.Steps, "\n"), "near in meaning: 1.00 to the question")
		leaves := must(db.Manifests().ByTrace(ctx, found.Trace))(t)
		require.Equal(t, "meanings-5", leaves[0].Embedder)
		require.Positive(t, leaves[0].Pages[0].Vector)

		require.Len(t, must(s.Search(ctx, question, 50, Where(Filter{IDPrefix: "pea"})))(t).Hits, 1)
		require.Empty(t, must(s.Search(ctx, question, 50, Where(Filter{IDPrefix: "p1"})))(t).Hits, "p1 and p10 to p19 are not near")
		require.NoError(t, s.Update(ctx, func(tx *Txn) error { return tx.Delete(ctx, "peanuts") }))
		found = must(s.Search(ctx, question, 1))(t)
		require.Empty(t, found.Hits)
	}
}

func TestSearchWithAFailingEmbedder(t *testing.T) {
	m := &meanings{fail: func(context.Context, int, []string) ([][]float32, error) { return nil, errors.New("you sent: lunch") }}
	db := open(t, Options{Embedder: m})
	s := db.Scope("acme")
	allergies(t, s)
	found := must(s.Search(ctx, "lunch", 3))(t)
	require.Len(t, found.Hits, 3, "by words")
	require.Contains(t, found.Degraded, "by words alone: embedder meanings-5 failed")
	m.work()
	found = must(s.Search(ctx, "lunch", 3))(t)
	require.Empty(t, found.Degraded)
}

// TestMorePagesThanOneQuestionEmbeds: the question says what it could not see, the rest is made in the background, and the
// next sees all.
func TestMorePagesThanOneQuestionEmbeds(t *testing.T) {
	m := &meanings{}
	db := open(t, Options{Embedder: m})
	s := db.Scope("acme")
	require.NoError(t, batchOf(s, 700))
	a := assemble(t, s, Query{Text: "which parcel contract?", Budget: 4000})
	require.Contains(t, a.Degraded, "444 pages could not be found")
	require.Equal(t, a.Degraded, a.Manifest.Note)
	require.Equal(t, "meanings-5", a.Manifest.Embedder)
	require.Eventually(t, func() bool {
		st, err := db.Stats(ctx)
		return err == nil && !st.Embedding.Running && st.Embedding.Left == 0
	}, time.Minute, 5*time.Millisecond)
	st := must(db.Stats(ctx))(t)
	require.GreaterOrEqual(t, st.Embedding.Made, 680, "the newest ten were embedded for the question itself")
	m.take()
	require.Empty(t, assemble(t, s, Query{Text: "which parcel contract?", Budget: 4000}).Degraded)
	require.Empty(t, m.take(), "everything is stored, the question remembered")

	// Another model: all anew, from the file. A close in between loses nothing that was stored.
	m.model = "other"
	db = reopen(t, db, Options{Embedder: m})
	assemble(t, db.Scope("acme"), Query{Text: "which parcel contract?", Budget: 4000})
	db = reopen(t, db, Options{Embedder: m})
	rep := must(db.Admin().Embed(ctx, store.EmbedOptions{DryRun: true}))(t)
	require.LessOrEqual(t, rep.Left, 444)
	rep = must(db.Admin().Embed(ctx, store.EmbedOptions{}))(t)
	require.Zero(t, rep.Left)
	require.Empty(t, assemble(t, db.Scope("acme"), Query{Text: "which parcel contract?", Budget: 4000}).Degraded)
}

func batchOf(s *Scope, n int) error {
	return s.Update(ctx, func(tx *Txn) error {
		for i := range n {
			if err := tx.Put(ctx, Artefact{ID: fmt.Sprintf("p%03d", i), Text: fmt.Sprintf("lunch number %d", i)}); err != nil {
				return err
			}
		}
		return nil
	})
}

func TestEmbedReportsWhatFails(t *testing.T) {
	m := &meanings{fail: func(_ context.Context, _ int, texts []string) ([][]float32, error) {
		var out [][]float32
		for _, text := range texts {
			if strings.Contains(text, "number 7") {
				return nil, errors.New("too strange")
			}
			out = append(out, meaningOf(text))
		}
		return out, nil
	}}
	db := open(t, Options{Embedder: m})
	s := db.Scope("acme")
	require.NoError(t, batchOf(s, 60))
	put(t, db.Scope("other"), Artefact{ID: "x", Text: "of another scope"})
	dry := must(db.Admin().Embed(ctx, store.EmbedOptions{DryRun: true}))(t)
	require.Equal(t, []store.EmbeddedIn{{Scope: "acme", Pages: 60}, {Scope: "other", Pages: 1}}, dry.Scopes)
	require.Len(t, m.take(), 1, "how long a vector is, and no page")
	var seen []uint64
	rep := must(db.Admin().Embed(ctx, store.EmbedOptions{Scope: "acme", Progress: func(_ string, done, total uint64) { seen = append(seen, done, total) }}))(t)
	require.Equal(t, 59, rep.Made)
	require.Equal(t, 1, rep.Left)
	require.Equal(t, "p007", rep.Failed[0].Ref.ID)
	require.Contains(t, rep.Failed[0].Err, "too strange")
	require.Equal(t, []uint64{32, 60, 60, 60}, seen)
	own, cancel := context.WithCancel(ctx)
	cancel()
	require.ErrorIs(t, errOf(db.Admin().Embed(own, store.EmbedOptions{})), context.Canceled)
	require.ErrorIs(t, errOf(open(t, Options{}).Admin().Embed(ctx, store.EmbedOptions{})), store.ErrInvalid)
	m.fail = func(context.Context, int, []string) ([][]float32, error) { return nil, errors.New("down") }
	require.ErrorContains(t, errOf(db.Admin().Embed(ctx, store.EmbedOptions{Scope: "other"})), "no page could be embedded")
}

// listingStore counts how often pages without a vector are listed.
type listingStore struct {
	store.Store
	listed atomic.Int64
}

func (s *listingStore) Scan(ctx context.Context, q store.ScanQuery) (store.ScanPage, error) {
	if q.What == store.ScanUnembedded {
		s.listed.Add(1)
	}
	return s.Store.Scan(ctx, q)
}

// TestEmbedListsPagesOnce: each listing counts all pages without a vector, so one for each call of the embedder would cost
// the square of their number.
func TestEmbedListsPagesOnce(t *testing.T) {
	mem := must(storetest.NewMemory(storetest.Config{State: StateKinds()}))(t)
	counted, m := &listingStore{Store: mem}, &meanings{}
	db := must(Open("in memory", Options{Store: counted, Embedder: m}))(t)
	t.Cleanup(func() { _ = db.Close() })
	require.NoError(t, batchOf(db.Scope("acme"), 320))
	require.Equal(t, 320, must(db.Admin().Embed(ctx, store.EmbedOptions{}))(t).Made)
	m.mu.Lock()
	require.Greater(t, m.calls, 9, "control: the embedder was called for parts")
	m.mu.Unlock()
	require.LessOrEqual(t, counted.listed.Load(), int64(2), "one to count, one to list")

	require.NoError(t, batchOf(db.Scope("other"), 700))
	counted.listed.Store(0)
	must(db.Scope("other").Search(ctx, "lunch", 1))(t)
	require.Eventually(t, func() bool {
		st, err := db.Stats(ctx)
		return err == nil && !st.Embedding.Running && st.Embedding.Left == 0
	}, time.Minute, 5*time.Millisecond)
	require.LessOrEqual(t, counted.listed.Load(), int64(2), "one by the question, one in the background")
}

// An endpoint that changes the length of its vectors under one model name is noticed: all pages lack a vector then, and get
// a new one. Going back is no different. Admin.Embed does the same without a question.
func TestVectorLengthChanges(t *testing.T) {
	ctx := t.Context()
	numbers := atomic.Int64{}
	numbers.Store(6)
	m := &meanings{fail: func(_ context.Context, _ int, texts []string) ([][]float32, error) {
		out := make([][]float32, len(texts))
		for i, text := range texts {
			out[i] = append(meaningOf(text), make([]float32, int(numbers.Load())-6)...)
		}
		return out, nil
	}}
	db := open(t, Options{Embedder: m})
	s := db.Scope("acme")
	allergies(t, s)
	round := 0
	find := func() Found {
		return must(s.Search(ctx, "reimbursement maximum "+strings.Repeat("q", round+2), 3))(t)
	}
	put(t, s, Artefact{ID: "money", Text: "we repay up to the ceiling"})
	for _, n := range []int64{6, 9, 7, 6} {
		numbers.Store(n)
		round++
		found := find()
		require.Empty(t, found.Degraded, n)
		require.NotEmpty(t, found.Hits, n)
		require.Equal(t, "money", found.Hits[0].Ref.ID, "found by its meaning with %d numbers", n)
		m.take()
		require.Equal(t, found.Hits, find().Hits)
		require.Empty(t, m.take(), "nothing is made twice")
	}
	dry := must(db.Admin().Embed(ctx, store.EmbedOptions{DryRun: true}))(t)
	require.Zero(t, dry.Left, "control")
	numbers.Store(8)
	dry = must(db.Admin().Embed(ctx, store.EmbedOptions{DryRun: true}))(t)
	require.Positive(t, dry.Left, "a dry run sees that the vectors have the old length")
	require.Zero(t, dry.Made)
	report := must(db.Admin().Embed(ctx, store.EmbedOptions{}))(t)
	require.Equal(t, dry.Left, report.Made, "the vectors of the old length do not count")
	require.Zero(t, report.Left)
	m.take()
	require.Equal(t, "money", find().Hits[0].Ref.ID)
	require.Len(t, m.take(), 1, "a question that is remembered with the old length is asked again, and no page")
}

// The score of a page does not depend on whether its vector was stored before the question: drafts and notes get theirs when a
// question compares them.
func TestScoresBeforeAndAfterAVectorIsStored(t *testing.T) {
	ctx := t.Context()
	m := &meanings{fail: func(_ context.Context, _ int, texts []string) ([][]float32, error) {
		out := make([][]float32, len(texts))
		for i, text := range texts {
			r := rand.New(rand.NewPCG(uint64(len(text)), 7))
			for range 48 {
				out[i] = append(out[i], float32(r.NormFloat64()))
			}
		}
		return out, nil
	}}
	db := open(t, Options{Embedder: m})
	s := db.Scope("acme")
	for i := range 12 {
		put(t, s, Artefact{ID: fmt.Sprint("note-", i), Kind: store.KindScratch, Text: "the parcel " + strings.Repeat("x", 3*i)})
	}
	find := func() []Hit {
		found := must(s.Search(ctx, "which parcel?", 20, WithFloor(store.Scratch)))(t)
		require.Empty(t, found.Degraded)
		return found.Hits
	}
	m.take()
	first := find()
	require.Greater(t, len(m.take()), 1, "control: vectors of pages were made for the question")
	require.Len(t, first, 12)
	require.Equal(t, first, find())
}

// An endpoint that answers zeros is noticed: the question says so, nothing is stored, and when it works again the vectors
// of zeros that another process stored are made again.
func TestVectorsOfZeros(t *testing.T) {
	ctx := t.Context()
	path := filepath.Join(t.TempDir(), "agent.ctx")
	zeros := func(_ context.Context, _ int, texts []string) ([][]float32, error) {
		out := make([][]float32, len(texts))
		for i := range out {
			out[i] = make([]float32, 6)
		}
		return out, nil
	}
	m := &meanings{fail: zeros}
	db := must(Open(path, Options{Embedder: m}))(t)
	s := db.Scope("acme")
	put(t, s, Artefact{ID: "money", Text: "we repay up to the ceiling"})
	found := must(s.Search(ctx, "reimbursement maximum", 3))(t)
	require.Empty(t, found.Hits)
	require.Equal(t, "relevance by words alone: embedder meanings-5 gave the question a vector of zeros", found.Degraded)
	require.ErrorContains(t, errOf(db.Admin().Embed(ctx, store.EmbedOptions{})), "a vector of zeros")
	m.work()
	m.mu.Lock()
	m.fail = func(ctx context.Context, call int, texts []string) ([][]float32, error) { // pages only
		if len(texts) == 1 && texts[0] == "reimbursement maximum" {
			return [][]float32{meaningOf(texts[0])}, nil
		}
		return zeros(ctx, call, texts)
	}
	m.mu.Unlock()
	found = must(s.Search(ctx, "reimbursement maximum", 3))(t)
	require.Empty(t, found.Hits)
	m.work()
	require.NoError(t, db.Close())
	db = must(Open(path, Options{Embedder: m}))(t)
	defer db.Close()
	found = must(db.Scope("acme").Search(ctx, "reimbursement maximum", 3))(t)
	require.Len(t, found.Hits, 1, "made again by the next process")
	require.Empty(t, found.Degraded)
}
