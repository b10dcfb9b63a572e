package pgstore

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

// Migrations of a release never change, and later ones stand behind them: goose does not repeat what a server has carried out, so a
// changed one would leave two kinds of servers (make freeze).
func TestReleasedMigrations(t *testing.T) {
	now, err := fs.Sub(migrations, "migrations")
	require.NoError(t, err)
	dirs, err := filepath.Glob("testdata/released/v*")
	require.NoError(t, err)
	require.NotEmpty(t, dirs)
	for _, dir := range dirs {
		require.Empty(t, changedMigrations(t, os.DirFS(dir), now), dir)
	}

	control := fstest.MapFS{"00001_log.sql": {Data: []byte("-- another")}, "00000_before.sql": {Data: []byte("-- before")}}
	require.Contains(t, changedMigrations(t, os.DirFS(dirs[0]), control), "00001_log.sql changed")
	require.Contains(t, changedMigrations(t, os.DirFS(dirs[0]), control), "00000_before.sql stands before a released one")
}

// changedMigrations lists what a server that has carried out some migrations would miss of others.
func changedMigrations(t *testing.T, released, now fs.FS) (out []string) {
	t.Helper()
	was, last := map[string]bool{}, ""
	names, err := fs.Glob(released, "*.sql")
	require.NoError(t, err)
	require.NotEmpty(t, names)
	for _, name := range names {
		was[name], last = true, max(last, name)
		want, err := fs.ReadFile(released, name)
		require.NoError(t, err)
		if got, err := fs.ReadFile(now, name); err != nil || string(got) != string(want) {
			out = append(out, name+" changed")
		}
	}
	names, err = fs.Glob(now, "*.sql")
	require.NoError(t, err)
	for _, name := range names {
		if !was[name] && name < last {
			out = append(out, name+" stands before a released one")
		}
	}
	return out
}
