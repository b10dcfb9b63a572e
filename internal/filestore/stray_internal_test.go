package filestore

import (
	"encoding/binary"
	"fmt"
	"os"
	"testing"
	"time"

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

// TestCopyWithACircle: a branch of a copy leads to itself. bbolt, which takes pages as they are, would never come back from
// it; the copy is refused before. The control is the same copy as it was.
func TestCopyWithACircle(t *testing.T) {
	path := t.TempDir() + "/agent.ctx"
	st, err := Open(Options{Path: path})
	require.NoError(t, err)
	for n := uint64(1); n <= 150; n++ {
		_, err := st.Commit(t.Context(), liveBatch(t, st, n))
		require.NoError(t, err)
	}
	_, err = st.checkpoint(t.Context())
	require.NoError(t, err)
	require.NoError(t, st.Close())
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	m, err := newestMeta(f, int64(len(b)))
	require.NoError(t, err)
	walk := &boltWalk{f: f, m: m, used: map[uint64]bool{}, bad: func(format string, args ...any) { t.Errorf(format, args...) }}
	walk.tree(m.root, nil)
	branches := 0
	for id := range walk.used {
		if page := b[int64(id)*m.pageSize:]; id > 1 && binary.NativeEndian.Uint16(page[8:]) == boltBranch {
			binary.NativeEndian.PutUint64(page[16+8:], id) // its first element
			branches++
		}
	}
	require.Positive(t, branches)
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	for n, file := range [][]byte{whole, b} {
		to := fmt.Sprint(path, n)
		require.NoError(t, os.WriteFile(to, file, 0o600))
		require.NoError(t, os.CopyFS(to+"-wal", os.DirFS(path+"-wal")))
		require.NoError(t, os.CopyFS(to+"-manifest", os.DirFS(path+"-manifest")))
		bound := time.AfterFunc(time.Minute, func() { panic("bbolt does not come back") })
		st, err := Open(Options{Path: to})
		bound.Stop()
		if n == 1 {
			require.ErrorIs(t, err, store.ErrMisfit)
			require.ErrorIs(t, err, store.ErrCorrupt)
			continue
		}
		require.NoError(t, err, "the control")
		require.NoError(t, st.Close())
	}
}
