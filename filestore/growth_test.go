package filestore

import (
	"encoding/binary"
	"math/rand"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/ctxpage/ctxpage/engine"
)

// headsIn puts heads of artefacts as checkpoints do, a transaction of 500 each: those of new artefacts, then new versions
// of some. With half set pages are made as bbolt makes them. It gives how full the pages of a bucket are.
func headsIn(t *testing.T, table engine.Table, half bool, arts, versions int) float64 {
	db, err := bbolt.Open(filepath.Join(t.TempDir(), "heads"), 0o600, &bbolt.Options{NoSync: true})
	require.NoError(t, err)
	defer db.Close()
	r := rand.New(rand.NewSource(1))
	key := func(art, version int) []byte {
		return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64([]byte{metaHead}, uint64(art)), uint32(version))
	}
	for at := 0; at < arts+versions; at += 500 {
		require.NoError(t, db.Update(func(tx *bbolt.Tx) error {
			rows := newBoltRows(tx)
			require.NoError(t, rows.Put(table, []byte{'s', 0, 0, 0, 1}, []byte("acme/support")))
			for i := at; i < at+500; i++ {
				k := key(i, 1)
				if i >= arts {
					k = key(r.Intn(arts), 2+i)
				}
				require.NoError(t, rows.Put(table, k, make([]byte, 180)))
			}
			if half {
				rows.bucket(table).FillPercent = bbolt.DefaultFillPercent
			}
			return nil
		}))
	}
	full := 0.0
	require.NoError(t, db.View(func(tx *bbolt.Tx) error {
		st := tx.Bucket(bucketNames[table]).Stats()
		full = float64(st.LeafInuse) / float64(st.LeafAlloc)
		return nil
	}))
	return full
}

// Heads that only grow fill their pages; the control is bbolt's own way. New versions among them keep the space they need.
func TestHeadsFillTheirPages(t *testing.T) {
	require.Less(t, headsIn(t, engine.TableMeta, true, 20_000, 0), .6)
	require.Greater(t, headsIn(t, engine.TableMeta, false, 20_000, 0), .8)

	half, grown := headsIn(t, engine.TableMeta, true, 10_000, 20_000), headsIn(t, engine.TableMeta, false, 10_000, 20_000)
	require.Greater(t, grown, half-.02, "new versions everywhere")
}

func TestGrowthCountsWhatLiesBetween(t *testing.T) {
	db, err := bbolt.Open(filepath.Join(t.TempDir(), "rows"), 0o600, nil)
	require.NoError(t, err)
	defer db.Close()
	put := func(table engine.Table, keys ...string) (fill float64) {
		require.NoError(t, db.Update(func(tx *bbolt.Tx) error {
			rows := newBoltRows(tx)
			for _, k := range keys {
				require.NoError(t, rows.Put(table, []byte(k), []byte("x")))
			}
			fill = rows.bucket(table).FillPercent
			return nil
		}))
		return fill
	}
	require.Equal(t, grownFill, put(engine.TableMeta, "h5", "s1"))
	require.Equal(t, grownFill, put(engine.TableMeta, "h6", "h7"), "scopes do not count")
	require.Equal(t, bbolt.DefaultFillPercent, put(engine.TableMeta, "h1", "h8"))
	require.Equal(t, grownFill, put(engine.TableMeta, "h2", "ha", "hb", "hc", "hd", "he", "hf", "hg", "hh"), "one in eight")
	require.Equal(t, bbolt.DefaultFillPercent, put(engine.TableState, "a", "b"), "not of this table")
	require.Equal(t, grownFill, put(engine.TableTxn, "a", "b"))
	require.Equal(t, bbolt.DefaultFillPercent, put(engine.TableTxn, "aa"))
}
