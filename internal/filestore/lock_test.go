package filestore_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	. "github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
)

// heldBy starts a process that holds a database, and gives a way to end it.
func heldBy(t *testing.T, args ...string) (cmd *exec.Cmd, end func()) {
	t.Helper()
	cmd = childCommand("holder", args...)
	in := must(cmd.StdinPipe())(t)
	out := must(cmd.StdoutPipe())(t)
	require.NoError(t, cmd.Start())
	must(out.Read(make([]byte, 16)))(t)
	return cmd, func() {
		_, _ = fmt.Fprintln(in, "go")
		_ = cmd.Wait()
	}
}

func lockedError(t *testing.T, path string, opts Options) *store.LockedError {
	t.Helper()
	_, err := Open(path, opts)
	var locked *store.LockedError
	require.ErrorAs(t, err, &locked)
	return locked
}

// TestReaderNamed: a writer that readers keep out is told which of them still has the file, and never one that does not:
// neither a writer that was killed, whatever has its number by now, nor a reader that closed while others go on.
func TestReaderNamed(t *testing.T) {
	t.Parallel()
	path := closedDatabase(t)
	mine := []byte(fmt.Sprintf("{\"pid\":%d,\"program\":\"killed\",\"since\":\"2020-01-01T00:00:00Z\"}\n", os.Getpid()))
	require.NoError(t, os.WriteFile(path+".lock", mine, 0o600)) // of a killed writer, and its number is another's by now
	before := time.Now().Add(-time.Second)
	cmd, end := heldBy(t, path, "reading")

	locked := lockedError(t, path, Options{})
	require.Equal(t, cmd.Process.Pid, locked.PID)
	require.True(t, locked.Reading)
	require.Equal(t, filepath.Base(os.Args[0]), locked.Program)
	require.WithinRange(t, locked.Since, before, time.Now())
	require.Contains(t, locked.Error(), fmt.Sprintf("is being read by pid %d (", cmd.Process.Pid))

	own := openTest(t, path, Options{ReadOnly: true})
	require.NoError(t, own.Close())
	require.Equal(t, cmd.Process.Pid, lockedError(t, path, Options{}).PID, "the one that closed is not named")
	own = openTest(t, path, Options{ReadOnly: true})
	end()
	require.Equal(t, os.Getpid(), lockedError(t, path, Options{}).PID, "nor the one that ended")
	signed := must(os.ReadFile(path + ".lock"))(t)
	killed := fmt.Appendf(nil, "{\"pid\":%d,\"program\":\"killed\",\"since\":\"2020-01-01T00:00:00Z\",\"reading\":true}\n", cmd.Process.Pid)
	require.NoError(t, os.WriteFile(path+".lock", append(killed, signed...), 0o600))
	require.Equal(t, os.Getpid(), lockedError(t, path, Options{}).PID, "nor one that was killed")
	require.NoError(t, own.Close())

	writer := openTest(t, path, Options{})
	for _, opts := range []Options{{Exclusive: true}, {Exclusive: true, ReadOnly: true}} { // others would ask it
		locked = lockedError(t, path, opts)
		require.Equal(t, os.Getpid(), locked.PID)
		require.False(t, locked.Reading)
	}
	require.NoError(t, writer.Close())
	require.Empty(t, must(os.ReadFile(path+".lock"))(t))
}

// TestReadersComeAndGo: however many readers overlap, the lock file stays small and no open fails for another reader.
func TestReadersComeAndGo(t *testing.T) {
	path := closedDatabase(t)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 15 {
				db, err := Open(path, Options{ReadOnly: true})
				if err == nil {
					err = db.Close()
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	require.Less(t, must(os.Stat(path+".lock"))(t).Size(), int64(names.LockBytes))
	require.NoError(t, openTest(t, path, Options{}).Close(), "nobody has it any more")
}

// TestCloseTwice: closing is done once, and who closes again or at the same time returns when it is done, with nil.
func TestCloseTwice(t *testing.T) {
	path := closedDatabase(t)
	db := openTest(t, path, Options{})
	must(db.Scope("acme").Put(context.Background(), Artefact{ID: "x", Text: "x"}))(t)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := db.Close(); err != nil {
				t.Error(err)
			}
			again, err := Open(path, Options{LockTimeout: time.Minute})
			if err != nil {
				t.Error(err)
				return
			}
			_ = again.Close()
		})
	}
	wg.Wait()
	require.NoError(t, db.Close())
	require.ErrorIs(t, errOf(db.Scope("acme").Put(context.Background(), Artefact{ID: "x", Text: "x"})), store.ErrClosed)
}

// TestForeignFile: a file of another program is told from a damaged database, and nothing is written beside it.
func TestForeignFile(t *testing.T) {
	other := map[string][]byte{
		"notes.txt": []byte("Refunds up to $400 need no approval.\n"), "one": {1}, "photo.jpg": append([]byte("\xff\xd8\xff\xe0"), make([]byte, 40_000)...),
		"other.db": append([]byte("SQLite format 3\x00"), make([]byte, 8192)...),
	}
	for name, content := range other {
		path := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.WriteFile(path, content, 0o600))
		require.NoError(t, os.WriteFile(path+"-wal", []byte("of another program"), 0o600))
		for _, opts := range []Options{{}, {ReadOnly: true}, {MustExist: true}} {
			_, err := Open(path, opts)
			require.ErrorIs(t, err, store.ErrNotDatabase, name)
			require.NotErrorIs(t, err, store.ErrCorrupt, name)
		}
		require.NoError(t, os.Remove(path+"-wal"))
		_, _, err := filestore.OpenManifests(context.Background(), path, nil, "")
		require.ErrorIs(t, err, store.ErrNotDatabase, name)
		require.ErrorIs(t, errOf(Salvage(context.Background(), path, path+".new", filestore.SalvageOptions{})), store.ErrNotDatabase, name)
		entries := must(os.ReadDir(filepath.Dir(path)))(t)
		require.Len(t, entries, 1, "%s: %v", name, entries)
		require.Equal(t, content, must(os.ReadFile(path))(t))
	}
	path := closedDatabase(t) // with its beginning gone, and all the rest there
	f := must(os.OpenFile(path, os.O_RDWR, 0))(t)
	must(f.WriteAt(make([]byte, 16<<10), 0))(t)
	require.NoError(t, f.Close())
	_, err := Open(path, Options{})
	require.ErrorIs(t, err, store.ErrCorrupt)
	require.NotErrorIs(t, err, store.ErrNotDatabase)
}

// TestCopyOfTwoMoments: a log that was copied before a checkpoint, beside the file after it, is refused by name. The control
// is the same copy with the log of its own moment, which opens.
func TestCopyOfTwoMoments(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.ctx")
	db := openTest(t, path, Options{})
	put := func(text string) {
		must(db.Scope("acme").Put(ctx, Artefact{ID: "page", Text: text}))(t)
		must(db.Admin().Checkpoint(ctx))(t)
	}
	put("early")
	early := filepath.Join(t.TempDir(), "early-wal")
	require.NoError(t, os.CopyFS(early, os.DirFS(path+"-wal")))
	put("late")
	for _, log := range []string{early, path + "-wal"} {
		to := filepath.Join(t.TempDir(), "copy.ctx")
		require.NoError(t, os.WriteFile(to, must(os.ReadFile(path))(t), 0o600))
		require.NoError(t, os.CopyFS(to+"-wal", os.DirFS(log)))
		require.NoError(t, os.CopyFS(to+"-manifest", os.DirFS(path+"-manifest")))
		copied, err := Open(to, Options{})
		if log == early {
			require.ErrorIs(t, err, store.ErrMisfit)
			require.ErrorIs(t, err, store.ErrCorrupt)
			require.ErrorContains(t, err, "dbctl backup")
			continue
		}
		require.NoError(t, err)
		require.Equal(t, "late", must(textOf(copied.Scope("acme"), "page"))(t))
		require.NoError(t, copied.Close())
	}
	require.NoError(t, db.Close())
}
