package filestore_test

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/store"

	"github.com/stretchr/testify/require"
)

// TestCopyOfTwoMoments: a log that was copied before a checkpoint, beside the file after it, is refused by name. The control
// is the same copy with the log of its own moment, which opens.
func TestCopyOfTwoMoments(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.ctx")
	db := openTest(t, path, Options{})
	put := func(text string) {
		must(db.Scope("acme").Put(ctx, Artefact{ID: "page", Text: text}))(t)
		must(db.Admin().Checkpoint(ctx))(t)
	}
	put("early")
	early := filepath.Join(t.TempDir(), "early-wal")
	require.NoError(t, os.CopyFS(early, os.DirFS(path+"-wal")))
	put("late")
	for _, log := range []string{early, path + "-wal"} {
		to := filepath.Join(t.TempDir(), "copy.ctx")
		require.NoError(t, os.WriteFile(to, must(os.ReadFile(path))(t), 0o600))
		require.NoError(t, os.CopyFS(to+"-wal", os.DirFS(log)))
		require.NoError(t, os.CopyFS(to+"-manifest", os.DirFS(path+"-manifest")))
		copied, err := Open(to, Options{})
		if log == early {
			require.ErrorIs(t, err, store.ErrMisfit)
			require.ErrorIs(t, err, store.ErrCorrupt)
			require.ErrorContains(t, err, "dbctl backup")
			continue
		}
		require.NoError(t, err)
		require.Equal(t, "late", must(textOf(copied.Scope("acme"), "page"))(t))
		require.NoError(t, copied.Close())
	}
	require.NoError(t, db.Close())
}
