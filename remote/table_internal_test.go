package remote

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/store"
)

// Every field of a candidate survives a table, in every row.
func TestTableKeepsEverything(t *testing.T) {
	t.Parallel()
	n := 0
	rows := make([]store.Candidate, 40)
	for i := range rows {
		if i%3 > 0 { // zeros among the values
			fill(reflect.ValueOf(&rows[i]).Elem(), &n)
		}
	}
	found := store.Candidates{LSN: 7, Hits: rows, Excluded: []store.Excluded{{Reason: "expired", Count: 3, Nearest: rows[:5]}, {Reason: "none"}}}
	p := prepared{}.with(found)
	require.Len(t, found.Excluded[0].Nearest, 5, "what the store gave stays as it is")
	b, err := pack(answer[prepared]{LSN: 7, Value: p})
	require.NoError(t, err)
	var got answer[prepared]
	require.NoError(t, unpack(b, &got))
	back, err := got.Value.candidates()
	require.NoError(t, err)
	require.Equal(t, found, back)

	plainly, err := pack(answer[store.Candidates]{LSN: 7, Value: found})
	require.NoError(t, err)
	require.Less(t, len(b), len(plainly)*4/5, "which is why there are tables")

	p = prepared{}.with(store.Candidates{})
	back, err = p.candidates()
	require.NoError(t, err)
	require.NoError(t, err)
	require.Equal(t, store.Candidates{}, back)
}

// A table that does not fit its rows is an error, and takes no memory.
func TestTableOfAnother(t *testing.T) {
	t.Parallel()
	for _, bad := range []table{
		{Rows: 1 << 40}, {Rows: -1, Columns: []column{{Name: "Tokens", Ints: []int64{1}}}}, {Rows: 2, Columns: []column{{Name: "Tokens", Ints: []int64{1}}}},
		{Rows: 1, Columns: []column{{Name: "Tokens", Texts: []string{"x"}}}}, {Rows: 1, Columns: []column{{Name: "Kind", Uints: []uint64{1 << 40}}}},
	} {
		_, err := rowsOf(bad)
		require.Error(t, err, "%+v", bad)
	}
	rows, err := rowsOf(table{Rows: 1, Columns: []column{{Name: "Later", Texts: []string{"x"}}, {Name: "Tokens", Ints: []int64{5}}}})
	require.NoError(t, err, "a column of a later release is left out")
	require.Equal(t, []store.Candidate{{Tokens: 5}}, rows)
}
