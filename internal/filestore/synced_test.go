package filestore_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	. "github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/wal"
	"github.com/stretchr/testify/require"
)

// syncFS notes what was written and not synced since, by path; a new name counts as written to its directory.
type syncFS struct {
	wal.FS
	mu    sync.Mutex
	dirty map[string]bool
	seen  map[string]bool
}

func newSyncFS() *syncFS {
	return &syncFS{FS: wal.OS(), dirty: map[string]bool{}, seen: map[string]bool{}}
}

func (f *syncFS) note(path string, dirty bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dirty[path], f.seen[path] = dirty, true
}

func (f *syncFS) OpenFile(name string, flag int, perm os.FileMode) (wal.File, error) {
	_, err := f.Stat(name)
	file, oerr := f.FS.OpenFile(name, flag, perm)
	if oerr == nil && errors.Is(err, fs.ErrNotExist) {
		f.note(name, true)
		f.note(filepath.Dir(name), true)
	}
	return &syncFile{file, f, name}, oerr
}

func (f *syncFS) SyncDir(dir string) error {
	err := f.FS.SyncDir(dir)
	f.note(filepath.Clean(dir), err != nil)
	return err
}

type syncFile struct {
	wal.File
	fs   *syncFS
	name string
}

func (f *syncFile) WriteAt(b []byte, off int64) (int, error) {
	f.fs.note(f.name, true)
	return f.File.WriteAt(b, off)
}

func (f *syncFile) Sync() error {
	err := f.File.Sync()
	f.fs.note(f.name, err != nil)
	return err
}

// unsynced names what of the files of a database, and of the directory it is in, is not on the disk for certain.
func (f *syncFS) unsynced(t *testing.T, path string) (out []string) {
	paths := []string{filepath.Dir(path)}
	for _, suffix := range names.Files {
		require.NoError(t, filepath.WalkDir(path+suffix, func(p string, _ fs.DirEntry, err error) error {
			paths = append(paths, p)
			return err
		}))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range paths {
		if !f.seen[p] || f.dirty[p] {
			out = append(out, strings.TrimPrefix(p, filepath.Dir(path)))
		}
	}
	return out
}

// TestBackupIsSynced: every file and directory of a backup is on the disk when Backup returns.
func TestBackupIsSynced(t *testing.T) {
	fsys := newSyncFS()
	db := openTest(t, dbtest.MemoryPath(t), Options{}, filestore.Options{FS: fsys})
	for _, id := range []string{"a", "b", "c"} {
		must(db.Scope("acme").Put(ctx, Artefact{ID: id, Text: "text of " + id}))(t)
	}
	to := filepath.Join(t.TempDir(), "copy.ctx")
	must(db.Admin().Backup(ctx, to, nil))(t)
	require.Empty(t, fsys.unsynced(t, to))
	require.NoError(t, os.WriteFile(to+"-wal/by-somebody-else", nil, 0o600))
	require.Equal(t, []string{"/copy.ctx-wal/by-somebody-else"}, fsys.unsynced(t, to), "the control")
}

// TestRestoreMarkIsSynced: the mark of a swap and its name are on the disk before the first file is moved. Without that a
// power cut leaves half a swap that nothing goes on with.
func TestRestoreMarkIsSynced(t *testing.T) {
	path, backup := restorable(t)
	fsys := newSyncFS()
	looked := 0
	require.NoError(t, errOf(filestore.Restore(context.Background(), backup, path, filestore.RestoreOptions{Replace: true}.Peek(func(step string) error {
		fsys.mu.Lock()
		defer fsys.mu.Unlock()
		mark, dir := path+names.Swap, filepath.Dir(path)
		switch step {
		case "before the mark":
			require.False(t, fsys.seen[mark], "the control: it is made after this")
		case "marked, before path":
			looked++
			require.True(t, fsys.seen[mark])
			require.False(t, fsys.dirty[mark], "the mark is not synced")
			require.True(t, fsys.seen[dir])
			require.False(t, fsys.dirty[dir], "the name of the mark is not synced")
		}
		return nil
	}, fsys))))
	require.Equal(t, 1, looked)
}

// TestCheckpointNeedsTheArchive: a checkpoint whose leaves did not reach the archive fails, names no LSN as applied and
// cuts nothing; the log still has them.
func TestCheckpointNeedsTheArchive(t *testing.T) {
	r := newRig(t, Options{}, filestore.Options{Rotate: 1})
	db := must(r.open())(t)
	must(db.Scope("acme").Put(ctx, Artefact{ID: "a", Text: "the first"}))(t)
	must(db.Admin().Checkpoint(ctx))(t)
	before := must(db.Stats(ctx))(t)
	must(db.Scope("acme").Put(ctx, Artefact{ID: "b", Text: "the second"}))(t)
	r.fs.Inject(dbtest.Fault{Op: dbtest.OpWrite, Name: "-manifest", Sticky: true})
	for range 3 {
		require.ErrorIs(t, errOf(db.Admin().Checkpoint(ctx)), syscall.EIO)
		after := must(db.Stats(ctx))(t)
		require.Equal(t, before.Applied, after.Applied)
		require.Equal(t, before.Archived, after.Archived)
	}
	require.NoError(t, r.restart(db, r.cut(1, 0)))
	db = must(r.open())(t)
	defer db.Close()
	require.Equal(t, "the second", must(db.Scope("acme").Get(ctx, "b"))(t).Text)
	require.NoError(t, errOf(db.Admin().Checkpoint(ctx)), "the control: nothing fails any more")
	require.Greater(t, must(db.Stats(ctx))(t).Applied, before.Applied)
}

// TestLogShorterByOne: the log ends one record before the one that the file says it has applied.
func TestLogShorterByOne(t *testing.T) {
	live, path := dbtest.MemoryPath(t), dbtest.MemoryPath(t)
	copied := false
	db := openTest(t, live, Options{}, filestore.Options{Hook: func(step string) error {
		if step == "after bbolt" && !copied {
			copied = true
			return dbtest.Copy(live, path)
		}
		return nil
	}})
	for _, id := range []string{"a", "b", "c"} {
		must(db.Scope("acme").Put(ctx, Artefact{ID: id, Text: "text of " + id}))(t)
	}
	_, err := db.Admin().Checkpoint(ctx)
	require.NoError(t, err)
	require.NoError(t, db.Close())
	var last wal.Record
	must(wal.Scan(ctx, path+"-wal", nil, func(r wal.Record) error { last = r; return nil }))(t)
	whole := dbtest.MemoryPath(t)
	require.NoError(t, dbtest.Copy(path, whole))
	db = openTest(t, whole, Options{ReadOnly: true}) // the control: with all of its log it opens
	require.Equal(t, last.Seq, inside(db).Seq)
	require.NoError(t, db.Close())
	st := must(os.Stat(last.Segment))(t)
	require.NoError(t, os.Truncate(last.Segment, last.Offset))
	require.NoError(t, os.Truncate(last.Segment, st.Size())) // zeros: a file that is shorter is damage by itself
	for _, readOnly := range []bool{true, false} {
		_, err = Open(path, Options{ReadOnly: readOnly})
		require.ErrorIs(t, err, store.ErrCorrupt)
		require.ErrorContains(t, err, "log ends at record")
	}
}

// TestPagesOfOthers: a page is given by its number only to scopes that see it.
func TestPagesOfOthers(t *testing.T) {
	db := openTest(t, dbtest.MemoryPath(t), Options{})
	must(db.Scope("acme/mine").Put(ctx, Artefact{ID: "secret", Text: "nobody else's"}))(t)
	l := must(storeOf(db).Resolve(ctx, store.Scopes{"acme/mine"}, Ref{ID: "secret"}))(t)
	must(db.Scope("other").Put(ctx, Artefact{ID: "own", Text: "an own page"}))(t)
	for _, chain := range []store.Scopes{{"other"}, {"acme"}, {"acme/yours", "acme"}, {}} {
		got := must(storeOf(db).Load(ctx, chain, l.Pages, store.WantText))(t)
		require.Len(t, got, 1)
		require.ErrorIs(t, got[0].Err, store.ErrNotFound, "%v", chain)
		require.Empty(t, got[0].Text)
	}
	got := must(storeOf(db).Load(ctx, store.Scopes{"acme/mine", "acme"}, l.Pages, store.WantText))(t)
	require.NoError(t, got[0].Err, "the control")
	require.Equal(t, "nobody else's", got[0].Text)
}
