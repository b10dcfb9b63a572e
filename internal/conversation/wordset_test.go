package conversation

import (
	"slices"
	"testing"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/stretchr/testify/require"
)

// FuzzWords: whatever stands in a row, reading it ends, with an error or with the ascending set that is written so.
func FuzzWords(f *testing.F) {
	field, words := wordsField(20), codec.Encoder{}
	field.Write(&words, &TurnRow{Hashes: []uint64{0, 1, 5, 1<<24 - 1}})
	for _, b := range [][]byte{words.B, words.B[:len(words.B)-1], append(slices.Clone(words.B), words.B...), nil} {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var row TurnRow
		d := codec.Decoder{B: slices.Clone(b)}
		if field.Read(&d, &row); d.Err != nil {
			return
		}
		require.True(t, slices.IsSorted(row.Hashes))
		require.Len(t, slices.Compact(slices.Clone(row.Hashes)), len(row.Hashes))
		var e codec.Encoder
		field.Write(&e, &row)
		require.Equal(t, string(b), string(e.B))
	})
}
