package engine

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/triage"
	"github.com/ctxpage/ctxpage/internal/vector"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
)

// slowRows are rows whose vectors are read only when somebody lets them.
type slowRows struct {
	Rows
	begun, may chan struct{}
	once       *sync.Once
}

func (r slowRows) View(fn func(Reader) error) error {
	return r.Rows.View(func(tx Reader) error {
		r.once.Do(func() { close(r.begun) })
		<-r.may
		return fn(tx)
	})
}

// TestVectorsAreReadOnce: a question waits for the vectors of a model as long as it may. When it gives up they are read to
// the end for the next one, with what was put and dropped meanwhile.
func TestVectorsAreReadOnce(t *testing.T) {
	ctx := context.Background()
	m := newMemory(t, time.Now)
	m.fill("acme", 100, func(i int) store.Artefact {
		return store.Artefact{ID: fmt.Sprint("p-", i), Text: fmt.Sprint("text ", i), Kind: store.KindFact}
	})
	vectorOf := func(i int) []float32 { return []float32{float32(i), 100, 1} }
	for i := range uint64(40) {
		require.NoError(t, m.PutVectors(ctx, "model", []uint64{i + 1}, [][]float32{vectorOf(int(i + 1))}))
		if i == 19 {
			require.NoError(t, m.checkpoint())
		}
	}
	own := m.rows
	slow := slowRows{own, make(chan struct{}), make(chan struct{}), new(sync.Once)}
	m.rows = slow
	near := store.CandidateQuery{Scopes: store.Scopes{"acme"}, Now: time.Now(), Near: &store.Near{Model: "model", Vector: vectorOf(50), K: 100}}
	early, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	require.ErrorIs(t, errOf(m.nearModel(early, "model")), context.DeadlineExceeded)
	<-slow.begun
	m.rows = own // who reads again would be let through, and would close begun twice
	require.NoError(t, m.PutVectors(ctx, "model", []uint64{50, 7}, [][]float32{vectorOf(50), vectorOf(51)}))
	m.cat.mu.Lock()
	m.cat.page(9).art = 0 // as a drop does
	m.near.remove([]uint64{9})
	m.cat.mu.Unlock()
	require.ErrorIs(t, errOf(m.nearModel(early, "model")), context.DeadlineExceeded, "control: they are still being read")
	close(slow.may)
	got := must(m.Candidates(ctx, near))(t)
	found := map[uint64]bool{}
	for _, c := range got.Hits {
		found[c.Key.Num] = c.Near
	}
	require.Len(t, found, 40, "40 and the one that was put, without the one that was dropped")
	require.True(t, found[50] && found[1] && found[40])
	require.False(t, found[9])
	known := must(m.nearModel(ctx, "model"))(t)
	for s, set := range known.sets {
		require.Equal(t, 3, s.dims)
		require.Equal(t, 40, set.Len())
	}
}

// TestVectorsThatCannotBeRead: the error is that of all who wait, and the next question begins anew.
func TestVectorsThatCannotBeRead(t *testing.T) {
	ctx := context.Background()
	m := newMemory(t, time.Now)
	m.put("acme", store.Artefact{ID: "a", Text: "text", Kind: store.KindFact})
	own := m.rows
	m.rows = failingRows{own}
	require.ErrorIs(t, errOf(m.nearModel(ctx, "model")), store.ErrCorrupt)
	m.rows = own
	known := must(m.nearModel(ctx, "model"))(t)
	require.Empty(t, known.sets)
	require.NoError(t, m.PutVectors(ctx, "model", []uint64{1}, [][]float32{{1, 2}}))
	require.Len(t, known.sets, 1, "it is kept up to date")
	slow := slowRows{own, make(chan struct{}), make(chan struct{}), new(sync.Once)}
	defer close(slow.may)
	m.rows = slow // else the vectors may have been read before nearModel looks for either
	m.Shut()
	require.ErrorIs(t, errOf(m.nearModel(ctx, "another")), store.ErrClosed)
}

type failingRows struct{ Rows }

func (failingRows) View(func(Reader) error) error { return store.ErrCorrupt }

// TestVectorsReadInParts: what several goroutines read in parts is what the rows have. A damaged row counts as none.
func TestVectorsReadInParts(t *testing.T) {
	ctx := context.Background()
	m := newMemory(t, time.Now)
	const pages, damaged = 2*nearPart + 100, nearPart + 7
	for _, scope := range []string{"acme", "other"} {
		m.fill(scope, pages/2, func(i int) store.Artefact {
			return store.Artefact{ID: fmt.Sprint("p-", i), Text: fmt.Sprint("text ", i), Kind: store.KindFact}
		})
	}
	vectorOf := func(num uint64) []float32 {
		return []float32{float32(num % 101), float32(num % 103), float32(num % 107), 1, 2}[:3+num%3]
	}
	var nums []uint64
	var vecs [][]float32
	for num := uint64(1); num <= pages; num++ {
		if num%5 != 0 {
			nums, vecs = append(nums, num), append(vecs, vectorOf(num))
		}
	}
	require.NoError(t, m.PutVectors(ctx, "model", nums, vecs))
	require.NoError(t, m.PutVectors(ctx, "other", []uint64{5}, [][]float32{{1}}))
	require.NoError(t, m.checkpoint())
	m.tables[TableVec][string(vecKey{damaged, modelHash("model")}.row())][20] ^= 1
	known := must(m.nearModel(ctx, "model"))(t)
	found := 0
	for num := uint64(1); num <= pages; num++ {
		want := num%5 != 0 && num != damaged
		require.Equal(t, want, known.has.has(num), num)
		for k, s := range known.sets {
			v := vectorOf(num)
			in := want && k.scope == m.cat.page(num).scope && k.dims == len(v)
			require.Equal(t, in, s.Has(num), num)
			if in {
				c, ok := s.Cosine(vector.NewQuestion(v), num)
				require.True(t, ok)
				require.InDelta(t, 1, c, .001, num)
				found++
			}
		}
	}
	require.Equal(t, len(nums)-1, found)
}

// TestVectorsOfDroppedPages: gc takes the vectors of the pages that it drops out of the memory of a model that was read.
func TestVectorsOfDroppedPages(t *testing.T) {
	ctx := context.Background()
	m := newMemory(t, time.Now)
	for _, text := range []string{"one", "two", "three"} {
		m.put("acme", store.Artefact{ID: "a", Text: text, Kind: store.KindFact})
	}
	require.NoError(t, m.PutVectors(ctx, "model", []uint64{1, 2, 3}, [][]float32{{1, 2}, {3, 4}, {5, 6}}))
	known := must(m.nearModel(ctx, "model"))(t)
	set := known.sets[nearKey{m.cat.byName["acme"], 2}]
	require.Equal(t, 3, set.Len(), "control")
	require.NotZero(t, m.collect(store.GCJob{By: "test"}).Dropped.Versions)
	require.Equal(t, 1, set.Len())
	for num := range uint64(4) {
		require.Equal(t, num == 3, set.Has(num), num)
		require.Equal(t, num == 3, known.has.has(num), num)
	}
}

// oneView fails a test in which a snapshot is opened inside another one.
type oneView struct {
	Rows
	t     *testing.T
	open  atomic.Int32
	views int
}

func (o *oneView) View(fn func(Reader) error) error {
	o.views++
	require.EqualValues(o.t, 1, o.open.Add(1), "a snapshot inside a snapshot: a checkpoint between them would hang both")
	defer o.open.Add(-1)
	return o.Rows.View(fn)
}

// A question of the past that asks when pages were written reads heads from the rows while it searches. It must read them
// from the snapshot it has.
func TestPastFilterOpensOneSnapshot(t *testing.T) {
	now := time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)
	m := newMemory(t, func() time.Time { return now })
	first := m.put("acme", store.Artefact{ID: "a", Text: "a kettle of one"})
	m.put("acme", store.Artefact{ID: "a", Text: "a kettle of two"})
	require.NoError(t, m.checkpoint())
	views := &oneView{Rows: m.rows, t: t}
	m.rows = views
	ask := func(since time.Time) []store.Candidate {
		got := must(m.Candidates(t.Context(), store.CandidateQuery{
			Scopes: store.Scopes{"acme"}, Terms: m.opts.Analyzer.Terms("kettle"), K: 5, Now: now, AsOf: first.LSN, Filter: &store.Filter{WrittenSince: since},
		}))(t)
		return got.Hits
	}
	hits := ask(now.Add(-time.Hour))
	require.Len(t, hits, 1)
	require.EqualValues(t, 1, hits[0].Key.Version)
	require.Empty(t, ask(now.Add(time.Hour)))
	require.Positive(t, views.views)
}

// TestRecentTail: whatever expired, was said in other sessions, or has come back with a clock that went backwards: the
// recent tail of a question is the newest pages that no rule excludes, found by looking at all of them.
func TestRecentTail(t *testing.T) {
	ctx := context.Background()
	rng := rand.New(rand.NewPCG(5, 6))
	start := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	now := start
	m := newMemory(t, func() time.Time { return now })
	swept := 0
	for round := range 24 {
		now = start.Add(time.Duration(round) * 5 * time.Minute)
		m.fill([]string{"acme", "acme/a"}[round%2], 600, func(i int) store.Artefact {
			a := store.Artefact{
				ID: fmt.Sprint("p-", rng.IntN(20_000)), Text: fmt.Sprint("text ", round, i), CurrentAsOf: now.Add(time.Duration(i) * time.Second),
				Provenance: store.Provenance(1 + rng.IntN(4)), Kind: store.KindFact, Seq: int64(i),
			}
			if rng.IntN(3) > 0 {
				a.ExpiresAt = now.Add(time.Duration(1+rng.IntN(120)) * time.Minute)
			}
			if rng.IntN(2) == 0 {
				a.Group = fmt.Sprint("s-", rng.IntN(3))
			}
			if rng.IntN(3) == 0 {
				a.Kind, a.Role = store.KindMessage, "assistant"
			}
			return a
		})
		for range 4 {
			q := store.CandidateQuery{
				Scopes: store.Scopes{"acme/a", "acme"}, Now: start.Add(time.Duration(rng.IntN(3*3600)) * time.Second), Recent: 1 + rng.IntN(30),
				Floor: store.Provenance(1 + rng.IntN(3)), Session: []string{"", "s-0", "s-1", "none"}[rng.IntN(4)],
			}
			got := must(m.Candidates(ctx, q))(t)
			var tail []uint64
			for _, c := range got.Hits {
				if c.Recent {
					tail = append(tail, c.Key.Num)
				}
			}
			want, expired := recentByHand(m.cat, q)
			require.Equal(t, want, tail, "%+v", q)
			for _, e := range got.Excluded {
				if e.Reason == triage.Expired {
					require.Equal(t, expired, e.Count)
				}
			}
		}
		for num := range m.cat.scopes.named() {
			for j := range m.cat.scope(num).classes {
				if m.cat.scope(num).class(j).swept != 0 {
					swept++
				}
			}
		}
	}
	require.Greater(t, swept, 20, "nothing was swept: the test shows nothing")
}

func recentByHand(c *catalogue, q store.CandidateQuery) (nums []uint64, expired int) {
	chain := c.chain(q.Scopes)
	var all []entry
	session := c.named[artKey{scope: c.byName[q.Scopes[0]], id: q.Session}]
	for num, p := range c.pages.all() {
		if c.end(p) != 0 || p.retired || !slices.Contains(chain, p.scope) {
			continue
		}
		switch c.excluded(p, &q, session) {
		case "":
			all = append(all, entry{key: p.asOf, num: num})
		case triage.Expired:
			expired++
		}
	}
	slices.SortFunc(all, func(a, b entry) int { return compareEntries(b, a) })
	for _, e := range all[:min(q.Recent, len(all))] {
		nums = append(nums, e.num)
	}
	slices.Sort(nums)
	return nums, expired
}

// TestVectorRowIsFinite: a row with a number that is none, or is infinite, is malformed wherever it stands.
func TestVectorRowIsFinite(t *testing.T) {
	for _, f := range []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)), math.Float32frombits(1<<31 | 0x7f800001)} {
		for i := range 9 {
			v := make([]float32, 9)
			_, _, err := decodeVector(encodeVector("m", v))
			require.NoError(t, err, "control")
			v[i], v[8-i] = -math.MaxFloat32, f
			_, _, err = decodeVector(encodeVector("m", v))
			require.ErrorIs(t, err, codec.ErrMalformed)
		}
	}
}

func FuzzVectorRow(f *testing.F) {
	f.Add(encodeVector("m", []float32{1, 2}))
	f.Add([]byte{1, 255, 255, 255})
	f.Fuzz(func(t *testing.T, b []byte) {
		model, v, err := decodeVector(b)
		if err != nil {
			require.ErrorIs(t, err, codec.ErrMalformed)
			return
		}
		require.Equal(t, v, func() []float32 {
			_, again, err := decodeVector(encodeVector(model, v))
			require.NoError(t, err)
			return again
		}())
	})
}
