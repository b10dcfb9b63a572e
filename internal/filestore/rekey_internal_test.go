package filestore

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/store"
)

// TestRekeyCrash copies the files at each step of AddKey and RemoveKey, as a crash leaves them. Before the swap the copy opens as
// the database was, from the mark on as it will be; everything is there, and no plain file is left of an encrypted one. A run
// that ended there and is repeated does the rest.
func TestRekeyCrash(t *testing.T) {
	key := bytes.Repeat([]byte{7}, 32)
	other := bytes.Repeat([]byte{8}, 32)
	const commits = 30
	for _, add := range []bool{true, false} {
		dir := t.TempDir()
		path := filepath.Join(dir, "agent.ctx")
		first := Options{Path: path}
		run := AddKey
		if !add {
			first.Key, run = key, RemoveKey
		}
		st := must(Open(first))(t)
		for n := uint64(1); n <= commits; n++ {
			must(st.Commit(t.Context(), liveBatch(t, st, n)))(t)
		}
		head := must(st.Head(t.Context()))(t)
		require.NoError(t, st.Close())
		needle := "says word"
		if !add {
			require.False(t, contains(t, dir, needle), "control: encrypted")
		} else {
			require.True(t, contains(t, dir, needle), "control: plain")
		}

		type copied struct {
			step, dir string
			marked    bool
		}
		var copies []copied
		o := RekeyOptions{By: "ann", hook: func(step string) error {
			c := copied{step, t.TempDir(), swapping(path)}
			require.NoError(t, os.CopyFS(c.dir, os.DirFS(dir)))
			copies = append(copies, c)
			return nil
		}}
		opened := func(at string, key []byte) (*Store, error) {
			return Open(Options{Path: filepath.Join(at, "agent.ctx"), Key: key, MustExist: true})
		}
		whole := func(st *Store, err error, step string) {
			t.Helper()
			require.NoError(t, err, step)
			require.EqualValues(t, commits, st.Mark().LSN, step)
			require.NoError(t, errOf(st.eng.Leaves.Verify(t.Context(), &head, nil)), step)
			rep, err := st.Maintain(t.Context(), store.Job{Kind: store.JobCheck}, nil)
			require.NoError(t, err, step)
			require.Empty(t, rep.Problems, step)
			require.NoError(t, errOf(st.Commit(t.Context(), liveBatch(t, st, commits+1))), step)
			require.NoError(t, st.Close(), step)
		}
		opts := Options{Path: path, Key: key}
		must(run(t.Context(), opts, o))(t)
		require.Greater(t, len(copies), 10)
		marked := 0
		for _, c := range copies {
			encrypted := add == (c.marked || c.step == "mark removed")
			is, not := []byte(nil), key
			if encrypted {
				is, not = key, nil
			}
			st, err := opened(c.dir, is)
			whole(st, err, c.step)
			require.ErrorIs(t, errOf(opened(c.dir, not)), store.ErrKey, c.step)
			if add && encrypted {
				marked++
				require.False(t, contains(t, c.dir, needle), c.step)
			}
			if !encrypted && add { // what was left beside it is no obstacle
				require.NoError(t, errOf(AddKey(t.Context(), Options{Path: filepath.Join(c.dir, "agent.ctx"), Key: key}, RekeyOptions{By: "ann"})), c.step)
				require.False(t, contains(t, c.dir, needle), c.step)
			}
		}
		require.True(t, !add || marked > 3)
		require.ErrorIs(t, errOf(AddKey(t.Context(), Options{Path: path, Key: other}, RekeyOptions{By: "ann"})), store.ErrKey, "encrypted already, or beside the keyring of another key")
	}
}

// TestRekeyFails: an error before the swap leaves the database as it was, and nothing beside it.
func TestRekeyFails(t *testing.T) {
	key := bytes.Repeat([]byte{7}, 32)
	dir := t.TempDir()
	path := filepath.Join(dir, "agent.ctx")
	st := must(Open(Options{Path: path}))(t)
	must(st.Commit(t.Context(), liveBatch(t, st, 1)))(t)
	require.ErrorIs(t, errOf(AddKey(t.Context(), Options{Path: path, Key: key}, RekeyOptions{By: "ann"})), store.ErrLocked, "it is open")
	require.NoError(t, st.Close())
	errStop := errors.New("stop")
	for _, at := range []string{"rekey keyring", "rekey log", "rekey rows", "before the mark"} {
		require.ErrorIs(t, errOf(AddKey(t.Context(), Options{Path: path, Key: key}, RekeyOptions{By: "ann", hook: func(step string) error {
			if step == at {
				return errStop
			}
			return nil
		}})), errStop, at)
		require.Empty(t, must(filepath.Glob(path+".restoring*"))(t), at)
		st, err := Open(Options{Path: path, MustExist: true})
		require.NoError(t, err, at)
		require.NoError(t, st.Close())
	}
	require.ErrorIs(t, errOf(AddKey(t.Context(), Options{Path: path, Key: key[:5]}, RekeyOptions{By: "ann"})), store.ErrInvalid)
	require.ErrorIs(t, errOf(AddKey(t.Context(), Options{Path: path + "none", Key: key}, RekeyOptions{By: "ann"})), store.ErrNotExist)
	require.NoError(t, errOf(AddKey(t.Context(), Options{Path: path, Key: key}, RekeyOptions{By: "ann"})), "control")
}

// contains reports whether a file below a directory has a text.
func contains(t *testing.T, dir, text string) (found bool) {
	t.Helper()
	for _, b := range must(dbtest.Files(dir))(t) {
		found = found || bytes.Contains(b, []byte(text))
	}
	return found
}
