package remote

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
)

// The part of msgpack that crosses the socket, written to and read from memory. A message is whole
// before it is written or read, so the streams of a library (an interface call for each byte) are
// not needed: they took half of the time of a message. The bytes are those of
// github.com/vmihailenco/msgpack (TestMsgpackIsTheLibrarys): the shortest form of each number.

// The codes of msgpack that are not a small number, text, list or map with its length in the same
// byte.
const (
	codeNil     = 0xc0
	codeFalse   = 0xc2
	codeTrue    = 0xc3
	codeBin8    = 0xc4
	codeBin16   = 0xc5
	codeBin32   = 0xc6
	codeExt8    = 0xc7
	codeExt16   = 0xc8
	codeExt32   = 0xc9
	codeFloat32 = 0xca
	codeFloat64 = 0xcb
	codeUint8   = 0xcc
	codeUint16  = 0xcd
	codeUint32  = 0xce
	codeUint64  = 0xcf
	codeInt8    = 0xd0
	codeInt16   = 0xd1
	codeInt32   = 0xd2
	codeInt64   = 0xd3
	codeFixExt  = 0xd4 // of 1 byte; those of 2, 4, 8 and 16 follow
	codeStr8    = 0xd9
	codeStr16   = 0xda
	codeStr32   = 0xdb
	codeArray16 = 0xdc
	codeArray32 = 0xdd
	codeMap16   = 0xde
	codeMap32   = 0xdf

	fixMap   = 0x80 // up to 15 pairs
	fixArray = 0x90 // up to 15 elements
	fixStr   = 0xa0 // up to 31 bytes
	fixNeg   = 0xe0 // -32 to -1
)

// writer is a message being written. No method of it fails.
type writer struct {
	b     []byte
	depth int // of errors in errors
}

// null, flag, uint, int, float32, float64, text and bytes append one value each; list and dict
// append how many elements or pairs follow.
func (w *writer) null() { w.b = append(w.b, codeNil) }

func (w *writer) flag(v bool) {
	if v {
		w.b = append(w.b, codeTrue)
	} else {
		w.b = append(w.b, codeFalse)
	}
}

// uint takes the shortest form, so that equal numbers have equal bytes.
func (w *writer) uint(v uint64) {
	switch {
	case v < fixMap:
		w.b = append(w.b, byte(v))
	case v <= math.MaxUint8:
		w.b = append(w.b, codeUint8, byte(v))
	case v <= math.MaxUint16:
		w.b = binary.BigEndian.AppendUint16(append(w.b, codeUint16), uint16(v))
	case v <= math.MaxUint32:
		w.b = binary.BigEndian.AppendUint32(append(w.b, codeUint32), uint32(v))
	default:
		w.b = binary.BigEndian.AppendUint64(append(w.b, codeUint64), v)
	}
}

// int takes the shortest form too; a number from 0 on is written as an unsigned one.
func (w *writer) int(v int64) {
	switch {
	case v >= 0:
		w.uint(uint64(v))
	case v >= -32:
		w.b = append(w.b, byte(v))
	case v >= math.MinInt8:
		w.b = append(w.b, codeInt8, byte(v))
	case v >= math.MinInt16:
		w.b = binary.BigEndian.AppendUint16(append(w.b, codeInt16), uint16(v))
	case v >= math.MinInt32:
		w.b = binary.BigEndian.AppendUint32(append(w.b, codeInt32), uint32(v))
	default:
		w.b = binary.BigEndian.AppendUint64(append(w.b, codeInt64), uint64(v))
	}
}

func (w *writer) float32(v float32) {
	w.b = binary.BigEndian.AppendUint32(append(w.b, codeFloat32), math.Float32bits(v))
}

func (w *writer) float64(v float64) {
	w.b = binary.BigEndian.AppendUint64(append(w.b, codeFloat64), math.Float64bits(v))
}

// text appends a string. bytes has codes of its own, so a reader tells the two apart.
func (w *writer) text(s string) {
	switch n := len(s); {
	case n < 32:
		w.b = append(w.b, fixStr|byte(n))
	case n <= math.MaxUint8:
		w.b = append(w.b, codeStr8, byte(n))
	default:
		w.length(n, codeStr16, codeStr32)
	}
	w.b = append(w.b, s...)
}

func (w *writer) bytes(b []byte) {
	if len(b) <= math.MaxUint8 {
		w.b = append(w.b, codeBin8, byte(len(b)))
	} else {
		w.length(len(b), codeBin16, codeBin32)
	}
	w.b = append(w.b, b...)
}

// list appends how many elements follow, and dict how many pairs.
func (w *writer) list(n int) {
	if n < 16 {
		w.b = append(w.b, fixArray|byte(n))
		return
	}
	w.length(n, codeArray16, codeArray32)
}

func (w *writer) dict(n int) {
	if n < 16 {
		w.b = append(w.b, fixMap|byte(n))
		return
	}
	w.length(n, codeMap16, codeMap32)
}

// length appends a length in two or four bytes, behind the code that says which.
func (w *writer) length(n int, code16, code32 byte) {
	if n <= math.MaxUint16 {
		w.b = binary.BigEndian.AppendUint16(append(w.b, code16), uint16(n))
	} else {
		w.b = binary.BigEndian.AppendUint32(append(w.b, code32), uint32(n))
	}
}

// reader is a message being read. Its results share no memory with the message, unless a method
// says so. It moves an offset, not the slice: a pointer that moves costs a write barrier for each
// value while the collector works.
//
// The bytes come from a peer. Each method compares what it needs with what is left and returns
// io.ErrUnexpectedEOF where that is less. After an error the place in the message is undefined, so
// the whole message is refused.
type reader struct {
	b     []byte
	at    int
	last  string // that repeated read
	depth int    // of errors in errors
}

// left is how many bytes are left.
func (r *reader) left() int { return len(r.b) - r.at }

// take is the next n bytes, in the memory of the message.
func (r *reader) take(n int) ([]byte, error) {
	if n < 0 || n > r.left() {
		return nil, io.ErrUnexpectedEOF
	}
	out := r.b[r.at : r.at+n]
	r.at += n
	return out, nil
}

// code reads the byte that a value begins with.
func (r *reader) code() (byte, error) {
	if r.at == len(r.b) {
		return 0, io.ErrUnexpectedEOF
	}
	c := r.b[r.at]
	r.at++
	return c, nil
}

// big is a number of n bytes.
func (r *reader) big(n int) (uint64, error) {
	b, err := r.take(n)
	if err != nil {
		return 0, err
	}
	switch n {
	case 1:
		return uint64(b[0]), nil
	case 2:
		return uint64(binary.BigEndian.Uint16(b)), nil
	case 4:
		return uint64(binary.BigEndian.Uint32(b)), nil
	}
	return binary.BigEndian.Uint64(b), nil
}

// null reads a nil, if one is next.
func (r *reader) null() bool {
	if r.left() == 0 || r.b[r.at] != codeNil {
		return false
	}
	r.at++
	return true
}

// wrongType is the error for a value of another kind than expected.
func wrongType(code byte, expected string) error {
	return fmt.Errorf("msgpack code %#x, expected %s", code, expected)
}

// flag reads true or false, and nil as false.
func (r *reader) flag() (bool, error) {
	c, err := r.code()
	switch {
	case err != nil:
		return false, err
	case c == codeTrue || c == codeFalse || c == codeNil:
		return c == codeTrue, nil
	}
	return false, wrongType(c, "true or false")
}

// int reads a whole number of any width, and nil as 0. A number above the greatest int64 becomes
// negative; uint turns it back.
func (r *reader) int() (int64, error) {
	c, err := r.code()
	if err != nil {
		return 0, err
	}
	return r.intOf(c)
}

// intOf is int behind its code.
func (r *reader) intOf(c byte) (int64, error) {
	switch {
	case c < fixMap || c >= fixNeg:
		return int64(int8(c)), nil
	case c == codeNil:
		return 0, nil
	case c >= codeUint8 && c <= codeUint64:
		n, err := r.big(1 << (c - codeUint8))
		return int64(n), err
	}
	switch c {
	case codeInt8:
		n, err := r.big(1)
		return int64(int8(n)), err
	case codeInt16:
		n, err := r.big(2)
		return int64(int16(n)), err
	case codeInt32:
		n, err := r.big(4)
		return int64(int32(n)), err
	case codeInt64:
		n, err := r.big(8)
		return int64(n), err
	}
	return 0, wrongType(c, "a whole number")
}

// uint reads a whole number. The usual widths are read here, because a table has thousands of them.
func (r *reader) uint() (uint64, error) {
	if b := r.b[r.at:]; len(b) > 8 { // it is here, whatever its width
		switch c := b[0]; {
		case c < fixMap:
			r.at++
			return uint64(c), nil
		case c == codeUint8:
			r.at += 2
			return uint64(b[1]), nil
		case c == codeUint16:
			r.at += 3
			return uint64(binary.BigEndian.Uint16(b[1:])), nil
		}
	}
	n, err := r.int()
	return uint64(n), err
}

// float64 reads a number of either width, and a whole number as one.
func (r *reader) float64() (float64, error) {
	if b := r.b[r.at:]; len(b) > 8 && b[0] == codeFloat64 {
		r.at += 9
		return math.Float64frombits(binary.BigEndian.Uint64(b[1:])), nil
	}
	c, err := r.code()
	if err != nil {
		return 0, err
	}
	switch c {
	case codeFloat32:
		n, err := r.big(4)
		return float64(math.Float32frombits(uint32(n))), err
	case codeFloat64:
		n, err := r.big(8)
		return math.Float64frombits(n), err
	}
	n, err := r.intOf(c)
	return float64(n), err
}

// text reads a text, and nil as an empty one.
func (r *reader) text() (string, error) {
	b, err := r.shared()
	return string(b), err
}

// repeated reads a text, which shares memory with the last one that it read if that was equal.
func (r *reader) repeated() (string, error) {
	b, err := r.shared()
	if string(b) != r.last {
		r.last = string(b)
	}
	return r.last, err
}

// shared reads a text or bytes, in the memory of the message; nil for nil.
func (r *reader) shared() ([]byte, error) {
	c, err := r.code()
	if err != nil {
		return nil, err
	}
	var n uint64
	switch {
	case c == codeNil:
		return nil, nil
	case c >= fixStr && c < codeNil:
		n = uint64(c &^ fixStr)
	case c >= codeBin8 && c <= codeBin32:
		n, err = r.big(1 << (c - codeBin8))
	case c >= codeStr8 && c <= codeStr32:
		n, err = r.big(1 << (c - codeStr8))
	default:
		return nil, wrongType(c, "a text or bytes")
	}
	if err != nil {
		return nil, err
	}
	return r.take(int(n))
}

// list reads how many elements follow; -1: nil. There may be fewer. The caller takes memory for
// elements as they come (atOnce), not for the number that is announced.
func (r *reader) list() (int, error) {
	return r.many(fixArray, codeArray16, codeArray32, "a list")
}

// dict reads how many pairs follow; -1: nil. There may be fewer.
func (r *reader) dict() (int, error) { return r.many(fixMap, codeMap16, codeMap32, "a map") }

// many reads the length of a list or a map, whose codes are given.
func (r *reader) many(fix, code16, code32 byte, expected string) (int, error) {
	c, err := r.code()
	switch {
	case err != nil:
		return 0, err
	case c == codeNil:
		return -1, nil
	case c&0xf0 == fix:
		return int(c & 0x0f), nil
	case c == code16:
		n, err := r.big(2)
		return int(n), err
	case c == code32:
		n, err := r.big(4)
		return int(n), err
	}
	return 0, wrongType(c, expected)
}

// skip passes over a value of any kind, however deep. It counts what is left in place of calling
// itself, so a peer that nests a million lists in each other does not exhaust the stack. Each round
// reads at least one byte.
func (r *reader) skip() error {
	for left := 1; left > 0; left-- {
		more, err := r.skipOne()
		if err != nil {
			return err
		}
		left += more
	}
	return nil
}

// skipOne passes over a value but for its elements, and returns how many those are.
func (r *reader) skipOne() (elements int, err error) {
	if r.left() == 0 {
		return 0, io.ErrUnexpectedEOF
	}
	c := r.b[r.at]
	switch {
	case c >= fixArray && c < fixStr || c == codeArray16 || c == codeArray32:
		return r.list()
	case c >= fixMap && c < fixArray || c == codeMap16 || c == codeMap32:
		n, err := r.dict()
		return 2 * n, err
	case c >= fixStr && c < codeNil || c >= codeBin8 && c <= codeBin32 || c >= codeStr8 && c <= codeStr32:
		_, err = r.shared()
		return 0, err
	case c == codeFalse || c == codeTrue:
		_, err = r.take(1)
		return 0, err
	case c >= codeFixExt && c < codeStr8:
		_, err = r.take(2 + 1<<(c-codeFixExt))
		return 0, err
	case c >= codeExt8 && c <= codeExt32:
		_, _ = r.take(1)
		n, err := r.big(1 << (c - codeExt8))
		if err == nil {
			_, err = r.take(1 + int(n))
		}
		return 0, err
	}
	_, err = r.float64() // any number, and nil
	return 0, err
}
