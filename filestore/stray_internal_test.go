package filestore

import (
	"os"
	"testing"

	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
)

// A copy whose tree no longer leads to its origin is recognised by what older pages say.
func TestCopyWithoutRoot(t *testing.T) {
	path := t.TempDir() + "/agent.ctx"
	st, err := Open(Options{Path: path})
	require.NoError(t, err)
	for n := uint64(1); n <= 3; n++ {
		_, err := st.Commit(t.Context(), liveBatch(t, st, n))
		require.NoError(t, err)
		_, err = st.checkpoint(t.Context())
		require.NoError(t, err)
	}
	require.NoError(t, st.Close())
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	m, err := newestMeta(f, int64(len(b)))
	require.NoError(t, err)
	root := int64(m.root) * m.pageSize
	clear(b[root : root+m.pageSize])
	require.NoError(t, os.WriteFile(path+"2", b, 0o600))
	require.NoError(t, os.CopyFS(path+"2-wal", os.DirFS(path+"-wal")))
	require.NoError(t, os.CopyFS(path+"2-manifest", os.DirFS(path+"-manifest")))
	_, err = Open(Options{Path: path + "2"})
	require.ErrorIs(t, err, store.ErrMisfit)
	require.NoError(t, os.WriteFile(path, b, 0o600)) // the control: damage to the file itself is no copy
	_, err = Open(Options{Path: path})
	require.ErrorIs(t, err, store.ErrCorrupt)
	require.NotErrorIs(t, err, store.ErrMisfit)
}
