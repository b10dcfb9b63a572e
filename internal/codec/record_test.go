package codec_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

type inner struct {
	Name string
	N    int64
}

type outer struct {
	Name    string
	N       uint32
	At      time.Time
	Yes     bool
	X       *float64
	Tags    []string
	Meta    map[string]string
	Sizes   []int
	One     inner
	Many    []inner
	Raw     []byte
	Sum     uint64
	Salt    [4]byte
	Unknown []byte
}

var innerFields = codec.Record[inner]{Name: "inner", Fields: []codec.Field[inner]{
	codec.Text(1, "Name", func(v *inner) *string { return &v.Name }),
	codec.Int(2, "N", func(v *inner) *int64 { return &v.N }),
}}

var outerFields = codec.Record[outer]{
	Name: "outer", Unknown: func(v *outer) *[]byte { return &v.Unknown },
	Fields: []codec.Field[outer]{
		codec.Text(1, "Name", func(v *outer) *string { return &v.Name }),
		codec.Uint(2, "N", func(v *outer) *uint32 { return &v.N }),
		codec.Moment(4, "At", func(v *outer) *time.Time { return &v.At }),
		codec.Flag(6, "Yes", func(v *outer) *bool { return &v.Yes }),
		codec.OptFloat(7, "X", func(v *outer) **float64 { return &v.X }),
		codec.Texts(8, "Tags", func(v *outer) *[]string { return &v.Tags }),
		codec.Pairs(9, "Meta", func(v *outer) *map[string]string { return &v.Meta }),
		codec.Ints(10, "Sizes", func(v *outer) *[]int { return &v.Sizes }),
		codec.Inner(12, "One", &innerFields, func(v *outer) *inner { return &v.One }),
		codec.List(13, "Many", &innerFields, func(v *outer) *[]inner { return &v.Many }),
		codec.Blob(200, "Raw", func(v *outer) *[]byte { return &v.Raw }),
		codec.Fixed64(201, "Sum", func(v *outer) *uint64 { return &v.Sum }),
		codec.Array(300, "Salt", func(v *outer) []byte { return v.Salt[:] }),
	},
}

// some makes a list that is nil where it is empty: rows do not tell the two apart.
func some[T any](of *rapid.Generator[T]) *rapid.Generator[[]T] {
	return rapid.Map(rapid.SliceOfN(of, 0, 3), func(v []T) []T { return append([]T(nil), v...) })
}

func outers() *rapid.Generator[outer] {
	text := rapid.OneOf(rapid.String(), rapid.StringN(100, 300, -1))
	in := rapid.Custom(func(t *rapid.T) inner { return inner{text.Draw(t, "name"), rapid.Int64().Draw(t, "n")} })
	return rapid.Custom(func(t *rapid.T) outer {
		v := outer{
			Name: text.Draw(t, "name"), N: rapid.Uint32().Draw(t, "n"), At: codec.FromMicros(rapid.Int64Range(-1e15, 1e16).Draw(t, "at")), Yes: rapid.Bool().Draw(t, "yes"),
			X: rapid.Ptr(rapid.Float64(), true).Draw(t, "x"), Tags: some(text).Draw(t, "tags"), Meta: rapid.MapOfN(text, text, 0, 3).Draw(t, "meta"),
			Sizes: some(rapid.Int()).Draw(t, "sizes"), One: in.Draw(t, "one"), Many: some(in).Draw(t, "many"),
			Raw: some(rapid.Byte()).Draw(t, "raw"), Sum: rapid.Uint64().Draw(t, "sum"), Salt: [4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "salt")),
		}
		if len(v.Meta) == 0 {
			v.Meta = nil
		}
		return v
	})
}

func write[T any](r *codec.Record[T], v *T) []byte {
	var e codec.Encoder
	r.Append(&e, v)
	return e.B
}

func read[T any](r *codec.Record[T], b []byte) (v T, err error) {
	d := codec.Decoder{B: b}
	r.Read(&d, &v)
	return v, d.Err
}

// What is written is read; a program that knows fewer fields keeps the others, in their places, and one that knows more
// reads them again. A row cut anywhere is refused or is one of fewer fields, and never read as something else.
func TestRecord(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := outers().Draw(t, "v")
		row := write(&outerFields, &v)
		got, err := read(&outerFields, row)
		require.NoError(t, err)
		require.Equal(t, v, got)
		require.True(t, codec.Same(&outerFields, &v, &got))

		var names []string
		for _, f := range outerFields.Fields {
			if rapid.Bool().Draw(t, f.Name) {
				names = append(names, f.Name)
			}
		}
		older := codec.But(&outerFields, names...)
		kept, err := read(older, row)
		require.NoError(t, err)
		require.NoError(t, codec.CheckUnknown(older, kept.Unknown))
		require.Equal(t, row, write(older, &kept), "rewritten by a program that does not know %v", names)
		back, err := read(&outerFields, write(older, &kept))
		require.NoError(t, err)
		require.Equal(t, v, back)
		if len(kept.Unknown) > 0 {
			require.ErrorIs(t, codec.CheckUnknown(&outerFields, kept.Unknown), codec.ErrMalformed, "it knows them")
			_, err = read(older.Known(), row)
			require.ErrorIs(t, err, codec.ErrNewer)
		}

		if len(row) > 0 {
			cut := row[:rapid.IntRange(0, len(row)-1).Draw(t, "cut")]
			if got, err := read(&outerFields, cut); err == nil {
				require.Equal(t, cut, write(&outerFields, &got))
			}
		}
	})
}

// Only some fields are read; the others are passed over and not kept.
func TestRecordOnly(t *testing.T) {
	v := outer{Name: "a", N: 7, Tags: []string{"x"}, One: inner{Name: "in"}}
	got, err := read(codec.Only(&outerFields, "N", "One"), write(&outerFields, &v))
	require.NoError(t, err)
	require.Equal(t, outer{N: 7, One: inner{Name: "in"}}, got)
}

// What no writer makes is refused: it could not be written back as it was.
func TestRecordMalformed(t *testing.T) {
	for name, row := range map[string][]byte{
		"tag 0":            {0, 1, 'a'},
		"tags fall":        {2, 1, 7, 1, 1, 'a'},
		"twice":            {1, 1, 'a', 1, 1, 'a'},
		"an empty field":   {1, 0},
		"beyond the end":   {1, 9, 'a'},
		"rest in a field":  {2, 2, 7, 7},
		"a number too big": {2, 5, 0xff, 0xff, 0xff, 0xff, 0x7f},
		"a flag of 2":      {6, 1, 2},
		"an odd map":       {9, 3, 1, 1, 'k'},
		"a count too big":  {13, 2, 200, 1},
		"items cut":        {13, 2, 2, 0},
	} {
		_, err := read(&outerFields, row)
		require.ErrorIs(t, err, codec.ErrMalformed, name)
	}
	_, err := read(&outerFields, []byte{12, 3, 9, 1, 'x'})
	require.ErrorIs(t, err, codec.ErrNewer, "an inner record has no place for what is unknown")
	require.ErrorContains(t, err, "field 9 of inner")
	require.Panics(t, func() { codec.But(&outerFields, "Nam") })
	for _, b := range [][]byte{{5}, {5, 0}, {5, 2, 1}, {7, 1, 1}, {5, 1, 1, 5, 1, 1}} {
		require.ErrorIs(t, codec.CheckUnknown(&outerFields, b), codec.ErrMalformed, "%v", b)
	}
	require.NoError(t, codec.CheckUnknown(&outerFields, bytes.Join([][]byte{{5, 1, 1}, {11, 1, 1}}, nil)))
}

func FuzzRecord(f *testing.F) {
	v := outer{Name: "a", N: 7, Tags: []string{"x", ""}, Many: []inner{{Name: "in"}, {}}, Meta: map[string]string{"k": "v"}}
	f.Add(write(&outerFields, &v))
	f.Add([]byte{5, 1, 1})
	f.Fuzz(func(t *testing.T, row []byte) {
		v, err := read(&outerFields, row)
		if err != nil {
			return
		}
		again, err := read(&outerFields, write(&outerFields, &v))
		require.NoError(t, err)
		require.True(t, codec.Same(&outerFields, &v, &again))
	})
}
