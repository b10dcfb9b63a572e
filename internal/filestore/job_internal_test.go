package filestore

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/wal"
	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
)

// A job that waits for another one leaves when its context ends, and when the store is closed: those before it may take
// minutes. The jobs that run at that time come to their end.
func TestWaitingJobsLeave(t *testing.T) {
	st := must(Open(Options{Path: dbtest.MemoryPath(t), NoSync: true}))(t)
	running, goOn := make(chan struct{}), make(chan struct{})
	first := make(chan error, 1)
	go func() {
		once := false
		_, err := st.Maintain(context.Background(), store.Job{Kind: store.JobCheck}, func(string, uint64, uint64) {
			if !once {
				once = true
				close(running)
				<-goOn
			}
		})
		first <- err
	}()
	<-running
	jobs := map[string]store.Job{
		"checkpoint": {Kind: store.JobCheckpoint}, "check": {Kind: store.JobCheck}, "compact": {Kind: store.JobCompact},
		"backup": {Kind: store.JobBackup, Path: filepath.Join(t.TempDir(), "copy.ctx")},
	}
	for name, job := range jobs {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
		_, err := st.Maintain(ctx, job, nil)
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded, name)
	}
	waits := make(chan error, len(jobs))
	for _, job := range jobs {
		go func() {
			_, err := st.Maintain(context.Background(), job, nil)
			waits <- err
		}()
	}
	closed := make(chan error, 1)
	go func() { closed <- st.Close() }()
	require.Eventually(t, st.ending.Load, time.Minute, time.Millisecond)
	close(goOn)
	for range jobs {
		require.ErrorIs(t, <-waits, store.ErrClosed)
	}
	require.NoError(t, <-first)
	require.NoError(t, <-closed)
}

// heldSync is a file system whose syncs of files wait while it is held.
type heldSync struct {
	wal.FS
	held    atomic.Bool
	waits   chan struct{} // one that waits
	proceed chan struct{}
}

type heldFile struct {
	wal.File
	fs *heldSync
}

func (f *heldSync) OpenFile(name string, flag int, perm os.FileMode) (wal.File, error) {
	file, err := f.FS.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &heldFile{file, f}, nil
}

func (f *heldFile) Sync() error {
	if f.fs.held.CompareAndSwap(true, false) {
		f.fs.waits <- struct{}{}
		<-f.fs.proceed
	}
	return f.File.Sync()
}

// The end of a backup's context leaves no doubt whether its leaf was written: the backup ends with the error of the context,
// and a second leaf says that it failed, so no erase names it.
func TestCancelledBackupIsRecorded(t *testing.T) {
	files := &heldSync{FS: wal.OS(), waits: make(chan struct{}), proceed: make(chan struct{})}
	st := must(Open(Options{Path: dbtest.MemoryPath(t), FS: files}))(t)
	files.held.Store(true)
	written := make(chan error, 1)
	go func() {
		_, err := put(st, store.ActApply, store.Artefact{ID: "a"}, "zebra")
		written <- err
	}()
	<-files.waits // the leaf of the backup waits for this sync, too
	before := st.log.Last()
	ctx, cancel := context.WithCancel(t.Context())
	recorded := make(chan error, 1)
	go func() {
		failed, err := st.recordBackup(ctx, "copy.ctx")
		if err == nil {
			failed()
		}
		recorded <- err
	}()
	require.Eventually(t, func() bool { return st.log.Last() > before }, time.Minute, time.Millisecond)
	cancel()
	close(files.proceed)
	require.NoError(t, <-written)
	require.NoError(t, <-recorded)
	leaves := must(st.Audit().Size(t.Context()))(t)
	var notes []string
	for i := range leaves {
		leaf := must(st.Audit().Leaf(t.Context(), i))(t)
		if leaf.Type == manifest.TypeBackup {
			notes = append(notes, leaf.Note+leaf.Reason)
		}
	}
	require.Equal(t, []string{"copy.ctx", "failed"}, notes)
	require.NoError(t, st.Close())
}

// The file grows ahead of its pages while it is open. A closed one ends at its last page, and opens and grows again.
func TestClosedFileEndsAtItsPages(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.ctx")
	sizes := func(st *Store) (file, pages int64) {
		info := must(os.Stat(path))(t)
		require.NoError(t, st.view(func(tx *bbolt.Tx) error {
			pages = tx.Size()
			return nil
		}))
		return info.Size(), pages
	}
	for round := range 3 {
		st := must(Open(Options{Path: path, NoSync: true}))(t)
		for i := range 200 {
			must(put(st, store.ActApply, store.Artefact{ID: fmt.Sprint("a-", round, "-", i)}, strings.Repeat("some words of a text ", 100)))(t)
		}
		must(st.Maintain(context.Background(), store.Job{Kind: store.JobCheckpoint}, nil))(t)
		file, pages := sizes(st)
		require.Greater(t, file, pages, "control: open, it is ahead")
		require.NoError(t, st.Close())
		info := must(os.Stat(path))(t)
		require.LessOrEqual(t, info.Size(), pages+8*boltPage, "round %d", round) // the checkpoint of the close may have changed some
		require.Less(t, info.Size(), file)
	}
}

// fullForSegments is a file system on which no segment of a log can begin while it is full.
type fullForSegments struct {
	wal.FS
	full atomic.Bool
}

func (f *fullForSegments) OpenFile(name string, flag int, perm os.FileMode) (wal.File, error) {
	if f.full.Load() && flag&os.O_CREATE != 0 && strings.HasSuffix(filepath.Dir(name), "-wal") {
		return nil, &os.PathError{Op: "open", Path: name, Err: syscall.ENOSPC}
	}
	return f.FS.OpenFile(name, flag, perm)
}

// On a disk without space for another segment of the log an erase is committed and says that the disk is full. The database opens
// all the same, and an open with space finishes the erase.
func TestEraseWithoutSpaceForASegment(t *testing.T) {
	path := dbtest.MemoryPath(t)
	files := &fullForSegments{FS: wal.OS()}
	open := func() *Store {
		return must(Open(Options{Path: path, FS: files}))(t)
	}
	st := open()
	must(put(st, store.ActApply, store.Artefact{ID: "a"}, "zebra"))(t)
	files.full.Store(true)
	job := &store.EraseJob{Refs: []store.Ref{{Scope: "acme", ID: "a"}}, By: "desk", Reason: "asked"}
	rep, err := st.Maintain(t.Context(), store.Job{Kind: store.JobErase, Erase: job}, nil)
	require.ErrorIs(t, err, store.ErrNoSpace)
	require.Equal(t, 1, rep.Erase.Artefacts)
	require.NoError(t, st.Close())
	waiting := func(st *Store) int {
		return len(must(st.eng.EraseRest(t.Context()))(t))
	}
	st = open()
	require.Equal(t, 1, waiting(st))
	must(put(st, store.ActApply, store.Artefact{ID: "b"}, "zebra"))(t)
	require.NoError(t, st.Close())
	files.full.Store(false)
	st = open()
	require.Zero(t, waiting(st))
	require.NoError(t, st.Close())
}
