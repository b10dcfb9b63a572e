package wal_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/wal"
	"github.com/stretchr/testify/require"
)

// header is the length of a segment's header, with the length of the file behind its sum.
const header = 80

// sample is a log in one segment of about 64 KiB, not closed, cut to what was written. Its header does not say how long it
// was: see TestCutIsTold for one that does.
type sample struct {
	fs   *dbtest.FS
	path string
	data []byte
	recs []wal.Record
}

func makeSample(t testing.TB, size int, closed bool) sample {
	t.Helper()
	s := sample{fs: dbtest.NewFS()}
	l, _, _ := mustOpen(t, options(s.fs))
	rng := rand.New(rand.NewPCG(3, 4))
	for l.Size() < int64(size) {
		for range 1 + rng.IntN(5) {
			put(t, l, kinds[rng.IntN(3)], body(l.Last()+1, rng.IntN(400)))
		}
		if rng.IntN(3) == 0 {
			require.NoError(t, l.Write()) // so that Durable lags
		} else {
			require.NoError(t, l.Sync(ctx, l.Last(), nil))
		}
	}
	if closed {
		require.NoError(t, l.Close(wal.KindMark, []byte("end")))
	}
	must(wal.Scan(ctx, dir, s.fs, func(r wal.Record) error { s.recs = append(s.recs, copied(r)); return nil }))(t)
	s.path = s.recs[0].Segment
	s.data = must(s.fs.ReadFile(s.path))(t)
	last := s.recs[len(s.recs)-1]
	s.data = slices.Clone(s.data[:(last.Offset+40+int64(len(last.Body))+7)&^7])
	clear(s.data[64:header])
	return s
}

// at returns the index of the record that byte off belongs to.
func (s sample) at(off int) int {
	return sort.Search(len(s.recs), func(i int) bool { return s.recs[i].Offset > int64(off) }) - 1
}

// covered reports whether a record behind the i-th says that it was durable.
func (s sample) covered(i int) bool {
	for _, r := range s.recs[i+1:] {
		if r.Durable >= s.recs[i].Seq {
			return true
		}
	}
	return false
}

// check reads the damaged log and compares with the first n records, or expects damage to be found in
// record n.
func (s sample) check(fsys wal.FS, n int, broken bool) error {
	i := 0
	rec, err := wal.Scan(ctx, dir, fsys, func(r wal.Record) error {
		if i >= n || r.Seq != s.recs[i].Seq || string(r.Body) != string(s.recs[i].Body) || r.Kind != s.recs[i].Kind {
			return fmt.Errorf("record %d is wrong", r.Seq)
		}
		i++
		return nil
	})
	var ce *codec.CorruptError
	switch {
	case broken && !errors.As(err, &ce):
		return fmt.Errorf("expected codec.CorruptError, got %v", err)
	case broken && n >= 0 && (ce.Unit != codec.UnitRecord || ce.Num != s.recs[n].Seq || ce.Offset != s.recs[n].Offset || ce.File != s.path):
		return fmt.Errorf("expected damage at record %d, got %v", s.recs[n].Seq, err)
	case broken:
		return nil
	case err != nil:
		return err
	case i != n || rec.Last != uint64(n):
		return fmt.Errorf("expected %d records, got %d, last %d", n, i, rec.Last)
	}
	return nil
}

// flatFS holds one file, which the test changes in place: sixty-five thousand logs are read below.
type flatFS struct {
	wal.FS
	name string
	data []byte
}

type flatFile struct {
	wal.File
	*bytes.Reader
}

func (f *flatFS) ReadDir(string) ([]string, error) { return []string{filepath.Base(f.name)}, nil }

func (f *flatFS) OpenFile(string, int, os.FileMode) (wal.File, error) {
	return flatFile{Reader: bytes.NewReader(f.data)}, nil
}

func (f flatFile) ReadAt(p []byte, off int64) (int, error) { return f.Reader.ReadAt(p, off) }
func (f flatFile) Size() (int64, error)                    { return f.Reader.Size(), nil }
func (f flatFile) Close() error                            { return nil }

// everyByte runs f for every byte of the sample, on all processors, each with its own file.
func (s sample) everyByte(t *testing.T, f func(fsys *flatFS, off int) error) {
	t.Helper()
	defer debug.SetGCPercent(debug.SetGCPercent(1000))
	var wg sync.WaitGroup
	for w := range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			own := append([]byte(nil), s.data...)
			for off := w; off < len(s.data); off += underRace * runtime.GOMAXPROCS(0) {
				if err := f(&flatFS{name: s.path, data: own}, off); err != nil {
					t.Errorf("byte %d: %v", off, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// TestCutAtEveryByte: what is left are exactly the whole records. The header is never torn by a crash, so
// a log cut inside it is damage.
func TestCutAtEveryByte(t *testing.T) {
	t.Parallel()
	s := makeSample(t, 64<<10, false)
	s.everyByte(t, func(fsys *flatFS, off int) error {
		fsys.data = fsys.data[:off]
		if off < header {
			return s.check(fsys, -1, true)
		}
		return s.check(fsys, s.at(off), false)
	})
}

// TestFlipInEveryByte: exactly the records before, or codec.CorruptError where a later record says that the
// damaged one was durable.
func TestFlipInEveryByte(t *testing.T) {
	t.Parallel()
	t.Run("killed", func(t *testing.T) {
		s := makeSample(t, 64<<10, false)
		cut, damage := s.flips(t)
		require.NotZero(t, cut)
		require.NotZero(t, damage)
	})
	t.Run("closed", func(t *testing.T) {
		s := makeSample(t, 16<<10, true)
		cut, _ := s.flips(t)
		last := s.recs[len(s.recs)-1]
		if underRace == 1 {
			require.EqualValues(t, int64(len(s.data))-last.Offset, cut, "nothing but the final record can be cut")
		}
	})
}

func (s sample) flips(t *testing.T) (cut, damage int32) {
	t.Helper()
	var cuts, damages atomic.Int32
	s.everyByte(t, func(fsys *flatFS, off int) error {
		fsys.data[off] ^= 1 << (off % 8)
		defer func() { fsys.data[off] ^= 1 << (off % 8) }()
		switch {
		case off < 64:
			return s.check(fsys, -1, true)
		case off < header: // the length stays unknown
			return s.check(fsys, len(s.recs), false)
		}
		i := s.at(off)
		if s.covered(i) {
			damages.Add(1)
			return s.check(fsys, i, true)
		}
		cuts.Add(1)
		return s.check(fsys, i, false)
	})
	t.Logf("%d bytes: %d flips found as damage, %d cut", len(s.data), damages.Load(), cuts.Load())
	for _, k := range kinds {
		require.True(t, slices.ContainsFunc(s.recs, func(r wal.Record) bool { return r.Kind == k }))
	}
	return cuts.Load(), damages.Load()
}

// TestOpenCutsAndGoesOn: what Open cuts stays cut, what it kept stays, and the log goes on.
func TestOpenCutsAndGoesOn(t *testing.T) {
	s := makeSample(t, 4<<10, false)
	for off := header; off < len(s.data); off += 7 * underRace {
		fsys := s.fs.Clone()
		fsys.WriteFile(s.path, s.data[:off])
		l, rec, recs := mustOpen(t, options(fsys))
		require.True(t, rec.Rewritten)
		n := len(recs)
		if off > header {
			require.Equal(t, s.at(off), n)
		}
		torn := off > header && s.recs[n].Offset != int64(off)
		require.Equal(t, torn && rec.CutBytes > 0, rec.CutFile == s.path)
		if rec.CutFile != "" {
			require.Equal(t, s.recs[n].Offset, rec.CutAt)
			require.LessOrEqual(t, rec.CutAt+rec.CutBytes, int64(off))
		}
		require.EqualValues(t, n+1, commit(t, l, 50))
		_, again, recs := mustOpen(t, options(fsys.CrashClone(1, 0)))
		require.Len(t, recs, n+1)
		require.Empty(t, again.CutFile)
	}
}

// several is a log of several segments, not closed.
func several(t *testing.T) (*dbtest.FS, []string, []wal.Record) {
	t.Helper()
	fsys := dbtest.NewFS()
	opts := options(fsys)
	opts.SegmentBytes = 2 << 10
	l, _, _ := mustOpen(t, opts)
	for range 14 {
		commit(t, l, 500)
	}
	names := must(fsys.ReadDir(dir))(t)
	require.Len(t, names, 4)
	_, _, recs := mustOpen(t, options(fsys.Clone()))
	return fsys, names, recs
}

func TestFlipInEverySegment(t *testing.T) {
	t.Parallel()
	fsys, names, recs := several(t)
	for i, name := range names {
		file := path.Join(dir, name)
		data := must(fsys.ReadFile(file))(t)
		for off := 0; off < len(data); off += underRace {
			c := fsys // read only: Scan changes nothing
			b := append([]byte(nil), data...)
			b[off] ^= 1 << (off % 8)
			c.WriteFile(file, b)
			rec, err := wal.Scan(ctx, dir, c, nil)
			last := recs[len(recs)-1]
			switch ce := (*codec.CorruptError)(nil); {
			case 64 <= off && off < header:
				require.NoError(t, err)
				require.Equal(t, last.Seq, rec.Last, "without the length of a file that was not cut all is there")
			case i < len(names)-1 || off < int(last.Offset):
				require.ErrorAs(t, err, &ce, "%s at %d", name, off)
				require.Equal(t, filepath.FromSlash(file), ce.File)
			case off < int(last.Offset)+544:
				require.NoError(t, err)
				require.Equal(t, last.Seq-1, rec.Last)
			default:
				require.NoError(t, err)
				require.Equal(t, last.Seq, rec.Last, "damage in preallocated space hurts nobody")
				require.NotEmpty(t, rec.CutFile)
			}
		}
		fsys.WriteFile(file, data)
	}
}

// TestMisplaced: whole segments and records that are missing, twice there, exchanged or foreign. Their
// checksums are right.
func TestMisplaced(t *testing.T) {
	fsys, names, recs := several(t)
	read := func(f *dbtest.FS, i int) []byte {
		return must(f.ReadFile(path.Join(dir, names[i])))(t)
	}
	patch := func(f *dbtest.FS, at, from wal.Record) { // frames here are all of one size, 544 bytes
		b := must(f.ReadFile(at.Segment))(t)
		src := must(f.ReadFile(from.Segment))(t)
		b = append([]byte(nil), b...)
		copy(b[at.Offset:], src[from.Offset:from.Offset+544])
		f.WriteFile(at.Segment, b)
	}
	end := recs[len(recs)-1] // and the place behind it
	behind := end
	behind.Offset += 544
	for _, c := range []struct {
		name   string
		damage func(*dbtest.FS)
		says   string
	}{
		{"segment missing in the middle", func(f *dbtest.FS) { f.RemoveFile(path.Join(dir, names[1])) }, "missing or foreign"},
		{"last segment missing", func(f *dbtest.FS) { f.RemoveFile(path.Join(dir, names[3])) }, "segment after it is missing"},
		{"segment under another's name", func(f *dbtest.FS) { f.WriteFile(path.Join(dir, names[2]), read(f, 1)) }, "renamed or copied"},
		{"segments swapped", func(f *dbtest.FS) {
			a, b := read(f, 1), read(f, 2)
			f.WriteFile(path.Join(dir, names[1]), b)
			f.WriteFile(path.Join(dir, names[2]), a)
		}, "renamed or copied"},
		{"segment twice", func(f *dbtest.FS) {
			f.WriteFile(path.Join(dir, "00000000000000000099-00000099.wal"), read(f, 3))
		}, "renamed or copied"},
		{"segment twice as a newer generation", func(f *dbtest.FS) {
			f.WriteFile(path.Join(dir, names[1][:20]+"-00000099.wal"), read(f, 1))
		}, "renamed or copied"},
		{"segment of another log", func(f *dbtest.FS) {
			other := dbtest.NewFS()
			opts := wal.Options{FS: other, SegmentBytes: 2 << 10}
			l, _, _ := mustOpen(t, opts)
			for range 14 {
				commit(t, l, 500)
			}
			f.WriteFile(path.Join(dir, names[1]), read(other, 1))
		}, "exchanged"},
		{"not a segment's name", func(f *dbtest.FS) { f.WriteFile(path.Join(dir, "1-1.wal"), nil) }, "not the name"},
		{"empty file in a segment's place", func(f *dbtest.FS) { f.WriteFile(path.Join(dir, names[3]), nil) }, "found none"},
		{"record twice", func(f *dbtest.FS) { patch(f, behind, end) }, "missing, repeated or exchanged"},
		{"records swapped", func(f *dbtest.FS) {
			a, b := recs[0], recs[1]
			c := f.Clone()
			patch(f, a, b)
			src := must(c.ReadFile(a.Segment))(t)
			dst := must(f.ReadFile(b.Segment))(t)
			copy(dst[b.Offset:], src[a.Offset:a.Offset+544])
			f.WriteFile(b.Segment, dst)
		}, "missing, repeated or exchanged"},
		{"record missing in the tail", func(f *dbtest.FS) { patch(f, recs[len(recs)-2], end) }, "missing, repeated or exchanged"},
		{"hole", func(f *dbtest.FS) {
			b := read(f, 3)
			clear(b[recs[12].Offset : recs[12].Offset+544])
			f.WriteFile(path.Join(dir, names[3]), b)
		}, "says that record 13 was durable"},
		{"bytes behind a seal", func(f *dbtest.FS) { f.WriteFile(path.Join(dir, names[0]), append(read(f, 0), 1)) }, "more bytes follow the seal"},
		{"non-last segment cut at a record", func(f *dbtest.FS) {
			f.WriteFile(recs[3].Segment, read(f, 0)[:recs[3].Offset])
		}, "a later segment holds records"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := fsys.Clone()
			c.damage(f)
			before := f.Clone()
			_, _, _, err := open(options(f))
			var ce *codec.CorruptError
			require.ErrorAs(t, err, &ce)
			require.ErrorContains(t, err, c.says)
			require.NotEmpty(t, ce.Hint)
			require.NotErrorIs(t, err, codec.ErrNewerFormat)
			require.Empty(t, f.Trace(), "nothing is cut, nothing is changed")
			require.ErrorAs(t, errOf(wal.Scan(ctx, dir, before, nil)), &ce, "Scan sees it too")
		})
	}
}

// TestGapAtTheFrontIsTheCallersToJudge.
func TestGapAtTheFront(t *testing.T) {
	fsys, names, _ := several(t)
	fsys.RemoveFile(path.Join(dir, names[0]))
	l, rec, recs := mustOpen(t, options(fsys))
	require.EqualValues(t, 5, l.First())
	require.EqualValues(t, 5, rec.First)
	require.EqualValues(t, 5, recs[0].Seq)
}

// TestStaleFrames: frames of an earlier generation, at the very place where the next record would be, do not
// come back.
func TestStaleFrames(t *testing.T) {
	s := makeSample(t, 2<<10, false)
	n := len(s.recs) - 2
	fsys := s.fs.Clone()
	fsys.WriteFile(s.path, s.data[:s.recs[n].Offset])
	_, rec, _ := mustOpen(t, options(fsys))
	require.True(t, rec.Rewritten)
	names := must(fsys.ReadDir(dir))(t)
	require.Len(t, names, 1)
	require.NotEqual(t, path.Base(s.path), names[0])
	file := path.Join(dir, names[0])
	b := must(fsys.ReadFile(file))(t)
	copy(b[s.recs[n].Offset:], s.data[s.recs[n].Offset:])
	fsys.WriteFile(file, b)
	_, rec, recs := mustOpen(t, options(fsys))
	require.Len(t, recs, n)
	require.Equal(t, filepath.FromSlash(file), rec.CutFile)

	fsys = s.fs.Clone() // control: under its own salt the same bytes are records
	fsys.WriteFile(s.path, s.data)
	_, _, recs = mustOpen(t, options(fsys))
	require.Len(t, recs, n+2)
}

// TestLogInsideALog: a record whose body is a piece of this very log does not make a torn end look like
// damage.
func TestLogInsideALog(t *testing.T) {
	fsys := dbtest.NewFS()
	l, _, _ := mustOpen(t, options(fsys))
	for range 5 {
		commit(t, l, 100)
	}
	names := must(fsys.ReadDir(dir))(t)
	file := path.Join(dir, names[0])
	raw := must(fsys.ReadFile(file))(t)
	put(t, l, wal.KindCommit, raw[:l.Size()])
	require.NoError(t, l.Write())
	raw = must(fsys.ReadFile(file))(t)
	raw[l.Size()-3] ^= 1
	fsys.WriteFile(file, raw)
	_, rec, recs := mustOpen(t, options(fsys))
	require.Len(t, recs, 5)
	require.NotEmpty(t, rec.CutFile)
}

// TestNewerFormat: a newer version is told apart from damage, by name of both, and nothing is changed.
func TestNewerFormat(t *testing.T) {
	s := makeSample(t, 1<<10, true)
	b := append([]byte(nil), s.data...)
	binary.LittleEndian.PutUint32(b[8:], 3)
	binary.LittleEndian.PutUint32(b[12:], ^uint32(3))
	clear(b[16:64]) // whatever it looks like behind the version
	s.fs.WriteFile(s.path, b)
	s.fs.ResetTrace()
	_, _, _, err := open(options(s.fs))
	require.ErrorIs(t, err, codec.ErrNewerFormat)
	require.ErrorContains(t, err, "the log has version 3, this program reads up to version 2")
	var ce *codec.CorruptError
	require.False(t, errors.As(err, &ce))
	require.Empty(t, s.fs.Trace())
}

// must returns a check that fails the test unless err is nil, and returns v: v := must(s.Get(ctx, id))(t).
func must[T any](v T, err error) func(require.TestingT) T { return dbtest.Must(v, err) }

// errOf returns the error of a call.
func errOf[T any](_ T, err error) error { return err }
