package filestore_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	. "github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
)

func putText(t *testing.T, path, id, text string) manifest.Head {
	t.Helper()
	db := must(Open(path, Options{}))(t)
	must(db.Scope("acme").Put(ctx, Artefact{ID: id, Text: text}))(t)
	head := must(db.Head(ctx))(t)
	require.NoError(t, db.Close())
	return head
}

func backupOf(t *testing.T, path string) string {
	t.Helper()
	db := must(Open(path, Options{ReadOnly: true}))(t)
	to := filepath.Join(t.TempDir(), "backup.ctx")
	must(db.Admin().Backup(context.Background(), to, nil))(t)
	require.NoError(t, db.Close())
	return to
}

func TestRestore(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "agent.ctx")
	early := putText(t, path, "a", "the first text")
	backup := backupOf(t, path)
	late := putText(t, path, "b", "the second text")

	require.ErrorContains(t, errOf(filestore.Restore(ctx, backup, path, filestore.RestoreOptions{})), "exists")

	head := must(filestore.Restore(ctx, backup, path, filestore.RestoreOptions{Replace: true, By: "ops", Head: &early}))(t)

	db := must(Open(path, Options{}))(t)
	defer db.Close()
	require.Equal(t, "the first text", must(db.Scope("acme").Get(ctx, "a"))(t).Text)
	require.ErrorIs(t, errOf(db.Scope("acme").Get(ctx, "b")), store.ErrNotFound)

	leaf := must(db.Manifests().Leaf(ctx, head.Size))(t)
	require.Equal(t, manifest.TypeRestored, leaf.Type)
	require.Equal(t, head.Size, leaf.Size)
	require.Equal(t, head.Root[:], []byte(leaf.Root))

	must(db.Manifests().Verify(ctx, &early, nil))(t)
	require.ErrorIs(t, errOf(db.Manifests().Verify(ctx, &late, nil)), manifest.ErrHead, "a log that was set back must not verify against a later head")

	require.Empty(t, must(filepath.Glob(path+".re*"))(t))
}

func TestRestoreRefuses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.ctx")
	putText(t, path, "a", "the first text")
	backup := backupOf(t, path)

	t.Run("while the database is open", func(t *testing.T) {
		db := must(Open(path, Options{}))(t)
		defer db.Close()
		require.ErrorIs(t, errOf(filestore.Restore(ctx, backup, path, filestore.RestoreOptions{Replace: true})), store.ErrLocked)
	})
	t.Run("a head of another database", func(t *testing.T) {
		other := putText(t, filepath.Join(t.TempDir(), "other.ctx"), "a", "x")
		require.ErrorIs(t, errOf(filestore.Restore(ctx, backup, path, filestore.RestoreOptions{Replace: true, Head: &other})), manifest.ErrHead)
	})
	t.Run("a damaged backup", func(t *testing.T) {
		leaves := must(filepath.Glob(backup + "-manifest/leaves-*"))(t)
		require.NotEmpty(t, leaves)
		b := must(os.ReadFile(leaves[0]))(t)
		b[len(b)-1] ^= 1
		require.NoError(t, os.WriteFile(leaves[0], b, 0o600))
		require.Error(t, errOf(filestore.Restore(ctx, backup, path, filestore.RestoreOptions{Replace: true})))
	})
	db, err := Open(path, Options{})
	require.NoError(t, err, "what is at the path is untouched")
	require.NoError(t, db.Close())
}

// everyFile is what stands below a directory, by path.
func everyFile(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	return must(dbtest.Files(dir))(t)
}

// TestRestoreDiskFull: wherever the disk ends, the old database stands byte for byte, nothing lies beside it, and the
// error says what was needed. The control is the last round, on a disk that is large enough: then it is another.
func TestRestoreDiskFull(t *testing.T) {
	t.Parallel()
	dir, resize := smallDisk(t)
	path := filepath.Join(dir, "agent.ctx")
	backed := dbtest.MemoryPath(t)
	putText(t, backed, "page", "early")
	putText(t, backed, "large", strings.Repeat("words of a long text ", 20_000))
	backup := backupOf(t, backed)
	putText(t, path, "page", "late")
	before := everyFile(t, dir)
	var used, copied int64
	for name, b := range before {
		used += int64(len(b)) + 4096
		require.True(t, strings.HasPrefix(name, path))
	}
	for name, b := range everyFile(t, filepath.Dir(backup)) {
		copied += int64(len(b))
		require.True(t, strings.HasPrefix(name, backup))
	}
	failed := 0
	for size := used; ; size += 64 << 10 {
		resize(size)
		_, err := filestore.Restore(ctx, backup, path, filestore.RestoreOptions{Replace: true})
		if err == nil {
			break
		}
		failed++
		require.ErrorIs(t, err, syscall.ENOSPC)
		require.ErrorContains(t, err, path+" was not changed")
		require.ErrorContains(t, err, fmt.Sprintf("the copy needs about %d bytes, ", copied))
		require.Regexp(t, `[0-9]+ were free at the start`, err.Error())
		require.Equal(t, before, everyFile(t, dir), "on a disk of %d bytes", size)
		require.Less(t, size, used+4*copied, "it never fits")
	}
	require.Greater(t, failed, 3)
	resize(64 << 20)
	require.NotEqual(t, before, everyFile(t, dir))
	require.Equal(t, "early", must(textAt(path, Options{}))(t))
}

// TestBackupDiskFull: likewise for a backup, of which nothing is left.
func TestBackupDiskFull(t *testing.T) {
	t.Parallel()
	dir, resize := smallDisk(t)
	db := openTest(t, dbtest.MemoryPath(t), Options{})
	must(db.Scope("acme").Put(ctx, Artefact{ID: "page", Text: strings.Repeat("words of a long text ", 20_000)}))(t)
	to := filepath.Join(dir, "backup.ctx")
	onSmallDisks(t, dir, to, "backup", 256<<10, resize, func() error {
		_, err := db.Admin().Backup(ctx, to, nil)
		return err
	})
}

// onSmallDisks has a copy made on larger and larger disks until it fits. Where it does not, the error says so, by the verb,
// and nothing is left.
func onSmallDisks(t *testing.T, dir, to, verb string, step int64, resize func(int64), copied func() error) {
	failed := 0
	for size := int64(4096); ; size += step {
		resize(size)
		err := copied()
		if err == nil {
			break
		}
		failed++
		require.ErrorIs(t, err, syscall.ENOSPC)
		require.NotErrorIs(t, err, store.ErrOutcomeUnknown)
		require.Regexp(t, verb+`: the disk of .* is full: the copy needs about [0-9]{6,} bytes, [0-9]+ were free at the start; the partial copy was removed`, err.Error())
		require.Empty(t, everyFile(t, dir), "on a disk of %d bytes", size)
		require.Less(t, size, int64(32<<20), "it never fits")
	}
	require.Greater(t, failed, 3)
	resize(64 << 20)
	require.NotEmpty(t, must(textAt(to, Options{}))(t))
}

// TestSalvageDiskFull: likewise for a salvage, wherever the disk ends.
func TestSalvageDiskFull(t *testing.T) {
	t.Parallel()
	dir, resize := smallDisk(t)
	path := dbtest.MemoryPath(t)
	putText(t, path, "page", strings.Repeat("words of a long text ", 20_000))
	to := filepath.Join(dir, "saved.ctx")
	onSmallDisks(t, dir, to, "salvage", 128<<10, resize, func() error {
		_, err := Salvage(ctx, path, to, filestore.SalvageOptions{})
		return err
	})
}

// TestBackupDiskFullAtThePages: also where the disk ends at the first of bbolt's pages.
func TestBackupDiskFullAtThePages(t *testing.T) {
	t.Parallel()
	dir, resize := smallDisk(t)
	db := openTest(t, dbtest.MemoryPath(t), Options{})
	must(db.Scope("acme").Put(ctx, Artefact{ID: "page", Text: "a few words"}))(t)
	must(db.Admin().Backup(ctx, filepath.Join(dir, "first.ctx"), nil))(t)
	before := int64(0) // pages of what is copied before
	for name, b := range everyFile(t, dir) {
		if name != filepath.Join(dir, "first.ctx") {
			before += (int64(len(b)) + 4095) / 4096
		}
	}
	names.Remove(filepath.Join(dir, "first.ctx"))
	for more := range int64(5) {
		resize((before + more) * 4096)
		_, err := db.Admin().Backup(ctx, filepath.Join(dir, "backup.ctx"), nil)
		require.ErrorIs(t, err, syscall.ENOSPC, "%d pages", more)
		require.ErrorContains(t, err, "the copy needs about", "%d pages", more)
		require.Empty(t, everyFile(t, dir))
	}
}

// TestRestoreFullAtTheSwap: up to the mark a full disk leaves what is at the path, and the error says so. Behind it, the
// control, there is no way back, and it does not.
func TestRestoreFullAtTheSwap(t *testing.T) {
	t.Parallel()
	for step, untouched := range map[string]bool{"before the mark": true, "marked, before path": false, "path is aside": false, "mark removed": false} {
		path, backup := restorable(t)
		before := everyFile(t, filepath.Dir(path))
		_, err := filestore.Restore(ctx, backup, path, filestore.RestoreOptions{Replace: true}.Peek(func(now string) error {
			if now == step {
				return &fs.PathError{Op: "write", Path: path, Err: syscall.ENOSPC}
			}
			return nil
		}, nil))
		require.ErrorIs(t, err, syscall.ENOSPC, step)
		want := "early"
		if untouched {
			want = "late"
			require.ErrorContains(t, err, "was not changed")
			require.Equal(t, before, everyFile(t, filepath.Dir(path)))
		} else {
			require.NotContains(t, err.Error(), "was not changed", step)
		}
		text, err := textAt(path, Options{})
		require.NoError(t, err, step)
		require.Equal(t, want, text, step)
	}
}

// TestJudgedBesideCheckpoints commits from several goroutines while checkpoints move state and outcomes into the rows:
// a batch that expects an older state than there is gets a conflict, so no count is lost, and all who commit under one id
// get one answer.
func TestJudgedBesideCheckpoints(t *testing.T) {
	db := openTest(t, dbtest.MemoryPath(t), Options{})
	st := storeOf(db)
	quit, done := make(chan struct{}), make(chan error, 1)
	go func() {
		for err := error(nil); ; {
			select {
			case <-quit:
				done <- err
				return
			default:
				if err == nil {
					_, err = db.Admin().Checkpoint(ctx)
				}
			}
		}
	}()
	count := func(row store.StateRow) store.Batch {
		n, _ := strconv.Atoi(string(row.Value)) // 0 if there is none
		return store.Batch{Scope: "acme", Actor: "test", Now: time.Now(), Bound: []byte("sixteen bytes ..."), Leaf: manifest.Record{Type: manifest.TypeCommit},
			State: []store.StateRow{{Key: "n", Value: []byte(strconv.Itoa(n + 1))}}, ExpectState: []store.StatePre{{Key: "n", LSN: row.LSN}}}
	}
	const together = 4
	const rounds = 150
	outs, errs := [2 * together]store.Outcome{}, [2 * together]error{}
	for round := range rounds {
		b := count(must(st.State(ctx, "n"))(t))
		same := must(newID())(t)
		var group sync.WaitGroup
		for i := range outs {
			b := b
			if b.ID = same; i >= together {
				b.ID = must(newID())(t)
			}
			group.Go(func() { outs[i], errs[i] = st.Commit(ctx, b) })
		}
		group.Wait()
		applied := 0
		for i, err := range errs {
			if err != nil {
				require.ErrorIs(t, err, store.ErrConflict)
				continue
			}
			require.Equal(t, store.StatusApplied, outs[i].Status)
			if i == 0 || i >= together {
				applied++
			} else {
				require.Equal(t, outs[0], outs[i], "the same id")
			}
			if i < together {
				require.NoError(t, errors.Join(errs[:together]...), "one of them was applied, so all were")
			}
		}
		require.Equal(t, 1, applied, "of those that expect the same state one is applied")
		require.Equal(t, strconv.Itoa(round+1), string(must(st.State(ctx, "n"))(t).Value))
	}
	close(quit)
	require.NoError(t, <-done)
}
