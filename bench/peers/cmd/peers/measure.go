package main

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// round is one turn of one system. CPU and bytes include what it did in the background until it fell idle.
type round struct {
	Ops     int     `json:"ops"`
	PerSec  float64 `json:"per_s"`
	P50     float64 `json:"p50_us"`
	P999    float64 `json:"p999_us"`
	Max     float64 `json:"max_us"`
	CPU     float64 `json:"cpu_us_per_op"`
	Written float64 `json:"written_bytes_per_op"`
}

// run lets workers repeat an operation for a while. Every operation that began is waited for, and so is its time.
func run(workers int, length time.Duration, op func(n uint64) error) (round, error) {
	took := make([][]time.Duration, workers)
	errs := make([]error, workers)
	var next atomic.Uint64
	cpu, wrote, start := cpuTime(), writtenBytes(), time.Now()
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for time.Since(start) < length && errs[w] == nil {
				at := time.Now()
				errs[w] = op(next.Add(1) - 1)
				took[w] = append(took[w], time.Since(at))
			}
		})
	}
	wg.Wait()
	elapsed := time.Since(start)
	idle()
	for _, err := range errs {
		if err != nil {
			return round{}, err
		}
	}
	all := slices.Concat(took...)
	n := float64(len(all))
	return round{
		Ops: len(all), PerSec: n / elapsed.Seconds(), P50: quantile(all, .5), P999: quantile(all, .999), Max: quantile(all, 1),
		CPU: micros(cpuTime()-cpu) / n, Written: float64(writtenBytes()-wrote) / n,
	}, nil
}

// idle waits until the process hardly uses a processor, so that what one system left to its background runs in its own
// turn and is charged to it. A system that never falls idle is left to itself after a second.
func idle() {
	const step = 10 * time.Millisecond
	for end := time.Now().Add(time.Second); time.Now().Before(end); {
		before := cpuTime()
		time.Sleep(step)
		if cpuTime()-before < step/10 {
			return
		}
	}
}

// quantile is the nearest-rank quantile of durations, in microseconds. It sorts them.
func quantile(all []time.Duration, q float64) float64 {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return micros(all[int(q*float64(len(all)-1)+.5)])
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	switch n := len(v); {
	case n == 0:
		return 0
	case n%2 == 1:
		return v[n/2]
	default:
		return (v[n/2-1] + v[n/2]) / 2
	}
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// cpuTime is what this process has used of all cores. On a machine that others use too it says more than the clock.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// writtenBytes is what this process has handed to write calls; 0 where the system does not tell.
func writtenBytes() int64 { return procValue("/proc/self/io", "wchar:", 1) }

// anonymous is the memory of the process that is no file's.
func anonymous() int64 {
	debug.FreeOSMemory()
	return procValue("/proc/self/status", "RssAnon:", 1024)
}

func heap() int64 {
	for range 3 { // pools keep what they hold through two
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func procValue(file, name string, unit int64) int64 {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(b) {
		if f := bytes.Fields(line); len(f) > 1 && string(f[0]) == name {
			n, err := strconv.ParseInt(string(f[1]), 10, 64)
			if err != nil {
				return 0
			}
			return n * unit
		}
	}
	return 0
}

// files calls fn with every file below a directory.
func files(dir string, fn func(path string, info fs.FileInfo) error) error {
	return filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if os.IsNotExist(err) || err == nil && !e.Type().IsRegular() {
			return nil // merged away meanwhile, a directory, or a socket
		}
		if err != nil {
			return err
		}
		info, err := e.Info()
		if os.IsNotExist(err) {
			return nil
		}
		if err != nil {
			return err
		}
		return fn(path, info)
	})
}

// onDisk is the space that the files of a directory take: blocks, because some are longer than what is in them.
func onDisk(dir string) (n int64, err error) {
	err = files(dir, func(_ string, info fs.FileInfo) error {
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			n += st.Blocks * 512
		} else {
			n += info.Size()
		}
		return nil
	})
	return n, err
}

// dropCache takes the files of a directory out of the page cache. Pages that were not written back yet stay in it, so
// each file is synced first.
func dropCache(dir string) error {
	return files(dir, func(path string, _ fs.FileInfo) error {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := f.Sync(); err != nil {
			return err
		}
		return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
	})
}

// stored puts a text, reads it back and, where the system can search, finds it by its words. It runs before anything is
// timed: a fast system that keeps nothing would win.
func stored(ctx context.Context, s system, id, text string) error {
	if err := s.put(ctx, id, text); err != nil {
		return err
	}
	if r, ok := s.(*raw); ok {
		if found, err := r.holds(text); err != nil || !found {
			return fmt.Errorf("%s: what was put is not in the file: %w", s.name(), err)
		}
		return nil
	}
	back, err := s.get(ctx, id)
	if err != nil {
		return fmt.Errorf("%s: %w", s.name(), err)
	}
	if back != text {
		return fmt.Errorf("%s: got %d bytes, put %d", s.name(), len(back), len(text))
	}
	return nil
}

// finds asks a filled system by the whole text of one of its pages, which must be the first of the answers' ids or
// share its place with another.
func finds(ctx context.Context, s system, id, text string) error {
	ids, err := s.search(ctx, text[:len(text)-1], 10)
	if err != nil {
		return fmt.Errorf("%s: %w", s.name(), err)
	}
	if !slices.Contains(ids, id) {
		return fmt.Errorf("%s: a search for all words of %s found %v", s.name(), id, ids)
	}
	return nil
}
