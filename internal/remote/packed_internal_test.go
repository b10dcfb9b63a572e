package remote

import (
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// Every field of a candidate survives a packed table, in every row, and so do the exclusions.
func TestPackedKeepsEverything(t *testing.T) {
	t.Parallel()
	n := 0
	rows := make([]store.Candidate, 40)
	for i := range rows {
		if i%3 > 0 { // zeros among the values
			fill(reflect.ValueOf(&rows[i]).Elem(), &n)
		}
	}
	rows[7].Key.Num, rows[8].Key.Num, rows[9].AsOf, rows[10].AsOf = math.MaxUint64, 1, math.MinInt64, math.MaxInt64
	rows[11].Lexical.Score, rows[12].Ref.ID = math.Inf(-1), strings.Repeat("x", 300)
	same := make([]store.Candidate, 5)
	fill(reflect.ValueOf(&same[0]).Elem(), &n)
	for i := range same {
		same[i] = same[0]
	}
	for name, found := range map[string]store.Candidates{
		"many":    {LSN: 7, Hits: rows, Excluded: []store.Excluded{{Reason: "expired", Count: 3, Nearest: rows[:5]}, {Reason: "none"}}},
		"equal":   {LSN: 7, Hits: same},
		"one":     {Hits: rows[1:2]},
		"zeros":   {Hits: make([]store.Candidate, 3)},
		"long":    {Hits: []store.Candidate{{Ref: store.Ref{ID: strings.Repeat("y", oneText)}}, {Ref: store.Ref{ID: "z"}}}},
		"nothing": {},
		"empty":   {Hits: []store.Candidate{}},
	} {
		b, err := pack(answer[store.Candidates]{LSN: 7, Value: found})
		require.NoError(t, err, name)
		var got answer[store.Candidates]
		require.NoError(t, unpack(b, &got), name)
		require.Equal(t, found, got.Value, name)
		for cut := range b { // no part of a message is taken for the whole
			require.Error(t, unpack(b[:cut], &got), "%s: %d bytes of %d", name, cut, len(b))
		}
	}
}

// Leaves survive with their pages packed, also those that are named as left out.
func TestPackedLeaves(t *testing.T) {
	t.Parallel()
	n := 0
	pages := make([]manifest.Page, 40)
	for i := range pages {
		if i%3 > 0 {
			fill(reflect.ValueOf(&pages[i]).Elem(), &n)
		}
	}
	pages[4].Ranges = [][2]uint32{}
	pages[5].Ranges = [][2]uint32{{0, math.MaxUint32}}
	given := []*manifest.Record{
		{Trace: "many", Pages: pages, Excluded: []manifest.Exclusion{{Reason: "expired", Count: 9, Nearest: pages[:3]}, {Reason: "budget", Nearest: []manifest.Page{}}}},
		{Trace: "none"}, {Trace: "empty", Pages: []manifest.Page{}}, {Trace: "left out", Excluded: []manifest.Exclusion{{Reason: "x", Nearest: pages[1:2]}}},
	}
	b, err := pack(appendAsk{Leaves: given})
	require.NoError(t, err)
	var got appendAsk
	require.NoError(t, unpack(b, &got))
	require.Equal(t, given, got.Leaves)
	for cut := range b {
		require.Error(t, unpack(b[:cut], &got))
	}
}

// bytesOfPacked is a packed table written by hand.
func bytesOfPacked(rows byte, columns ...string) []byte {
	b := []byte{rows}
	for _, c := range columns {
		name, values, _ := strings.Cut(c, "=")
		b = append(append(b, byte(len(name))), name...)
		b = append(append(b, values[0], 0, 0, 0, byte(len(values)-1)), values[1:]...)
	}
	return b
}

// A packed table that does not fit its rows is an error, and takes no memory.
func TestPackedOfAnother(t *testing.T) {
	t.Parallel()
	read := func(b []byte) (rows []store.Candidate, err error) {
		message, err := pack(b)
		require.NoError(t, err)
		return rows, unpack(message, &rows)
	}
	for name, bad := range map[string][]byte{
		"empty": {}, "rows without end": {0x80}, "too many rows": {0xff, 0xff, 0xff, 0xff, 1}, "half a column": {1, 6, 'T', 'o'},
		"no rows":         bytesOfPacked(0, "Tokens=\x00\x02"),
		"a value short":   bytesOfPacked(2, "Tokens=\x00\x02"),
		"a value more":    bytesOfPacked(1, "Tokens=\x00\x02\x02"),
		"a short number":  bytesOfPacked(1, "Tokens=\x00\x80"),
		"a wide kind":     bytesOfPacked(1, "Kind=\x00\x80\x08"),
		"another form":    bytesOfPacked(1, "Tokens=\x02\x02"),
		"equal cosines":   bytesOfPacked(1, "Cosine=\x01\x00"),
		"a short real":    bytesOfPacked(1, "Beside=\x00\x00\x00"),
		"a short text":    bytesOfPacked(1, "Ref.ID=\x00\x05abc"),
		"a text too long": bytesOfPacked(1, "Ref.ID=\x00\x02abc"),
		"half a cosine":   bytesOfPacked(1, "Cosine=\x00\x01\x00"),
		"no flag":         bytesOfPacked(2, "Pinned=\x00\x01"),
	} {
		_, err := read(bad)
		require.Error(t, err, name)
	}
	var pages []manifest.Page
	for _, ranges := range []string{"\x00\x02\x00", "\x00\x7f\x00", "\x00\x02\x00\xff\xff\xff\xff\x7f"} {
		message, err := pack(bytesOfPacked(1, "Ranges="+ranges))
		require.NoError(t, err)
		require.Error(t, unpack(message, &pages), "%q", ranges)
	}
	rows, err := read(bytesOfPacked(2, "Later=\x09anything", "Tokens=\x01\x0a", "Ref.ID=\x00\x01\x02abb"))
	require.NoError(t, err, "a column of a later release is left out")
	require.Equal(t, []store.Candidate{{Tokens: 5, Ref: store.Ref{ID: "a"}}, {Tokens: 5, Ref: store.Ref{ID: "bb"}}}, rows)

	// Bytes that are changed by chance give an error or a table, and no panic.
	good := packTable(nil, candidateFields, rows)
	random := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		b := append([]byte(nil), good...)
		for range 1 + random.IntN(3) {
			b[random.IntN(len(b))] = byte(random.IntN(256))
		}
		_, _ = read(b)
	}
}
