package bench

import (
	"io"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/portable"
)

// BenchmarkPortable writes a database of 100,000 pages to a file of lines and makes a database of it again. Rates are per
// second of the clock and per second of processor time; the peak is of the heap, of which the database itself has a part.
func BenchmarkPortable(b *testing.B) {
	const pages = 100_000
	for _, size := range []int{shortPage, longPage / 2} {
		b.Run(named(pages)+"/size="+named(size), func(b *testing.B) {
			once(b, func() figures {
				from := filled(b, pages, size)
				path := filepath.Join(b.TempDir(), "all.jsonl")
				out := figures{}
				rated(b, "export", pages, out, func() error {
					f, err := os.Create(path)
					must(b, err)
					defer f.Close()
					rep, err := from.db.Admin().Export(ctx, f, portable.ExportOptions{})
					if err == nil && rep.Pages != pages {
						b.Fatalf("%d pages were exported", rep.Pages)
					}
					return err
				})
				to := open(b, fresh(b), ctxpage.Options{})
				defer to.Close()
				rated(b, "import", pages, out, func() error {
					f, err := os.Open(path)
					must(b, err)
					defer f.Close()
					rep, err := to.Admin().Import(ctx, struct{ io.Reader }{f}, portable.ImportOptions{By: "bench"})
					if err == nil && rep.Versions.New != pages {
						b.Fatalf("%d versions were imported", rep.Versions.New)
					}
					return err
				})
				return out
			})
		})
	}
}

// rated runs something and notes its rates and by how much the heap grew at most.
func rated(tb testing.TB, what string, pages int, out figures, do func() error) {
	runtime.GC()
	var before runtime.MemStats
	runtime.ReadMemStats(&before)
	var peak atomic.Uint64
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			peak.Store(max(peak.Load(), m.HeapInuse))
			select {
			case <-stop:
				return
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()
	cpu := cpuTime()
	took := timed(tb, do)
	cpu = cpuTime() - cpu
	close(stop)
	<-done
	out[what+"-pages/s"] = float64(pages) / took.Seconds()
	out[what+"-pages/cpu-s"] = float64(pages) / cpu.Seconds()
	out[what+"-MiB"] = (float64(peak.Load()) - float64(before.HeapInuse)) / (1 << 20)
}
