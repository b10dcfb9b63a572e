package filestore

import (
	"context"
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
	ctx := context.Background()
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
				lock, err := TakeLock(opts)
				require.NoError(t, err)
				own := opts
				own.Lock = lock
				st, err := Open(own)
				require.NoError(t, err)
				return st
			}
			end := func(st *Store) {
				require.NoError(t, st.Close())
				require.NoError(t, st.opts.Lock.Release())
			}
			fill := func(st *Store, from, to int) {
				for n := from; n < to; n++ {
					_, err := put(st, store.ActApply, store.Artefact{ID: fmt.Sprint("page-", n)}, fmt.Sprint("zebra ", n))
					require.NoError(t, err)
				}
			}
			st := open()
			fill(st, 0, 20)
			end(st)
			st = open()
			fill(st, 20, 25)
			if c.checkpoint {
				_, err := st.Maintain(ctx, store.Job{Kind: store.JobCheckpoint}, nil)
				require.NoError(t, err)
				fill(st, 25, 26)
			}
			last, err := st.Resolve(ctx, store.Scopes{"acme"}, store.Ref{ID: "page-24"})
			require.NoError(t, err)
			if c.vectors {
				require.NoError(t, st.PutVectors(ctx, "model", []uint64{last.Pages[0].Num}, [][]float32{{1, 2}}))
			}
			lsn := st.Mark().LSN
			if c.wanted {
				st.opts.Lock.Wanted()
			}
			end(st)

			st = open()
			is, err := st.Stat(ctx)
			require.NoError(t, err)
			require.Equal(t, lsn, is.LSN)
			require.Equal(t, c.applied, is.Applied == lsn, "applied %d of %d", is.Applied, lsn)
			require.Equal(t, c.columns, is.ColumnsRead)
			for n := range 25 {
				_, err := st.Resolve(ctx, store.Scopes{"acme"}, store.Ref{ID: fmt.Sprint("page-", n)})
				require.NoError(t, err)
			}
			vecs, err := st.Vectors(ctx, store.Scopes{"acme"}, "model", []uint64{last.Pages[0].Num})
			require.NoError(t, err)
			require.Equal(t, c.vectors, vecs[0] != nil)
			leaves, err := st.Audit().Records(ctx, 0, is.Leaves, false, 1000)
			require.NoError(t, err)
			for _, leaf := range leaves {
				require.NotEqual(t, manifest.TypeRecovered, leaf.Type, "the end was clean")
			}
			rep, err := st.Maintain(ctx, store.Job{Kind: store.JobCheck}, nil)
			require.NoError(t, err)
			require.Empty(t, rep.Problems)
			end(st)

			st = open()
			defer end(st)
			is, err = st.Stat(ctx)
			require.NoError(t, err)
			require.True(t, is.ColumnsRead, "an end that nobody waits for keeps the snapshot")
		})
	}
}
