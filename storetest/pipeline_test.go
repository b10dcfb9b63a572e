package storetest_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/storetest"
)

// A database opened on the reference store does what one on files does: a host puts, an agent assembles and commits, the
// operator asks why, and replays what the agent saw.
func TestPipelineOnMemory(t *testing.T) {
	t.Parallel()
	mem := must(storetest.NewMemory(storetest.Config{State: ctxpage.StateKinds()}))(t)
	pipeline(t, "in memory", func() store.Store { mem = mem.Reopen(); return mem })
}

// pipeline opens a database on handles to one store, which is new, and works with it.
func pipeline(t *testing.T, name string, open func() store.Store) {
	t.Helper()
	ctx := context.Background()
	st := open()
	db := must(ctxpage.Open(name, ctxpage.Options{Store: st}))(t)
	require.Equal(t, name, db.Path())

	host := db.Scope("acme/support")
	must(host.Put(ctx, ctxpage.Artefact{ID: "refund-policy", Text: "Refunds up to $400 are paid within 30 days."}))(t)
	got := must(host.Get(ctx, "refund-policy"))(t)
	require.Contains(t, got.Text, "$400")

	agent := db.Scope("acme/support", ctxpage.Gated())
	a := must(agent.Assemble(ctx, ctxpage.Query{Text: "what refunds are paid?", Budget: 2000}))(t)
	require.Len(t, a.Manifest.Pages, 1)
	tx := must(agent.Resume(ctx, a.Trace))(t)
	require.NoError(t, tx.Put(ctx, ctxpage.Artefact{ID: "answer", Text: "Up to $400."}))
	require.NoError(t, tx.Commit(ctx, ctxpage.Verdict{Confidence: 0.9, By: "checker"}))

	low := must(agent.Resume(ctx, a.Trace))(t)
	require.NoError(t, low.Put(ctx, ctxpage.Artefact{ID: "guess", Text: "Perhaps $500."}))
	require.ErrorIs(t, low.Commit(ctx, ctxpage.Verdict{Confidence: 0.2, By: "checker"}), store.ErrHeld)

	why := must(db.Why(ctx, a.Trace, ctxpage.Ref{Scope: "acme/support", ID: "refund-policy"}))(t)
	require.True(t, why.In)
	replay := must(db.Replay(ctx, a.Trace))(t)
	require.Empty(t, replay.Missing)
	require.Contains(t, replay.Text, "$400")
	verified := must(db.Manifests().Verify(ctx, nil, nil))(t)
	require.Equal(t, dbtest.SizeOf(db.Manifests()), verified.Size)

	require.NoError(t, db.Close())
	require.ErrorIs(t, errOf(st.Stat(ctx)), store.ErrClosed, "Close closes the store")

	db = must(ctxpage.Open(name, ctxpage.Options{Store: open()}))(t)
	got = must(db.Scope("acme/support").Get(ctx, "answer"))(t)
	require.Equal(t, "Up to $400.", got.Text)
	require.NoError(t, db.Close())
}

// Options that say how files are opened are refused beside a store, which then is still the caller's.
func TestOptionsBesideStore(t *testing.T) {
	t.Parallel()
	mem := must(storetest.NewMemory(storetest.Config{}))(t)
	for _, o := range []ctxpage.Options{{Exclusive: true}, {MustExist: true}, {LockTimeout: 1}} {
		o.Store = mem
		_, err := ctxpage.Open("in memory", o)
		require.ErrorIs(t, err, store.ErrInvalid)
		require.ErrorContains(t, err, "Options.Store")
	}
	require.Error(t, errOf(ctxpage.Open("in memory", ctxpage.Options{Store: mem, FileRoots: []string{"no/such/root"}})))
	must(mem.Stat(context.Background()))(t)
}
