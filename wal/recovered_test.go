package wal_test

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/wal"
	"github.com/stretchr/testify/require"
)

// A log that was opened after a clean Close and then torn is not clean; nor is it when whoever found that out was killed
// before he wrote anything.
func TestUncleanStaysUnclean(t *testing.T) {
	s := makeSample(t, 4<<10, true)
	s.fs.WriteFile(s.path, append(append([]byte{}, s.data...), "torn"...))
	for range 3 {
		l, rec, _, err := open(wal.Options{FS: s.fs, Salt: salts(), GroupWait: -1})
		require.NoError(t, err)
		require.False(t, rec.Clean)
		require.NoError(t, l.Abandon())
	}
	l, _, _, err := open(wal.Options{FS: s.fs, Salt: salts(), GroupWait: -1})
	require.NoError(t, err)
	require.NoError(t, l.Close(wal.KindMark, nil))
	l, rec, _, err := open(wal.Options{FS: s.fs, Salt: salts(), GroupWait: -1})
	require.NoError(t, err)
	require.True(t, rec.Clean)
	require.NoError(t, l.Close(wal.KindMark, nil))
}

// ScanIntact gives all records but those that were damaged, and tells exactly which these are.
func TestScanIntact(t *testing.T) {
	s := makeSample(t, 16<<10, false)
	for i := range s.recs {
		if i%3 > 0 && i+1 < len(s.recs) {
			continue
		}
		bad := append([]byte{}, s.data...)
		bad[s.recs[i].Offset+20] ^= 1
		if i > 3 { // and a second hole
			bad[s.recs[1].Offset+41] ^= 1
		}
		s.fs.WriteFile(s.path, bad)
		var got []uint64
		_, holes, err := wal.ScanIntact(ctx, dir, s.fs, func(r wal.Record) error {
			require.Equal(t, s.recs[r.Seq-1].Body, r.Body)
			got = append(got, r.Seq)
			return nil
		})
		require.NoError(t, err)
		lost := map[uint64]bool{}
		for _, h := range holes {
			for n := h.From; n <= max(h.From, h.To); n++ {
				lost[n] = true
			}
			require.Equal(t, h.To == 0, h.Torn)
			require.Equal(t, int(h.From) == len(s.recs), h.Torn)
			var damage *codec.CorruptError
			require.ErrorAs(t, h.Err, &damage)
		}
		require.True(t, lost[s.recs[i].Seq], "record %d", i+1)
		require.Len(t, lost, len(s.recs)-len(got))
		for _, n := range got {
			require.False(t, lost[n])
		}
	}
	s.fs.WriteFile(s.path, s.data)
	n := 0
	_, holes, err := wal.ScanIntact(ctx, dir, s.fs, func(wal.Record) error { n++; return nil })
	require.NoError(t, err)
	require.Empty(t, holes)
	require.Equal(t, len(s.recs), n)
}

// Of several segments one is gone and one has no header: the others are read.
func TestScanIntactSegments(t *testing.T) {
	fs := dbtest.NewFS()
	l, _, _ := mustOpen(t, options(fs))
	for range 5 {
		for range 4 {
			commit(t, l, 100)
		}
		require.NoError(t, l.Rotate())
	}
	commit(t, l, 100)
	names := must(fs.ReadDir(dir))(t)
	require.Len(t, names, 6)
	fs.RemoveFile(filepath.Join(dir, names[1]))
	fs.WriteFile(filepath.Join(dir, names[3]), []byte("nothing of a header"))
	var got []uint64
	_, holes, err := wal.ScanIntact(ctx, dir, fs, func(r wal.Record) error { got = append(got, r.Seq); return nil })
	require.NoError(t, err)
	require.Equal(t, []uint64{1, 2, 3, 4, 9, 10, 11, 12, 17, 18, 19, 20, 21}, got)
	require.Len(t, holes, 2)
	require.Equal(t, []uint64{5, 8, 13, 16}, []uint64{holes[0].From, holes[0].To, holes[1].From, holes[1].To})
}

// A segment that was shortened ends its hole where the next one begins: that tells which records are missing.
func TestScanIntactShortened(t *testing.T) {
	fs := dbtest.NewFS()
	l, _, _ := mustOpen(t, options(fs))
	for range 3 {
		for range 4 {
			commit(t, l, 100)
		}
		require.NoError(t, l.Rotate())
	}
	commit(t, l, 100)
	at := map[uint64]wal.Record{}
	_, _, err := wal.ScanIntact(ctx, dir, fs, func(r wal.Record) error { at[r.Seq] = r; return nil })
	require.NoError(t, err)
	whole := must(fs.ReadFile(at[6].Segment))(t)
	for _, cut := range []struct {
		at   int64
		from uint64
	}{{0, 5}, {10, 5}, {at[5].Offset, 5}, {at[6].Offset, 6}, {at[6].Offset + 20, 6}, {at[8].Offset + 41, 8}} {
		fs.WriteFile(at[6].Segment, whole[:cut.at])
		n := uint64(0)
		_, holes, err := wal.ScanIntact(ctx, dir, fs, func(wal.Record) error { n++; return nil })
		require.NoError(t, err)
		require.Len(t, holes, 1)
		require.Equal(t, []uint64{cut.from, 8}, []uint64{holes[0].From, holes[0].To}, "cut at %d", cut.at)
		require.False(t, holes[0].Torn)
		require.Equal(t, 13-(8-cut.from+1), n)
	}
}

// A log that goes on in a segment that is gone has a hole at its end.
func TestScanIntactNoEnd(t *testing.T) {
	fs := dbtest.NewFS()
	l, _, _ := mustOpen(t, options(fs))
	commit(t, l, 100)
	require.NoError(t, l.Rotate())
	names := must(fs.ReadDir(dir))(t)
	_, holes, err := wal.ScanIntact(ctx, dir, fs, nopRecord)
	require.NoError(t, err)
	require.Empty(t, holes)
	fs.RemoveFile(filepath.Join(dir, names[1]))
	_, holes, err = wal.ScanIntact(ctx, dir, fs, nopRecord)
	require.NoError(t, err)
	require.Len(t, holes, 1)
	require.Equal(t, uint64(2), holes[0].From)
	require.Zero(t, holes[0].To)
	require.False(t, holes[0].Torn)
}

func nopRecord(wal.Record) error { return nil }

// A crash inside a rotation leaves a segment without a seal before an empty one. What Open reads then is read, and
// nothing but a torn end is told.
func TestScanIntactRotation(t *testing.T) {
	build := func(n int) (*dbtest.FS, int, error) {
		fs := dbtest.NewFS()
		l, _, _ := mustOpen(t, options(fs))
		commit(t, l, 100)
		put(t, l, wal.KindAudit, body(2, 500)) // not synced by anybody but the rotation
		before := fs.Ops()
		if n > 0 {
			fs.Inject(dbtest.Fault{N: n, Err: dbtest.ErrCrashed, Sticky: true, Short: n * 9})
		}
		err := l.Rotate()
		ops := fs.Ops() - before
		_ = l.Abandon()
		return fs, ops, err
	}
	_, ops, err := build(0)
	require.NoError(t, err)
	require.Greater(t, ops, 5)
	unsealed := 0
	for n := 1; n <= ops; n++ {
		for _, keep := range []int{0, 50, 100} {
			fs, _, err := build(n)
			require.Error(t, err)
			fs = fs.CrashClone(uint64(n), keep)
			var got, want []uint64
			_, holes, err := wal.ScanIntact(ctx, dir, fs, func(r wal.Record) error { got = append(got, r.Seq); return nil })
			require.NoError(t, err)
			for _, h := range holes {
				require.True(t, h.Torn, "operation %d, %d %% kept: %v", n, keep, h.Err)
			}
			names := must(fs.ReadDir(dir))(t)
			if len(names) > 1 && filepath.Ext(names[1]) == ".wal" {
				unsealed++
			}
			l, _, recs, err := open(options(fs))
			require.NoError(t, err)
			for _, r := range recs {
				want = append(want, r.Seq)
			}
			require.Equal(t, want, got, "operation %d, %d %% kept", n, keep)
			require.NoError(t, l.Abandon())
		}
	}
	require.Positive(t, unsealed, "no crash left a second segment behind")
}

// The control: an unsealed segment before one that holds records, or may, has lost its end.
func TestScanIntactUnsealed(t *testing.T) {
	for _, last := range []string{"a record", "no header"} {
		fs := dbtest.NewFS()
		l, _, _ := mustOpen(t, options(fs))
		commit(t, l, 100)
		names := must(fs.ReadDir(dir))(t)
		first := must(fs.ReadFile(filepath.Join(dir, names[0])))(t)
		require.NoError(t, l.Rotate())
		if last == "a record" {
			commit(t, l, 100)
		}
		require.NoError(t, l.Abandon())
		fs.WriteFile(filepath.Join(dir, names[0]), first) // without its seal
		names = must(fs.ReadDir(dir))(t)
		require.Len(t, names, 2)
		if last != "a record" {
			fs.WriteFile(filepath.Join(dir, names[1]), []byte("nothing of a header"))
		}
		require.Error(t, errOf(wal.Scan(ctx, dir, fs, nil)))
		_, holes, err := wal.ScanIntact(ctx, dir, fs, nopRecord)
		require.NoError(t, err)
		require.NotEmpty(t, holes, last)
		require.False(t, holes[0].Torn, last)
	}
}

// A file with a strange name is told, and the segments beside it are read.
func TestScanIntactStrangeNames(t *testing.T) {
	fs := dbtest.NewFS()
	l, _, _ := mustOpen(t, options(fs))
	commit(t, l, 100)
	names := must(fs.ReadDir(dir))(t)
	first := must(fs.ReadFile(filepath.Join(dir, names[0])))(t)
	strange := []string{"00000000000000000000-00000001.wal", "copy of " + names[0], "x.wal"}
	for _, name := range strange {
		fs.WriteFile(filepath.Join(dir, name), first)
	}
	fs.WriteFile(filepath.Join(dir, names[0]+".bak"), first) // no name of ours
	_, err := wal.Scan(ctx, dir, fs, nil)
	var damage *codec.CorruptError
	require.ErrorAs(t, err, &damage, "who opens it is told, too")
	n := 0
	_, holes, err := wal.ScanIntact(ctx, dir, fs, func(wal.Record) error { n++; return nil })
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Len(t, holes, len(strange))
	for i, h := range holes {
		require.Zero(t, h.From)
		require.ErrorAs(t, h.Err, &damage)
		require.Equal(t, filepath.Join(dir, strange[i]), damage.File)
	}
	fs.RemoveFile(filepath.Join(dir, names[0]))
	for _, name := range strange {
		fs.RemoveFile(filepath.Join(dir, name))
	}
	_, holes, err = wal.ScanIntact(ctx, dir, fs, nopRecord)
	require.NoError(t, err)
	require.Len(t, holes, 1)
	require.ErrorIs(t, holes[0].Err, os.ErrNotExist)
}

// A segment that somebody made a terabyte long, all of it a hole, is read like any other.
func TestSparseSegment(t *testing.T) {
	dbtest.NeedsPosix(t, "holes in a file that nobody declared sparse")
	dir := filepath.Join(t.TempDir(), "log")
	l, _, err := wal.Open(ctx, dir, wal.Options{}, nil)
	require.NoError(t, err)
	seq := commit(t, l, 100)
	require.NoError(t, l.Abandon())
	names := must(filepath.Glob(filepath.Join(dir, "*.wal")))(t)
	require.NoError(t, os.Truncate(names[0], 1<<40))
	bound := time.AfterFunc(time.Minute, func() { panic("the hole is read as if it were data") })
	defer bound.Stop()
	f := must(os.OpenFile(names[0], os.O_WRONLY, 0))(t)
	must(f.WriteAt([]byte("torn"), header+40+104))(t)
	require.NoError(t, f.Close())
	n := 0
	_, holes, err := wal.ScanIntact(ctx, dir, nil, func(wal.Record) error { n++; return nil })
	require.NoError(t, err)
	require.Len(t, holes, 1)
	require.True(t, holes[0].Torn)
	require.Equal(t, int(seq), n)
	rec := must(wal.Scan(ctx, dir, nil, nil))(t)
	require.Equal(t, seq, rec.Last)
	l, rec, err = wal.Open(ctx, dir, wal.Options{}, nil)
	require.NoError(t, err)
	require.Equal(t, seq, rec.Last)
	require.NoError(t, l.Close(wal.KindMark, nil))
}

// slowFS syncs as slowly as a disk, so that reports run beside syncs.
type slowFS struct{ wal.FS }

type slowFile struct{ wal.File }

func (s slowFS) OpenFile(name string, flag int, perm os.FileMode) (wal.File, error) {
	f, err := s.FS.OpenFile(name, flag, perm)
	return slowFile{f}, err
}

func (f slowFile) Sync() error {
	time.Sleep(time.Duration(rand.IntN(150)) * time.Microsecond)
	return f.File.Sync()
}

// TestPairsFail: many writers, some impatient; the disk fails at some operation, or the log is closed or abandoned, or
// rotated, while one round syncs and the one before is reported. Whoever is answered is reported and survives a power
// cut; nobody waits forever.
func TestPairsFail(t *testing.T) {
	failed, ended := 0, 0
	for seed := range uint64(32) {
		rng := rand.New(rand.NewPCG(seed, 1))
		mem := dbtest.NewFS()
		var reported, inside atomic.Uint64
		opts := wal.Options{FS: slowFS{mem}, Salt: salts(), SegmentBytes: 8 << 10, OnDurable: func(seq uint64) {
			if inside.Add(1) != 1 || seq <= reported.Load() {
				t.Errorf("report of %d after %d", seq, reported.Load())
			}
			time.Sleep(time.Duration(rand.IntN(150)) * time.Microsecond)
			reported.Store(seq)
			inside.Add(^uint64(0))
		}}
		l, _, _, err := open(opts)
		require.NoError(t, err)
		if seed%4 < 2 {
			op := dbtest.OpSync
			if seed%2 == 1 {
				op = dbtest.OpWrite
			}
			mem.Inject(dbtest.Fault{Op: op, N: 5 + rng.IntN(60)})
		}
		var mu sync.Mutex
		acked := uint64(0)
		stop := make(chan struct{})
		var wg sync.WaitGroup
		var bad atomic.Bool
		for w := range 8 {
			wg.Go(func() {
				for i := range 40 {
					select {
					case <-stop:
						return
					default:
					}
					seq, err := l.Enqueue(wal.KindCommit, false, binary.LittleEndian.AppendUint64(nil, uint64(w)), make([]byte, i*5))
					if err != nil {
						bad.Store(true)
						return
					}
					ctx, cancel := context.Background(), func() {}
					if (w+i)%7 == 0 {
						ctx, cancel = context.WithTimeout(ctx, time.Duration(rand.IntN(200))*time.Microsecond)
					}
					if (w+i)%5 == 0 {
						_ = l.Write()
					}
					err = l.Sync(ctx, seq, nil)
					cancel()
					switch {
					case err == nil:
						if reported.Load() < seq {
							t.Errorf("%d was answered and not reported", seq)
						}
						mu.Lock()
						acked = max(acked, seq)
						mu.Unlock()
					case errors.Is(err, context.DeadlineExceeded):
					default:
						bad.Store(true)
						return
					}
				}
			})
		}
		wg.Go(func() {
			time.Sleep(time.Duration(rng.IntN(8000)) * time.Microsecond)
			switch seed % 4 {
			case 2:
				_ = l.Close(wal.KindMark, nil)
			case 3:
				_ = l.Abandon()
			default:
				_ = l.Rotate()
			}
		})
		done := make(chan struct{})
		go func() { wg.Wait(); close(done) }()
		select {
		case <-done:
		case <-time.After(time.Minute):
			panic("somebody waits for ever")
		}
		if bad.Load() {
			if seed%4 < 2 {
				failed++
			} else {
				ended++
			}
		}
		after := mem.CrashClone(seed, 0)
		_ = l.Abandon()
		_, rec, _, err := open(wal.Options{FS: after, Salt: salts()})
		require.NoError(t, err, "seed %d", seed)
		require.GreaterOrEqual(t, rec.Last, acked, "seed %d", seed)
	}
	t.Log(failed, ended)
	require.Positive(t, failed)
	require.Positive(t, ended)
}
