package engine

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/internal/codec"
)

// putting counts the rows that are put into a table.
type putting struct {
	Writer
	n map[Table]int
}

func (p putting) Put(t Table, key, value []byte) error {
	p.n[t]++
	return p.Writer.Put(t, key, value)
}

// A checkpoint with more outcomes than are kept writes only those that last, and the rows are the same as if it had written
// all of them. With a clock at its beginning, the control, it writes all.
func TestOutcomesThatLast(t *testing.T) {
	const old, more = 4_000, outcomesKept + 5_000
	for name, from := range map[string]uint64{"today": uint64(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()), "at the beginning": 0} {
		t.Run(name, func(t *testing.T) {
			tx := putting{memoryRows{newShared()}, map[Table]int{}}
			id := func(i int) (id ulid.ULID) {
				require.NoError(t, id.SetTime(from+uint64(i)))
				return id
			}
			var n RowCounts
			apply := func(o *overlay) {
				require.NoError(t, applyOverlay(tx, o, &n))
				sum, _ := SumRows(tx)
				require.Equal(t, sum, n.Sum)
				require.Equal(t, tx.Len(TableTxn), n.txn)
			}
			o := newOverlay()
			for i := range old {
				o.result[id(3*i)] = []byte("an old row")
			}
			apply(o)
			require.Equal(t, old, tx.n[TableTxn])

			want := maps.Clone(o.result)
			o = newOverlay()
			for i := range more {
				o.result[id(2*i)] = fmt.Appendf(nil, "row %d", i)
				if i%1000 == 7 { // gc dropped it
					o.result[id(2*i)] = nil
				}
			}
			apply(o)
			for k, row := range o.result {
				if want[k] = row; row == nil {
					delete(want, k)
				}
			}
			if from == 0 {
				require.Len(t, want, tx.Len(TableTxn))
				require.Equal(t, old+more-more/1000, tx.n[TableTxn])
				return
			}
			require.Equal(t, old+outcomesKept, tx.n[TableTxn])
			keys := slices.SortedFunc(maps.Keys(want), ulid.ULID.Compare)
			keys = keys[len(keys)-outcomesKept:]
			require.Equal(t, outcomesKept, tx.Len(TableTxn))
			at := 0
			for k, v := range tx.From(TableTxn, nil) {
				row := must(codec.Unseal('t', k, v))(t)
				require.Equal(t, keys[at][:], k)
				require.Equal(t, want[keys[at]], row)
				at++
			}
		})
	}
}
