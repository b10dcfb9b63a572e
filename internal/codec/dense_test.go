package codec

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/stretchr/testify/require"
	"github.com/vmihailenco/msgpack/v5"
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

// TestReadRefusesRuns: runs are of the numbers of their block and have some.
func TestReadRefusesRuns(t *testing.T) {
	for _, b := range [][]byte{{0xc0}, {0xc0, 4}, {0xc0, 0, 2}, {0xc0, 5, 2}, {0xc0, 3, 2, 2, 2}} {
		_, ok := readBlock(b, make([]uint64, 4))
		require.False(t, ok, "%x", b)
	}
	v := make([]uint64, 4)
	_, ok := readBlock([]byte{0xc0, 3, 2, 1, 1}, v)
	require.True(t, ok, "the control")
	require.Equal(t, []uint64{1, 1, 1, 0}, v)
}

// TestReadRefusesWidths: no block has another width.
func TestReadRefusesWidths(t *testing.T) {
	for w := range 128 {
		b := make([]byte, 9+8*64)
		b[0] = byte(w)
		_, ok := readBlock(b, make([]uint64, 4))
		require.Equal(t, w == 0 || w == 1 || w == 2 || w == 4 || w == 8, ok, w)
	}
}

// TestOrdered: numbers come back with what follows them, their bytes sort as they do, none begins another one, and a number that is cut short is none.
func TestOrdered(t *testing.T) {
	t.Parallel()
	all := []uint64{0, 1, 127, 128, 1<<14 - 1, 1 << 14, 1<<56 - 1, 1 << 56, 1<<63 - 1, 1 << 63, math.MaxUint64}
	for range 2000 {
		all = append(all, rand.Uint64()>>rand.IntN(64))
	}
	slices.Sort(all)
	all = slices.Compact(all)
	var last []byte
	for _, v := range all {
		b := AppendOrdered(nil, v)
		require.Negative(t, bytes.Compare(last, b), "%d", v)
		require.False(t, last != nil && bytes.HasPrefix(b, last), "%d", v)
		got, rest := Ordered(append(slices.Clone(b), "rest"...))
		require.Equal(t, v, got)
		require.Equal(t, "rest", string(rest))
		_, rest = Ordered(b[:len(b)-1])
		require.Nil(t, rest, "%d", v)
		last = b
	}
	require.Len(t, AppendOrdered(nil, 1<<21-1), 3)
	require.Len(t, last, 9)
}

func TestScan(t *testing.T) {
	nested := func(n int) []byte { return append(bytes.Repeat([]byte{0x91}, n), 0xc0) }
	ok := map[string][]byte{
		"nil": {0xc0}, "fixmap": {0x81, 0xa1, 'a', 1}, "float": {0xcb, 0, 0, 0, 0, 0, 0, 0, 0}, "ext8": {0xc7, 1, 5, 9},
		"fixext4": {0xd6, 1, 0, 0, 0, 0}, "deep": nested(maxDepth), "empty": {0x90}, "nested empties": {0x92, 0x90, 0x80}, "bin": {0xc4, 1, 7},
	}
	for name, b := range ok {
		require.NoError(t, scan(b), name)
		for k := range b {
			require.Error(t, scan(b[:k]), "%s cut to %d bytes", name, k)
		}
	}
	for name, b := range map[string][]byte{
		"five bytes that promise 4 G items": {0xdd, 0xff, 0xff, 0xff, 0xff}, "a map likewise": {0xdf, 0xff, 0xff, 0xff, 0xff},
		"4 GiB of bytes": {0xc6, 0xff, 0xff, 0xff, 0xff}, "too deep": nested(maxDepth + 1), "a million deep": nested(1_000_000),
		"two values": {1, 1}, "the code that is none": {0xc1},
		"items promised on every level": bytes.Repeat([]byte{0x9f}, 30),
	} {
		require.Error(t, scan(b), name)
	}
}

func FuzzScan(f *testing.F) {
	f.Add([]byte{0x81, 0xa1, 'a', 1})
	f.Add([]byte{0xdd, 0, 0, 0, 2, 0xc0, 0x93, 1, 2, 3})
	f.Fuzz(func(t *testing.T, b []byte) {
		if scan(b) != nil {
			return
		}
		d := msgpack.NewDecoder(bytes.NewReader(b))
		require.NoError(t, d.Skip(), "what scan passes can be walked")
		require.Error(t, d.Skip(), "and nothing is left")
	})
}
