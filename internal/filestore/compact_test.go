package filestore_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/ctxpage/ctxpage"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/store"
)

// loose makes a database most of whose file is free: pages that were put, deleted and dropped.
func loose(t testing.TB, path string, pages int, files filestore.Options) *DB {
	t.Helper()
	db := openTest(t, path, Options{}, files)
	s := db.Scope("acme")
	for i := 0; i < pages; i += 500 {
		require.NoError(t, s.Update(t.Context(), func(tx *Txn) error {
			for j := range 500 {
				a := Artefact{ID: fmt.Sprintf("page-%d", i+j), Text: fmt.Sprintf("kettle %d %s", i+j, strings.Repeat("steam ", 100))}
				if err := tx.Put(t.Context(), a); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	must(db.Admin().Checkpoint(t.Context()))(t)
	for i := 0; i < pages; i += 500 {
		require.NoError(t, s.Update(t.Context(), func(tx *Txn) error {
			for j := range 500 {
				if id := i + j; id%10 != 0 {
					if err := tx.Delete(t.Context(), fmt.Sprintf("page-%d", id)); err != nil {
						return err
					}
				}
			}
			return nil
		}))
	}
	must(db.Admin().GC(t.Context(), GCOptions{KeepFor: -1, KeepNames: -1, KeepRecords: -1}))(t)
	return db
}

// rest checks what loose left, and the whole file.
func rest(t testing.TB, db *DB, pages int) {
	t.Helper()
	for i := 0; i < pages; i += 10 {
		v := must(db.Scope("acme").Get(context.Background(), fmt.Sprintf("page-%d", i)))(t)
		require.Contains(t, v.Text, fmt.Sprintf("kettle %d steam", i))
	}
	require.Empty(t, must(db.Admin().Check(context.Background(), nil))(t))
}

// TestCompact gives back what gc freed. A dry run tells how much and changes nothing; a crash at any step leaves one whole
// file, and nothing beside it after the next open.
func TestCompact(t *testing.T) {
	const pages = 1000
	path, copies := filepath.Join(t.TempDir(), "agent.ctx"), t.TempDir()
	var steps []string
	watch := false
	db := loose(t, path, pages, filestore.Options{Hook: func(step string) error {
		if !watch {
			return nil
		}
		at := filepath.Join(copies, fmt.Sprintf("%02d", len(steps)))
		steps = append(steps, step)
		if err := os.Mkdir(at, 0o700); err != nil {
			return err
		}
		if b, err := os.ReadFile(path + ".compact"); err == nil {
			if err := os.WriteFile(filepath.Join(at, "agent.ctx.compact"), b, 0o600); err != nil {
				return err
			}
		}
		return dbtest.Copy(path, filepath.Join(at, "agent.ctx"))
	}})
	before := must(os.ReadFile(path))(t)
	plan := must(db.Admin().Compact(t.Context(), true, nil))(t)
	require.Equal(t, before, must(os.ReadFile(path))(t), "a dry run writes nothing")
	require.True(t, plan.DryRun)
	require.Greater(t, plan.Free, plan.Before/2)

	watch = true
	told := map[string]bool{}
	rep, err := db.Admin().Compact(t.Context(), false, func(what string, done, total uint64) {
		require.LessOrEqual(t, done, total)
		told[what] = true
	})
	watch = false
	require.NoError(t, err)
	require.Less(t, rep.After, rep.Before/2)
	expected := plan.After
	if runtime.GOOS == "windows" { // a file that is mapped is as long as its map there, a power of two
		for expected = 1 << 15; expected < plan.After; expected *= 2 {
		}
	}
	require.InEpsilon(t, expected, rep.After, 0.3, "what the dry run said")
	require.Equal(t, must(os.Stat(path))(t).Size(), rep.After)
	rest(t, db, pages)
	must(db.Scope("acme").Put(t.Context(), Artefact{ID: "after", Text: "kettle"}))(t)
	require.NoError(t, db.Close())
	for _, step := range []string{"compact copied", "compact synced", "compact renamed", "compact changed"} {
		require.Contains(t, steps, step)
	}
	for i, step := range steps {
		at := filepath.Join(copies, fmt.Sprintf("%02d", i), "agent.ctx")
		db, err := Open(at, Options{})
		require.NoError(t, err, step)
		require.NoFileExists(t, at+".compact", step)
		rest(t, db, pages)
		require.NoError(t, db.Close())
	}
}

// TestCompactRefused: read-only it only plans, and a call that is cancelled, or fails, leaves the file as it was.
func TestCompactRefused(t *testing.T) {
	path := dbtest.MemoryPath(t)
	fail := false
	db := loose(t, path, 500, filestore.Options{Hook: func(step string) error {
		if fail && step == "compact synced" {
			return os.ErrPermission
		}
		return nil
	}})
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, errOf(db.Admin().Compact(stopped, false, nil)), context.Canceled)
	fail = true
	require.ErrorIs(t, errOf(db.Admin().Compact(t.Context(), false, nil)), os.ErrPermission)
	fail = false
	require.NoFileExists(t, path+".compact")
	rest(t, db, 500)
	require.NoError(t, db.Close())
	db = must(Open(path, Options{ReadOnly: true}))(t)
	require.ErrorIs(t, errOf(db.Admin().Compact(t.Context(), false, nil)), store.ErrReadOnly)
	require.Positive(t, must(db.Admin().Compact(t.Context(), true, nil))(t).Before)
	require.NoError(t, db.Close())
}

// TestCompactBesideReaders: reads and writes go on while the file is exchanged. It logs the longest wait.
func TestCompactBesideReaders(t *testing.T) {
	const pages = 3000
	db := loose(t, filepath.Join(t.TempDir(), "agent.ctx"), pages, filestore.Options{})
	done := make(chan struct{})
	var wg sync.WaitGroup
	var longest [2]atomic.Int64
	for g := range 3 {
		wg.Go(func() {
			s := db.Scope("acme")
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				case <-time.After(time.Millisecond):
				}
				from, kind := time.Now(), 0
				var err error
				if g == 0 {
					kind = 1
					_, err = s.Put(context.Background(), Artefact{ID: fmt.Sprint("new-", i), Text: "kettle new"})
				} else {
					_, err = s.Get(context.Background(), fmt.Sprintf("page-%d", i*10%pages))
				}
				if err != nil {
					t.Error(err)
					return
				}
				if d := int64(time.Since(from)); d > longest[kind].Load() {
					longest[kind].Store(d)
				}
			}
		})
	}
	for range 3 {
		must(db.Admin().Compact(t.Context(), false, nil))(t)
	}
	close(done)
	wg.Wait()
	t.Logf("longest read %s, longest put %s", time.Duration(longest[0].Load()), time.Duration(longest[1].Load()))
	rest(t, db, pages)
	require.NoError(t, db.Close())
}
