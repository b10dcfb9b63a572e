package codec

import (
	"encoding/binary"
	"errors"

	"github.com/vmihailenco/msgpack/v5"
)

// ErrMalformed means that bytes are not what any program wrote: damage, or an edit.
var ErrMalformed = errors.New("row is malformed")

// Encoder appends; it cannot fail.
type Encoder struct{ B []byte }

// U8, U32, U64 and I64 append an integer of that width, big endian.
func (e *Encoder) U8(v uint8) { e.B = append(e.B, v) }

func (e *Encoder) U32(v uint32) { e.B = binary.BigEndian.AppendUint32(e.B, v) }

func (e *Encoder) U64(v uint64) { e.B = binary.BigEndian.AppendUint64(e.B, v) }

func (e *Encoder) I64(v int64) { e.U64(uint64(v)) }

// Raw appends bytes without a length: the reader knows how many there are.
func (e *Encoder) Raw(v []byte) { e.B = append(e.B, v...) }

// Bytes and Str append a length (uvarint) and the bytes.
func (e *Encoder) Bytes(v []byte) {
	e.B = binary.AppendUvarint(e.B, uint64(len(v)))
	e.B = append(e.B, v...)
}

func (e *Encoder) Str(v string) {
	e.B = binary.AppendUvarint(e.B, uint64(len(v)))
	e.B = append(e.B, v...)
}

// Count appends the number of the things that follow. See Decoder.Count.
func (e *Encoder) Count(n int) { e.B = binary.AppendUvarint(e.B, uint64(n)) }

// Decoder reads what enc wrote. The first short read sets err, after which every read gives zero:
// check err once. Lengths are compared with the bytes that are left before anything is made, so
// that a damaged row costs no memory.
type Decoder struct {
	B   []byte
	Err error
}

// Take returns the next n bytes, borrowed from the input; nil if there are fewer.
func (d *Decoder) Take(n int) []byte {
	if d.Err != nil || n < 0 || n > len(d.B) {
		d.Fail()
		return nil
	}
	v := d.B[:n:n]
	d.B = d.B[n:]
	return v
}

// Fail makes the decoder fail, unless it has failed before: the first error is the one that counts.
func (d *Decoder) Fail() {
	if d.Err == nil {
		d.Err = ErrMalformed
	}
}

// U8, U32, U64 and I64 read what the methods of Encoder with those names wrote; 0 after an error.
func (d *Decoder) U8() uint8 {
	if v := d.Take(1); v != nil {
		return v[0]
	}
	return 0
}

func (d *Decoder) U32() uint32 {
	if v := d.Take(4); v != nil {
		return binary.BigEndian.Uint32(v)
	}
	return 0
}

func (d *Decoder) U64() uint64 {
	if v := d.Take(8); v != nil {
		return binary.BigEndian.Uint64(v)
	}
	return 0
}

func (d *Decoder) I64() int64 { return int64(d.U64()) }

// Uvarint reads an unsigned number of at most ten bytes.
func (d *Decoder) Uvarint() uint64 {
	v, n := binary.Uvarint(d.B)
	if n <= 0 {
		d.Fail()
		return 0
	}
	d.B = d.B[n:]
	return v
}

// Count reads a number of things that take at least min bytes each.
func (d *Decoder) Count(min int) int {
	n := d.Uvarint()
	if n > uint64(len(d.B)/min) {
		d.Fail()
		return 0
	}
	return int(n)
}

// Bytes reads what Encoder.Bytes wrote. The result is borrowed from the input; see Own.
func (d *Decoder) Bytes() []byte { return d.Take(d.Count(1)) }

// Str reads what Encoder.Str wrote, as a copy.
func (d *Decoder) Str() string { return string(d.Bytes()) }

// Own gives bytes of the caller's own, empty and not nil where there are none.
func (d *Decoder) Own() []byte { return append([]byte{}, d.Bytes()...) }

// Done returns the error. Bytes that are left are one: every byte of a row has a meaning.
func (d *Decoder) Done() error {
	if d.Err == nil && len(d.B) > 0 {
		d.Err = ErrMalformed
	}
	return d.Err
}

// PackStrings makes a msgpack array of strings.
func PackStrings(v []string) ([]byte, error) { return msgpack.Marshal(v) }
