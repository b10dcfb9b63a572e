package filestore

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/wal"
	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
)

// dirSyncs hears of each sync of a directory.
type dirSyncs struct {
	wal.FS
	heard func(dir string)
}

func (f *dirSyncs) SyncDir(dir string) error {
	f.heard(dir)
	return f.FS.SyncDir(dir)
}

// A compaction syncs the new file before it gets its name, and the directory after that. A crash in between would else leave a
// name that leads to a file without its rows, or a new log beside the old file.
func TestCompactionIsDurable(t *testing.T) {
	t.Parallel()
	path := dbtest.MemoryPath(t)
	inode := func(path string) os.FileInfo {
		st, err := os.Stat(path)
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		require.NoError(t, err)
		return st
	}
	var made os.FileInfo // the file that was synced under its first name
	named := false       // the directory was synced when the file had its second name
	st := must(Open(Options{
		Path: path,
		FS: &dirSyncs{wal.OS(), func(dir string) {
			named = named || made != nil && dir == filepath.Dir(path) && inode(path+compactSuffix) == nil && os.SameFile(inode(path), made)
		}},
		syncNew: func(db *bbolt.DB) error {
			made = inode(path + compactSuffix)
			require.NotNil(t, made)
			require.False(t, os.SameFile(made, inode(path)))
			require.NoError(t, db.View(func(tx *bbolt.Tx) error {
				require.NotEmpty(t, tx.Bucket(bucketSys).Get(sysKey), "nothing is written behind the sync")
				return nil
			}))
			return db.Sync()
		},
	}))(t)
	must(put(st, store.ActApply, store.Artefact{ID: "a"}, "zebra"))(t)
	must(st.Maintain(t.Context(), store.Job{Kind: store.JobCompact}, nil))(t)
	require.NotNil(t, made, "it was not synced")
	require.True(t, os.SameFile(made, inode(path)))
	require.True(t, named, "its name was not synced")
	require.NoError(t, st.Close())
}

// An audit that was removed is not an empty one: the file knows how many leaves there were. An open that refuses it makes nothing.
// The controls: the audit is there, and a new database has none.
func TestRemovedAudit(t *testing.T) {
	t.Parallel()
	path := dbtest.MemoryPath(t)
	st := must(Open(Options{Path: path}))(t)
	must(put(st, store.ActApply, store.Artefact{ID: "a"}, "zebra"))(t)
	require.NoError(t, st.Close())
	look := func() error {
		l, rep, err := OpenManifests(t.Context(), path, nil, "")
		if err != nil {
			return err
		}
		return errors.Join(rep.Damage, l.Close())
	}
	require.NoError(t, look(), "control")
	for _, dir := range []string{"-wal", "-manifest"} {
		require.NoError(t, os.Rename(path+dir, path+dir+".away"))
	}
	require.ErrorIs(t, look(), store.ErrCorrupt)
	require.ErrorIs(t, errOf(Open(Options{Path: path})), store.ErrCorrupt)
	require.NoDirExists(t, path+"-manifest")
	require.NoDirExists(t, path+"-wal")
	for _, dir := range []string{"-wal", "-manifest"} {
		require.NoError(t, os.Mkdir(path+dir, 0o700))
	}
	require.ErrorIs(t, look(), store.ErrCorrupt, "two empty directories")
	for _, dir := range []string{"-wal", "-manifest"} {
		require.NoError(t, os.Remove(path+dir))
		require.NoError(t, os.Rename(path+dir+".away", path+dir))
	}
	require.NoError(t, os.Remove(path+"-manifest/mark"))
	require.ErrorIs(t, look(), store.ErrCorrupt, "the mark")
	require.ErrorIs(t, errOf(Open(Options{Path: path})), store.ErrCorrupt)

	path = dbtest.MemoryPath(t)
	st = must(Open(Options{Path: path}))(t)
	require.NoError(t, look())
	require.NoError(t, st.Close())
	require.NoError(t, look())
}

// A log that lacks records at its start is refused when its first record is read, before anything of it is taken: one record is as
// bad as many. The control lacks none.
func TestLogWithoutItsFirstRecord(t *testing.T) {
	t.Parallel()
	for lacks := range uint64(4) {
		path := dbtest.MemoryPath(t)
		open := func() (*Store, error) { return Open(Options{Path: path, Segment: 1 << 10}) }
		st := must(open())(t)
		for range 4 {
			for range 6 {
				must(put(st, store.ActApply, store.Artefact{ID: "a"}, "zebra"))(t)
			}
			must(st.Maintain(t.Context(), store.Job{Kind: store.JobCheckpoint}, nil))(t)
		}
		first := st.log.First()
		require.Greater(t, first, uint64(5))
		require.NoError(t, st.Close())
		row := st.sys
		row.Seq = first - 1 - lacks
		raw := must(bbolt.Open(path, 0o600, nil))(t)
		require.NoError(t, raw.Update(func(tx *bbolt.Tx) error { return putSys(tx, nil, row) }))
		require.NoError(t, raw.Close())
		st, err := open()
		if lacks == 0 {
			require.NoError(t, err)
			require.NoError(t, st.Close())
			continue
		}
		var damaged *store.CorruptError
		require.ErrorAs(t, err, &damaged)
		require.ErrorIs(t, err, store.ErrMisfit)
		require.Equal(t, ".wal", filepath.Ext(damaged.File), "the first record names its segment: %v", err)
	}
}

// A new keyring is durable under its name before the old one is overwritten: after a crash in between neither would else be there.
func TestKeyringIsDurable(t *testing.T) {
	t.Parallel()
	opts := Options{Path: dbtest.MemoryPath(t), Key: bytes.Repeat([]byte{1}, 32)}
	require.NoError(t, must(Open(opts))(t).Close())
	old := must(os.Open(opts.keysPath()))(t)
	defer old.Close()
	before := must(old.Stat())(t)
	plain := func() bool { // the old keyring is still there
		b := make([]byte, before.Size())
		must(old.ReadAt(b, 0))(t)
		return !bytes.Equal(b, make([]byte, len(b)))
	}
	require.True(t, plain(), "control")
	named := false
	opts.FS = &dirSyncs{wal.OS(), func(dir string) {
		now := must(os.Stat(opts.keysPath()))(t)
		named = named || dir == filepath.Dir(opts.keysPath()) && !os.SameFile(now, before) && plain()
	}}
	require.NoError(t, Rotate(opts, bytes.Repeat([]byte{2}, 32)))
	require.True(t, named, "its name was not synced, or the old one was overwritten before")
	require.False(t, plain())
}

// The process lock is held until the last file is closed: whoever gets it opens the files.
func TestLockIsReleasedLast(t *testing.T) {
	t.Parallel()
	opts := Options{Path: dbtest.MemoryPath(t)}
	free := func() bool {
		l, err := TakeLock(Options{Path: opts.Path})
		if err == nil {
			require.NoError(t, l.Release())
		}
		return err == nil
	}
	closing, closed := false, 0
	opts.FS = &closes{wal.OS(), func() {
		if closing {
			closed++
			require.False(t, free(), "another process may open the files")
		}
	}}
	st := must(Open(opts))(t)
	must(put(st, store.ActApply, store.Artefact{ID: "a"}, "zebra"))(t)
	closing = true
	require.NoError(t, st.Close())
	require.Positive(t, closed, "control: files were closed")
	require.True(t, free(), "control: the lock is free afterwards")
}

// closes hears of each file that is closed, before it is.
type closes struct {
	wal.FS
	heard func()
}

func (f *closes) OpenFile(name string, flag int, perm os.FileMode) (wal.File, error) {
	file, err := f.FS.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &closingFile{file, f.heard}, nil
}

type closingFile struct {
	wal.File
	heard func()
}

func (f *closingFile) Close() error {
	f.heard()
	return f.File.Close()
}
