package manifest

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vmihailenco/msgpack/v5"
)

// Every form of every type, on both sides of its bounds, has the bytes of msgpack.Encoder. Leaves of earlier releases
// were made with it, and a hash must not depend on the release that makes a leaf.
func TestPack(t *testing.T) {
	var got []byte
	var want bytes.Buffer
	e := msgpack.NewEncoder(&want)
	same := func(what any, err error) {
		t.Helper()
		require.NoError(t, err)
		require.Equal(t, want.Bytes(), got, "%v", what)
		got = got[:0]
		want.Reset()
	}
	for shift := range 64 {
		for _, by := range []uint64{math.MaxUint64, 0, 1} { // one below, the power itself, one above
			u := uint64(1)<<shift + by
			got = appendUint(got, u)
			same(u, e.EncodeUint(u))
			for _, n := range []int64{int64(u), -int64(u)} {
				got = appendInt(got, n)
				same(n, e.EncodeInt(n))
			}
		}
	}
	for _, n := range []int{0, 1, 15, 16, 31, 32, 255, 256, math.MaxUint16, math.MaxUint16 + 1} {
		text := strings.Repeat("x", n)
		got = appendString(got, text)
		same(n, e.EncodeString(text))
		got = appendArrayLen(got, n)
		same(n, e.EncodeArrayLen(n))
		got = append(appendBinLen(got, n), text...)
		same(n, e.EncodeBytes([]byte(text)))
	}
	got = appendBytes(got, nil)
	same("nil", e.EncodeNil())
	for _, f := range []float64{1, -.5, .7, math.MaxFloat64} {
		got = appendFloat(got, f)
		same(f, e.EncodeFloat64(f))
	}
}
