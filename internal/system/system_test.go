package system_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ctxpage/ctxpage/internal/system"
	"github.com/stretchr/testify/require"
)

// A lock keeps other handles from locking and nobody from reading and writing.
func TestLocks(t *testing.T) {
	name := filepath.Join(t.TempDir(), "lock")
	a, err := system.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	require.NoError(t, err)
	defer a.Close()
	b, err := system.OpenFile(name, os.O_RDWR, 0)
	require.NoError(t, err)
	defer b.Close()
	require.NoError(t, system.TryLock(a, false))
	require.ErrorIs(t, system.TryLock(b, false), system.ErrBusy)
	require.ErrorIs(t, system.TryLock(b, true), system.ErrBusy)
	_, err = b.WriteAt([]byte("free"), 0)
	require.NoError(t, err)
	got := make([]byte, 4)
	_, err = a.ReadAt(got, 0)
	require.NoError(t, err)
	require.Equal(t, "free", string(got))
	require.NoError(t, system.Unlock(a))
	require.NoError(t, system.TryLock(b, true))
	require.NoError(t, system.TryLock(a, true), "readers share")
	require.NoError(t, system.Unlock(a))
	require.ErrorIs(t, system.TryLock(a, false), system.ErrBusy)
	require.NoError(t, b.Close(), "which ends its lock")
	require.NoError(t, system.Lock(a))
}

// What is open is renamed and removed, and read on.
func TestOpenFilesMove(t *testing.T) {
	dir := t.TempDir()
	name, moved := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	f, err := system.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	require.NoError(t, err)
	_, err = f.Write([]byte("text"))
	require.NoError(t, err)
	_, err = system.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	require.ErrorIs(t, err, os.ErrExist)
	require.NoError(t, os.Rename(name, moved))
	_, err = system.OpenFile(name, os.O_RDONLY, 0)
	require.ErrorIs(t, err, os.ErrNotExist)
	more, err := system.OpenFile(moved, os.O_WRONLY|os.O_APPEND, 0)
	require.NoError(t, err)
	_, err = more.Write([]byte(" and more"))
	require.NoError(t, err)
	require.NoError(t, more.Close())
	require.NoError(t, os.Remove(moved))
	b, err := io.ReadAll(io.NewSectionReader(f, 0, 100))
	require.NoError(t, err)
	require.Equal(t, "text and more", string(b))
	require.NoError(t, f.Close())
	require.NoFileExists(t, moved)
	empty, err := system.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	require.NoError(t, err)
	require.NoError(t, empty.Close())
	require.Equal(t, uint64(1), links(t, name))
	require.NoError(t, os.Link(name, moved))
	require.Equal(t, uint64(2), links(t, name))
}

func links(t *testing.T, name string) uint64 {
	t.Helper()
	st, err := os.Lstat(name)
	require.NoError(t, err)
	return system.Links(name, st)
}

const childEnv = "CTXPAGE_SYSTEM_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		fmt.Println("ready")
		_, _ = io.Copy(io.Discard, os.Stdin)
		return
	}
	os.Exit(m.Run())
}

// A process is alive until it is killed; its lock ends with it.
func TestAlive(t *testing.T) {
	require.True(t, system.Alive(os.Getpid()))
	require.False(t, system.Alive(0))
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), childEnv+"=1")
	_, err = cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	_, err = io.ReadFull(out, make([]byte, len("ready")))
	require.NoError(t, err)
	require.True(t, system.Alive(cmd.Process.Pid))
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	require.False(t, system.Alive(cmd.Process.Pid))
}

func TestErrors(t *testing.T) {
	require.True(t, system.NoSpace(&os.PathError{Op: "write", Path: "x", Err: system.ErrNoSpace}))
	require.False(t, system.NoSpace(os.ErrNotExist))
	require.False(t, system.Passing(system.ErrNoSpace))
}

// A file that somebody reads is replaced, as soon as nobody reads it any more where the system asks for that.
func TestRenameOverAnOpenFile(t *testing.T) {
	dir := t.TempDir()
	name, next := filepath.Join(dir, "mark"), filepath.Join(dir, "mark.tmp")
	require.NoError(t, os.WriteFile(name, []byte("old"), 0o600))
	require.NoError(t, os.WriteFile(next, []byte("new"), 0o600))
	reader, err := system.OpenFile(name, os.O_RDONLY, 0)
	require.NoError(t, err)
	if !system.ReplacesOpen {
		require.Error(t, os.Rename(next, name), "the control")
	}
	closed := make(chan error, 1)
	go func() { closed <- reader.Close() }()
	require.NoError(t, system.Rename(next, name))
	require.NoError(t, <-closed)
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	require.Equal(t, "new", string(text))
	require.ErrorIs(t, system.Rename(next, name), os.ErrNotExist)
}

// A file is renamed only where there is none, also by many at once.
func TestRenameNew(t *testing.T) {
	dir := t.TempDir()
	to := filepath.Join(dir, "to")
	var done atomic.Int32
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			from := filepath.Join(dir, fmt.Sprint(i))
			if err := os.WriteFile(from, []byte(from), 0o600); err != nil {
				t.Error(err)
				return
			}
			switch err := system.RenameNew(from, to); {
			case err == nil:
				done.Add(1)
				if _, err := os.Stat(from); !errors.Is(err, fs.ErrNotExist) {
					t.Error("two names: ", err)
				}
			case !errors.Is(err, fs.ErrExist):
				t.Error(err)
			}
			var text []byte
			err := system.Patiently(func() (err error) {
				text, err = os.ReadFile(to)
				return err
			})
			if err != nil || len(text) == 0 {
				t.Error("half written: ", string(text), err)
			}
		})
	}
	all.Wait()
	require.EqualValues(t, 1, done.Load())
	require.ErrorIs(t, system.RenameNew(filepath.Join(dir, "none"), filepath.Join(dir, "other")), fs.ErrNotExist)
}
