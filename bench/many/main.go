//go:build linux

// Command many opens many databases in one process, and prints what each of them takes when it is idle.
//
//	go run ./bench/many                # 1,000 databases of 20 pages
//	go run ./bench/many -exclusive     # without a socket each
//
// Each database is made, gets its pages and is closed; then all are opened and read once, and the program waits until their
// background work is done. What an open costs is CPU, not time, so that a busy machine says nothing of it. Syncs are counted
// by the system: strace -f -e trace=fsync,fdatasync,sync_file_range -c go run ./bench/many.
package main

import (
	"context"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
)

type many struct {
	dir   string
	n     int
	pages int
	bytes int
	opts  ctxpage.Options
}

func main() {
	var m many
	flag.IntVar(&m.n, "n", 1000, "databases")
	flag.IntVar(&m.pages, "pages", 20, "pages in each")
	flag.IntVar(&m.bytes, "bytes", 300, "bytes of a page")
	flag.BoolVar(&m.opts.Exclusive, "exclusive", false, "open the databases without a socket")
	flag.BoolVar(&m.opts.NoWatch, "nowatch", false, "open the databases without the watcher of sessions")
	settle := flag.Duration("settle", 12*time.Second, "wait for background work")
	dir := flag.String("dir", os.Getenv("BENCHDIR"), "directory for the databases; not a tmpfs, where a sync costs nothing")
	flag.Parse()
	err := func() (err error) {
		if m.dir, err = os.MkdirTemp(*dir, "many-"); err != nil {
			return err
		}
		defer os.RemoveAll(m.dir)
		return m.run(context.Background(), *settle)
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, "many:", err)
		os.Exit(1)
	}
}

func (m *many) run(ctx context.Context, settle time.Duration) error {
	if err := m.step("made, with its pages", func() error { return m.each(nil, m.fill) }); err != nil {
		return err
	}
	closed, err := m.disk()
	if err != nil {
		return err
	}
	before, routines, open := heap(), runtime.NumGoroutine(), targets()
	var dbs []*ctxpage.DB
	if err := m.step("opened", func() error { return m.each(&dbs, nil) }); err != nil {
		return err
	}
	fmt.Printf("heap, opened  %6.3f MiB each\n", (heap()-before)/float64(m.n)/(1<<20))
	if err := m.step("first context", func() error {
		for _, db := range dbs {
			if _, err := db.Scope("acme").Assemble(ctx, ctxpage.Query{Text: "bada dada", Budget: 2000}); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return err
	}
	time.Sleep(settle)
	fmt.Printf("heap, read    %6.3f MiB each\n", (heap()-before)/float64(m.n)/(1<<20))
	fmt.Printf("goroutines    %6.2f each\n", float64(runtime.NumGoroutine()-routines)/float64(m.n))
	now := targets()
	for k, n := range open {
		now[k] -= n
	}
	print("descriptors", now, float64(m.n), "each")
	used, err := m.disk()
	if err != nil {
		return err
	}
	print("disk, open", used, float64(m.n)*1024, "KiB each")
	print("disk, closed", closed, float64(m.n)*1024, "KiB each")
	return m.step("closed", func() error {
		for _, db := range dbs {
			if err := db.Close(); err != nil {
				return err
			}
		}
		return nil
	})
}

// step prints the CPU and the time that fn took for each database.
func (m *many) step(what string, fn func() error) error {
	start, cpu := time.Now(), dbtest.CPUTime()
	err := fn()
	n := time.Duration(m.n)
	fmt.Printf("%-22s CPU %v, time %v each\n", what, (dbtest.CPUTime()-cpu)/n, time.Since(start)/n)
	return err
}

// each opens the databases, one after the other, and keeps them in dbs, or closes each after fn.
func (m *many) each(dbs *[]*ctxpage.DB, fn func(*ctxpage.DB) error) error {
	for i := range m.n {
		dir := filepath.Join(m.dir, fmt.Sprint(i))
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		db, err := ctxpage.Open(filepath.Join(dir, "agent.ctx"), m.opts)
		if err != nil {
			return err
		}
		if dbs != nil {
			*dbs = append(*dbs, db)
			continue
		}
		if err := fn(db); err != nil {
			return err
		}
		if err := db.Close(); err != nil {
			return err
		}
	}
	return nil
}

// fill puts the pages, each in a commit of its own.
func (m *many) fill(db *ctxpage.DB) error {
	for p := range m.pages {
		var b strings.Builder
		for w := p * 7919; b.Len() < m.bytes; w += 31 {
			fmt.Fprintf(&b, "%c%c%c%c ", "bdfgklmnprstvz"[w%14], "aeiou"[w/14%5], "bdfgklmnprstvz"[w/70%14], "aeiou"[w/980%5])
		}
		if _, err := db.Scope("acme").Put(context.Background(), ctxpage.Artefact{ID: fmt.Sprintf("page-%d", p), Text: b.String()}); err != nil {
			return err
		}
	}
	return nil
}

// print prints a sum and its parts.
func print(what string, parts map[string]float64, by float64, unit string) {
	sum := 0.0
	for _, v := range parts {
		sum += v
	}
	fmt.Printf("%-13s %6.2f %s:", what, sum/by, unit)
	for _, k := range slices.Sorted(maps.Keys(parts)) {
		if v := parts[k] / by; v >= .005 {
			fmt.Printf("  %s %.2f", k, v)
		}
	}
	fmt.Println()
}

// targets counts the descriptors of this process by what they lead to.
func targets() map[string]float64 {
	sum := map[string]float64{}
	list, _ := os.ReadDir("/proc/self/fd")
	for _, e := range list {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil {
			sum[kind(to)]++
		}
	}
	return sum
}

// kind is the name of a file without its numbers, or of the directory that has many of them.
func kind(path string) string {
	name, _, _ := strings.Cut(filepath.Base(path), ":")
	if strings.HasSuffix(name, ".wal") {
		return "-wal"
	}
	return strings.TrimRight(name, "-0123456789")
}

// disk is what the files take, by what they are.
func (m *many) disk() (map[string]float64, error) {
	sum := map[string]float64{}
	err := filepath.WalkDir(m.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			sum[kind(path)] += float64(info.Sys().(*syscall.Stat_t).Blocks) * 512
		}
		return err
	})
	return sum, err
}

// heap is what is in use after two collections.
func heap() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}
