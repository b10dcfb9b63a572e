package remote

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/manifest"
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
	p := prepared{}.with(found, false)
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

	p = prepared{}.with(store.Candidates{}, false)
	back, err = p.candidates()
	require.NoError(t, err)
	require.Equal(t, store.Candidates{}, back)
}

// wireTable and wireColumn are a table as a map of its parts, of which any may be wrong.
type wireTable struct {
	Rows    int
	Columns []wireColumn
}

type wireColumn struct {
	Name  string
	Flags []bool
	Ints  []int64
	Uints []uint64
	Reals []float64
	Texts []string
}

func tableFrom(t *testing.T, w any) (got table, err error) {
	t.Helper()
	b, err := pack(w)
	require.NoError(t, err)
	return got, unpack(b, &got)
}

// A table that does not fit its rows is an error, and takes no memory.
func TestTableOfAnother(t *testing.T) {
	t.Parallel()
	for _, bad := range []wireTable{
		{Rows: 1 << 40}, {Rows: -1, Columns: []wireColumn{{Name: "Tokens", Ints: []int64{1}}}}, {Rows: 2, Columns: []wireColumn{{Name: "Tokens", Ints: []int64{1}}}},
		{Rows: 1, Columns: []wireColumn{{Name: "Tokens", Texts: []string{"x"}}}}, {Rows: 1, Columns: []wireColumn{{Name: "Kind", Uints: []uint64{1 << 40}}}},
		{Rows: 1, Columns: []wireColumn{{Name: "Cosine", Flags: []bool{true}}}}, {Rows: 1, Columns: []wireColumn{{Name: "Cosine", Reals: []float64{1}}}},
		{Columns: []wireColumn{{Name: "Tokens", Ints: []int64{1}}}},
	} {
		_, err := tableFrom(t, bad)
		require.Error(t, err, "%+v", bad)
	}
	rows, err := tableFrom(t, wireTable{Rows: 1, Columns: []wireColumn{{Name: "Later", Texts: []string{"x"}}, {Name: "Tokens", Ints: []int64{5}, Reals: []float64{1}}}})
	require.NoError(t, err, "a column of a later release is left out, and so is a list of another kind")
	require.Equal(t, table{{Tokens: 5}}, rows)
	rows, err = tableFrom(t, struct { // in another order, with a field of a later release
		Columns []struct {
			Texts []string
			Name  string
		}
		More string
		Rows int
	}{Rows: 2, More: "x", Columns: []struct {
		Texts []string
		Name  string
	}{{[]string{"a", "a"}, "Ref.ID"}}})
	require.NoError(t, err)
	require.Equal(t, table{{Ref: store.Ref{ID: "a"}}, {Ref: store.Ref{ID: "a"}}}, rows)
}

// A list of pages has the bytes that reflection writes, and every field survives.
func TestPagesKeepEverything(t *testing.T) {
	t.Parallel()
	type plainly manifest.Page // reflection writes it: its lists are no lists of pages
	n := 0
	pages := make([]manifest.Page, 40)
	for i := range pages {
		if i%3 > 0 {
			fill(reflect.ValueOf(&pages[i]).Elem(), &n)
		}
	}
	pages[4].Ranges = [][2]uint32{}
	var other []plainly
	for _, p := range pages {
		other = append(other, plainly(p))
	}
	want, err := pack(other)
	require.NoError(t, err)
	b, err := pack(pages)
	require.NoError(t, err)
	require.Equal(t, want, b)
	var got []manifest.Page
	require.NoError(t, unpack(b, &got))
	require.Equal(t, pages, got)
	require.Error(t, unpack(b[:len(b)-1], &got))
	wide, err := pack([]struct{ Version uint64 }{{1 << 40}})
	require.NoError(t, err)
	require.ErrorContains(t, unpack(wide, &got), "does not fit")
}

// Leaves survive with their pages in tables, and the sender's stay as they are.
func TestLeavesKeepTheirPages(t *testing.T) {
	t.Parallel()
	n := 0
	pages := make([]manifest.Page, 40)
	for i := range pages {
		if i%3 > 0 {
			fill(reflect.ValueOf(&pages[i]).Elem(), &n)
		}
	}
	pages[4].Ranges = [][2]uint32{}
	given := []*manifest.Record{{Trace: "many", Pages: pages}, {Trace: "none"}, {Trace: "empty", Pages: []manifest.Page{}}}
	q := appendAsk{Leaves: given}.withTables()
	require.Len(t, given[0].Pages, 40)
	b, err := pack(q)
	require.NoError(t, err)
	var got appendAsk
	require.NoError(t, unpack(b, &got))
	require.NotEqual(t, given, got.Leaves, "the control: the pages are elsewhere")
	require.NoError(t, got.whole())
	require.Equal(t, given, got.Leaves)
	plainly, err := pack(appendAsk{Leaves: given})
	require.NoError(t, err)
	require.Less(t, len(b), len(plainly)*4/5)

	for _, bad := range []appendAsk{
		{Leaves: []*manifest.Record{{}}, Pages: []pageTable{}}, {Leaves: []*manifest.Record{nil}, Pages: []pageTable{pages}},
		{Leaves: []*manifest.Record{{Pages: pages}}, Pages: []pageTable{pages}},
	} {
		require.Error(t, bad.whole())
	}
	require.Error(t, unpack(b[:len(b)-1], &got))
}
