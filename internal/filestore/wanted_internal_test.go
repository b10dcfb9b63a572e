package filestore

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// A store whose lock is wanted closes without a checkpoint of a short log and without a new snapshot of the columns: the next
// owner has everything, in a clean database. It reads the snapshot from before if that is of its rows, and writes a new one when
// nobody waits. The control: a lock that nobody wants.
func TestCloseForTheNextOwner(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		wanted, vectors, checkpoint, applied, columns bool
	}{
		"wanted":                    {wanted: true, columns: true},
		"not wanted":                {applied: true, columns: true},
		"with vectors":              {wanted: true, vectors: true, applied: true, columns: true},
		"with an outdated snapshot": {wanted: true, checkpoint: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := dbtest.MemoryPath(t)
			opts := Options{Path: path, Columns: 1}
			open := func() *Store {
				lock := must(TakeLock(opts))(t)
				own := opts
				own.Lock = lock
				return must(Open(own))(t)
			}
			end := func(st *Store) {
				require.NoError(t, st.Close())
				require.NoError(t, st.opts.Lock.Release())
			}
			fill := func(st *Store, from, to int) {
				for n := from; n < to; n++ {
					must(put(st, store.ActApply, store.Artefact{ID: fmt.Sprint("page-", n)}, fmt.Sprint("zebra ", n)))(t)
				}
			}
			st := open()
			fill(st, 0, 20)
			end(st)
			st = open()
			fill(st, 20, 25)
			if c.checkpoint {
				must(st.Maintain(ctx, store.Job{Kind: store.JobCheckpoint}, nil))(t)
				fill(st, 25, 26)
			}
			last := must(st.Resolve(ctx, store.Scopes{"acme"}, store.Ref{ID: "page-24"}))(t)
			if c.vectors {
				require.NoError(t, st.PutVectors(ctx, "model", []uint64{last.Pages[0].Num}, [][]float32{{1, 2}}))
			}
			lsn := st.Mark().LSN
			if c.wanted {
				st.opts.Lock.Wanted()
			}
			end(st)

			st = open()
			is := must(st.Stat(ctx))(t)
			require.Equal(t, lsn, is.LSN)
			require.Equal(t, c.applied, is.Applied == lsn, "applied %d of %d", is.Applied, lsn)
			require.Equal(t, c.columns, is.ColumnsRead)
			for n := range 25 {
				must(st.Resolve(ctx, store.Scopes{"acme"}, store.Ref{ID: fmt.Sprint("page-", n)}))(t)
			}
			vecs := must(st.Vectors(ctx, store.Scopes{"acme"}, "model", []uint64{last.Pages[0].Num}))(t)
			require.Equal(t, c.vectors, vecs[0] != nil)
			for _, leaf := range must(st.Audit().Records(ctx, 0, is.Leaves, false, 1000))(t) {
				require.NotEqual(t, manifest.TypeRecovered, leaf.Type, "the end was clean")
			}
			require.Empty(t, must(st.Maintain(ctx, store.Job{Kind: store.JobCheck}, nil))(t).Problems)
			end(st)

			st = open()
			defer end(st)
			is = must(st.Stat(ctx))(t)
			require.True(t, is.ColumnsRead, "an end that nobody waits for keeps the snapshot")
		})
	}
}
