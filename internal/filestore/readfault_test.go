package filestore_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"

	. "github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/internal/loop"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/wal"
	"github.com/stretchr/testify/require"
)

// flakyFS fails one of what is asked of log and archive without changing them, once: the next try succeeds.
type flakyFS struct {
	wal.FS
	left atomic.Int64 // so many succeed first
	what string       // failed
}

func (f *flakyFS) ask(what, name string) error {
	if f.left.Add(-1) != -1 {
		return nil
	}
	f.what = what + " " + name
	return &os.PathError{Op: what, Path: name, Err: syscall.EIO}
}

func (f *flakyFS) OpenFile(name string, flag int, perm os.FileMode) (wal.File, error) {
	if err := f.ask("open", name); err != nil {
		return nil, err
	}
	file, err := f.FS.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &flakyFile{file, f, name}, nil
}

func (f *flakyFS) ReadDir(dir string) ([]string, error) {
	if err := f.ask("list", dir); err != nil {
		return nil, err
	}
	return f.FS.ReadDir(dir)
}

func (f *flakyFS) Stat(name string) (fs.FileInfo, error) {
	if err := f.ask("stat", name); err != nil {
		return nil, err
	}
	return f.FS.Stat(name)
}

type flakyFile struct {
	wal.File
	fs   *flakyFS
	name string
}

func (f *flakyFile) ReadAt(b []byte, off int64) (int, error) {
	if err := f.fs.ask("read", f.name); err != nil {
		return 0, err
	}
	return f.File.ReadAt(b, off)
}

func (f *flakyFile) Size() (int64, error) {
	if err := f.fs.ask("size", f.name); err != nil {
		return 0, err
	}
	return f.File.Size()
}

// makeMarked makes a database whose log holds met over leaves of the archive, as a killed process leaves it.
func makeMarked(t *testing.T) (path string, truth map[string]string) {
	live, path := dbtest.MemoryPath(t), dbtest.MemoryPath(t)
	db := openTest(t, live, Options{})
	for n := range 30 {
		must(db.Scope("acme").Put(ctx, Artefact{ID: fmt.Sprint("page-", n), Text: fmt.Sprint("text ", n)}))(t)
		if n%10 == 5 {
			must(db.Admin().Checkpoint(ctx))(t)
		}
	}
	require.NoError(t, dbtest.Copy(live, path))
	require.NoError(t, db.Close())
	copied := dbtest.MemoryPath(t)
	require.NoError(t, dbtest.Copy(path, copied))
	return path, contents(t, copied)
}

// TestReadFails: what cannot be read once while a database is opened is what the system said, and no damage; the next
// open gives everything. The control is a byte that is wrong for good.
func TestReadFails(t *testing.T) {
	t.Parallel()
	base, truth := makeMarked(t)
	for _, readOnly := range []bool{true, false} {
		met := 0
		for n := int64(0); ; n++ {
			path := dbtest.MemoryPath(t)
			require.NoError(t, dbtest.Copy(base, path))
			flaky := &flakyFS{FS: wal.OS()}
			flaky.left.Store(n)
			db, err := openOver(path, Options{ReadOnly: readOnly}, filestore.Options{FS: flaky})
			flaky.left.Store(1 << 40)
			if flaky.what == "" { // all of an open succeeded
				require.NoError(t, err)
				require.NoError(t, db.Close())
				require.Greater(t, n, int64(20), "the control: an open reads")
				break
			}
			if err == nil { // it did not matter
				require.NoError(t, db.Close())
			} else {
				require.ErrorIs(t, err, syscall.EIO, flaky.what)
				require.NotErrorIs(t, err, store.ErrCorrupt, flaky.what)
			}
			require.Equal(t, truth, contents(t, path), flaky.what)
			met++
		}
		require.Positive(t, met)
	}
	path := dbtest.MemoryPath(t)
	require.NoError(t, dbtest.Copy(base, path))
	b := must(os.ReadFile(path + "-manifest/hashes"))(t)
	for at := 24; at < len(b); at += 32 {
		b[at] ^= 1
	}
	require.NoError(t, os.WriteFile(path+"-manifest/hashes", b, 0o600))
	require.ErrorIs(t, errOf(Open(path, Options{})), store.ErrCorrupt, "the control: wrong bytes are damage")
}

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
