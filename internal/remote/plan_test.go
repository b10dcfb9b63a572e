package remote_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/internal/remote"
	"github.com/ctxpage/ctxpage/manifest"
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

// patient is a store whose appends wait until something is done.
type patient struct {
	store.Store
	done chan struct{}
}

func (w patient) Append(ctx context.Context, leaves []*manifest.Record, d store.Durability) error {
	select {
	case <-w.done:
		return w.Store.Append(ctx, leaves, d)
	case <-time.After(30 * time.Second):
		return errors.New("the client waits for the answer first")
	}
}

// A client does the work of the meantime once, while its request is under way, however often it is sent. A store of this process
// leaves it to the caller.
func TestMeanwhile(t *testing.T) {
	t.Parallel()
	path, mem := socket(t), newMemory(t)
	st := patient{mem, make(chan struct{})}
	serve(t, st, path, remote.ServerOptions{})
	p, through := newProxy(t, path)
	c := dial(t, through, remote.ClientOptions{Answer: time.Minute})
	n := 0
	during := remote.Meanwhile(ctx, func() { n++; close(st.done) })
	leaf := func() []*manifest.Record {
		return []*manifest.Record{{Type: manifest.TypeGet, Trace: ulid.Make().String(), Time: 1, Scope: "acme", Actor: "reader"}}
	}
	p.cutAns.Store(0)
	require.NoError(t, c.Append(during, leaf(), store.Written))
	require.Equal(t, int64(1), p.cuts.Load(), "it was sent twice")
	require.Equal(t, 1, n)
	require.Equal(t, uint64(1), must(mem.Audit().Size(ctx))(t))
	require.NoError(t, mem.Append(during, leaf(), store.Written))
	require.NoError(t, c.Append(ctx, leaf(), store.Written))
	require.Equal(t, 1, n)
}
