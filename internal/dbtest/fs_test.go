package dbtest_test

import (
	"bytes"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/wal"
)

func create(t *testing.T, f *dbtest.FS, name string) wal.File {
	t.Helper()
	h, err := f.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	require.NoError(t, err)
	return h
}

func write(t *testing.T, h wal.File, off int64, s string) {
	t.Helper()
	_, err := h.WriteAt([]byte(s), off)
	require.NoError(t, err)
}

func TestPowerCutKeepsWhatWasSyncedAndNothingElse(t *testing.T) {
	f := dbtest.NewFS()
	require.NoError(t, f.MkdirAll("d", 0o700))
	require.NoError(t, f.SyncDir("."))
	a, b := create(t, f, "d/a"), create(t, f, "d/b")
	write(t, a, 0, "synced")
	require.NoError(t, a.Sync())
	require.NoError(t, f.SyncDir("d"))
	write(t, a, 6, " lost")
	write(t, b, 0, "lost")
	create(t, f, "d/c")
	require.NoError(t, f.Rename("d/b", "d/e"))

	c := f.CrashClone(1, 0)
	names, err := c.ReadDir("d")
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b"}, names, "unsynced create and rename are undone")
	got, err := c.ReadFile("d/a")
	require.NoError(t, err)
	require.Equal(t, "synced", string(got))
	got, _ = c.ReadFile("d/b")
	require.Empty(t, got)

	all := f.CrashClone(1, 100)
	names, _ = all.ReadDir("d")
	require.Equal(t, []string{"a", "c", "e"}, names)
	got, _ = all.ReadFile("d/a")
	require.Equal(t, "synced lost", string(got))
}

func TestFileWithoutDirectorySyncIsGone(t *testing.T) {
	f := dbtest.NewFS()
	h := create(t, f, "a")
	write(t, h, 0, "x")
	require.NoError(t, h.Sync())
	_, err := f.CrashClone(1, 0).ReadFile("a")
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestWritesTearAtSectors(t *testing.T) {
	f := dbtest.NewFS()
	h := create(t, f, "a")
	require.NoError(t, f.SyncDir("."))
	write(t, h, 0, string(bytes.Repeat([]byte{1}, 100*512)))
	require.NoError(t, h.Sync())
	write(t, h, 0, string(bytes.Repeat([]byte{2}, 100*512)))
	images := map[string]bool{}
	for seed := range uint64(20) {
		got, err := f.CrashClone(seed, 50).ReadFile("a")
		require.NoError(t, err)
		again, _ := f.CrashClone(seed, 50).ReadFile("a")
		require.Equal(t, got, again, "same seed, same clone")
		for s := 0; s < len(got); s += 512 {
			require.Equal(t, bytes.Repeat(got[s:s+1], 512), got[s:s+512])
		}
		images[string(got)] = true
	}
	require.Greater(t, len(images), 15)
}

func TestFailedSyncIsNotMadeGoodByALaterOne(t *testing.T) {
	f := dbtest.NewFS()
	h := create(t, f, "a")
	require.NoError(t, f.SyncDir("."))
	write(t, h, 0, "one")
	f.Inject(dbtest.Fault{Op: dbtest.OpSync})
	require.ErrorIs(t, h.Sync(), syscall.EIO)
	require.NoError(t, h.Sync())
	now, _ := f.ReadFile("a")
	require.Equal(t, "one", string(now), "the page cache shows it")
	after, _ := f.CrashClone(1, 100).ReadFile("a")
	require.Empty(t, after, "the disk never got it")
}

func TestFaults(t *testing.T) {
	f := dbtest.NewFS()
	h := create(t, f, "a")
	f.Inject(dbtest.Fault{Op: dbtest.OpWrite, Name: "a", N: 2, Err: syscall.ENOSPC, Short: 3, Sticky: true})
	write(t, h, 0, "fine")
	for range 2 {
		n, err := h.WriteAt([]byte("torn off"), 4)
		require.ErrorIs(t, err, syscall.ENOSPC)
		require.Equal(t, 3, n)
	}
	f.Heal()
	write(t, h, 7, "!")
	got, _ := f.ReadFile("a")
	require.Equal(t, "finetor!", string(got))
	require.Equal(t, "create a\nwrite a 0+4\nwrite a 4+8: no space left on device\nwrite a 4+8: no space left on device\nwrite a 7+1", f.Trace())
}

func TestLimit(t *testing.T) {
	f := dbtest.NewFS()
	h := create(t, f, "a")
	write(t, h, 0, "12345678")
	f.Limit(10)
	n, err := h.WriteAt([]byte("abcdef"), 6)
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.Equal(t, 4, n)
	write(t, h, 0, "overwriting needs no space"[:10])
}

func TestCloneIsApart(t *testing.T) {
	f := dbtest.NewFS()
	h := create(t, f, "a")
	write(t, h, 0, "one")
	c := f.Clone()
	write(t, h, 0, "two")
	ch, err := c.OpenFile("a", os.O_RDWR, 0)
	require.NoError(t, err)
	write(t, ch, 0, "six")
	got, _ := c.CrashClone(1, 0).ReadFile("a")
	require.Equal(t, "one", string(got), "what a clone shows is durable, what is written to it later is not")
	got, _ = f.ReadFile("a")
	require.Equal(t, "two", string(got))
}
