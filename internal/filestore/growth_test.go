package filestore

import (
	"fmt"
	"math/rand"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/engine"
)

// headsIn puts heads of artefacts as checkpoints do, a transaction of 500 each: those of new artefacts, then new versions
// of some. With half set pages are made as bbolt makes them. It gives how full the pages of a bucket are.
func headsIn(t *testing.T, table engine.Table, half bool, arts, versions int) float64 {
	db := must(bbolt.Open(filepath.Join(t.TempDir(), "heads"), 0o600, &bbolt.Options{NoSync: true}))(t)
	defer db.Close()
	r := rand.New(rand.NewSource(1))
	key := func(art, version int) []byte {
		return codec.AppendOrdered(codec.AppendOrdered([]byte{metaHead}, uint64(art)), uint64(version))
	}
	for at := 0; at < arts+versions; at += 500 {
		require.NoError(t, db.Update(func(tx *bbolt.Tx) error {
			rows := rowsOf(tx)
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
	db := must(bbolt.Open(filepath.Join(t.TempDir(), "rows"), 0o600, nil))(t)
	defer db.Close()
	put := func(table engine.Table, keys ...string) (fill float64) {
		require.NoError(t, db.Update(func(tx *bbolt.Tx) error {
			rows := rowsOf(tx)
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
	require.Equal(t, bbolt.DefaultFillPercent, put(engine.TableHeld, "a", "b"), "not of this table")
	require.Equal(t, grownFill, put(engine.TableTxn, "a", "b"))
	require.Equal(t, bbolt.DefaultFillPercent, put(engine.TableTxn, "aa"))
}

// turnsIn puts a state row for each turn of some conversations, as checkpoints do: in each, every conversation has so many
// more turns behind its own, and its first row is written again. It gives how full the pages of the bucket are.
func turnsIn(t *testing.T, half bool, conversations, checkpoints, turns int) float64 {
	db := must(bbolt.Open(filepath.Join(t.TempDir(), "turns"), 0o600, &bbolt.Options{NoSync: true}))(t)
	defer db.Close()
	for at := range checkpoints {
		require.NoError(t, db.Update(func(tx *bbolt.Tx) error {
			rows := rowsOf(tx)
			for c := range conversations {
				for i := range turns {
					require.NoError(t, rows.Put(engine.TableState, fmt.Appendf(nil, "turn/%06d/%09d", c*7919%conversations, at*turns+i+1), make([]byte, 180)))
				}
				require.NoError(t, rows.Put(engine.TableState, fmt.Appendf(nil, "turn/%06d/%09d", c*7919%conversations, 0), make([]byte, 180)))
			}
			if half {
				rows.bucket(engine.TableState).FillPercent = bbolt.DefaultFillPercent
			}
			return nil
		}))
	}
	full := 0.0
	require.NoError(t, db.View(func(tx *bbolt.Tx) error {
		st := tx.Bucket(bucketState).Stats()
		full = float64(st.LeafInuse) / float64(st.LeafAlloc)
		return nil
	}))
	return full
}

// Turns of conversations fill their pages; the control is bbolt's own way. A turn here and there keeps the space it needs.
func TestTurnsFillTheirPages(t *testing.T) {
	require.Less(t, turnsIn(t, true, 8, 10, 200), .6)
	require.Greater(t, turnsIn(t, false, 8, 10, 200), .75)

	half, grown := turnsIn(t, true, 500, 15, 2), turnsIn(t, false, 500, 15, 2)
	require.Greater(t, grown, half-.02, "a few turns of each of many conversations")
}

func TestGrowthOfStateCountsRuns(t *testing.T) {
	db := must(bbolt.Open(filepath.Join(t.TempDir(), "rows"), 0o600, nil))(t)
	defer db.Close()
	put := func(keys ...string) (g growth) {
		require.NoError(t, db.Update(func(tx *bbolt.Tx) error {
			rows := rowsOf(tx)
			for _, k := range keys {
				require.NoError(t, rows.Put(engine.TableState, []byte(k), []byte("x")))
			}
			g = rows.growth[engine.TableState]
			return nil
		}))
		return g
	}
	count := func(within, behind int, keys ...string) {
		t.Helper()
		g := put(keys...)
		require.Equal(t, []int{within, behind}, []int{g.within, g.behind})
	}
	count(1, 2, "a1", "a2", "a3")
	count(1, 1, "b1", "b2")
	count(2, 2, "a4", "a5", "b3", "b4") // b1 and b2 stand between
	count(1, 1, "a1", "a2", "a6", "a7") // two take their own places
	count(2, 0, "c2", "c1")             // not in order
}
