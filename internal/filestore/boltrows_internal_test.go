package filestore

import (
	"encoding/binary"
	"testing"

	"github.com/ctxpage/ctxpage/internal/engine"
	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
)

// A table of which one transaction reads many rows is read through one cursor: rows that are there, before, between and
// behind them, and rows that the transaction itself wrote and deleted. The control is a table that keeps none.
func TestReadsOfManyRows(t *testing.T) {
	db := must(bbolt.Open(t.TempDir()+"/rows", 0o600, nil))(t)
	defer db.Close()
	const rows = 2000
	key := func(n int) []byte { return binary.BigEndian.AppendUint32(nil, uint32(n)) }
	require.NoError(t, db.Update(func(tx *bbolt.Tx) error {
		r := rowsOf(tx)
		for _, table := range []engine.Table{engine.TableSeg, engine.TableHeld} {
			for n := 1; n < rows; n += 2 {
				require.NoError(t, r.Put(table, key(n), key(n*n)))
				require.Equal(t, key(n*n), r.Get(table, key(n)))
			}
			require.NoError(t, r.Delete(table, key(7)))
			require.Nil(t, r.Get(table, key(7)))
		}
		return nil
	}))
	require.NoError(t, db.View(func(tx *bbolt.Tx) error {
		r := rowsOf(tx)
		read := func(table engine.Table) float64 {
			keys := make([][]byte, 100)
			for i := range keys {
				keys[i] = key(i * 997 % (rows + 50))
			}
			require.Equal(t, key(1), r.Get(table, key(1)))
			for n := range rows + 50 {
				if n%2 == 0 || n == 7 || n > rows {
					require.Nil(t, r.Get(table, key(n)), n)
				} else {
					require.Equal(t, key(n*n), r.Get(table, key(n)))
				}
			}
			return testing.AllocsPerRun(10, func() {
				for _, k := range keys {
					r.Get(table, k)
				}
			})
		}
		require.Zero(t, read(engine.TableSeg))
		require.NotZero(t, read(engine.TableHeld))
		return nil
	}))
	allocs := map[engine.Table]float64{}
	require.NoError(t, db.Update(func(tx *bbolt.Tx) error {
		r := rowsOf(tx)
		for _, table := range []engine.Table{engine.TableSeg, engine.TableHeld} {
			require.NoError(t, r.Delete(table, key(2)), "not there")
			require.NoError(t, r.Delete(table, key(rows+9)), "behind all")
			n := 1
			allocs[table] = testing.AllocsPerRun(400, func() {
				if n != 7 {
					require.Equal(t, key(n*n), r.Get(table, key(n)))
				}
				require.NoError(t, r.Delete(table, key(n)))
				n += 2
			})
			for m := 1; m < rows; m += 2 {
				require.Equal(t, m < n, r.Get(table, key(m)) == nil, m)
			}
			require.NoError(t, r.Put(table, key(1), key(1)), "between deletions")
			require.NoError(t, r.Delete(table, key(n)))
			require.Equal(t, key(1), r.Get(table, key(1)))
		}
		return nil
	}))
	require.Less(t, allocs[engine.TableSeg]+1, allocs[engine.TableHeld], "%v", allocs)
}
