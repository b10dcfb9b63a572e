package filestore_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	. "github.com/ctxpage/ctxpage"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/filestore"
)

func pageSizeOf(t *testing.T, path string) int64 {
	t.Helper()
	f := must(os.Open(path))(t)
	defer f.Close()
	st := must(f.Stat())(t)
	return must(names.Newest(f, st.Size()))(t).PageSize
}

// TestSalvageFindsPageSize: a file of which both meta pages are damaged is salvaged whatever the size of its pages.
func TestSalvageFindsPageSize(t *testing.T) {
	{
		path := dbtest.MemoryPath(t)
		db := openTest(t, path, Options{})
		s := db.Scope("acme/bulk")
		for i := range 60 {
			must(s.Put(ctx, Artefact{ID: fmt.Sprint("page-", i), Text: fmt.Sprint(i, " words of a text that says something")}))(t)
		}
		must(db.Admin().Checkpoint(ctx))(t)
		require.NoError(t, db.Close())
		size := pageSizeOf(t, path)
		f := must(os.OpenFile(path, os.O_RDWR, 0))(t)
		for id := range int64(2) {
			must(f.WriteAt(make([]byte, names.MetaHead+names.MetaSize), id*size))(t)
		}
		require.NoError(t, f.Close())
		require.NoError(t, os.RemoveAll(path+"-wal"), "the log has all of it, too")
		to := filepath.Join(t.TempDir(), "salvaged.ctx")
		must(Salvage(ctx, path, to, filestore.SalvageOptions{}))(t)
		db = openTest(t, to, Options{})
		got, err := textOf(db.Scope("acme/bulk"), "page-7")
		require.NoError(t, err, "pages of %d bytes", size)
		require.Equal(t, "7 words of a text that says something", got)
		require.NoError(t, db.Close())
	}
}
