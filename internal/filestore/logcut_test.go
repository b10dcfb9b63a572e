package filestore_test

import (
	"testing"

	. "github.com/ctxpage/ctxpage"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/filestore"
)

// A database that is only read from does not grow its log, nor the leaves it holds in memory, forever; and what was
// let go of is in the archive.
func TestReadsAloneCutTheLog(t *testing.T) {
	path := dbtest.Path(t)
	db := openTest(t, path, Options{}, filestore.Options{Rotate: 64 << 10})
	s := db.Scope("acme")
	must(s.Put(ctx, Artefact{ID: "a", Text: "read again and again"}))(t)
	for range 4 {
		for range 1500 {
			must(s.Get(ctx, "a"))(t)
		}
		must(db.Admin().Checkpoint(ctx))(t)
	}
	st := must(db.Stats(ctx))(t)
	require.EqualValues(t, 6001, st.Leaves)
	require.Equal(t, st.Leaves, st.Archived)
	require.Less(t, st.LogBytes, int64(500<<10), "four rounds of reads are about 800 KiB of log; two are kept at most")
	require.NoError(t, db.Close())

	db = openTest(t, path, Options{})
	must(db.Scope("acme").Get(ctx, "a"))(t)
	require.Empty(t, must(db.Admin().Check(ctx, nil))(t))
}
