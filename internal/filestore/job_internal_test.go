package filestore

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/engine"
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

// A store whose lock is wanted closes without a checkpoint of a short log and without a new snapshot of the columns: the next
// owner has everything, in a clean database. It reads the snapshot from before if that is of its rows, and writes a new one when
// nobody waits. The control: a lock that nobody wants.
func TestCloseForTheNextOwner(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		wanted, vectors, checkpoint, applied, columns bool
	}{
		"wanted":                    {wanted: true, columns: true},
		"not wanted":                {applied: true, columns: true},
		"with vectors":              {wanted: true, vectors: true, applied: true, columns: true},
		"with an outdated snapshot": {wanted: true, checkpoint: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := dbtest.MemoryPath(t)
			opts := Options{Path: path, Columns: 1}
			open := func() *Store {
				lock := must(TakeLock(opts))(t)
				own := opts
				own.Lock = lock
				return must(Open(own))(t)
			}
			end := func(st *Store) {
				require.NoError(t, st.Close())
				require.NoError(t, st.opts.Lock.Release())
			}
			fill := func(st *Store, from, to int) {
				for n := from; n < to; n++ {
					must(put(st, store.ActApply, store.Artefact{ID: fmt.Sprint("page-", n)}, fmt.Sprint("zebra ", n)))(t)
				}
			}
			st := open()
			fill(st, 0, 20)
			end(st)
			st = open()
			fill(st, 20, 25)
			if c.checkpoint {
				must(st.Maintain(ctx, store.Job{Kind: store.JobCheckpoint}, nil))(t)
				fill(st, 25, 26)
			}
			last := must(st.Resolve(ctx, store.Scopes{"acme"}, store.Ref{ID: "page-24"}))(t)
			if c.vectors {
				require.NoError(t, st.PutVectors(ctx, "model", []uint64{last.Pages[0].Num}, [][]float32{{1, 2}}))
			}
			lsn := st.Mark().LSN
			if c.wanted {
				st.opts.Lock.Wanted()
			}
			end(st)

			st = open()
			is := must(st.Stat(ctx))(t)
			require.Equal(t, lsn, is.LSN)
			require.Equal(t, c.applied, is.Applied == lsn, "applied %d of %d", is.Applied, lsn)
			require.Equal(t, c.columns, is.ColumnsRead)
			for n := range 25 {
				must(st.Resolve(ctx, store.Scopes{"acme"}, store.Ref{ID: fmt.Sprint("page-", n)}))(t)
			}
			vecs := must(st.Vectors(ctx, store.Scopes{"acme"}, "model", []uint64{last.Pages[0].Num}))(t)
			require.Equal(t, c.vectors, vecs[0] != nil)
			for _, leaf := range must(st.Audit().Records(ctx, 0, is.Leaves, false, 1000))(t) {
				require.NotEqual(t, manifest.TypeRecovered, leaf.Type, "the end was clean")
			}
			require.Empty(t, must(st.Maintain(ctx, store.Job{Kind: store.JobCheck}, nil))(t).Problems)
			end(st)

			st = open()
			defer end(st)
			is = must(st.Stat(ctx))(t)
			require.True(t, is.ColumnsRead, "an end that nobody waits for keeps the snapshot")
		})
	}
}

// TestLockOnFullDisk: a lock whose holder cannot be written down, for the disk is full, is held all the same.
// /dev/full refuses every write with ENOSPC.
func TestLockOnFullDisk(t *testing.T) {
	f, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	if err != nil {
		t.Skip("there is no /dev/full:", err)
	}
	defer f.Close()
	_, err = f.WriteAt([]byte("x"), 0)
	require.True(t, noSpace(err), "the control: %v", err)
	require.NoError(t, (&processLock{f: f}).name([]byte("{}")))
	closed := must(os.CreateTemp(t.TempDir(), "lock"))(t)
	require.NoError(t, closed.Close())
	require.Error(t, (&processLock{f: closed}).name([]byte("{}")), "the control: another error is told")
}

// The disk is asked again before another program could have filled it, and at once while it has little.
func TestSpaceCacheExpires(t *testing.T) {
	var c spaceCache
	now := time.Unix(1_000_000, 0)
	require.False(t, c.fresh(now), "nobody asked yet")
	require.False(t, c.put(now, spaceCacheAbove-1))
	require.False(t, c.fresh(now))

	require.True(t, c.put(now, spaceCacheAbove))
	require.False(t, c.fresh(now), "as much as is enough, and not a byte more")

	require.True(t, c.put(now, spaceCacheAbove+fillRate/100))
	require.True(t, c.fresh(now.Add(9*time.Millisecond)))
	require.False(t, c.fresh(now.Add(10*time.Millisecond)), "it may be full by now")

	require.True(t, c.put(now, 1<<50))
	require.True(t, c.fresh(now.Add(spaceCacheFor-1)))
	require.False(t, c.fresh(now.Add(spaceCacheFor)))

	require.True(t, c.put(now, -1), "where nobody knows")
	require.True(t, c.fresh(now))
}

// A database keeps its id and its secret: fences and digests of what was shown before are made from them.
func TestInfoStays(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.ctx")
	st := must(Open(Options{Path: path}))(t)
	first := must(st.Info(context.Background()))(t)
	require.Len(t, first.ID, 26)
	require.Len(t, first.Secret, 32)
	require.NoError(t, st.Close())
	st = must(Open(Options{Path: path, ReadOnly: true}))(t)
	defer st.Close()
	require.Equal(t, first, must(st.Info(context.Background()))(t))
}

// A table of which one transaction reads many rows is read through one cursor: rows that are there, before, between and
// behind them, and rows that the transaction itself wrote and deleted. The control is a table that keeps none.
func TestReadsOfManyRows(t *testing.T) {
	db := must(bbolt.Open(t.TempDir()+"/rows", 0o600, nil))(t)
	defer db.Close()
	const rows = 2000
	key := func(n int) []byte { return binary.BigEndian.AppendUint32(nil, uint32(n)) }
	require.NoError(t, db.Update(func(tx *bbolt.Tx) error {
		r := rowsOf(tx)
		for _, table := range []engine.Table{engine.TableSeg, engine.TableHeld} {
			for n := 1; n < rows; n += 2 {
				require.NoError(t, r.Put(table, key(n), key(n*n)))
				require.Equal(t, key(n*n), r.Get(table, key(n)))
			}
			require.NoError(t, r.Delete(table, key(7)))
			require.Nil(t, r.Get(table, key(7)))
		}
		return nil
	}))
	require.NoError(t, db.View(func(tx *bbolt.Tx) error {
		r := rowsOf(tx)
		read := func(table engine.Table) float64 {
			keys := make([][]byte, 100)
			for i := range keys {
				keys[i] = key(i * 997 % (rows + 50))
			}
			require.Equal(t, key(1), r.Get(table, key(1)))
			for n := range rows + 50 {
				if n%2 == 0 || n == 7 || n > rows {
					require.Nil(t, r.Get(table, key(n)), n)
				} else {
					require.Equal(t, key(n*n), r.Get(table, key(n)))
				}
			}
			return testing.AllocsPerRun(10, func() {
				for _, k := range keys {
					r.Get(table, k)
				}
			})
		}
		require.Zero(t, read(engine.TableSeg))
		require.NotZero(t, read(engine.TableHeld))
		return nil
	}))
	allocs := map[engine.Table]float64{}
	require.NoError(t, db.Update(func(tx *bbolt.Tx) error {
		r := rowsOf(tx)
		for _, table := range []engine.Table{engine.TableSeg, engine.TableHeld} {
			require.NoError(t, r.Delete(table, key(2)), "not there")
			require.NoError(t, r.Delete(table, key(rows+9)), "behind all")
			n := 1
			allocs[table] = testing.AllocsPerRun(400, func() {
				if n != 7 {
					require.Equal(t, key(n*n), r.Get(table, key(n)))
				}
				require.NoError(t, r.Delete(table, key(n)))
				n += 2
			})
			for m := 1; m < rows; m += 2 {
				require.Equal(t, m < n, r.Get(table, key(m)) == nil, m)
			}
			require.NoError(t, r.Put(table, key(1), key(1)), "between deletions")
			require.NoError(t, r.Delete(table, key(n)))
			require.Equal(t, key(1), r.Get(table, key(1)))
		}
		return nil
	}))
	require.Less(t, allocs[engine.TableSeg]+1, allocs[engine.TableHeld], "%v", allocs)
}
