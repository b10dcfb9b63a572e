package archive

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/ctxpage/ctxpage/manifest"
	"github.com/stretchr/testify/require"
)

// diskLog is a log on the real file system with n archived sample leaves.
func diskLog(b *testing.B, n uint64) *Log {
	b.Helper()
	l, _, err := Open(ctx, filepath.Join(b.TempDir(), "m"), nil, Options{})
	require.NoError(b, err)
	b.Cleanup(func() { l.Close() })
	for l.Size() < n {
		fill(b, l, min(n, l.Size()+50_000))
		require.NoError(b, l.Archive(ctx, l.Size()))
	}
	return l
}

func BenchmarkEncode(b *testing.B) {
	for name, r := range map[string]*manifest.Record{"get": sampleRecord(1), "assemble=50": assemblyOf50(false)} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Encode(r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	body, err := Encode(assemblyOf50(false))
	require.NoError(b, err)
	b.Run("assemble=50", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := Decode(0, body); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkAdd keeps the tail below 20,000 leaves, as checkpoints do.
func BenchmarkAdd(b *testing.B) {
	body, err := Encode(assemblyOf50(false))
	require.NoError(b, err)
	l := diskLog(b, 0)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if err := l.Add(l.Size(), body); err != nil {
			b.Fatal(err)
		}
		if l.Size()-l.Archived() == 20_000 {
			b.StopTimer()
			require.NoError(b, l.Archive(ctx, l.Size()))
			b.StartTimer()
		}
	}
}

func BenchmarkArchive10k(b *testing.B) {
	body, err := Encode(assemblyOf50(false))
	require.NoError(b, err)
	l := diskLog(b, 0)
	b.SetBytes(10_000 * int64(len(body)))
	for b.Loop() {
		b.StopTimer()
		for range 10_000 {
			require.NoError(b, l.Add(l.Size(), body))
		}
		b.StartTimer()
		if err := l.Archive(ctx, l.Size()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkArchived reads an archive of a million leaves.
func BenchmarkArchived(b *testing.B) {
	const n = 1_000_000
	l := diskLog(b, n)
	found, err := l.ByTrace(ctx, testTrace(4))
	require.NoError(b, err)
	require.Len(b, found, 2)
	b.Run(fmt.Sprintf("bytrace/leaves=%d", n), func(b *testing.B) {
		for b.Loop() {
			if _, err := l.ByTrace(ctx, testTrace(4)); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("leaf", func(b *testing.B) {
		i := uint64(0)
		for b.Loop() {
			if _, err := l.Leaf(i * 7919 % n); err != nil {
				b.Fatal(err)
			}
			i++
		}
	})
	b.Run("mark", func(b *testing.B) {
		for b.Loop() {
			if _, err := l.Mark(n - 1); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("each", func(b *testing.B) {
		for b.Loop() {
			if err := l.Each(ctx, 0, 100_000, false, func(*manifest.Record) error { return nil }); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/100_000, "ns/leaf")
	})
	b.Run("verify", func(b *testing.B) {
		for b.Loop() {
			if _, err := l.Verify(ctx, nil, nil); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/leaf")
	})
}

// BenchmarkBodies counts the bodies of 100,000 archived leaves, as a quota of bodies does once after an open.
func BenchmarkBodies(b *testing.B) {
	l := diskLog(b, 100_000)
	for b.Loop() {
		n := 0
		require.NoError(b, l.Bodies(ctx, 0, l.Size(), func(string, int) { n++ }))
		require.Equal(b, 100_000, n)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/100_000, "ns/leaf")
}
