package codec

import (
	"encoding/binary"
	"fmt"

	"github.com/cespare/xxhash/v2"
)

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
func Seal(bucket byte, key, value []byte) []byte {
	return binary.BigEndian.AppendUint64(append(make([]byte, 0, len(value)+8), value...), Sum(bucket, key, value))
}

// Unopened stands for the value of a row that does not open with the keys of its database, and
// Destroyed for one whose key was destroyed. Unseal recognises them by their address: no row has
// these bytes.
var Unopened, Destroyed = []byte{0}, []byte{1}

// destroyedSize is that of a sealed value of one byte. State rows, held batches and questions are
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
