package wal_test

import (
	"errors"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/wal"
)

// TestOpenOnFullDisk: a log opens on a disk without a byte left, after a clean end with its reserve, after a kill
// repaired in its place. The control is the log without a tail to repair: a new one does not fit.
func TestOpenOnFullDisk(t *testing.T) {
	big := func(fsys *dbtest.FS) wal.Options {
		o := options(fsys)
		o.SegmentBytes = 4 << 20 // preallocated in steps of 32 KiB
		return o
	}
	small := func(fsys *dbtest.FS) wal.Options {
		o := options(fsys)
		o.SegmentBytes, o.LeastReserve = 64<<20, 8<<10 // doubled to 16 KiB by the records of the test
		return o
	}
	for i := range 4 {
		clean, big := i%2 == 0, big
		if i >= 2 {
			big = small
		}
		fsys := dbtest.NewFS()
		l, _, _ := mustOpen(t, big(fsys))
		for range 20 {
			commit(t, l, 1000)
		}
		if clean {
			require.NoError(t, l.Close(wal.KindMark, nil))
		} else {
			put(t, l, wal.KindCommit, body(l.Last()+1, 3000))
			require.NoError(t, l.Write())
			fsys = fsys.CrashClone(7, 50)
		}
		fsys.Limit(fsys.Used())
		l, rec, recs := mustOpen(t, big(fsys))
		require.Equal(t, clean, rec.Clean)
		require.GreaterOrEqual(t, len(recs), 20)
		seq := must(l.Enqueue(wal.KindCommit, true, body(l.Last()+1, 1000)))(t)
		require.NoError(t, l.Sync(ctx, seq, nil))
		require.ErrorIs(t, l.Grow(64<<10), wal.ErrFull)
		require.NoError(t, l.Close(wal.KindMark, nil))
		l, rec, recs = mustOpen(t, big(fsys))
		require.True(t, rec.Clean)
		require.EqualValues(t, seq, recs[len(recs)-2].Seq)
		fsys.Heal()
		require.NoError(t, l.Grow(64<<10))
		commit(t, l, 50<<10)
		require.NoError(t, l.Close(wal.KindMark, nil))
	}
	fsys := dbtest.NewFS()
	fsys.Limit(1)
	_, _, _, err := open(big(fsys))
	require.ErrorIs(t, err, syscall.ENOSPC, "the control")
}

// TestLeastReserve: a short log keeps a small reserve, which doubles as it grows, and the largest when it is told that the disk
// fills up. Never is it full while there is space. The control is a log that begins with the largest.
func TestLeastReserve(t *testing.T) {
	for _, told := range []bool{false, true} {
		fsys := dbtest.NewFS()
		o := options(fsys)
		o.SegmentBytes, o.LeastReserve = 64<<20, 48<<10
		l, _, _ := mustOpen(t, o)
		commit(t, l, 3000)
		require.EqualValues(t, 60<<10, fsys.Used())
		if told {
			require.NoError(t, l.Reserve())
			require.EqualValues(t, 512<<10, fsys.Used())
		}
		for l.Size() < 1<<20 {
			commit(t, l, 3000)
			require.NoError(t, l.Grow(0))
			room, reserve := l.Room()
			require.GreaterOrEqual(t, room, reserve)
			if !told {
				require.GreaterOrEqual(t, reserve, min(max(l.Size()/2, 48<<10), 256<<10))
				require.LessOrEqual(t, room, reserve*5/4+reserve>>18*(448<<10), "a step more, and the largest is 512 KiB")
			}
		}
		_, reserve := l.Room()
		require.EqualValues(t, 256<<10, reserve)
		require.NoError(t, l.Close(wal.KindMark, nil))
	}

	fsys := dbtest.NewFS()
	o := options(fsys)
	o.SegmentBytes, o.LeastReserve = 64<<20, 48<<10
	l, _, _ := mustOpen(t, o)
	commit(t, l, 3000)
	fsys.Limit(fsys.Used() + 20<<10)
	require.NoError(t, l.Reserve(), "a full disk is no error")
	require.ErrorIs(t, l.Grow(0), wal.ErrFull)
	_, err := l.Enqueue(wal.KindCommit, false, body(l.Last()+1, 1000))
	require.ErrorIs(t, err, wal.ErrFull)
	seq := must(l.Enqueue(wal.KindCommit, true, body(l.Last()+1, 1000)))(t)
	require.NoError(t, l.Sync(ctx, seq, nil))
	require.NoError(t, l.Close(wal.KindMark, nil))

	fsys = dbtest.NewFS()
	o.FS, o.LeastReserve = fsys, 0
	l, _, _ = mustOpen(t, o)
	commit(t, l, 3000)
	require.EqualValues(t, 512<<10, fsys.Used(), "the control")
	require.NoError(t, l.Close(wal.KindMark, nil))
}

// TestUrgentRecordsEnd: urgent records are refused when what was preallocated is used up; the log is not poisoned and closes.
func TestUrgentRecordsEnd(t *testing.T) {
	fsys := dbtest.NewFS()
	l, _, _ := mustOpen(t, options(fsys))
	commit(t, l, 10)
	fsys.Limit(fsys.Used())
	var err error
	n := 0
	for ; err == nil; n++ {
		var seq uint64
		if seq, err = l.Enqueue(wal.KindCommit, true, body(l.Last()+1, 100)); err == nil {
			require.NoError(t, l.Sync(ctx, seq, nil))
		}
	}
	require.ErrorIs(t, err, wal.ErrFull)
	require.Greater(t, n, 5)
	require.NoError(t, l.Close(wal.KindMark, nil))
}

// TestShrink: what is preallocated is given back, and comes again with the next write.
func TestShrink(t *testing.T) {
	fsys := dbtest.NewFS()
	l, _, _ := mustOpen(t, options(fsys))
	commit(t, l, 10)
	before := fsys.Used()
	require.NoError(t, l.Shrink(256))
	require.Less(t, fsys.Used(), before)
	fsys.Limit(fsys.Used())
	require.ErrorIs(t, errOf(l.Enqueue(wal.KindCommit, false, body(2, 10))), wal.ErrFull)
	fsys.Heal()
	require.NoError(t, l.Grow(0))
	commit(t, l, 10)
	require.NoError(t, l.Close(wal.KindMark, nil))
}

// TestRotateOnFullDisk: a log without a byte left on the disk begins a new segment in the space that was preallocated, so that
// the old one can go. Where that cannot be, it preallocates again. A crash at any operation loses nothing that was acknowledged.
// In the control that space is gone.
func TestRotateOnFullDisk(t *testing.T) {
	full := func() (*dbtest.FS, *wal.Log) {
		fsys := dbtest.NewFS()
		l, _, _ := mustOpen(t, options(fsys))
		for range 10 {
			commit(t, l, 100)
		}
		put(t, l, wal.KindMark, body(l.Last()+1, 20))
		fsys.Limit(fsys.Used())
		return fsys, l
	}
	fsys, l := full()
	require.NoError(t, l.Shrink(64), "the control")
	fsys.Limit(fsys.Used())
	require.ErrorIs(t, l.Rotate(), wal.ErrFull, "the control")
	n := must(l.DropBefore(l.Last()))(t)
	require.Zero(t, n)

	fsys, l = full()
	used := fsys.Used()
	fsys.Inject(dbtest.Fault{Op: dbtest.OpCreate, Err: syscall.ENOSPC})
	require.ErrorIs(t, l.Rotate(), wal.ErrFull)
	require.Equal(t, used, fsys.Used(), "it has preallocated again")
	require.NoError(t, l.Rotate())
	n = must(l.DropBefore(l.Last() + 1))(t)
	require.Equal(t, 1, n)
	commit(t, l, 10)
	require.NoError(t, l.Close(wal.KindMark, nil))

	for n := 1; ; n++ {
		fsys, l = full()
		fsys.Inject(dbtest.Fault{N: n, Sticky: true, Err: errors.New("the power is gone")})
		rerr := l.Rotate()
		for seed := range uint64(5) {
			_, _, recs := mustOpen(t, options(fsys.CrashClone(seed, 50)))
			require.GreaterOrEqual(t, len(recs), 10, "operation %d, seed %d", n, seed)
		}
		if rerr == nil {
			require.Greater(t, n, 5)
			break
		}
	}
}

// TestFullDiskAtTheName: the disk is full when the name of a new segment is synced, in a rotation and in the repair of an
// open. Nobody goes on with the old segment then, for the next open takes the new one: no acknowledged record is lost.
func TestFullDiskAtTheName(t *testing.T) {
	for _, atOpen := range []bool{false, true} {
		fsys := dbtest.NewFS()
		l, _, _ := mustOpen(t, options(fsys))
		acked := 0
		for range 5 {
			commit(t, l, 100)
			acked++
		}
		full := dbtest.Fault{Op: dbtest.OpSyncDir, Err: syscall.ENOSPC}
		if atOpen {
			fsys = fsys.Killed()
			fsys.Inject(full)
			_, _, _, err := open(options(fsys))
			require.ErrorIs(t, err, syscall.ENOSPC)
			l, _, _ = mustOpen(t, options(fsys))
		} else {
			fsys.Inject(full)
			require.ErrorIs(t, l.Rotate(), wal.ErrPoisoned)
			require.NoError(t, l.Abandon())
			l, _, _ = mustOpen(t, options(fsys))
		}
		commit(t, l, 100)
		acked++
		require.NoError(t, l.Abandon())
		_, _, recs := mustOpen(t, options(fsys))
		require.Len(t, recs, acked)
	}
}

// TestCrashInPlace: a crash at every operation of a repair in place, on a disk that stays full, loses nothing that was
// acknowledged; the next open repairs it. With the seal of a rotation behind which nothing was written, too.
func TestCrashInPlace(t *testing.T) {
	for _, sealed := range []bool{false, true} {
		fsys := dbtest.NewFS()
		l, _, _ := mustOpen(t, options(fsys))
		for range 10 {
			commit(t, l, 100)
		}
		if sealed {
			require.NoError(t, l.Rotate())
		} else {
			put(t, l, wal.KindCommit, body(11, 300))
			require.NoError(t, l.Write())
		}
		hurt := fsys.CrashClone(3, 60)
		repaired := 0
		for n := 1; ; n++ {
			c := hurt.Clone()
			c.Inject(dbtest.Fault{Op: dbtest.OpCreate, Err: syscall.ENOSPC, Sticky: true})
			c.Inject(dbtest.Fault{N: n, Sticky: true, Err: errors.New("the power is gone")})
			_, rec, recs, err := open(options(c))
			if err == nil {
				require.False(t, rec.Rewritten, "it was to be repaired in place")
				require.GreaterOrEqual(t, len(recs), 10)
				break
			}
			repaired++
			for seed := range uint64(5) {
				again := c.CrashClone(seed, 50)
				again.Inject(dbtest.Fault{Op: dbtest.OpCreate, Err: syscall.ENOSPC, Sticky: true})
				l, _, recs, err := open(options(again))
				require.NoError(t, err, "operation %d, seed %d, sealed %v", n, seed, sealed)
				require.GreaterOrEqual(t, len(recs), 10)
				commit(t, l, 10)
			}
		}
		require.Greater(t, repaired, 5)
	}
}
