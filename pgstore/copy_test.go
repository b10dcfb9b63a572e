package pgstore

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/store"
)

// A copy of a file is the file: references, versions, LSNs, what was held, why and replay of past contexts; a head of the file
// verifies against it, and it goes on from there.
func TestCopyFile(t *testing.T) {
	t.Parallel()
	ctx, dsn := t.Context(), onServer(t)
	path := filepath.Join(t.TempDir(), "agent.ctx")
	db, err := ctxpage.Open(path, ctxpage.Options{})
	require.NoError(t, err)
	s := db.Scope("acme/support")
	for i := range 30 {
		_, err = s.Put(ctx, ctxpage.Artefact{ID: fmt.Sprint("page ", i%20), Text: fmt.Sprintf("Refunds number %d are paid within %d days.", i%20, i)})
		require.NoError(t, err)
	}
	a, err := s.Assemble(ctx, ctxpage.Query{Text: "what refunds are paid?", Budget: 2000})
	require.NoError(t, err)
	_, err = db.Scope("acme/support").Directives().Step(ctx, "prohibit fax")
	require.NoError(t, err)
	stats, err := db.Stats(ctx)
	require.NoError(t, err)
	require.NoError(t, db.Close())

	var told int
	got, err := CopyFile(ctx, path, dsn, Options{Name: ownName(t)}, func(string, uint64, uint64) { told++ })
	require.NoError(t, err)
	require.Equal(t, stats.LSN, got.LSN)
	require.NotZero(t, told)
	_, err = CopyFile(ctx, path, dsn, Options{Name: ownName(t)}, nil)
	require.ErrorIs(t, err, store.ErrInvalid)
	_, err = CopyFile(ctx, path, dsn, Options{Name: "another name"}, nil)
	require.ErrorIs(t, err, store.ErrInvalid, "two databases of one id would have one history each")

	moved, err := ctxpage.Open("moved", ctxpage.Options{Store: onHost(t, dsn, ownName(t), nil)})
	require.NoError(t, err)
	defer moved.Close()
	replay, err := moved.Replay(ctx, a.Trace)
	require.NoError(t, err)
	require.Empty(t, replay.Missing)
	require.Equal(t, a.Text(), replay.Text)
	again, err := moved.Stats(ctx)
	require.NoError(t, err)
	require.Equal(t, []any{stats.ID, stats.LSN, stats.Artefacts, stats.PageVersions, stats.Leaves}, []any{again.ID, again.LSN, again.Artefacts, again.PageVersions, again.Leaves})
	ref, err := moved.Scope("acme/support").Put(ctx, ctxpage.Artefact{ID: "page 3", Text: "It goes on."})
	require.NoError(t, err)
	require.EqualValues(t, 3, ref.Version)
	_, err = moved.Manifests().Verify(ctx, &got.Head, nil)
	require.NoError(t, err)
	problems, err := moved.Check(ctx, nil)
	require.NoError(t, err)
	require.Empty(t, problems)
	now, err := moved.Stats(ctx)
	require.NoError(t, err)

	// And back, into a file that is again the same.
	back := filepath.Join(t.TempDir(), "back.ctx")
	returned, err := CopyToFile(ctx, dsn, back, Options{Name: ownName(t)}, nil)
	require.NoError(t, err)
	require.Equal(t, now.LSN, returned.LSN)
	_, err = CopyToFile(ctx, dsn, back, Options{Name: ownName(t)}, nil)
	require.ErrorContains(t, err, "already exists")
	for range 2 { // the second open finds what the first left
		db, err = ctxpage.Open(back, ctxpage.Options{})
		require.NoError(t, err)
		problems, err = db.Check(ctx, nil)
		require.NoError(t, err)
		require.Empty(t, problems)
		replay, err = db.Replay(ctx, a.Trace)
		require.NoError(t, err)
		require.Equal(t, a.Text(), replay.Text)
		_, err = db.Manifests().Verify(ctx, &got.Head, nil)
		require.NoError(t, err)
		ref, err = db.Scope("acme/support").Put(ctx, ctxpage.Artefact{ID: "page 3", Text: fmt.Sprint("at home again ", ref.Version)})
		require.NoError(t, err)
		require.NoError(t, db.Close())
	}
	require.EqualValues(t, 5, ref.Version)
}
