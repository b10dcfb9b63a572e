package wal_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/system"
	"github.com/ctxpage/ctxpage/wal"
)

func TestMain(m *testing.M) {
	dbtest.CollectLess()
	dbtest.NoLeaks(m, func() error { return goleak.Find() })
}

const dir = "db/log"

var ctx = context.Background()

var kinds = []wal.Kind{wal.KindCommit, wal.KindAudit, wal.KindMark}

// salts returns the same row to every log: the generation must tell frames apart by itself, too.
func salts() func() uint64 {
	n := uint64(0)
	return func() uint64 { n++; return n * 0x9e3779b97f4a7c15 }
}

func options(fsys wal.FS) wal.Options {
	return wal.Options{FS: fsys, Salt: salts(), GroupWait: -1, SegmentBytes: 2 << 20} // preallocated in steps of 16 KiB
}

func copied(r wal.Record) wal.Record {
	r.Body = append([]byte{}, r.Body...)
	return r
}

// open opens and returns the replayed records.
func open(opts wal.Options) (*wal.Log, wal.Recovery, []wal.Record, error) {
	var recs []wal.Record
	l, rec, err := wal.Open(ctx, dir, opts, func(r wal.Record) error {
		recs = append(recs, copied(r))
		return nil
	})
	return l, rec, recs, err
}

func mustOpen(t testing.TB, opts wal.Options) (*wal.Log, wal.Recovery, []wal.Record) {
	t.Helper()
	l, rec, recs, err := open(opts)
	require.NoError(t, err)
	return l, rec, recs
}

// body is a body that tells its number, so that a record at the wrong place is seen.
func body(seq uint64, size int) []byte {
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(seq*31 + uint64(i)*7)
	}
	return b
}

func put(t testing.TB, l *wal.Log, kind wal.Kind, b ...[]byte) uint64 {
	t.Helper()
	return must(l.Enqueue(kind, false, b...))(t)
}

func commit(t testing.TB, l *wal.Log, size int) uint64 {
	t.Helper()
	seq := put(t, l, wal.KindCommit, body(l.Last()+1, size))
	require.NoError(t, l.Sync(ctx, seq, nil))
	return seq
}

func TestRoundTrip(t *testing.T) {
	fsys := dbtest.NewFS()
	l, rec, recs := mustOpen(t, options(fsys))
	require.Equal(t, wal.Recovery{Fresh: true, First: 1, Segments: 1}, rec)
	require.Empty(t, recs)
	require.EqualValues(t, 1, l.First())
	require.EqualValues(t, 0, l.Last())

	var want []wal.Record
	for i, size := range []int{0, 1, 7, 8, 9, 4095, 4096, 4097, 1 << 20} {
		seq := uint64(i + 1)
		b, kind := body(seq, size), kinds[i%3]
		require.Equal(t, seq, put(t, l, kind, b[:size/2], nil, b[size/2:]))
		want = append(want, wal.Record{Seq: seq, Kind: kind, Body: b})
	}
	require.EqualValues(t, 0, l.Durable())
	require.NoError(t, l.Sync(ctx, 3, nil))
	require.EqualValues(t, 9, l.Durable(), "one sync for all")
	require.NoError(t, l.Close(wal.KindMark, []byte("end")))
	require.EqualValues(t, 10, l.Last())
	want = append(want, wal.Record{Seq: 10, Kind: wal.KindMark, Body: []byte("end"), Close: true, Durable: 9})

	l, rec, recs = mustOpen(t, options(fsys))
	require.Equal(t, wal.Recovery{Clean: true, First: 1, Last: 10, Segments: 1}, rec)
	for i := range want {
		recs[i].Segment, recs[i].Offset = "", 0
	}
	require.Equal(t, want, recs)
	require.EqualValues(t, 10, l.Durable())
	require.EqualValues(t, 11, commit(t, l, 100))

	_, rec, recs = mustOpen(t, options(fsys.Clone())) // killed
	require.Len(t, recs, 11)
	require.False(t, rec.Clean)
	require.True(t, rec.Rewritten)
}

func TestRefusals(t *testing.T) {
	opts := options(dbtest.NewFS())
	opts.MaxRecord = 100
	l, _, _ := mustOpen(t, opts)
	put(t, l, wal.KindCommit, make([]byte, 100))
	require.ErrorContains(t, errOf(l.Enqueue(wal.KindCommit, false, make([]byte, 50), make([]byte, 51))), "the limit is 100")
	require.ErrorContains(t, errOf(l.Enqueue('X', false, nil)), "expected kind C, A or M")
	require.ErrorContains(t, l.Sync(ctx, 2, nil), "never enqueued")
	require.NoError(t, l.Close(wal.KindMark, nil))
	require.ErrorIs(t, errOf(l.Enqueue(wal.KindCommit, false, nil)), wal.ErrClosed)
	require.NoError(t, l.Sync(ctx, 1, nil), "it is durable")
	require.ErrorIs(t, l.Write(), wal.ErrClosed)
	require.ErrorIs(t, l.Rotate(), wal.ErrClosed)
	require.ErrorIs(t, errOf(l.DropBefore(9)), wal.ErrClosed)
	require.ErrorIs(t, l.Close(wal.KindMark, nil), wal.ErrClosed)

	_, _, err := wal.Open(ctx, dir, wal.Options{MaxRecord: 2 << 30}, nil)
	require.ErrorContains(t, err, "MaxRecord")
}

func TestReadOnlyChangesNothing(t *testing.T) {
	fsys := dbtest.NewFS()
	opts := options(fsys)
	opts.ReadOnly = true
	_, rec, _ := mustOpen(t, opts)
	require.True(t, rec.Fresh, "a missing directory is an empty log")
	require.Empty(t, fsys.Trace())
	opts.MustExist = true
	for _, opts.ReadOnly = range []bool{false, true} {
		_, _, err := wal.Open(ctx, dir, opts, nil)
		require.ErrorIs(t, err, fs.ErrNotExist)
	}
	require.Empty(t, fsys.Trace(), "none is made where one must be")

	w, _, _ := mustOpen(t, options(fsys))
	commit(t, w, 10)
	put(t, w, wal.KindAudit, body(2, 10))
	require.NoError(t, w.Write())
	fsys.ResetTrace()
	l, rec, recs := mustOpen(t, opts)
	require.Len(t, recs, 2)
	require.False(t, rec.Clean)
	require.EqualValues(t, 2, l.Last())
	require.ErrorContains(t, errOf(l.Enqueue(wal.KindCommit, false, nil)), "open read-only")
	require.ErrorContains(t, l.Rotate(), "open read-only")
	require.NoError(t, l.Close(wal.KindMark, nil))
	require.Empty(t, fsys.Trace())
}

func TestRotateAndDrop(t *testing.T) {
	fsys := dbtest.NewFS()
	opts := options(fsys)
	opts.SegmentBytes = 4 << 10
	l, _, _ := mustOpen(t, opts)
	require.NoError(t, l.Rotate(), "an empty segment stays")
	for range 40 {
		commit(t, l, 500)
	}
	names := must(fsys.ReadDir(dir))(t)
	require.Len(t, names, 6, "eight records a segment")
	require.Equal(t, "00000000000000000001-00000001.wal", names[0])
	size := l.Size()

	for _, c := range []struct {
		before uint64
		gone   int
		first  uint64
	}{{0, 0, 1}, {8, 0, 1}, {9, 1, 9}, {30, 2, 25}, {99, 2, 41}} {
		n := must(l.DropBefore(c.before))(t)
		require.Equal(t, c.gone, n, "before %d", c.before)
		require.Equal(t, c.first, l.First())
	}
	require.Less(t, l.Size(), size/4)
	require.EqualValues(t, 40, l.Last())

	k, rec, recs := mustOpen(t, wal.Options{FS: fsys.Clone(), Salt: salts()})
	require.Empty(t, recs)
	require.Equal(t, wal.Recovery{First: 41, Last: 40, Segments: 1, Rewritten: true}, rec)
	require.EqualValues(t, 41, k.First())
	require.EqualValues(t, 41, commit(t, k, 5))

	require.NoError(t, l.Close(wal.KindMark, nil))
	_, rec, recs = mustOpen(t, opts)
	require.Len(t, recs, 1)
	require.True(t, rec.Clean)
}

func TestReplayErrorIsReturnedAndNothingChanges(t *testing.T) {
	fsys := dbtest.NewFS()
	l, _, _ := mustOpen(t, options(fsys))
	commit(t, l, 10)
	fsys.ResetTrace()
	boom := errors.New("boom")
	_, _, err := wal.Open(ctx, dir, options(fsys), func(wal.Record) error { return boom })
	require.ErrorIs(t, err, boom)
	require.ErrorIs(t, errOf(wal.Scan(ctx, dir, fsys, func(wal.Record) error { return boom })), boom)
	require.Empty(t, fsys.Trace())
}

// TestWriters: what many goroutines committed at once is there, in order, once, and OnDurable saw
// it grow before any of them was answered.
func TestWriters(t *testing.T) {
	for _, writers := range []int{2, 8, 64} {
		t.Run(fmt.Sprint(writers), func(t *testing.T) {
			fsys := dbtest.NewFS()
			var mu sync.Mutex
			installed := uint64(0)
			opts := wal.Options{FS: fsys, SegmentBytes: 32 << 10, OnDurable: func(seq uint64) {
				mu.Lock()
				defer mu.Unlock()
				if seq <= installed {
					t.Errorf("OnDurable(%d) after %d", seq, installed)
				}
				installed = seq
			}}
			l, _, _ := mustOpen(t, opts)
			want := make([]uint64, writers*1000/writers+1)
			var wg sync.WaitGroup
			for w := range writers {
				wg.Go(func() {
					for i := range 1000 / writers {
						seq, err := l.Enqueue(wal.KindCommit, false, binary.LittleEndian.AppendUint64(nil, uint64(w)), make([]byte, i%300))
						if err == nil && i%5 == 4 {
							err = l.Write()
						}
						if err == nil && i%3 != 2 {
							err = l.Sync(ctx, seq, nil)
							mu.Lock()
							if installed < seq {
								t.Errorf("%d was answered, but OnDurable saw only %d", seq, installed)
							}
							mu.Unlock()
						}
						if err != nil {
							t.Error(err)
						}
						mu.Lock()
						want[seq] = uint64(w)
						mu.Unlock()
					}
				})
			}
			wg.Wait()
			require.NoError(t, l.Close(wal.KindMark, nil))
			_, rec, recs := mustOpen(t, wal.Options{FS: fsys})
			require.True(t, rec.Clean)
			require.Len(t, recs, int(l.Last()))
			for i, r := range recs[:len(recs)-1] {
				require.EqualValues(t, i+1, r.Seq)
				require.Equal(t, want[r.Seq], binary.LittleEndian.Uint64(r.Body))
			}
		})
	}
}

// gateFS lets a test hold syncs.
type gateFS struct {
	wal.FS
	mu      sync.Mutex
	entered chan struct{} // nil: syncs pass
	release chan struct{}
}

type gateFile struct {
	wal.File
	fs *gateFS
}

func (g *gateFS) OpenFile(name string, flag int, perm os.FileMode) (wal.File, error) {
	f, err := g.FS.OpenFile(name, flag, perm)
	return gateFile{f, g}, err
}

func (f gateFile) Sync() error {
	f.fs.mu.Lock()
	entered, release := f.fs.entered, f.fs.release
	f.fs.mu.Unlock()
	if entered != nil {
		entered <- struct{}{}
		<-release
	}
	return f.File.Sync()
}

func (g *gateFS) hold() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.entered, g.release = make(chan struct{}), make(chan struct{})
}

func TestWriteAndEnqueueDoNotWaitForARunningSync(t *testing.T) {
	mem := dbtest.NewFS()
	g := &gateFS{FS: mem}
	l, _, _ := mustOpen(t, options(g))
	g.hold()
	put(t, l, wal.KindCommit, body(1, 10))
	synced := make(chan error)
	go func() { synced <- l.Sync(ctx, 1, nil) }()
	<-g.entered

	put(t, l, wal.KindAudit, body(2, 10))
	require.NoError(t, l.Write())
	_, _, recs := mustOpen(t, options(mem.Clone()))
	require.Len(t, recs, 2, "both survive a kill now")

	short, cancel := context.WithCancel(ctx)
	waiting := make(chan error)
	go func() { waiting <- l.Sync(short, 2, nil) }()
	member := make(chan error)
	go func() { member <- l.Sync(short, 1, nil) }()
	cancel()
	require.ErrorIs(t, <-waiting, context.Canceled)
	require.ErrorIs(t, <-member, context.Canceled)
	require.EqualValues(t, 0, l.Durable())

	g.release <- struct{}{}
	require.NoError(t, <-synced)
	require.EqualValues(t, 1, l.Durable(), "the second was not part of that round")
	go func() { synced <- l.Sync(ctx, 2, nil) }()
	<-g.entered
	g.release <- struct{}{}
	require.NoError(t, <-synced)
}

func TestSyncWithAnEndedContextStartsNothing(t *testing.T) {
	fsys := dbtest.NewFS()
	l, _, _ := mustOpen(t, options(fsys))
	seq := put(t, l, wal.KindCommit, nil)
	fsys.ResetTrace()
	ended, cancel := context.WithCancel(ctx)
	cancel()
	require.ErrorIs(t, l.Sync(ended, seq, nil), context.Canceled)
	require.Empty(t, fsys.Trace())
	require.NoError(t, l.Sync(ctx, seq, nil))
	require.NoError(t, l.Sync(ended, seq, nil), "durable already")
}

// TestOneSyncForAll: those who come while a sync runs share the next one.
func TestOneSyncForAll(t *testing.T) {
	g := &gateFS{FS: dbtest.NewFS()}
	l, _, _ := mustOpen(t, options(g))
	g.hold()
	put(t, l, wal.KindCommit, nil)
	answers := make(chan error, 65)
	go func() { answers <- l.Sync(ctx, 1, nil) }()
	<-g.entered
	for range 64 {
		seq := put(t, l, wal.KindCommit, nil)
		go func() { answers <- l.Sync(ctx, seq, nil) }()
	}
	g.release <- struct{}{}
	<-g.entered
	g.release <- struct{}{}
	for range 65 {
		require.NoError(t, <-answers) // a third sync would find nobody to release it
	}
}

// TestReportBesideSync: the disk works for the next round while OnDurable hears of the one before, which is answered
// whatever becomes of the next; who heard from OnDurable itself need not wait for its end.
func TestReportBesideSync(t *testing.T) {
	for _, fail := range []bool{false, true} {
		t.Run(fmt.Sprint("fail=", fail), func(t *testing.T) {
			mem := dbtest.NewFS()
			g := &gateFS{FS: mem}
			reports, proceed := make(chan uint64), make(chan struct{})
			opts := options(g)
			opts.OnDurable = func(seq uint64) {
				reports <- seq
				<-proceed
			}
			l, _, _ := mustOpen(t, opts)
			g.hold()
			first, second, heard := make(chan error), make(chan error), make(chan error)
			put(t, l, wal.KindCommit, body(1, 10))
			go func() { first <- l.Sync(ctx, 1, nil) }()
			<-g.entered
			g.release <- struct{}{}
			require.EqualValues(t, 1, <-reports)

			put(t, l, wal.KindCommit, body(2, 10))
			go func() { second <- l.Sync(ctx, 2, nil) }()
			<-g.entered
			require.Zero(t, l.Durable(), "it is being reported")
			word := make(chan struct{})
			go func() { heard <- l.Sync(ctx, 1, word) }()
			close(word)
			require.NoError(t, <-heard)

			if fail {
				mem.Inject(dbtest.Fault{N: 1})
			}
			g.release <- struct{}{}
			proceed <- struct{}{}
			require.NoError(t, <-first)
			if fail {
				require.ErrorIs(t, <-second, wal.ErrPoisoned)
				require.NoError(t, l.Sync(ctx, 1, nil))
				require.EqualValues(t, 1, l.Durable())
				return
			}
			require.EqualValues(t, 2, <-reports)
			proceed <- struct{}{}
			require.NoError(t, <-second)
		})
	}
}

// TestScanBesideAWriter: a scan sees a gapless prefix that holds what was durable when it began, while
// the writer writes, rotates and drops.
func TestScanBesideAWriter(t *testing.T) {
	fsys := dbtest.NewFS()
	opts := options(fsys)
	opts.SegmentBytes = 8 << 10
	l, _, _ := mustOpen(t, opts)
	rng := rand.New(rand.NewPCG(1, 2))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			seq, err := l.Enqueue(wal.KindCommit, false, body(l.Last()+1, rng.IntN(600)))
			if err == nil && rng.IntN(2) == 0 {
				err = l.Write()
			} else if err == nil {
				err = l.Sync(ctx, seq, nil)
			}
			if err == nil && rng.IntN(50) == 0 && seq > 200 {
				_, err = l.DropBefore(seq - 200)
			}
			if err != nil {
				t.Error(err)
				return
			}
		}
	})
	for scans := 0; scans < 200 || l.Durable() < 2000; scans++ {
		durable, next := l.Durable(), uint64(0)
		rec := must(wal.Scan(ctx, dir, fsys, func(r wal.Record) error {
			if next != 0 && r.Seq != next {
				return fmt.Errorf("expected record %d, got %d", next, r.Seq)
			}
			next = r.Seq + 1
			require.Equal(t, body(r.Seq, len(r.Body)), r.Body)
			return nil
		}))(t)
		require.GreaterOrEqual(t, rec.Last, durable)
	}
	close(stop)
	wg.Wait()
	require.NoError(t, l.Close(wal.KindMark, nil))
	rec := must(wal.Scan(ctx, dir, fsys, nil))(t)
	require.True(t, rec.Clean)
	require.Equal(t, l.First(), rec.First)
}

func TestScanOfNothing(t *testing.T) {
	rec := must(wal.Scan(ctx, dir, dbtest.NewFS(), nil))(t)
	require.True(t, rec.Fresh)
}

func TestContextEndsReading(t *testing.T) {
	fsys := dbtest.NewFS()
	l, _, _ := mustOpen(t, options(fsys))
	commit(t, l, 10)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	require.ErrorIs(t, errOf(wal.Scan(ended, dir, fsys, func(wal.Record) error { return nil })), context.Canceled)
	_, _, err := wal.Open(ended, dir, options(fsys), func(wal.Record) error { return nil })
	require.ErrorIs(t, err, context.Canceled)
}

// TestOnTheOperatingSystem runs the log on real files: modes, links, leftovers.
func TestOnTheOperatingSystem(t *testing.T) {
	root := filepath.Join(t.TempDir(), "a", "log")
	none := func(wal.Record) error { return nil }
	l, rec, err := wal.Open(ctx, root, wal.Options{SegmentBytes: 8 << 10}, none)
	require.NoError(t, err)
	require.True(t, rec.Fresh)
	for range 30 {
		commit(t, l, 1000)
	}
	st := must(os.Stat(root))(t)
	require.True(t, !system.Modes || st.Mode().Perm() == 0o700, st.Mode())
	names := must(wal.OS().ReadDir(root))(t)
	for _, n := range names {
		st := must(os.Stat(filepath.Join(root, n)))(t)
		require.True(t, !system.Modes || st.Mode().Perm() == 0o600, st.Mode())
	}
	must(l.DropBefore(20))(t)
	require.NoError(t, os.WriteFile(filepath.Join(root, names[len(names)-1]+".tmp"), []byte("left by a crash"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(root, "note.txt"), []byte("not ours"), 0o600))

	k, rec, err := wal.Open(ctx, root, wal.Options{}, none) // as if the first had been killed
	require.NoError(t, err)
	require.True(t, rec.Rewritten)
	require.EqualValues(t, 30, rec.Last)
	require.NoError(t, k.Close(wal.KindMark, nil))
	rec = must(wal.Scan(ctx, root, nil, none))(t)
	require.True(t, rec.Clean)
	left := must(wal.OS().ReadDir(root))(t)
	require.Len(t, left, rec.Segments+1)

	tail := filepath.Join(root, left[len(left)-2])
	require.NoError(t, os.Rename(tail, tail+".moved"))
	require.NoError(t, os.Symlink(tail+".moved", tail))
	_, _, err = wal.Open(ctx, root, wal.Options{}, none)
	require.Error(t, err, "no symbolic link is followed")
	require.NoError(t, os.Remove(tail))
	require.NoError(t, os.Link(tail+".moved", tail))
	_, _, err = wal.Open(ctx, root, wal.Options{}, none)
	require.ErrorContains(t, err, "2 names")
	require.NoError(t, l.Close(wal.KindMark, nil))
}

// Where the clock stands still while anybody runs, as in a synctest bubble, a group is not waited for without end.
func TestGroupWaitOnAStandingClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gateFS{FS: dbtest.NewFS()}
		opts := options(g)
		opts.GroupWait = time.Second
		l, _, _ := mustOpen(t, opts)
		g.hold()
		answers := make(chan error, 3)
		write := func() {
			seq := put(t, l, wal.KindCommit, nil)
			go func() { answers <- l.Sync(ctx, seq, nil) }()
		}
		for range 200 { // the second round waits only when it begins behind the report of the first
			write()
			<-g.entered
			write()
			write()
			synctest.Wait()
			g.release <- struct{}{}
			<-g.entered // its leader has seen three, and only two come
			g.release <- struct{}{}
			for range 3 {
				require.NoError(t, <-answers)
			}
		}
		require.NoError(t, l.Abandon())
	})
}

// endingContext ends when it was asked so many times.
type endingContext struct {
	context.Context
	left int
}

func (c *endingContext) Err() error {
	if c.left--; c.left <= 0 {
		return context.Canceled
	}
	return nil
}

// Whenever the context ends, also between two looks at it, a Sync that gives no error has made its record durable.
func TestSyncContextEndsWhile(t *testing.T) {
	canceled := 0
	for n := 1; ; n++ {
		l, _, _ := mustOpen(t, options(dbtest.NewFS()))
		seq := put(t, l, wal.KindCommit, body(1, 100))
		err := l.Sync(&endingContext{ctx, n}, seq, nil)
		if err == nil {
			require.Equal(t, seq, l.Durable(), "asked %d times", n)
		} else {
			require.ErrorIs(t, err, context.Canceled)
			canceled++
		}
		require.NoError(t, l.Abandon())
		if err == nil {
			break
		}
	}
	require.Positive(t, canceled)
}
