package wal_test

import (
	"bytes"
	"errors"
	"path"
	"testing"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/wal"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// FuzzReadFrames: whatever the bytes, the frame reader ends, with one of its two errors, and takes no
// memory that the bytes do not justify.
func FuzzReadFrames(f *testing.F) {
	good := wal.Frame(7, wal.KindCommit, 0, 1, 0, []byte("body"))
	f.Add(good)
	f.Add(append(good, wal.Frame(7, wal.KindAudit, 1, 2, 1, bytes.Repeat([]byte{0xff}, 100))...))
	f.Add(wal.Frame(7, 0, 2, 3, 2, nil))
	f.Add(bytes.Repeat([]byte{0xff}, 64))
	f.Add(make([]byte, 64))
	f.Fuzz(func(t *testing.T, data []byte) {
		n, err := wal.ReadFrames(flatFile{Reader: bytes.NewReader(data)}, 7)
		if !errors.Is(err, wal.Torn) && !errors.Is(err, wal.Senseless) {
			t.Fatalf("after %d frames: %v", n, err)
		}
	})
}

// FuzzOpen: whatever stands in the place of the only segment, Open answers with a typed error or with a log
// that can be written and read.
func FuzzOpen(f *testing.F) {
	s := makeSample(f, 1<<10, false)
	f.Add(s.data)
	f.Add(s.data[:200])
	f.Add(append(bytes.Clone(s.data), make([]byte, 100)...))
	f.Add([]byte("ctxpglog\x02\x00\x00\x00\xfd\xff\xff\xff"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		fsys := s.fs.Clone()
		fsys.WriteFile(path.Join(dir, path.Base(s.path)), data)
		l, rec, recs, err := open(options(fsys))
		var ce *codec.CorruptError
		if errors.As(err, &ce) || errors.Is(err, codec.ErrNewerFormat) {
			require.NotErrorIs(t, err, errBroken)
			return
		}
		require.NoError(t, err)
		commit(t, l, 10)
		_, again, more := mustOpen(t, options(fsys.CrashClone(1, 0)))
		require.Equal(t, rec.Last+1, again.Last)
		require.Len(t, more, len(recs)+1)
	})
}

// TestFrameRoundTrip: what is framed is read back, and its size is a multiple of eight.
func TestFrameRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fsys := dbtest.NewFS()
		opts := options(fsys)
		opts.SegmentBytes = int64(rapid.IntRange(1, 4000).Draw(t, "segment"))
		l, _, _, err := open(opts)
		require.NoError(t, err)
		bodies := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 300), 1, 20).Draw(t, "bodies")
		for _, b := range bodies {
			cut := rapid.IntRange(0, len(b)).Draw(t, "cut")
			seq := must(l.Enqueue(wal.KindAudit, false, b[:cut], b[cut:]))(t)
			if rapid.Bool().Draw(t, "sync") {
				require.NoError(t, l.Sync(ctx, seq, nil))
			}
		}
		require.NoError(t, l.Close(wal.KindMark, nil))
		_, _, recs, err := open(opts)
		require.NoError(t, err)
		require.Len(t, recs, len(bodies)+1)
		for i, b := range bodies {
			require.True(t, bytes.Equal(b, recs[i].Body))
			require.Zero(t, recs[i].Offset%8)
		}
	})
}
