package remote

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vmihailenco/msgpack/v5"
)

// What is written has the bytes of the library that wrote it before, and what the library writes is read.
func TestMsgpackIsTheLibrarys(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	lib, own := msgpack.NewEncoder(&b), &writer{}
	var ints []int64
	for bit := range 64 {
		for _, n := range []int64{-1, 0, 1} {
			ints = append(ints, int64(1)<<bit+n, -(int64(1)<<bit)+n)
		}
	}
	for _, n := range ints {
		own.int(n)
		own.uint(uint64(n))
		require.NoError(t, lib.EncodeInt(n))
		require.NoError(t, lib.EncodeUint(uint64(n)))
	}
	sizes := []int{0, 1, 15, 16, 31, 32, 255, 256, 65535, 65536}
	for _, n := range sizes {
		text := strings.Repeat("x", n)
		own.text(text)
		own.bytes([]byte(text))
		own.list(n)
		own.dict(n)
		require.NoError(t, lib.EncodeString(text))
		require.NoError(t, lib.EncodeBytes([]byte(text)))
		require.NoError(t, lib.EncodeArrayLen(n))
		require.NoError(t, lib.EncodeMapLen(n))
	}
	for _, f := range []float64{0, -1.5, math.Inf(1), math.MaxFloat64} {
		own.float64(f)
		own.float32(float32(f))
		require.NoError(t, lib.EncodeFloat64(f))
		require.NoError(t, lib.EncodeFloat32(float32(f)))
	}
	own.flag(true)
	own.flag(false)
	own.null()
	require.NoError(t, lib.EncodeMulti(true, false, nil))
	require.True(t, bytes.Equal(b.Bytes(), own.b))

	r := &reader{b: own.b}
	for _, n := range ints {
		i, err := r.int()
		require.NoError(t, err)
		require.Equal(t, n, i)
		u, err := r.uint()
		require.NoError(t, err)
		require.Equal(t, uint64(n), u)
	}
	for _, n := range sizes {
		text, err := r.text()
		require.NoError(t, err)
		require.Len(t, text, n)
		raw, err := r.shared()
		require.NoError(t, err)
		require.Equal(t, text, string(raw))
		for _, read := range []func() (int, error){r.list, r.dict} {
			got, err := read()
			require.NoError(t, err)
			require.Equal(t, n, got)
		}
	}
	for _, f := range []float64{0, -1.5, math.Inf(1), math.MaxFloat64} {
		got, err := r.float64()
		require.NoError(t, err)
		require.Equal(t, f, got)
		got, err = r.float64()
		require.NoError(t, err)
		require.Equal(t, float64(float32(f)), got)
	}
	for _, want := range []bool{true, false} {
		got, err := r.flag()
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	require.True(t, r.null())
	require.Zero(t, r.left())
}

// A value of any kind is skipped, extensions among them; one that was cut is an error at every byte.
func TestMsgpackSkips(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	lib := msgpack.NewEncoder(&b)
	for _, n := range []int{1, 2, 4, 8, 16, 3, 300, 70000} {
		require.NoError(t, lib.EncodeExtHeader(5, n))
		b.Write(make([]byte, n))
	}
	require.NoError(t, lib.EncodeMulti(
		nil, true, -7, uint64(math.MaxUint64), 1.5, float32(2), "text", strings.Repeat("x", 300), []byte("b"), []int{1, 2}, map[string]any{"a": []any{nil, map[string]int{"b": 1}}},
		make([]int, 20), map[string]int{},
	))
	r := &reader{b: b.Bytes()}
	for n := 0; r.left() > 0; n++ {
		value := r.b[r.at:]
		require.NoError(t, r.skip(), n)
		whole := len(value) - r.left()
		for cut := 0; cut < whole; cut += max(1, whole/50) {
			require.Error(t, (&reader{b: value[:cut]}).skip(), "value %d, %d bytes of %d", n, cut, whole)
		}
	}
	deep := &reader{b: bytes.Repeat([]byte{fixArray | 1}, 1<<20)}
	require.Error(t, deep.skip(), "lists in lists do not use up the stack")
	require.Error(t, (&reader{b: []byte{0xc1}}).skip(), "a code that msgpack does not have")
}
