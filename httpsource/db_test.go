package httpsource

import (
	"context"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
)

// policy is a page on a server whose text and health a test can change. Its tag changes with the text.
type policy struct {
	text atomic.Value
	down atomic.Bool
}

func (p *policy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if p.down.Load() {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	text := p.text.Load().(string)
	w.Header().Set("ETag", `"`+text[len(text)-4:]+`"`)
	if r.Header.Get("If-None-Match") == w.Header().Get("ETag") {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	plain(text)(w, r)
}

// TestDatabase: an artefact with an http source is put, its server changes, goes down, comes back.
func TestDatabase(t *testing.T) {
	ctx := context.Background()
	p := &policy{}
	p.text.Store("the refund limit is $200")
	web := newSite(t, Options{}, p.ServeHTTP)
	sources := map[string]store.Source{}
	web.c.Register(sources)
	db := must(ctxpage.Open(filepath.Join(t.TempDir(), "agent.ctx"), ctxpage.Options{Sources: sources}))(t)
	defer db.Close()
	s := db.Scope("acme/support")
	must(s.Put(ctx, ctxpage.Artefact{ID: "policy", Source: web.URL + "/policy.txt"}))(t)
	ask := func(stale bool) *ctxpage.Assembly {
		t.Helper()
		return must(s.Assemble(ctx, ctxpage.Query{Text: "what is the refund limit?", Budget: 1000, ServeStale: stale}))(t)
	}

	before := web.asked.Load()
	a := ask(false)
	require.Contains(t, a.Text(), "$200")
	require.EqualValues(t, 1, web.asked.Load()-before, "an unchanged source costs one exchange")
	require.False(t, a.Manifest.Pages[0].Dirty)

	p.text.Store("the refund limit is $400")
	a = ask(false)
	require.Contains(t, a.Text(), "$400")
	require.NotContains(t, a.Text(), "$200")
	require.True(t, a.Manifest.Pages[0].Dirty)
	require.True(t, a.Manifest.Pages[0].Refetched)

	p.text.Store("the refund limit is $600")
	v := must(s.Get(ctx, "policy"))(t)
	require.Equal(t, "the refund limit is $600", v.Text)
	require.EqualValues(t, 3, v.Version)

	p.down.Store(true)
	_, err := s.Get(ctx, "policy")
	require.ErrorIs(t, err, store.ErrDirty)
	require.ErrorIs(t, err, errStatus)
	a = ask(false)
	require.Empty(t, a.Blocks)
	require.Equal(t, "dirty: fetch failed", a.Manifest.Excluded[0].Reason)
	a = ask(true)
	require.Contains(t, a.Text(), "$600")
	require.True(t, a.Blocks[0].Stale)
	require.True(t, a.Manifest.Pages[0].Stale)
	replay := must(db.Replay(ctx, a.Trace))(t)
	require.Equal(t, a.Text(), replay.Text, "replay asks nobody")

	p.down.Store(false)
	a = ask(false)
	require.Contains(t, a.Text(), "$600")
	require.False(t, a.Blocks[0].Stale)
	problems := must(db.Admin().Check(ctx, nil))(t)
	require.Empty(t, problems)
}

// TestSpeculativePut: what a model puts as a source is fetched before any verdict, so it must not reach the network inside.
func TestSpeculativePut(t *testing.T) {
	inner := newSite(t, Options{}, plain("secret of the inner network"))
	put := func(o Options) error {
		c := must(New(o))(t)
		defer c.CloseIdle()
		sources := map[string]store.Source{}
		c.Register(sources)
		db := must(ctxpage.Open(filepath.Join(t.TempDir(), "agent.ctx"), ctxpage.Options{Sources: sources}))(t)
		defer db.Close()
		tx := must(db.Scope("acme").Begin(t.Context()))(t)
		defer tx.Rollback()
		return tx.Put(t.Context(), ctxpage.Artefact{ID: "x", Source: inner.URL + "/admin"})
	}
	require.ErrorIs(t, put(Options{}), errAddress)
	require.Zero(t, inner.asked.Load())
	require.NoError(t, put(Options{PrivateHosts: []string{"127.0.0.1"}}), "the negative control")
	require.NotZero(t, inner.asked.Load())
}
