package engine

import (
	"math"
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vmihailenco/msgpack/v5"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/store"
)

// The bytes of an outcome are those that reflection makes of its fields, as earlier releases stored them, and they decode
// to the same. A field that is added to an outcome fails this until a row has it and it is encoded.
func TestOutcomeRow(t *testing.T) {
	type reflected outcomeRow // without the method
	refs := []store.Ref{{Scope: "acme/über", ID: "a", Page: 1, Version: 1}, {ID: "b", Page: 70_000, Version: math.MaxUint32}, {Page: -1}}
	rows := []outcomeRow{
		{},
		{Bound: []byte{}},
		{store.Outcome{Status: store.StatusHeld, LSN: 1 << 40, Leaf: 3, Refs: refs[:1]}, []byte("0123456789abcdef")},
		{store.Outcome{Status: store.StatusRejected, LSN: math.MaxUint64, Reason: "stale context", Refs: refs, Stale: refs[1:], Repeats: []store.Ref{}}, nil},
		{store.Outcome{Status: 200, Leaf: math.MaxUint64, Refs: make([]store.Ref, 20), Stale: refs, Repeats: refs}, make([]byte, 300)},
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[outcomeRow]()) {
		set := func(r outcomeRow) bool { return !reflect.ValueOf(r).FieldByIndex(f.Index).IsZero() }
		require.True(t, slices.ContainsFunc(rows, set), "no row here has field %s", f.Name)
	}
	for i := range rows {
		plain := reflected(rows[i])
		want, err := msgpack.Marshal(&plain)
		require.NoError(t, err)
		got, err := msgpack.Marshal(&rows[i])
		require.NoError(t, err)
		require.Equal(t, want, got, "row %d", i)
		var back outcomeRow
		require.NoError(t, codec.Unpack(got, &back))
		var plainBack reflected
		require.NoError(t, msgpack.Unmarshal(want, &plainBack))
		require.Equal(t, outcomeRow(plainBack), back, "row %d", i)
	}
}

func BenchmarkOutcomeRow(b *testing.B) {
	row := outcomeRow{store.Outcome{LSN: 7, Leaf: 9, Refs: []store.Ref{{Scope: "acme/bench", ID: "put-17", Page: 1, Version: 1}}}, make([]byte, 16)}
	type reflected outcomeRow
	plain := reflected(row)
	for name, v := range map[string]any{"written": &row, "reflected": &plain} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := msgpack.Marshal(v); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
