// Package dbtest provides databases that check themselves: when a test ends, the files it left are opened again and
// every invariant is walked, and when the test or that walk fails the files are kept and their place is printed.
//
// It does not import the root package, so that the root's own tests can use it: what it needs to know is given.
package dbtest

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// CollectLess, called by TestMain, lets the heap grow fivefold between collections: tests make thousands of small things,
// and collecting them was a fifth of their time. Benchmarks measure what users have.
func CollectLess() {
	if flag.Parse(); flag.Lookup("test.bench").Value.String() == "" {
		debug.SetGCPercent(400)
	}
}

// Main runs the tests of a package to which syncs of the real files mean nothing: in memory, and with fewer collections. Damage,
// a lack of space and cuts of the power are made in file systems of the tests; a process that is killed loses no written byte.
func Main(m *testing.M) {
	CollectLess()
	os.Exit(InMemory(m.Run))
}

// Checker is the operator's access to a database; its check reports problems of type P.
type Checker[P any] interface {
	Check(ctx context.Context, progress func(what string, done, total uint64)) ([]P, error)
}

// Checked is an open database.
type Checked[A any] interface {
	Admin() A
	Close() error
}

// Path returns a place for a database in a directory of the test's own, and keeps the files if the test fails. The files
// are not opened at the end: for tests that damage them.
func Path(t testing.TB) string {
	t.Helper()
	return kept(t, t.TempDir())
}

// MemoryPath is Path in a file system in memory, where the system has one: for tests to which syncs of the real files
// mean nothing, because they only cost time there.
func MemoryPath(t testing.TB) string {
	t.Helper()
	if memory() == "" {
		return Path(t)
	}
	dir, err := os.MkdirTemp(memory(), "ctxpage-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return kept(t, dir)
}

// InMemory runs the tests of a package with all their temporary files in such a file system, likewise. Benchmarks keep the real
// files, whose syncs are a part of what they measure.
func InMemory(run func() int) int {
	flag.Parse()
	if memory() == "" || flag.Lookup("test.bench").Value.String() != "" {
		return run()
	}
	dir, err := os.MkdirTemp(memory(), "ctxpage-test-")
	if err != nil {
		return run()
	}
	defer os.RemoveAll(dir)
	os.Setenv("TMPDIR", dir)
	return run()
}

// UntilKilled waits for whoever kills this process. An empty select would end one that has no other goroutine, as a deadlock.
func UntilKilled() {
	for {
		time.Sleep(time.Hour)
	}
}

func kept(t testing.TB, dir string) string {
	path := filepath.Join(dir, "agent.ctx")
	t.Cleanup(func() {
		if t.Failed() {
			Keep(t, path)
		}
	})
	return path
}

// CheckedPath is Path, and at the end of the test, when it has closed its database, opens the files again with open and
// fails the test if a check finds anything.
func CheckedPath[P any, A Checker[P], D Checked[A]](t testing.TB, open func(path string) (D, error)) string {
	t.Helper()
	return checked[P](t, Path(t), open)
}

// CheckedMemoryPath is MemoryPath, checked likewise.
func CheckedMemoryPath[P any, A Checker[P], D Checked[A]](t testing.TB, open func(path string) (D, error)) string {
	t.Helper()
	return checked[P](t, MemoryPath(t), open)
}

func checked[P any, A Checker[P], D Checked[A]](t testing.TB, path string, open func(path string) (D, error)) string {
	t.Cleanup(func() {
		if err := check[P](path, open); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	})
	return path
}

func check[P any, A Checker[P], D Checked[A]](path string, open func(path string) (D, error)) error {
	if _, err := os.Stat(path); os.IsNotExist(err) {
		return nil
	}
	db, err := open(path)
	if err != nil {
		return fmt.Errorf("open after the test: %w", err)
	}
	problems, err := db.Admin().Check(context.Background(), nil)
	if cerr := db.Close(); err == nil {
		err = cerr
	}
	if err == nil && len(problems) > 0 {
		err = fmt.Errorf("the check found %d problems, first %+v", len(problems), problems[0])
	}
	return err
}

// Keep copies the files of a database out of the test's directory, which the testing package removes, and prints where
// they are.
func Keep(t testing.TB, path string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "ctxpage-"+strings.NewReplacer("/", "-", " ", "-").Replace(t.Name())+"-")
	if err == nil {
		err = Copy(path, filepath.Join(dir, filepath.Base(path)))
	}
	if err != nil {
		t.Logf("the files could not be kept: %v", err)
		return
	}
	t.Logf("the files are kept in %s", dir)
}

// Must returns a check that fails the test unless err is nil, and returns v: v := Must(s.Get(ctx, id))(t).
func Must[T any](v T, err error) func(require.TestingT) T {
	return func(t require.TestingT) T {
		if h, ok := t.(interface{ Helper() }); ok {
			h.Helper()
		}
		require.NoError(t, err)
		return v
	}
}
