package wal_test

import (
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/wal"
)

var (
	crashSeeds = flag.Int("crash.seeds", dbtest.Size(300, 2000), "how many seeds TestCrash runs")
	crashFirst = flag.Uint64("crash.first", 1, "the first of them")
	update     = flag.Bool("update", false, "rewrite golden files")
)

// life is a log that is written at random and dies, again and again, and what must be true of it.
type life struct {
	rng    *rand.Rand
	fs     *dbtest.FS
	opts   wal.Options
	bodies [][]byte // by number-1, of all that was enqueued
	kinds  []wal.Kind
	acked  uint64 // Sync said so
	drop   uint64 // asked to be dropped below
}

func newLife(seed uint64, noSync bool) *life {
	l := &life{rng: rand.New(rand.NewPCG(seed, 7)), fs: dbtest.NewFS()}
	l.opts = wal.Options{Salt: salts(), GroupWait: -1, NoSync: noSync}
	l.opts.SegmentBytes = int64(1+l.rng.IntN(8)) << 10
	return l
}

// run opens the log, checks what it finds, writes for a while, and dies at a random operation, in the
// middle of a recovery too. It returns the first broken promise.
func (l *life) run() error {
	l.opts.FS = l.fs
	if l.rng.IntN(4) > 0 {
		l.fs.Inject(dbtest.Fault{N: 1 + l.rng.IntN(120), Err: dbtest.ErrCrashed, Sticky: true, Short: l.rng.IntN(2000)})
	}
	log, rec, recs, err := open(l.opts)
	if err != nil {
		if errors.Is(err, dbtest.ErrCrashed) {
			return nil
		}
		return fmt.Errorf("open: %w", err)
	}
	if err := l.check(rec, recs); err != nil {
		return err
	}
	if err := l.write(log); err != nil && !errors.Is(err, dbtest.ErrCrashed) {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

// check: what is there is what was enqueued, without a gap, and nothing that was promised is missing.
func (l *life) check(rec wal.Recovery, recs []wal.Record) error {
	switch {
	case rec.Last < l.acked:
		return fmt.Errorf("record %d was acknowledged, the log ends at %d", l.acked, rec.Last)
	case rec.Last > uint64(len(l.bodies)):
		return fmt.Errorf("the log ends at %d, only %d were enqueued", rec.Last, len(l.bodies))
	case rec.First > max(l.drop, 1):
		return fmt.Errorf("the log begins at %d, only records below %d were to be dropped", rec.First, l.drop)
	case rec.First+uint64(len(recs)) != rec.Last+1:
		return fmt.Errorf("records %d to %d: got %d", rec.First, rec.Last, len(recs))
	}
	for i, r := range recs {
		if want := rec.First + uint64(i); r.Seq != want {
			return fmt.Errorf("expected record %d, got %d", want, r.Seq)
		}
		if string(r.Body) != string(l.bodies[r.Seq-1]) || r.Kind != l.kinds[r.Seq-1] {
			return fmt.Errorf("record %d is wrong", r.Seq)
		}
	}
	l.bodies, l.kinds = l.bodies[:rec.Last], l.kinds[:rec.Last] // the rest never was
	l.acked = rec.Last                                          // served, so it must stay
	return nil
}

func (l *life) enqueue(log *wal.Log) error {
	b := make([]byte, l.rng.IntN(1400))
	for i := 0; i < len(b); i += 8 {
		var eight [8]byte
		binary.LittleEndian.PutUint64(eight[:], l.rng.Uint64())
		copy(b[i:], eight[:])
	}
	kind := kinds[l.rng.IntN(3)]
	seq, err := log.Enqueue(kind, false, b)
	if err == nil {
		l.bodies, l.kinds = append(l.bodies[:seq-1], b), append(l.kinds[:seq-1], kind)
	}
	return err
}

func (l *life) write(log *wal.Log) (err error) {
	for range 5 + l.rng.IntN(40) {
		switch n := l.rng.IntN(20); {
		case n < 10:
			err = l.enqueue(log)
		case n < 13:
			err = log.Write()
		case n < 18:
			seq := log.Last()
			if err = log.Sync(ctx, seq, nil); err == nil {
				l.acked = max(l.acked, seq)
			}
		case n < 19:
			err = log.Rotate()
		default:
			l.drop = max(l.drop, log.Durable()/2)
			_, err = log.DropBefore(l.drop)
		}
		if err != nil {
			return err
		}
	}
	if l.rng.IntN(3) > 0 {
		return nil // killed
	}
	last := log.Last()
	l.bodies, l.kinds = append(l.bodies[:last], []byte("end")), append(l.kinds[:last], wal.KindMark)
	if err = log.Close(wal.KindMark, []byte("end")); err == nil {
		l.acked = last + 1
	}
	return err
}

// die is a kill, or a power cut. What was not synced stays unsynced after a kill: the next power cut may
// still take it.
func (l *life) die() {
	if l.rng.IntN(3) == 0 {
		l.fs.Heal()
		return
	}
	l.fs = l.fs.CrashClone(l.rng.Uint64(), []int{0, 10, 50, 90, 100}[l.rng.IntN(5)])
}

func crash(seed uint64, noSync bool) error {
	l := newLife(seed, noSync)
	for range 5 {
		if err := l.run(); err != nil {
			return err
		}
		l.die()
	}
	l.fs.Heal()
	l.opts.FS = l.fs
	_, rec, recs, err := open(l.opts)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	return l.check(rec, recs)
}

// TestCrash: five lives a seed, each ended by a kill or a power cut at any operation. No acknowledged record
// is lost, none appears that was not written, and damage is never claimed. The control syncs nothing
// and must fail, or the file system under the test loses nothing.
func TestCrash(t *testing.T) {
	for seed := *crashFirst; seed < *crashFirst+uint64(*crashSeeds); seed += underRace {
		if err := crash(seed, false); err != nil {
			t.Fatalf("-crash.first=%d -crash.seeds=1: %v", seed, err)
		}
	}
	bad := 0
	const control = 100
	for seed := range uint64(control) {
		if crash(seed, true) != nil {
			bad++
		}
	}
	t.Logf("%d seeds; control without syncs: %d of %d fail", *crashSeeds, bad, control)
	require.Greater(t, bad, control*8/10)
}

// scene writes a fixed log through rotations, a drop, a clean close and a reopen. It returns what was
// acknowledged and the first error.
func scene(fsys *dbtest.FS) (acked uint64, err error) {
	opts := options(fsys)
	opts.SegmentBytes = 4 << 10
	for range 2 {
		l, rec, _, err := open(opts)
		if err != nil {
			return acked, err
		}
		acked = max(acked, rec.Last)
		for i := range 50 {
			seq, err := l.Enqueue(kinds[i%3], false, body(l.Last()+1, 300))
			if err == nil && i%4 == 1 {
				err = l.Write()
			}
			if err == nil && i%4 != 1 {
				err = l.Sync(ctx, seq, nil)
			}
			if err == nil && i == 30 {
				if _, err := l.DropBefore(seq - 20); err != nil && !errors.Is(err, wal.ErrPoisoned) {
					return acked, err // a file that cannot be removed does no harm
				}
			}
			if err != nil {
				return acked, errors.Join(err, poisonedForGood(l, acked, fsys))
			}
			acked = l.Durable()
		}
		if err := l.Close(wal.KindMark, body(l.Last()+1, 10)); err != nil {
			return acked, err
		}
		acked = l.Last()
	}
	return acked, nil
}

var errBroken = errors.New("promise broken")

// poisonedForGood checks that a log that failed answers everything with ErrPoisoned and the cause, and
// touches the disk no more.
func poisonedForGood(l *wal.Log, acked uint64, fsys *dbtest.FS) error {
	last, ops := l.Last(), fsys.Ops()
	_, err := l.Enqueue(wal.KindCommit, false, nil)
	_, dropErr := l.DropBefore(1 << 60)
	for what, err := range map[string]error{"enqueue": err, "drop": dropErr, "write": l.Write(),
		"rotate": l.Rotate(), "sync": l.Sync(ctx, last, nil), "close": l.Close(wal.KindMark, nil)} {
		if what == "sync" && last == l.Durable() { // it was an asynchronous one that failed
			continue
		}
		if !errors.Is(err, wal.ErrPoisoned) && !errors.Is(err, syscall.EIO) {
			return fmt.Errorf("%w: %s after the failure: %v", errBroken, what, err)
		}
	}
	if fsys.Ops() != ops {
		return fmt.Errorf("%w: a poisoned log touched the disk", errBroken)
	}
	return l.Sync(ctx, acked, nil) // what was durable stays so
}

// TestEIOAtEveryOperation: one operation after the other fails. The log is poisoned and retries nothing;
// after a reopen, and a power cut after that, all that was acknowledged is there. Pages that a failed sync
// left clean but unwritten are not trusted.
func TestEIOAtEveryOperation(t *testing.T) {
	whole := dbtest.NewFS()
	must(scene(whole))(t)
	require.Greater(t, whole.Ops(), 200)
	for n := 1; n <= whole.Ops(); n++ {
		fsys := dbtest.NewFS()
		fsys.Inject(dbtest.Fault{N: n, Short: n % 3 * 100})
		acked, err := scene(fsys)
		if err == nil {
			require.Contains(t, fsys.Trace(), "syncdir .: input/output error", "above the log's parent a failed sync is let pass")
			continue
		}
		require.ErrorIs(t, err, syscall.EIO, "operation %d", n)
		require.NotErrorIs(t, err, errBroken, "operation %d", n)
		reopened(t, fsys, acked, n)
	}
}

// reopened opens after a failure, as another process would, twice, the second time after a power cut.
func reopened(t *testing.T, fsys *dbtest.FS, acked uint64, n int) {
	t.Helper()
	_, rec, recs, err := open(options(fsys))
	require.NoError(t, err, "operation %d", n)
	require.GreaterOrEqual(t, rec.Last, acked, "operation %d", n)
	for _, r := range recs {
		require.Equal(t, body(r.Seq, len(r.Body)), r.Body)
	}
	_, again, _, err := open(options(fsys.CrashClone(uint64(n), 0)))
	require.NoError(t, err, "operation %d", n)
	require.Equal(t, rec.Last, again.Last, "operation %d: what was served after the reopen is durable", n)
}

// TestCrashDuringRecovery: recovery dies at each of its operations, the power goes, and the next recovery
// finds the same records.
func TestCrashDuringRecovery(t *testing.T) {
	t.Parallel()
	const last = 1000
	for name, scene := range map[string]struct {
		prepare func(*testing.T, *dbtest.FS, *wal.Log)
		size    int // of records
		ops     int // of the recovery, at least
	}{
		"torn tail": {size: 1000, ops: 15, prepare: func(t *testing.T, _ *dbtest.FS, l *wal.Log) {
			put(t, l, wal.KindAudit, body(last+1, 1500))
			require.NoError(t, l.Write())
		}},
		"just rotated": {size: 100, ops: 11, prepare: func(t *testing.T, _ *dbtest.FS, l *wal.Log) { require.NoError(t, l.Rotate()) }},
		"many leftovers": {size: 1, ops: 200, prepare: func(t *testing.T, fsys *dbtest.FS, l *wal.Log) {
			for i := range 100 {
				fsys.WriteFile(filepath.Join(dir, fmt.Sprintf("%020d-00000001.wal.tmp", i)), nil)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			fsys := dbtest.NewFS()
			l, _, _ := mustOpen(t, options(fsys))
			for l.Last() < last {
				if seq := put(t, l, wal.KindCommit, body(l.Last()+1, scene.size)); seq == 100 {
					require.NoError(t, l.Rotate())
				}
			}
			require.NoError(t, l.Sync(ctx, last, nil))
			scene.prepare(t, fsys, l)
			broken := fsys.CrashClone(5, 50)
			n := 1
			for ; recoverDyingAt(t, broken, n, last); n++ {
			}
			require.Greater(t, n, scene.ops)
		})
	}
}

// recoverDyingAt reports whether the recovery had an n-th operation to die at.
func recoverDyingAt(t *testing.T, broken *dbtest.FS, n, last int) bool {
	t.Helper()
	c := broken.Clone()
	c.Inject(dbtest.Fault{N: n, Err: dbtest.ErrCrashed, Sticky: true, Short: 700})
	_, _, _, err := open(options(c))
	for seed, keep := range []int{0, 50, 100} {
		_, rec, recs, err := open(options(c.CrashClone(uint64(seed), keep)))
		require.NoError(t, err, "operation %d, keep %d", n, keep)
		require.EqualValues(t, last, rec.Last)
		require.Len(t, recs, last)
	}
	if err != nil {
		require.ErrorIs(t, err, dbtest.ErrCrashed)
	}
	return err != nil
}

// TestFullDisk: at every size of disk the log says ErrFull or is poisoned, closes, keeps what it
// acknowledged, and goes on when there is space again.
func TestFullDisk(t *testing.T) {
	refused, poisoned, closed := 0, 0, 0
	for limit := int64(20 << 10); limit < 200<<10; limit += underRace << 10 {
		fsys := dbtest.NewFS()
		opts := options(fsys)
		opts.SegmentBytes = 4 << 20 // preallocated in steps of 32 KiB
		l, _, _, err := open(opts)
		require.NoError(t, err)
		fsys.Limit(limit)
		acked := uint64(0)
		for err == nil {
			var seq uint64
			size := 1500
			if acked%10 == 9 {
				size = 20 << 10 // more than what is preallocated ahead
			}
			if seq, err = l.Enqueue(wal.KindCommit, false, body(l.Last()+1, size)); err == nil {
				if err = l.Sync(ctx, seq, nil); err == nil {
					acked = seq
				}
			}
		}
		switch {
		case errors.Is(err, wal.ErrFull):
			refused++
			seq, err := l.Enqueue(wal.KindCommit, true, body(l.Last()+1, 500))
			if errors.Is(err, wal.ErrFull) { // nor where it is preallocated: the log goes on, and closes cleanly
				break
			}
			require.NoError(t, err)
			require.NoError(t, l.Sync(ctx, seq, nil))
			acked = seq
		case errors.Is(err, wal.ErrPoisoned) && errors.Is(err, syscall.ENOSPC):
			poisoned++
		default:
			t.Fatal(err)
		}
		last := l.Last()
		if err := l.Close(wal.KindMark, []byte("end")); err == nil {
			closed++
		}
		fsys = fsys.CrashClone(1, 0)
		l, rec, _ := mustOpen(t, wal.Options{FS: fsys})
		require.GreaterOrEqual(t, rec.Last, acked)
		require.LessOrEqual(t, rec.Last, last+1)
		require.EqualValues(t, rec.Last+1, commit(t, l, 100))
	}
	t.Logf("refused %d, poisoned %d; closed cleanly %d", refused, poisoned, closed)
	require.NotZero(t, refused)
	require.NotZero(t, poisoned)
	require.Equal(t, refused+poisoned, closed)
}

// TestFullDiskAndFailedSync: a group that found no space is no excuse to close cleanly when the sync of the
// group before it, under way at that moment, fails.
func TestFullDiskAndFailedSync(t *testing.T) {
	mem := dbtest.NewFS()
	g := &gateFS{FS: mem}
	l, _, _ := mustOpen(t, options(g))
	put(t, l, wal.KindCommit, body(1, 10))
	g.hold()
	synced := make(chan error)
	go func() { synced <- l.Sync(ctx, 1, nil) }()
	<-g.entered
	mem.Limit(mem.Used())
	put(t, l, wal.KindCommit, make([]byte, 100<<10))
	require.ErrorIs(t, l.Write(), syscall.ENOSPC)
	mem.Inject(dbtest.Fault{Op: dbtest.OpSync})
	g.release <- struct{}{}
	require.ErrorIs(t, <-synced, wal.ErrPoisoned)
	mem.Heal()
	require.ErrorIs(t, l.Close(wal.KindMark, nil), wal.ErrPoisoned)
	_, rec, _ := mustOpen(t, options(mem.CrashClone(1, 0)))
	require.EqualValues(t, 0, rec.Last)
}

// TestFullDiskThenSpace: ErrFull goes away by itself, with the first Write after space was freed.
func TestFullDiskThenSpace(t *testing.T) {
	fsys := dbtest.NewFS()
	l, _, _ := mustOpen(t, options(fsys))
	fsys.Limit(fsys.Used())
	var err error
	for err == nil {
		var seq uint64
		if seq, err = l.Enqueue(wal.KindCommit, false, body(l.Last()+1, 5000)); err == nil {
			require.NoError(t, l.Sync(ctx, seq, nil))
		}
	}
	require.ErrorIs(t, err, wal.ErrFull)
	last := l.Last()
	require.ErrorIs(t, l.Rotate(), wal.ErrFull, "no space for a segment; the log is not poisoned")
	require.NoError(t, l.Write())
	_, err = l.Enqueue(wal.KindCommit, false, nil)
	require.ErrorIs(t, err, wal.ErrFull)
	fsys.Heal()
	require.NoError(t, l.Write())
	require.Equal(t, last+1, commit(t, l, 5000))
	require.NoError(t, l.Rotate())
	require.NoError(t, l.Close(wal.KindMark, nil))
}

// TestTrace pins the file operations: a missing or misplaced sync is a red line in the diff.
func TestTrace(t *testing.T) {
	fsys := dbtest.NewFS()
	opts := options(fsys)
	opts.SegmentBytes = 64 << 10
	out := ""
	step := func(name string) {
		out += "# " + name + "\n" + fsys.Trace() + "\n"
		fsys.ResetTrace()
	}
	l, _, _ := mustOpen(t, opts)
	step("open a fresh log")
	commit(t, l, 100)
	step("commit")
	put(t, l, wal.KindAudit, body(2, 50))
	require.NoError(t, l.Write())
	step("write an audit leaf")
	put(t, l, wal.KindCommit, body(3, 10))
	commit(t, l, 10)
	step("a group of two")
	require.NoError(t, l.Rotate())
	step("rotate")
	commit(t, l, 10)
	must(l.DropBefore(5))(t)
	step("commit, drop the first segment")
	require.NoError(t, l.Close(wal.KindMark, nil))
	step("close")
	l, _, _ = mustOpen(t, opts)
	step("open after a clean close")
	commit(t, l, 10)
	step("commit")
	l, _, _ = mustOpen(t, opts)
	step("open after a kill")
	require.NoError(t, l.Rotate())
	fsys.ResetTrace()
	mustOpen(t, opts)
	step("open after a kill behind a rotation")
	golden(t, "trace.txt", out)
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err, "run with -update to make it")
	require.Equal(t, string(want), got, "run with -update and read the diff")
}
