package filestore_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/archive"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/wal"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// auditOf reads the audit in a file system, as a process would that finds these files.
func auditOf(path string, fsys *dbtest.FS) (*archive.Log, error) {
	l, _, err := archive.OpenReader(ctx, path+"-manifest", fsys, nil, func(add func(uint64, []byte) error) error {
		_, err := wal.Scan(ctx, path+"-wal", fsys, func(r wal.Record) error {
			index, leaf, err := names.Leaf(r)
			if err == nil && leaf != nil {
				err = add(index, leaf)
			}
			return err
		})
		return err
	})
	return l, err
}

// written is the head over what is in the files, on the disk or not: what a database never gives away.
func (r *rig) written(t *testing.T) manifest.Head {
	l, err := auditOf(r.path, r.fs.Killed())
	if !assert.NoError(t, err) {
		return manifest.Head{}
	}
	defer l.Close()
	h, err := l.Head(l.Size(), 0)
	assert.NoError(t, err)
	return h
}

// holds reports whether a head verifies against the files that a power cut at this moment leaves.
func (r *rig) holds(h manifest.Head) error { return r.holdsIn(r.fs.CrashClone(1, 0), h) }

func (r *rig) holdsIn(files *dbtest.FS, h manifest.Head) error {
	l, err := auditOf(r.path, files)
	if err != nil {
		return err
	}
	defer l.Close()
	root, err := l.Root(h.Size)
	if err == nil && root != h.Root {
		err = errors.New("another root")
	}
	return err
}

// slowFS syncs as slowly as a disk, so that others write meanwhile.
type slowFS struct{ *dbtest.FS }

type slowFile struct{ wal.File }

func (f slowFS) OpenFile(name string, flag int, perm os.FileMode) (wal.File, error) {
	file, err := f.FS.OpenFile(name, flag, perm)
	return slowFile{file}, err
}

func (f slowFile) Sync() error {
	err := f.File.Sync()
	time.Sleep(100 * time.Microsecond)
	return err
}

// besideWriters runs fn again and again while six writers commit and read, until they have committed so often.
func (r *rig) besideWriters(t *testing.T, times int64, fn func(db *DB, n int) (enough bool)) {
	db := must(openOver(r.path, Options{WorkingSet: -1}, filestore.Options{FS: slowFS{r.fs}, Rotate: r.files.Rotate}))(t)
	var commits atomic.Int64
	ctx, stop := context.WithCancel(context.Background())
	var writers sync.WaitGroup
	for n := range 6 {
		writers.Go(func() {
			s := db.Scope(fmt.Sprint("acme/writer-", n))
			for i := 0; ctx.Err() == nil; i++ {
				id := fmt.Sprint("page-", i%20)
				if _, err := s.Put(ctx, Artefact{ID: id, Text: fmt.Sprint("text ", i)}); err == nil {
					commits.Add(1)
				}
				_, _ = s.Get(ctx, id)
			}
		})
	}
	for n := 0; (commits.Load() < times || n < 100) && !t.Failed() && !fn(db, n); n++ {
	}
	stop()
	writers.Wait()
	require.NoError(t, db.Close())
}

// TestHeadIsOnDisk compares every head that is given beside six writers with what a power cut at that moment leaves.
func TestHeadIsOnDisk(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{}, filestore.Options{Rotate: 1 << 16})
	r.besideWriters(t, 2000, func(db *DB, n int) bool {
		h, err := db.Head(context.Background())
		assert.NoError(t, err)
		assert.NoError(t, r.holds(h), "head %d: %s", n, h)
		if n%50 == 0 {
			_, err := db.Admin().Checkpoint(context.Background())
			assert.NoError(t, err)
		}
		return false
	})
}

// TestHeadIsOnDiskControl: a head over what is written counts leaves that are not on the disk.
func TestHeadIsOnDiskControl(t *testing.T) {
	t.Parallel()
	r, seen := newRig(t, Options{}), false
	r.besideWriters(t, 20_000, func(*DB, int) bool {
		disk := r.fs.CrashClone(1, 0)
		seen = r.holdsIn(disk, r.written(t)) != nil
		return seen
	})
	assert.True(t, seen, "every one of them was on the disk: the test above would see nothing")
}

// TestHeadOfReader: the writer was killed before it synced. The head of a reader covers what it read, and brings it to
// the disk first.
func TestHeadOfReader(t *testing.T) {
	r := newRig(t, Options{})
	db := must(r.open())(t)
	must(db.Scope("acme").Put(context.Background(), Artefact{ID: "page", Text: "text"}))(t)
	leaf := &manifest.Record{Type: manifest.TypeGet, Trace: "01ARZ3NDEKTSV4RRFFQ69G5FAV", Scope: "acme"}
	require.NoError(t, storeOf(db).Append(context.Background(), []*manifest.Record{leaf}, store.Written))
	unsynced := r.written(t)
	im := image{r.fs.Killed(), copyBolt(r.path)}
	require.NoError(t, r.restart(db, im))
	r.opts.ReadOnly = true
	db = must(r.open())(t)
	defer db.Close()
	require.Error(t, r.holds(unsynced), "the control: nobody has synced it")
	h := must(db.Head(context.Background()))(t)
	require.Equal(t, unsynced.Size, h.Size)
	require.NoError(t, r.holds(h))
}
