package codec

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
)

// Columns of numbers are packed for a file in the form memory has
// them, so that a million rows are read in milliseconds, and in few bytes,
// because numbers of one column are much alike.
//
// A block is one column of some rows, in the smallest of three forms:
//
//	plain   the least number, then what each is above it
//	steps   the first number and the least step, then what each step is above it
//	runs    how many numbers are equal, and how much they are above those before, again and again
//
// In the first two each number takes the same 0, 1, 2, 4 or 8 bytes, which the first
// byte of the block says. Numbers wrap around, so signed ones go as they are.

// ColumnRows is the most rows of a block: the numbers of a block, and the rows that
// it is read into, stay in the processor's cache.
const ColumnRows = 1024

// The first byte of a block says which form it has: steps beside the width, or runs alone.
const (
	steps = 0x80
	runs  = 0xC0
)

// width returns the bytes that a number takes.
func width(v uint64) int {
	switch {
	case v == 0:
		return 0
	case v <= math.MaxUint8:
		return 1
	case v <= math.MaxUint16:
		return 2
	case v <= math.MaxUint32:
		return 4
	}
	return 8
}

// appendBlock appends a block with the numbers of v, which it may change.
func appendBlock(b []byte, v []uint64) []byte {
	if len(v) == 0 {
		return b
	}
	least, most, differ := v[0], v[0], 1
	slow, fast := int64(0), int64(0) // the least and the greatest step
	if len(v) > 1 {
		slow = int64(v[1] - v[0])
		fast = slow
	}
	last := v[0]
	for _, x := range v[1:] {
		s := int64(x - last)
		if last = x; s != 0 {
			differ++
		}
		least, most, slow, fast = min(least, x), max(most, x), min(slow, s), max(fast, s)
	}
	plain, rising := width(most-least), width(uint64(fast)-uint64(slow))
	if size := min(9+plain*len(v), 17+rising*(len(v)-1)); 1+differ*mostRun < size { // it cannot be larger
		return appendRuns(b, v)
	}
	if rising < plain {
		b = append(b, byte(rising)|steps)
		b = binary.LittleEndian.AppendUint64(b, v[0])
		b = binary.LittleEndian.AppendUint64(b, uint64(slow))
		for i := len(v) - 1; i > 0; i-- {
			v[i] -= v[i-1]
		}
		return putAll(b, v[1:], uint64(slow), rising)
	}
	b = append(b, byte(plain))
	b = binary.LittleEndian.AppendUint64(b, least)
	return putAll(b, v, least, plain)
}

// mostRun is the most bytes of a run.
const mostRun = 2 + binary.MaxVarintLen64

// appendRuns appends a block in the form of runs.
func appendRuns(b []byte, v []uint64) []byte {
	b = append(b, runs)
	last := uint64(0)
	for len(v) > 0 {
		n := 1
		for n < len(v) && v[n] == v[0] {
			n++
		}
		b = binary.AppendUvarint(b, uint64(n))
		b = binary.AppendVarint(b, int64(v[0]-last))
		last, v = v[0], v[n:]
	}
	return b
}

// readRuns reads the runs of len(v) numbers.
func readRuns(b []byte, v []uint64) (rest []byte, ok bool) {
	last := uint64(0)
	for len(v) > 0 {
		n, k := binary.Uvarint(b)
		step, j := binary.Varint(b[max(k, 0):])
		if k <= 0 || j <= 0 || n == 0 || n > uint64(len(v)) {
			return nil, false
		}
		last += uint64(step)
		for i := range v[:n] {
			v[i] = last
		}
		b, v = b[k+j:], v[n:]
	}
	return b, true
}

// putAll is the reverse of fill.
func putAll(b []byte, v []uint64, least uint64, w int) []byte {
	at := len(b)
	b = slices.Grow(b, w*len(v))[:at+w*len(v)]
	to := b[at:]
	switch w {
	case 1:
		for i, x := range v {
			to[i] = byte(x - least)
		}
	case 2:
		for i, x := range v {
			binary.LittleEndian.PutUint16(to[2*i:], uint16(x-least))
		}
	case 4:
		for i, x := range v {
			binary.LittleEndian.PutUint32(to[4*i:], uint32(x-least))
		}
	case 8:
		for i, x := range v {
			binary.LittleEndian.PutUint64(to[8*i:], x-least)
		}
	}
	return b
}

// readBlock reads a block of len(v) numbers into v and returns what follows it; false: b does not begin
// with such a block.
func readBlock(b []byte, v []uint64) (rest []byte, ok bool) {
	if len(v) == 0 {
		return b, true
	}
	if len(b) > 0 && b[0] == runs {
		return readRuns(b[1:], v)
	}
	head := 9
	if len(b) > 0 && b[0]&steps != 0 {
		head = 17
	}
	if len(b) < head {
		return nil, false
	}
	w, n := int(b[0]&^steps), len(v)
	first, least := binary.LittleEndian.Uint64(b[1:]), uint64(0)
	if head == 17 {
		least, n = binary.LittleEndian.Uint64(b[9:]), n-1
	}
	b = b[head:]
	if w != width(1<<(8*w)-1) || len(b) < n*w {
		return nil, false
	}
	if head == 9 {
		fill(v, b, w, first)
		return b[n*w:], true
	}
	fill(v[1:], b, w, least)
	v[0] = first
	for i := range v[1:] {
		v[i+1] += v[i]
	}
	return b[n*w:], true
}

// fill reads the numbers of one width, each above a least one.
func fill(v []uint64, b []byte, w int, least uint64) {
	switch w {
	case 0:
		for i := range v {
			v[i] = least
		}
	case 1:
		for i, x := range b[:len(v)] {
			v[i] = least + uint64(x)
		}
	case 2:
		for i := range v {
			v[i] = least + uint64(binary.LittleEndian.Uint16(b[2*i:]))
		}
	case 4:
		for i := range v {
			v[i] = least + uint64(binary.LittleEndian.Uint32(b[4*i:]))
		}
	case 8:
		for i := range v {
			v[i] = least + binary.LittleEndian.Uint64(b[8*i:])
		}
	}
}

// AppendColumn appends n numbers as blocks of up to ColumnRows. get fills all of v with those from a place on; it keeps nothing of v.
func (v *ColumnBuffer) AppendColumn(b []byte, n int, get func(from int, v []uint64)) []byte {
	for from := 0; from < n; from += ColumnRows {
		some := v[:min(ColumnRows, n-from)]
		get(from, some)
		b = appendBlock(b, some)
	}
	return b
}

// AppendColumn appends n numbers as blocks of up to ColumnRows.
func AppendColumn(b []byte, n int, at func(i int) uint64) []byte {
	return new(ColumnBuffer).AppendColumn(b, n, func(from int, v []uint64) {
		for i := range v {
			v[i] = at(from + i)
		}
	})
}

// ColumnBuffer is memory for a block.
type ColumnBuffer [ColumnRows]uint64

// ReadColumn reads n numbers that AppendColumn appended, and passes them to set, a block at a time. It leaves out blocks of
// zeros, which many columns have most of: what set fills is new memory. v is borrowed.
func (v *ColumnBuffer) ReadColumn(b []byte, n int, set func(from int, v []uint64)) (rest []byte, ok bool) {
	for from := 0; from < n; from += ColumnRows {
		some := v[:min(ColumnRows, n-from)]
		if bytes.HasPrefix(b, zeros[:]) {
			b = b[len(zeros):]
			continue
		}
		if b, ok = readBlock(b, some); !ok {
			return nil, false
		}
		set(from, some)
	}
	return b, true
}

// zeros is a block of zeros.
var zeros [9]byte

// AppendSparse appends numbers of which many are 0: a bit for each, set if it is not 0, then how
// many bits the greatest takes, then those that are not 0 in so many bits each, from the
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

// AppendOrdered appends a number in 1 to 9 bytes that sort as numbers do: as many leading ones as bytes follow the first, a
// zero, then the number. No number begins another one.
func AppendOrdered(b []byte, v uint64) []byte {
	n := min((bits.Len64(v|1)-1)/7, 8)
	first := ^(byte(0xFF) >> n)
	if n < 8 {
		first |= byte(v >> (8 * n))
	}
	b = append(b, first)
	for n--; n >= 0; n-- {
		b = append(b, byte(v>>(8*n)))
	}
	return b
}

// Ordered reads what AppendOrdered wrote, and returns what follows it; nil: there is no number.
func Ordered(b []byte) (v uint64, rest []byte) {
	if len(b) == 0 {
		return 0, nil
	}
	n := bits.LeadingZeros8(^b[0])
	if len(b) <= n {
		return 0, nil
	}
	v = uint64(b[0] & (0x7F >> n))
	for _, c := range b[1 : n+1] {
		v = v<<8 | uint64(c)
	}
	return v, b[n+1:]
}
