package wal_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/wal"
	"github.com/stretchr/testify/require"
)

// killed is a log of a killed process, synced to its end: small commits, a group larger than a step of preallocation, leaves
// that no commit follows. With rotated, an empty segment follows it.
func killed(t *testing.T, rotated bool) (fsys *dbtest.FS, recs []wal.Record) {
	t.Helper()
	fsys = dbtest.NewFS()
	opts := options(fsys)
	opts.SegmentBytes = 512 << 10 // preallocated in steps of 4 KiB
	l, _, _ := mustOpen(t, opts)
	for i := range 20 {
		commit(t, l, 100+i*17)
	}
	commit(t, l, 10<<10)
	for range 9 {
		put(t, l, wal.KindAudit, body(l.Last()+1, 90))
		require.NoError(t, l.Write())
	}
	require.NoError(t, l.Sync(ctx, l.Last(), nil))
	if rotated {
		require.NoError(t, l.Rotate())
		commit(t, l, 100)
	}
	fsys = fsys.Killed()
	must(wal.Scan(ctx, dir, fsys, func(r wal.Record) error { recs = append(recs, copied(r)); return nil }))(t)
	return fsys, recs
}

// TestCutIsTold: a segment of a killed process that was cut anywhere is damage, and the record that is missing first is named.
// Salvage has the records before it. The control has zeros from there on, as after a power cut before a sync: it opens.
func TestCutIsTold(t *testing.T) {
	for _, rotated := range []bool{false, true} {
		fsys, recs := killed(t, rotated)
		names := must(fsys.ReadDir(dir))(t)
		name := filepath.Join(dir, names[len(names)-1])
		whole := must(fsys.ReadFile(name))(t)
		places := []int64{0, 8, 63, 64, 79, header, int64(len(whole)) / 2, int64(len(whole)) - 1}
		for _, r := range recs {
			if r.Segment != name {
				continue
			}
			end := r.Offset + int64(40+len(r.Body))
			places = append(places, r.Offset, r.Offset+1, r.Offset+39, r.Offset+40, end-1, end, (end+7)&^7)
		}
		for _, off := range places {
			left := 0
			for left < len(recs) && (recs[left].Segment != name || recs[left].Offset+int64(40+len(recs[left].Body)+7)&^7 <= off) {
				left++
			}
			c := fsys.Clone()
			c.WriteFile(name, whole[:off])
			var damage *codec.CorruptError
			_, _, _, err := open(options(c))
			require.ErrorAs(t, err, &damage, "cut at %d", off)
			require.Equal(t, name, damage.File)
			require.Empty(t, c.Trace(), "nothing was changed")
			_, err = wal.Scan(ctx, dir, c, nil)
			require.ErrorAs(t, err, &damage)
			if off >= header {
				require.ErrorContains(t, err, "it was cut")
				require.EqualValues(t, left+1, damage.Num)
			}
			kept := 0
			_, holes, err := wal.ScanIntact(ctx, dir, c, func(r wal.Record) error {
				require.Equal(t, recs[kept].Body, r.Body)
				kept++
				return nil
			})
			require.NoError(t, err)
			require.Equal(t, left, kept)
			require.Len(t, holes, 1)
			require.False(t, holes[0].Torn)
			require.EqualValues(t, left+1, holes[0].From)

			if off < header || rotated {
				continue
			}
			zeroed := append(append([]byte(nil), whole[:off]...), make([]byte, len(whole)-int(off))...)
			c.WriteFile(name, zeroed)
			_, _, again := mustOpen(t, options(c))
			require.InDelta(t, left, len(again), 1, "the control, zeros from %d on: where only padding was lost, a record more", off)
		}
	}
}

// TestCutEmptySegment: the last segment lost all its records, so it looks like one that a rotation had just made.
func TestCutEmptySegment(t *testing.T) {
	fsys, recs := killed(t, true)
	name := recs[len(recs)-1].Segment
	whole := must(fsys.ReadFile(name))(t)
	fsys.WriteFile(name, whole[:header])
	_, _, _, err := open(options(fsys))
	require.ErrorContains(t, err, "it was cut")
	fsys.WriteFile(name, append(whole[:header:header], make([]byte, len(whole)-header)...))
	mustOpen(t, options(fsys)) // the control: as a power cut behind the rotation leaves it
}

// TestCutOfZeros: a log that was closed has all its records, whoever took the zeros behind them.
func TestCutOfZeros(t *testing.T) {
	s := makeSample(t, 4<<10, true)
	whole := must(s.fs.ReadFile(s.path))(t)
	require.Greater(t, len(whole), len(s.data))
	s.fs.WriteFile(s.path, whole[:len(s.data)])
	l, rec, _ := mustOpen(t, options(s.fs))
	require.True(t, rec.Clean)
	commit(t, l, 100)
	mustOpen(t, options(s.fs.Killed()))
}

// TestCrashWhileShorter: no crash within Shrink, Rotate or Close, nor after it, leaves a log that looks cut.
func TestCrashWhileShorter(t *testing.T) {
	for what, end := range map[string]func(*wal.Log) error{
		"shrink": func(l *wal.Log) error { return l.Shrink(64) },
		"rotate": func(l *wal.Log) error { return l.Rotate() },
		"close":  func(l *wal.Log) error { return l.Close(wal.KindMark, nil) },
		"regrow": func(l *wal.Log) error {
			err := errors.Join(l.Shrink(64), l.Write())
			for n := 0; n < 60 && err == nil; n++ {
				if _, err = l.Enqueue(wal.KindCommit, false, body(l.Last()+1, 500)); err == nil {
					err = errors.Join(l.Write(), l.Sync(ctx, l.Last(), nil))
				}
			}
			return err
		},
	} {
		for n := 1; ; n++ {
			fsys := dbtest.NewFS()
			l, _, _ := mustOpen(t, options(fsys))
			for range 20 {
				commit(t, l, 1000)
			}
			fsys.Inject(dbtest.Fault{N: n, Err: dbtest.ErrCrashed, Sticky: true})
			err := end(l)
			for seed := range uint64(8) {
				_, rec, _, err := open(options(fsys.CrashClone(seed, []int{3, 10, 50, 80}[seed%4])))
				require.NoError(t, err, "%s, operation %d, seed %d", what, n, seed)
				require.GreaterOrEqual(t, rec.Last, uint64(20))
			}
			if err == nil {
				require.Greater(t, n, 2)
				break
			}
		}
	}
}

// dirSyncs counts the syncs of directories.
type dirSyncs struct {
	wal.FS
	of map[string]int
}

func (d dirSyncs) SyncDir(dir string) error {
	d.of[dir]++
	return d.FS.SyncDir(dir)
}

// TestSyncAbove: a directory above a new log is synced again only if it has changed since this process synced it. The directory that
// has the log is synced for each. The control is a directory whose change is too young to tell from another one.
func TestSyncAbove(t *testing.T) {
	top := t.TempDir()
	mid := filepath.Join(top, "mid")
	home := filepath.Join(mid, "home")
	require.NoError(t, os.MkdirAll(home, 0o700))
	old := time.Now().Add(-time.Hour)
	age := func(dir string) { old = old.Add(time.Minute); require.NoError(t, os.Chtimes(dir, old, old)) }
	age(mid)
	of := map[string]int{}
	opened := 0
	open := func() {
		opened++
		l, _, err := wal.Open(ctx, filepath.Join(home, string(rune('a'+opened))), wal.Options{FS: dirSyncs{wal.OS(), of}}, nil)
		require.NoError(t, err)
		require.NoError(t, l.Close(wal.KindMark, nil))
		require.Equal(t, opened, of[home])
	}
	open()
	require.Equal(t, 1, of[mid])
	require.Equal(t, 1, of[top])
	open()
	require.Equal(t, 1, of[mid], "nothing has changed there")
	require.Equal(t, 2, of[top], "the control: made a moment ago")
	require.NoError(t, os.Mkdir(filepath.Join(mid, "other"), 0o700))
	open()
	require.Equal(t, 2, of[mid])
	age(mid)
	open()
	require.Equal(t, 3, of[mid])
	open()
	require.Equal(t, 3, of[mid])
}
