package ctxpage

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/manifest"
)

func putText(t *testing.T, path, id, text string) manifest.Head {
	t.Helper()
	ctx := context.Background()
	db, err := Open(path, Options{})
	require.NoError(t, err)
	_, err = db.Scope("acme").Put(ctx, Artefact{ID: id, Text: text})
	require.NoError(t, err)
	head, err := db.Head(ctx)
	require.NoError(t, err)
	require.NoError(t, db.Close())
	return head
}

func backupOf(t *testing.T, path string) string {
	t.Helper()
	db, err := Open(path, Options{ReadOnly: true})
	require.NoError(t, err)
	to := filepath.Join(t.TempDir(), "backup.ctx")
	_, err = db.Backup(context.Background(), to, nil)
	require.NoError(t, err)
	require.NoError(t, db.Close())
	return to
}

func TestRestore(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "agent.ctx")
	early := putText(t, path, "a", "the first text")
	backup := backupOf(t, path)
	late := putText(t, path, "b", "the second text")

	_, err := Restore(ctx, backup, path, RestoreOptions{})
	require.ErrorContains(t, err, "exists")

	head, err := Restore(ctx, backup, path, RestoreOptions{Replace: true, By: "ops", Head: &early})
	require.NoError(t, err)

	db, err := Open(path, Options{})
	require.NoError(t, err)
	defer db.Close()
	v, err := db.Scope("acme").Get(ctx, "a")
	require.NoError(t, err)
	require.Equal(t, "the first text", v.Text)
	_, err = db.Scope("acme").Get(ctx, "b")
	require.ErrorIs(t, err, ErrNotFound)

	leaf, err := db.Manifests().Leaf(head.Size)
	require.NoError(t, err)
	require.Equal(t, manifest.TypeRestored, leaf.Type)
	require.Equal(t, head.Size, leaf.Size)
	require.Equal(t, head.Root[:], []byte(leaf.Root))

	_, err = db.Manifests().Verify(ctx, &early, nil)
	require.NoError(t, err)
	_, err = db.Manifests().Verify(ctx, &late, nil)
	require.ErrorIs(t, err, manifest.ErrHead, "a log that was set back must not verify against a later head")

	left, err := filepath.Glob(path + ".re*")
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestRestoreRefuses(t *testing.T) {
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "agent.ctx")
	putText(t, path, "a", "the first text")
	backup := backupOf(t, path)

	t.Run("while the database is open", func(t *testing.T) {
		db, err := Open(path, Options{})
		require.NoError(t, err)
		defer db.Close()
		_, err = Restore(ctx, backup, path, RestoreOptions{Replace: true})
		require.ErrorIs(t, err, ErrLocked)
	})
	t.Run("a head of another database", func(t *testing.T) {
		other := putText(t, filepath.Join(t.TempDir(), "other.ctx"), "a", "x")
		_, err := Restore(ctx, backup, path, RestoreOptions{Replace: true, Head: &other})
		require.ErrorIs(t, err, manifest.ErrHead)
	})
	t.Run("a damaged backup", func(t *testing.T) {
		leaves, err := filepath.Glob(backup + "-manifest/leaves-*")
		require.NoError(t, err)
		require.NotEmpty(t, leaves)
		b, err := os.ReadFile(leaves[0])
		require.NoError(t, err)
		b[len(b)-1] ^= 1
		require.NoError(t, os.WriteFile(leaves[0], b, 0o600))
		_, err = Restore(ctx, backup, path, RestoreOptions{Replace: true})
		require.Error(t, err)
	})
	db, err := Open(path, Options{})
	require.NoError(t, err, "what is at the path is untouched")
	require.NoError(t, db.Close())
}
