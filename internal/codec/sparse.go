package codec

import (
	"encoding/binary"
	"math/bits"
)

// AppendSparse appends numbers of which many are 0: a bit for each, set if it is not 0, then how
// many bits the greatest of them takes, then those that are not 0 in so many bits each, from the
// low end of each byte on.
func AppendSparse(b []byte, v []uint32) []byte {
	set, most := make([]byte, (len(v)+7)/8), uint32(0)
	for i, x := range v {
		if x != 0 {
			set[i/8] |= 1 << (i % 8)
			most = max(most, x)
		}
	}
	width := bits.Len32(most)
	b = append(append(b, set...), byte(width))
	var left uint64 // bits that do not fill a byte yet
	n := 0
	for _, x := range v {
		if x == 0 {
			continue
		}
		left |= uint64(x) << n
		for n += width; n >= 8; n -= 8 {
			b, left = append(b, byte(left)), left>>8
		}
	}
	if n > 0 {
		b = append(b, byte(left))
	}
	return b
}

// ReadSparse reads what AppendSparse made of len(v) numbers, all that b has. It leaves zeros out,
// because v is new memory.
func ReadSparse(b []byte, v []uint32) bool {
	n := (len(v) + 7) / 8
	if len(b) < n+1 {
		return false
	}
	set, width, b := b[:n], int(b[n]), b[n+1:]
	count := 0
	for _, x := range set {
		count += bits.OnesCount8(x)
	}
	if width > 32 || len(b) != (count*width+7)/8 {
		return false
	}
	mask, at := uint64(1)<<width-1, 0
	for i, x := range set {
		for ; x != 0; x &= x - 1 {
			k := 8*i + bits.TrailingZeros8(x)
			if k >= len(v) {
				return false
			}
			v[k] = uint32(load(b, at/8) >> (at % 8) & mask)
			at += width
		}
	}
	return true
}

// load returns the eight bytes at a place, with zeros behind the end.
func load(b []byte, at int) uint64 {
	if at+8 <= len(b) {
		return binary.LittleEndian.Uint64(b[at:])
	}
	var last [8]byte
	copy(last[:], b[min(at, len(b)):])
	return binary.LittleEndian.Uint64(last[:])
}
