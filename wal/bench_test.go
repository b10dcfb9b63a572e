package wal_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/wal"
)

const benchBody = 1024

// BenchmarkRaw is the limit for one writer: a write of a record's size and a sync. grow: the file grows with
// each; zeros: it was written before, as the log does it.
func BenchmarkRaw(b *testing.B) {
	for _, grow := range []bool{true, false} {
		name := "zeros"
		if grow {
			name = "grow"
		}
		b.Run(name, func(b *testing.B) {
			f, err := wal.OS().OpenFile(filepath.Join(b.TempDir(), "raw"), os.O_RDWR|os.O_CREATE, 0o600)
			require.NoError(b, err)
			defer f.Close()
			buf, zero, off := make([]byte, benchBody+40), make([]byte, 512<<10), int64(0)
			for i := range buf {
				buf[i] = byte(i)
			}
			end := int64(0)
			for b.Loop() {
				if !grow && off+int64(len(buf)) > end {
					_, err = f.WriteAt(zero, end)
					require.NoError(b, err)
					end += int64(len(zero))
				}
				if _, err = f.WriteAt(buf, off); err != nil {
					b.Fatal(err)
				}
				off += int64(len(buf))
				if err = f.Sync(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkCommit is one record enqueued and synced, by so many writers at once.
func BenchmarkCommit(b *testing.B) {
	for _, writers := range []int{1, 8, 64} {
		for _, wait := range []time.Duration{0, -1} {
			name := fmt.Sprintf("writers=%d/wait=on", writers)
			if wait < 0 {
				name = fmt.Sprintf("writers=%d/wait=off", writers)
			}
			b.Run(name, func(b *testing.B) { benchCommit(b, writers, wait) })
		}
	}
}

func benchCommit(b *testing.B, writers int, wait time.Duration) {
	path := b.TempDir()
	rounds := 0
	l, _, err := wal.Open(ctx, path, wal.Options{GroupWait: wait, OnDurable: func(uint64) { rounds++ }}, nil)
	require.NoError(b, err)
	body := make([]byte, benchBody)
	b.ReportAllocs()
	b.ResetTimer()
	var wg sync.WaitGroup
	for w := range writers {
		n := b.N / writers
		if w < b.N%writers {
			n++
		}
		wg.Go(func() {
			for range n {
				seq, err := l.Enqueue(wal.KindCommit, false, body)
				if err == nil {
					err = l.Sync(context.Background(), seq, nil)
				}
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/float64(max(rounds, 1)), "commits/sync")
	require.NoError(b, l.Close(wal.KindMark, nil))
	rec, err := wal.Scan(ctx, path, nil, nil)
	require.NoError(b, err)
	require.EqualValues(b, b.N+1, rec.Last)
}

// BenchmarkEnqueueWrite is an asynchronous record: enqueued, handed to the operating system, not synced.
func BenchmarkEnqueueWrite(b *testing.B) {
	l, _, err := wal.Open(ctx, b.TempDir(), wal.Options{}, nil)
	require.NoError(b, err)
	body := make([]byte, benchBody)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := l.Enqueue(wal.KindAudit, false, body); err != nil {
			b.Fatal(err)
		}
		if err := l.Write(); err != nil {
			b.Fatal(err)
		}
	}
	require.NoError(b, l.Close(wal.KindMark, nil))
}

// BenchmarkOpen replays 64 MB of 1 KiB records, after a clean close and after a kill.
func BenchmarkOpen(b *testing.B) {
	path := b.TempDir()
	l, _, err := wal.Open(ctx, path, wal.Options{SegmentBytes: 16 << 20}, nil)
	require.NoError(b, err)
	body := make([]byte, benchBody)
	for i := range 60_000 {
		_, err := l.Enqueue(wal.KindCommit, false, body)
		require.NoError(b, err)
		if i%1000 == 0 {
			require.NoError(b, l.Sync(ctx, l.Last(), nil))
		}
	}
	require.NoError(b, l.Close(wal.KindMark, nil))
	b.Run("scan", func(b *testing.B) {
		b.SetBytes(l.Size())
		for b.Loop() {
			_, err := wal.Scan(ctx, path, nil, nil)
			require.NoError(b, err)
		}
	})
	b.Run("killed", func(b *testing.B) {
		b.SetBytes(l.Size())
		for b.Loop() {
			k, _, err := wal.Open(ctx, path, wal.Options{}, nil)
			require.NoError(b, err)
			_, err = k.Enqueue(wal.KindCommit, false, body)
			require.NoError(b, err)
			require.NoError(b, k.Write())
		}
	})
}
