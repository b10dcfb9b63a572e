// Package codec encodes rows: records whose fields have numbers, and the values they are made of,
// guarded msgpack for the rest, checksums that cover the key, and times. A damaged row costs no
// memory: lengths are compared with the bytes that are left before anything is made, and CorruptError says where it is.
package codec

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/vmihailenco/msgpack/v5"
)

// ErrMalformed means that bytes are not what any program wrote: damage, or an edit.
var ErrMalformed = errors.New("row is malformed")

// Encoder appends; it cannot fail.
type Encoder struct{ B []byte }

// U8, U32 and U64 append an integer of that width, big endian.
func (e *Encoder) U8(v uint8) { e.B = append(e.B, v) }

func (e *Encoder) U32(v uint32) { e.B = binary.BigEndian.AppendUint32(e.B, v) }

func (e *Encoder) U64(v uint64) { e.B = binary.BigEndian.AppendUint64(e.B, v) }

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

// Decoder reads what enc wrote. The first short read sets err, after which every read returns zero:
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

// U8, U32 and U64 read what the methods of Encoder with those names wrote; 0 after an error.
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

// Uvarint reads an unsigned number of at most ten bytes.
func (d *Decoder) Uvarint() uint64 {
	if len(d.B) > 0 && d.B[0] < 0x80 { // most
		v := d.B[0]
		d.B = d.B[1:]
		return uint64(v)
	}
	return d.longUvarint()
}

func (d *Decoder) longUvarint() uint64 {
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
func (d *Decoder) Bytes() []byte {
	if b := d.B; d.Err == nil && len(b) > 0 && b[0] < 0x80 && int(b[0]) < len(b) { // most
		n := int(b[0]) + 1
		d.B = b[n:]
		return b[1:n:n]
	}
	return d.Take(d.Count(1))
}

// Str reads what Encoder.Str wrote, as a copy.
func (d *Decoder) Str() string { return string(d.Bytes()) }

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

// Sum is the checksum of a row in bbolt: it covers the key, so that a value can never answer for
// another key.
func Sum(bucket byte, key, value []byte) uint64 {
	var h xxhash.Digest
	h.Reset()
	h.Write([]byte{bucket})
	h.Write(key)
	h.Write(value)
	return h.Sum64()
}

// Seal returns a copy of value with its checksum behind it, as bbolt has it. It encrypts nothing:
// that is package seal.
func Seal[V string | []byte](bucket byte, key []byte, value V) []byte {
	row := append(make([]byte, 0, len(value)+8), value...)
	return binary.BigEndian.AppendUint64(row, Sum(bucket, key, row))
}

// Unopened stands for the value of a row that does not open with the keys of its database, and
// Destroyed for one whose key was destroyed. Unseal recognises them by their address: no row has
// these bytes.
var Unopened, Destroyed = []byte{0}, []byte{1}

// destroyedSize is the size of a sealed value of one byte. State rows, held batches and questions are
// longer, and only they have a DestroyedRow in their place; a text may be one byte. What rows of a
// file pretend is refused where they are read (package filestore).
const destroyedSize = 9

// keepsSum reports whether a DestroyedRow may stand for rows of a bucket: held batches, questions,
// state of both forms.
func keepsSum(bucket byte) bool {
	return bucket == 'd' || bucket == 'q' || bucket == 'S' || bucket == 's'
}

// DestroyedRow stands for a row whose key was destroyed and of which its checksum is still counted.
func DestroyedRow(sum uint64) []byte { return binary.BigEndian.AppendUint64([]byte{1}, sum) }

// IsDestroyed reports whether a value of such a bucket is a DestroyedRow.
func IsDestroyed(v []byte) bool { return len(v) == destroyedSize && v[0] == 1 }

// ErrDestroyed says that a row is there and its key is not: it was erased, and this is a copy that
// was made before.
var ErrDestroyed = fmt.Errorf("%w: its key was destroyed when it was erased; this database is from before that: erase it here as well (dbctl restore --erased RECEIPT)", ErrMalformed)

// Unseal checks and strips the checksum; the result is borrowed from v.
func Unseal(bucket byte, key, v []byte) ([]byte, error) {
	if len(v) == 1 && &v[0] == &Destroyed[0] || keepsSum(bucket) && IsDestroyed(v) {
		return nil, ErrDestroyed
	}
	if len(v) == 1 && &v[0] == &Unopened[0] {
		return nil, fmt.Errorf("%w: it does not open with the keys of this database: it was changed, or moved here from elsewhere", ErrMalformed)
	}
	if len(v) < 8 {
		return nil, fmt.Errorf("%w: value of %d bytes, expected a checksum of 8", ErrMalformed, len(v))
	}
	value := v[: len(v)-8 : len(v)-8]
	if got := Sum(bucket, key, value); got != binary.BigEndian.Uint64(v[len(v)-8:]) {
		return nil, fmt.Errorf("%w: checksum differs", ErrMalformed)
	}
	return value, nil
}

// Times are kept in microseconds; the zero time is 0.
func Micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	if us := t.UnixMicro(); us != 0 {
		return us
	}
	return 1 // the epoch itself is a time like any other
}

// FromMicros is the inverse of Micros, in UTC; 0 is the zero time.
func FromMicros(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}
