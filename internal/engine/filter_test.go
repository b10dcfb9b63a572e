package engine

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
)

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
		got, err := m.Candidates(t.Context(), store.CandidateQuery{
			Scopes: store.Scopes{"acme"}, Terms: m.opts.Analyzer.Terms("kettle"), K: 5, Now: now, AsOf: first.LSN, Filter: &store.Filter{WrittenSince: since},
		})
		require.NoError(t, err)
		return got.Hits
	}
	hits := ask(now.Add(-time.Hour))
	require.Len(t, hits, 1)
	require.EqualValues(t, 1, hits[0].Key.Version)
	require.Empty(t, ask(now.Add(time.Hour)))
	require.Positive(t, views.views)
}
