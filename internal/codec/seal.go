package codec

import (
	"encoding/binary"
	"fmt"

	"github.com/cespare/xxhash/v2"
)

// Sum is the checksum of a row in bbolt: it covers the key, so that a value can never answer for another key.
func Sum(bucket byte, key, value []byte) uint64 {
	var h xxhash.Digest
	h.Reset()
	h.Write([]byte{bucket})
	h.Write(key)
	h.Write(value)
	return h.Sum64()
}

func Seal(bucket byte, key, value []byte) []byte {
	return binary.BigEndian.AppendUint64(append(make([]byte, 0, len(value)+8), value...), Sum(bucket, key, value))
}

// Unseal checks and strips the checksum; the result is borrowed from v.
func Unseal(bucket byte, key, v []byte) ([]byte, error) {
	if len(v) < 8 {
		return nil, fmt.Errorf("%w: value of %d bytes, expected a checksum of 8", ErrMalformed, len(v))
	}
	value := v[: len(v)-8 : len(v)-8]
	if got := Sum(bucket, key, value); got != binary.BigEndian.Uint64(v[len(v)-8:]) {
		return nil, fmt.Errorf("%w: checksum differs", ErrMalformed)
	}
	return value, nil
}
