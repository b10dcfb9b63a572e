package remote_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/internal/remote"
	"github.com/ctxpage/ctxpage/store"
)

// An answer is for the question that was planned, once, and for a reader that has heard of nothing newer.
func TestPlan(t *testing.T) {
	t.Parallel()
	now := time.Now()
	scan := store.ScanQuery{What: store.ScanSourced, Scopes: store.Scopes{"acme"}, Known: 3}
	asked := store.CandidateQuery{Scopes: store.Scopes{"acme"}, Terms: []string{"zebra"}, Now: now, K: 5, Filter: &store.Filter{Subject: "lee"}}
	fresh := func() *remote.Plan {
		p := &remote.Plan{Scans: []store.ScanQuery{scan}, Candidates: asked}
		p.Fill(7, []store.ScanPage{{Same: true, LSN: 3}}, store.Candidates{LSN: 7})
		return p
	}
	p := fresh()
	other := asked
	other.K = 6
	_, ok := p.Found(7, other)
	require.False(t, ok, "another question")
	_, ok = p.Found(8, asked)
	require.False(t, ok, "a newer commit was heard of")
	same := asked
	same.Filter = &store.Filter{Subject: "lee"}
	found, ok := p.Found(7, same)
	require.True(t, ok, "an equal question in another place")
	require.Equal(t, uint64(7), found.LSN)
	_, ok = p.Found(7, asked)
	require.False(t, ok, "once")
	wrong := scan
	wrong.Known = 4
	_, ok = p.Scanned(7, wrong)
	require.False(t, ok)
	_, ok = fresh().Scanned(8, scan)
	require.False(t, ok)
	page, ok := p.Scanned(7, scan)
	require.True(t, ok)
	require.True(t, page.Same)
	_, ok = p.Scanned(7, scan)
	require.False(t, ok)

	unfilled := &remote.Plan{Candidates: asked}
	_, ok = unfilled.Found(0, asked)
	require.False(t, ok, "without an answer there is none")
	short := &remote.Plan{Scans: []store.ScanQuery{scan}, Candidates: asked}
	short.Fill(7, nil, store.Candidates{})
	_, ok = short.Found(7, asked)
	require.False(t, ok, "answers that do not fit the questions")
	require.Nil(t, remote.PlanOf(context.Background()))
	_, ok = remote.PlanOf(context.Background()).Found(7, asked)
	require.False(t, ok)
	require.Same(t, p, remote.PlanOf(remote.WithPlan(context.Background(), p)))
}
