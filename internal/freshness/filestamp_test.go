package freshness

import (
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
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
	s := &Files{roots: []string{dir}, limit: store.MaxText, now: time.Now}
	settled := func() (v store.Validator) {
		require.Eventually(t, func() bool {
			var err error
			v, err = s.Probe(t.Context(), path, store.Validator{})
			require.NoError(t, err)
			return !strings.HasSuffix(v.Stamp, "unsettled")
		}, 10*time.Second, time.Millisecond)
		return v
	}
	probe := func(have store.Validator) store.Validator {
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
	fresh := probe(store.Validator{})
	write(path, "limit 400") // perhaps within the same tick
	require.NotEqual(t, fresh.Hash, probe(fresh).Hash)
}
