package codec

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vmihailenco/msgpack/v5"
)

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
