package manifest

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

// Elements of a leaf in msgpack, appended to memory. Each value takes the shortest form of its
// type, as msgpack.Encoder writes it, so leaves keep their bytes and hashes (TestPack compares the
// two). The Encoder itself writes through an interface, byte by byte; every read makes a leaf, and
// half of the time of making one went there.

// appendUint, appendInt, appendFloat, appendNil, appendArrayLen and appendString append one value
// each.
func appendUint(b []byte, n uint64) []byte {
	switch {
	case n <= math.MaxInt8:
		return append(b, byte(n))
	case n <= math.MaxUint8:
		return append(b, msgpcode.Uint8, byte(n))
	case n <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(b, msgpcode.Uint16), uint16(n))
	case n <= math.MaxUint32:
		return binary.BigEndian.AppendUint32(append(b, msgpcode.Uint32), uint32(n))
	}
	return binary.BigEndian.AppendUint64(append(b, msgpcode.Uint64), n)
}

func appendInt(b []byte, n int64) []byte {
	switch {
	case n >= 0:
		return appendUint(b, uint64(n))
	case n >= -32: // negative fixnum
		return append(b, byte(n))
	case n >= math.MinInt8:
		return append(b, msgpcode.Int8, byte(n))
	case n >= math.MinInt16:
		return binary.BigEndian.AppendUint16(append(b, msgpcode.Int16), uint16(n))
	case n >= math.MinInt32:
		return binary.BigEndian.AppendUint32(append(b, msgpcode.Int32), uint32(n))
	}
	return binary.BigEndian.AppendUint64(append(b, msgpcode.Int64), uint64(n))
}

// appendCount appends an int that may not be negative.
func appendCount(b []byte, n int) ([]byte, error) {
	if n < 0 {
		return b, fmt.Errorf("%d is negative", n)
	}
	return appendUint(b, uint64(n)), nil
}

func appendFloat(b []byte, f float64) []byte {
	return binary.BigEndian.AppendUint64(append(b, msgpcode.Double), math.Float64bits(f))
}

func appendNil(b []byte) []byte { return append(b, msgpcode.Nil) }

func appendArrayLen(b []byte, n int) []byte {
	switch {
	case n < 16:
		return append(b, msgpcode.FixedArrayLow|byte(n))
	case n <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(b, msgpcode.Array16), uint16(n))
	}
	return binary.BigEndian.AppendUint32(append(b, msgpcode.Array32), uint32(n))
}

func appendString(b []byte, s string) []byte {
	switch n := len(s); {
	case n < 32:
		b = append(b, msgpcode.FixedStrLow|byte(n))
	case n <= math.MaxUint8:
		b = append(b, msgpcode.Str8, byte(n))
	case n <= math.MaxUint16:
		b = binary.BigEndian.AppendUint16(append(b, msgpcode.Str16), uint16(n))
	default:
		b = binary.BigEndian.AppendUint32(append(b, msgpcode.Str32), uint32(n))
	}
	return append(b, s...)
}

// appendBytes appends a byte string; an empty one is nil.
func appendBytes(b, v []byte) []byte {
	if len(v) == 0 {
		return appendNil(b)
	}
	return append(appendBinLen(b, len(v)), v...)
}

// appendBinLen appends the head of a byte string of n bytes.
func appendBinLen(b []byte, n int) []byte {
	switch {
	case n <= math.MaxUint8:
		return append(b, msgpcode.Bin8, byte(n))
	case n <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(b, msgpcode.Bin16), uint16(n))
	}
	return binary.BigEndian.AppendUint32(append(b, msgpcode.Bin32), uint32(n))
}
