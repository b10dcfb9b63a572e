package engine

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"
	"github.com/vmihailenco/msgpack/v5"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/store"
)

// outcomeRows have every field set in one of them at least.
func outcomeRows(t *testing.T) []outcomeRow {
	refs := []store.Ref{{Scope: "acme/über", ID: "a", Page: 1, Version: 1}, {ID: "b", Page: 70_000, Version: math.MaxUint32}, {Page: -1}, {Scope: "s", ID: "page-12", Version: 1}, {Scope: "s", ID: "page-1", Version: 1}}
	rows := []outcomeRow{
		{},
		{Outcome: store.Outcome{Status: store.StatusHeld, LSN: 1 << 40, Leaf: 3, Refs: refs[:1]}, Bound: []byte("0123456789abcdef")},
		{Outcome: store.Outcome{Status: store.StatusRejected, LSN: math.MaxUint64, Reason: "stale context", Refs: refs, Stale: refs[1:]}},
		{Outcome: store.Outcome{Status: 200, Leaf: math.MaxUint64, Refs: make([]store.Ref, 20), Stale: refs, Repeats: refs}, Bound: make([]byte, 300)},
		{Outcome: store.Outcome{LSN: 7}, Unknown: []byte{99, 2, 'h', 'i'}},
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[outcomeRow]()) {
		set := func(r outcomeRow) bool { return !reflect.ValueOf(r).FieldByIndex(f.Index).IsZero() }
		require.True(t, slices.ContainsFunc(rows, set), "no row here has field %s", f.Name)
	}
	return rows
}

// A row decodes to what was encoded, also the fields of a later release. A field that is added to an outcome fails this until a row has it.
func TestOutcomeRow(t *testing.T) {
	for i, want := range outcomeRows(t) {
		row := want.encode()
		got, err := decodeOutcome(row)
		require.NoError(t, err)
		require.Equal(t, want, got, "row %d", i)
		require.Equal(t, row, got.encode())
	}
}

// A row cut anywhere is refused or is one of fewer fields; a newer version is told from damage.
func TestOutcomeRowMalformed(t *testing.T) {
	for _, r := range outcomeRows(t) {
		row := r.encode()
		for n := range row {
			if got, err := decodeOutcome(row[:n]); err == nil {
				require.Equal(t, row[:n], got.encode())
			}
		}
		row[0]++
		_, err := decodeOutcome(row)
		require.ErrorIs(t, err, codec.ErrNewer)
	}
	for name, refs := range map[string][]byte{
		"a count too big":         {200},
		"more of the id than was": {1, 0, 1, 1, 'a'},
		"a version too big":       {1, refVersion, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x7f},
	} {
		_, err := decodeOutcome(append([]byte{outcomeVersion, 4, byte(len(refs))}, refs...))
		require.ErrorIs(t, err, codec.ErrMalformed, name)
	}
	_, err := decodeOutcome([]byte{outcomeVersion, 4, 4, 1, refBits + 1, 0, 0})
	require.ErrorIs(t, err, codec.ErrNewer)
}

// A transaction of many puts names each in a few bytes; as a map by names, the control, it takes ten times that.
func TestOutcomeRowIsSmall(t *testing.T) {
	r := outcomeRow{Outcome: store.Outcome{LSN: 7, Leaf: 9}, Bound: make([]byte, 16)}
	for i := range 500 {
		r.Refs = append(r.Refs, store.Ref{Scope: "acme/bench", ID: fmt.Sprint("page-", 100_000+i), Version: 1})
	}
	old, err := msgpack.Marshal(&r)
	require.NoError(t, err)
	require.Less(t, len(r.encode()), 6*len(r.Refs))
	require.Greater(t, len(old), 45*len(r.Refs))
}

func BenchmarkOutcomeRow(b *testing.B) {
	row := outcomeRow{Outcome: store.Outcome{LSN: 7, Leaf: 9, Refs: []store.Ref{{Scope: "acme/bench", ID: "put-17", Page: 1, Version: 1}}}, Bound: make([]byte, 16)}
	b.Run("fields", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			row.encode()
		}
	})
	b.Run("reflected", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := msgpack.Marshal(&row); err != nil {
				b.Fatal(err)
			}
		}
	})
}

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
				row, err := codec.Unseal('t', k, v)
				require.NoError(t, err)
				require.Equal(t, keys[at][:], k)
				require.Equal(t, want[keys[at]], row)
				at++
			}
		})
	}
}
