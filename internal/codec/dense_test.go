package codec

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// The words are part of the format: archives have copies of them by their place.
func TestWordsNeverChange(t *testing.T) {
	require.Equal(t, uint64(0xbf1de780356192a5), xxhash.Sum64String(words))
}

func form(d *DenseWriter, body []byte, last int) []byte { return bytes.Clone(d.Form(body, last)) }

// Any body comes back, from memory that was used for another one before.
func TestForm(t *testing.T) {
	var d DenseWriter
	rapid.Check(t, func(t *rapid.T) {
		var body []byte
		for range rapid.IntRange(0, 30).Draw(t, "parts") {
			switch rapid.IntRange(0, 3).Draw(t, "part") {
			case 0:
				body = append(body, rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "random")...)
			case 1:
				body = append(body, bytes.Repeat([]byte{rapid.Byte().Draw(t, "byte")}, rapid.IntRange(1, 600).Draw(t, "times"))...)
			case 2:
				from := rapid.IntRange(0, len(words)-1).Draw(t, "word")
				body = append(body, words[from:min(len(words), from+rapid.IntRange(1, 60).Draw(t, "of it"))]...)
			case 3:
				if n := len(body); n > 0 {
					from := rapid.IntRange(0, n-1).Draw(t, "from")
					body = append(body, body[from:min(n, from+rapid.IntRange(1, 300).Draw(t, "again"))]...)
				}
			}
		}
		last := rapid.IntRange(0, len(body)).Draw(t, "last")
		is := form(&d, body, last)
		require.True(t, bytes.HasSuffix(is, body[len(body)-last:]), "the end is as it is")
		require.LessOrEqual(t, len(is), len(body)+len(body)/run+1+2*binary.MaxVarintLen32)
		back, err := FromDense(is)
		require.NoError(t, err)
		require.True(t, bytes.Equal(body, back))
		if len(is) > 0 {
			cut := is[:rapid.IntRange(0, len(is)-1).Draw(t, "cut")]
			back, err := FromDense(cut)
			require.True(t, err != nil || !bytes.Equal(body, back) || len(body) == 0)
		}
	})
}

// What no writer makes is refused, before memory is made for it.
func TestMalformed(t *testing.T) {
	huge := binary.AppendUvarint(nil, denseMost+1)
	for name, b := range map[string][]byte{
		"nothing":                      {},
		"no length of the form":        {4},
		"a form beyond the end":        {4, 9, 0, 'a'},
		"a body beyond the limit":      append(huge, 1, 0),
		"more than the form can make":  {0xff, 0x7f, 1, 0x80},
		"bytes beyond the form":        {4, 2, 3, 'a'},
		"more than the body":           {1, 3, 1, 'a', 'b'},
		"less than the body":           {3, 3, 1, 'a', 'b'},
		"a copy from here":             {4, 2, 0x80, 0},
		"a copy from before the words": append([]byte{4, 3, 0x80}, binary.AppendUvarint(nil, uint64(len(words)+1))...),
		"a copy without a distance":    {4, 1, 0x80},
		"a copy beyond the body":       {4, 2, 0x81, 1},
	} {
		_, err := FromDense(b)
		require.ErrorIs(t, err, ErrMalformed, name)
	}
	back, err := FromDense([]byte{4, 2, 0x80, 1})
	require.NoError(t, err)
	require.Equal(t, bytes.Repeat([]byte{words[len(words)-1]}, 4), back)
}

func FuzzFromDense(f *testing.F) {
	var d DenseWriter
	f.Add(form(&d, []byte("applied, vouched by the host, applied"), 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		body, err := FromDense(b)
		if err != nil {
			return
		}
		again, err := FromDense(form(&d, body, 0))
		require.NoError(t, err)
		require.True(t, bytes.Equal(body, again))
	})
}
