package ctxpage

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestFileStamp: a file of the same size and mtime that was written again, or moved into the place of another one, is
// seen; one that nobody touched is not read.
func TestFileStamp(t *testing.T) {
	dir := t.TempDir()
	path, other := filepath.Join(dir, "page"), filepath.Join(dir, "other")
	at := time.Now().Add(-time.Hour)
	write := func(path, text string) {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		require.NoError(t, os.Chtimes(path, at, at))
	}
	s := &fileSource{roots: []string{dir}, limit: MaxText, now: time.Now}
	settled := func() (v Validator) {
		require.Eventually(t, func() bool {
			var err error
			v, err = s.Probe(t.Context(), path, Validator{})
			require.NoError(t, err)
			return !strings.HasSuffix(v.Stamp, "unsettled")
		}, 10*time.Second, time.Millisecond)
		return v
	}
	probe := func(have Validator) Validator {
		v, err := s.Probe(t.Context(), path, have)
		require.NoError(t, err)
		return v
	}
	write(path, "limit 200")
	have := settled()
	wrong := have
	wrong.Hash++
	require.Equal(t, wrong, probe(wrong), "the control: what was not touched is not read")
	write(path, "limit 900")
	require.NotEqual(t, have.Hash, probe(have).Hash, "written again, its mtime set back")
	have = settled()
	write(other, "limit 100")
	require.NoError(t, os.Rename(other, path))
	require.NotEqual(t, have.Hash, probe(have).Hash, "another file in its place")
	write(path, "limit 300")
	fresh := probe(Validator{})
	write(path, "limit 400") // perhaps within the same tick
	require.NotEqual(t, fresh.Hash, probe(fresh).Hash)
}

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
