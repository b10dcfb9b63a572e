package filestore_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	. "github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/internal/loop"
	"github.com/ctxpage/ctxpage/store"

	"github.com/stretchr/testify/require"
)

// The audit is read as files while the database is open: before any checkpoint, after one, and after Close.
func TestOpenManifestsBesideAWriter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.ctx")
	_, _, err := filestore.OpenManifests(ctx, path, nil, "")
	require.ErrorIs(t, err, store.ErrNotExist)

	db := must(Open(path, Options{}))(t)
	s := db.Scope("acme")
	look := func() {
		t.Helper()
		l, rep, err := filestore.OpenManifests(ctx, path, nil, "")
		require.NoError(t, err)
		defer l.Close()
		require.NoError(t, rep.Damage)
		must(l.Verify(ctx, nil, nil))(t)
		size := dbtest.SizeOf(db.Manifests())
		require.Equal(t, size, dbtest.SizeOf(l), "what was written is seen")
		want := must(db.Manifests().Head(ctx, size, 0))(t)
		require.Equal(t, want, must(l.Head(ctx, size, 0))(t), "it names the same database and root")
	}
	for round := range 3 {
		for i := range 5 {
			must(s.Put(ctx, Artefact{ID: fmt.Sprint("a", i), Text: fmt.Sprint("text ", round, i)}))(t)
			must(s.Get(ctx, "a0"))(t)
			look()
		}
		must(db.Admin().Checkpoint(ctx))(t)
		look()
	}
	require.ErrorIs(t, errOf(Open(path, Options{Exclusive: true})), store.ErrLocked, "the control: the database itself is locked meanwhile")
	require.NoError(t, db.Close())
	l, _, err := filestore.OpenManifests(ctx, path, nil, "")
	require.NoError(t, err)
	require.NoError(t, l.Close())
}

func TestScopes(t *testing.T) {
	db := must(Open(filepath.Join(t.TempDir(), "agent.ctx"), Options{}))(t)
	defer db.Close()
	require.NoError(t, db.Admin().AddFileRoot(ctx, t.TempDir())) // the operator's own writes make no scope to show
	for _, name := range []string{"b", "a/c", "a"} {
		must(db.Scope(name).Put(ctx, Artefact{ID: "x", Text: "text in " + name}))(t)
	}
	require.NoError(t, db.Scope("b").Delete(ctx, "x"))
	var next string
	all := must(loop.Collect(db.Scopes(ctx, "", AtMost(0, "", &next))))(t)
	require.Empty(t, next)
	require.Equal(t, []store.ScopeInfo{{Name: "a", Artefacts: 1}, {Name: "a/c", Artefacts: 1}, {Name: "b", Artefacts: 0}}, all)
	first := must(loop.Collect(db.Scopes(ctx, "a", AtMost(1, "", &next))))(t)
	require.Equal(t, []store.ScopeInfo{{Name: "a", Artefacts: 1}}, first)
	rest := must(loop.Collect(db.Scopes(ctx, "a", AtMost(1, next, &next))))(t)
	require.Equal(t, []store.ScopeInfo{{Name: "a/c", Artefacts: 1}}, rest)
	require.Empty(t, next)
}

// A writer refused because of a reader is not told to ask the writer before it.
func TestLockNamesOnlyWhoHoldsIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.ctx")
	db := must(Open(path, Options{}))(t)
	var locked *store.LockedError
	_, err := Open(path, Options{Exclusive: true}) // without it, the writer would be asked
	require.True(t, errors.As(err, &locked))
	require.NotZero(t, locked.PID, "a writer is named")
	require.NoError(t, db.Close())

	db = must(Open(path, Options{ReadOnly: true}))(t)
	defer db.Close()
	_, err = Open(path, Options{})
	require.True(t, errors.As(err, &locked))
	require.True(t, locked.Reading, "readers keep a writer out, and are named as such")
	require.Equal(t, os.Getpid(), locked.PID)
}
