package wal_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/wal"
)

// dirSyncs counts the syncs of directories.
type dirSyncs struct {
	wal.FS
	of map[string]int
}

func (d dirSyncs) SyncDir(dir string) error {
	d.of[dir]++
	return d.FS.SyncDir(dir)
}

// TestSyncAbove: a directory above a new log is synced again only if it has changed since this process synced it. The directory that
// has the log is synced for each. The control is a directory whose change is too young to tell from another one.
func TestSyncAbove(t *testing.T) {
	top := t.TempDir()
	mid := filepath.Join(top, "mid")
	home := filepath.Join(mid, "home")
	require.NoError(t, os.MkdirAll(home, 0o700))
	old := time.Now().Add(-time.Hour)
	age := func(dir string) { old = old.Add(time.Minute); require.NoError(t, os.Chtimes(dir, old, old)) }
	age(mid)
	of := map[string]int{}
	opened := 0
	open := func() {
		opened++
		l, _, err := wal.Open(ctx, filepath.Join(home, string(rune('a'+opened))), wal.Options{FS: dirSyncs{wal.OS(), of}}, nil)
		require.NoError(t, err)
		require.NoError(t, l.Close(wal.KindMark, nil))
		require.Equal(t, opened, of[home])
	}
	open()
	require.Equal(t, 1, of[mid])
	require.Equal(t, 1, of[top])
	open()
	require.Equal(t, 1, of[mid], "nothing has changed there")
	require.Equal(t, 2, of[top], "the control: made a moment ago")
	require.NoError(t, os.Mkdir(filepath.Join(mid, "other"), 0o700))
	open()
	require.Equal(t, 2, of[mid])
	age(mid)
	open()
	require.Equal(t, 3, of[mid])
	open()
	require.Equal(t, 3, of[mid])
}
