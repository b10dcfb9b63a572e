package storetest_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/internal/lexical"
	"github.com/ctxpage/ctxpage/store"
)

// The model: whatever was put, superseded, expired and deleted, under whatever filter, a store on files finds by vectors
// what the reference finds, which compares all. The vectors are such that quantising them changes no cosine much: pairs
// that differ less are equal.
func TestNearModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			t.Parallel()
			m := newFilterModel(t, 100+seed)
			found := 0
			for round := range 24 {
				m.write()
				m.embed()
				for range 4 {
					found += m.askNear()
				}
				if round%8 == 7 {
					must(m.is.Maintain(m.ctx, store.Job{Kind: store.JobCheckpoint}, nil))(t)
					m.crash() // the vectors of the file are read anew
				}
			}
			require.Greater(t, found, 100)
		})
	}
}

// embed gives some pages vectors of few directions, and both stores the same.
func (m *filterModel) embed() {
	page := must(m.want.Scan(m.ctx, store.ScanQuery{What: store.ScanUnembedded, Scopes: store.Scopes{"acme/a", "acme"}, Model: "m", Limit: 1000}))(m.t)
	got := must(m.is.Scan(m.ctx, store.ScanQuery{What: store.ScanUnembedded, Scopes: store.Scopes{"acme/a", "acme"}, Model: "m", Limit: 1000}))(m.t)
	if m.simple(page, got) {
		require.Equal(m.t, page.Keys, got.Keys)
	}
	var nums []uint64
	var vecs [][]float32
	for _, k := range page.Keys {
		if m.rng.IntN(3) > 0 {
			nums = append(nums, k.Num)
			vecs = append(vecs, m.direction())
		}
	}
	require.NoError(m.t, m.is.PutVectors(m.ctx, "m", nums, vecs))
	require.NoError(m.t, m.want.PutVectors(m.ctx, "m", nums, vecs))
}

// simple says that the reference and the store agree on what answers: see agree.
func (m *filterModel) simple(want, got store.ScanPage) bool { return want.Count == got.Count }

// direction is one of few: their cosines with each other are far apart or equal.
func (m *filterModel) direction() []float32 {
	v := make([]float32, 4)
	v[m.rng.IntN(4)] = float32(1 - 2*m.rng.IntN(2))
	v[m.rng.IntN(4)] = float32(1 - 2*m.rng.IntN(2))
	return v
}

func (m *filterModel) askNear() int {
	w := lexical.DefaultWeights()
	f := m.times(pick(m, m.filters...))
	if m.rng.IntN(2) == 0 {
		f = nil
	}
	q := store.CandidateQuery{
		Scopes: store.Scopes{"acme/a", "acme"}, Terms: pick(m, []string{"zebra"}, nil), Floor: pick(m, store.Provenance(0), store.Tool), Now: m.now,
		K: 3, Session: pick(m, "", "", "talk"), Weights: &w, Filter: f, Strict: m.rng.IntN(2) == 0, Kinds: pick(m, nil, nil, []store.Kind{store.KindFact}),
	}
	if m.rng.IntN(4) == 0 {
		q.AsOf, q.Session, q.Weights = 1+m.rng.Uint64N(m.want.Mark().LSN), "", nil
	}
	if !m.agree(q) {
		return 0
	}
	q.Near = &store.Near{Model: "m", Vector: m.direction(), K: pick(m, 1, 5, 1000)}
	got := must(m.is.Candidates(m.ctx, q))(m.t)
	want := must(m.want.Candidates(m.ctx, q))(m.t)
	require.Equal(m.t, near(want), near(got), "%+v %+v", q, q.Near)
	return len(near(got))
}

func near(c store.Candidates) (out []string) {
	for i := range c.Hits {
		if h := &c.Hits[i]; h.Near {
			out = append(out, fmt.Sprintf("%d %.2f %.2f", h.Key.Num, *h.Cosine+1, h.Beside))
		}
	}
	return out
}

// TestNearConcurrently: questions by vector while a model is loaded, vectors are put, pages are written and checkpoints run.
// At the end everything that was put is found.
func TestNearConcurrently(t *testing.T) {
	t.Parallel()
	m := newFilterModel(t, 7)
	for range 8 {
		m.write()
	}
	chain := store.Scopes{"acme/a", "acme"}
	page := must(m.is.Scan(m.ctx, store.ScanQuery{What: store.ScanUnembedded, Scopes: chain, Model: "m", Limit: 1000}))(t)
	require.NotEmpty(t, page.Keys)
	must(m.is.Maintain(m.ctx, store.Job{Kind: store.JobCheckpoint}, nil))(t)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i, k := range page.Keys {
				switch {
				case i%4 == g:
					if err := m.is.PutVectors(m.ctx, "m", []uint64{k.Num}, [][]float32{{1, float32(i)}}); err != nil {
						t.Error(err)
					}
				case g == 0 && i%16 == 5:
					if _, err := m.is.Maintain(m.ctx, store.Job{Kind: store.JobCheckpoint}, nil); err != nil {
						t.Error(err)
					}
				default:
					model := fmt.Sprint("m", i%6) // more than are kept
					if _, err := m.is.Candidates(m.ctx, store.CandidateQuery{Scopes: chain, Now: m.now, Near: &store.Near{Model: model, Vector: []float32{1, 0}, K: 5}}); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	left := must(m.is.Scan(m.ctx, store.ScanQuery{What: store.ScanUnembedded, Scopes: chain, Model: "m", Limit: 1000}))(t)
	require.Zero(t, left.Count)
}
