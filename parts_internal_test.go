package ctxpage

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOwnParts: what others may write is theirs no more once a writer opened it; a reader refuses it.
func TestOwnParts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.ctx")
	db, err := Open(path, Options{noSync: true})
	require.NoError(t, err)
	_, err = db.Scope("acme").Put(t.Context(), Artefact{ID: "x", Text: "text"})
	require.NoError(t, err)
	require.NoError(t, db.Close())
	parts := []string{path, path + ".lock", path + "-wal", path + "-manifest"}
	for _, dir := range parts[2:] {
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		for _, e := range entries {
			parts = append(parts, filepath.Join(dir, e.Name()))
		}
	}
	require.Greater(t, len(parts), 4)
	for _, part := range parts {
		for _, mode := range []os.FileMode{0o777, 0o666, 0o620} {
			if st, err := os.Stat(part); err != nil {
				continue // a segment of before
			} else if st.IsDir() {
				mode |= 0o700
			}
			require.NoError(t, os.Chmod(part, mode))
			reader, err := Open(path, Options{ReadOnly: true})
			if mode&0o002 != 0 {
				require.ErrorIs(t, err, ErrInvalid, part)
				require.ErrorContains(t, err, "chmod go-w", part)
			} else {
				require.NoError(t, err, part)
				require.NoError(t, reader.Close())
			}
			db, err := Open(path, Options{noSync: true})
			require.NoError(t, err, part)
			st, err := os.Stat(part)
			require.NoError(t, err)
			require.Zero(t, st.Mode().Perm()&0o022, part)
			require.NoError(t, db.Close())
		}
	}
	db, err = Open(path, Options{ReadOnly: true})
	require.NoError(t, err, "the control")
	_, err = db.Scope("acme").Get(t.Context(), "x")
	require.NoError(t, err)
	require.NoError(t, db.Close())
}
