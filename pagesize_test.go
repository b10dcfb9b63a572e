package ctxpage

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/erase"
	"github.com/ctxpage/ctxpage/filestore"
	"github.com/ctxpage/ctxpage/internal/dbtest"
)

func pageSizeOf(t *testing.T, path string) int64 {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	st, err := f.Stat()
	require.NoError(t, err)
	m, err := names.Newest(f, st.Size())
	require.NoError(t, err)
	return m.PageSize
}

// TestPageSizeStays: a file keeps the size of the pages it was made with, through writes, compaction, erase, backup and
// restore, with a key and without.
func TestPageSizeStays(t *testing.T) {
	ctx := context.Background()
	const older = 4096
	fresh := filepath.Join(t.TempDir(), "fresh.ctx")
	putText(t, fresh, "page", "text")
	require.EqualValues(t, names.PageSize, pageSizeOf(t, fresh), "control: a new file")
	for path, opts := range map[string]Options{openGolden(t, 4): {}, filepath.Join(oldSealed(t), "agent.ctx"): {Key: testKey(7)}} {
		stays := func(at string) {
			t.Helper()
			require.EqualValues(t, older, pageSizeOf(t, at), at)
		}
		stays(path)
		db := openTest(t, path, opts)
		s := db.Scope("acme/bulk")
		text := func(i int) string { return fmt.Sprint(i, " words of a text that says something") }
		for i := range 200 {
			_, err := s.Put(ctx, Artefact{ID: fmt.Sprint("page-", i), Text: text(i)})
			require.NoError(t, err)
		}
		_, err := db.Checkpoint(ctx)
		require.NoError(t, err)
		stays(path)
		_, err = db.Erase(ctx, erase.Request{Refs: []Ref{{Scope: "acme/bulk", ID: "page-8"}}, By: "operator", Reason: "asked for"})
		require.NoError(t, err)
		stays(path)
		_, err = db.Compact(ctx, false, nil)
		require.NoError(t, err)
		stays(path)
		backup := filepath.Join(t.TempDir(), "backup.ctx")
		_, err = db.Backup(ctx, backup, nil)
		require.NoError(t, err)
		stays(backup)
		require.NoError(t, db.Close())
		_, err = filestore.Restore(ctx, backup, path, filestore.RestoreOptions{Replace: true, Key: opts.Key})
		require.NoError(t, err)
		stays(path)
		db = openTest(t, path, opts)
		got, err := textOf(db.Scope("acme/bulk"), "page-7")
		require.NoError(t, err)
		require.Equal(t, text(7), got)
		problems, err := db.Check(ctx, nil)
		require.NoError(t, err)
		require.Empty(t, problems)
		require.NoError(t, db.Close())
	}
}

// TestSalvageFindsPageSize: a file of which both meta pages are damaged is salvaged whatever the size of its pages.
func TestSalvageFindsPageSize(t *testing.T) {
	ctx := context.Background()
	for _, format := range []int{4, 0} { // pages of 4 KiB, pages of a new file
		path := dbtest.MemoryPath(t)
		if format > 0 {
			path = openGolden(t, format)
		}
		db := openTest(t, path, Options{})
		s := db.Scope("acme/bulk")
		for i := range 60 {
			_, err := s.Put(ctx, Artefact{ID: fmt.Sprint("page-", i), Text: fmt.Sprint(i, " words of a text that says something")})
			require.NoError(t, err)
		}
		_, err := db.Checkpoint(ctx)
		require.NoError(t, err)
		require.NoError(t, db.Close())
		size := pageSizeOf(t, path)
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		require.NoError(t, err)
		for id := range int64(2) {
			_, err = f.WriteAt(make([]byte, names.MetaHead+names.MetaSize), id*size)
			require.NoError(t, err)
		}
		require.NoError(t, f.Close())
		require.NoError(t, os.RemoveAll(path+"-wal"), "the log has all of it, too")
		to := filepath.Join(t.TempDir(), "salvaged.ctx")
		_, err = Salvage(ctx, path, to, filestore.SalvageOptions{})
		require.NoError(t, err)
		db = openTest(t, to, Options{})
		got, err := textOf(db.Scope("acme/bulk"), "page-7")
		require.NoError(t, err, "pages of %d bytes", size)
		require.Equal(t, "7 words of a text that says something", got)
		require.NoError(t, db.Close())
	}
}
