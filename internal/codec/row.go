package codec

import "fmt"

// A state row of the pipeline whose fields have numbers begins with its version. Rows of older
// programs are msgpack arrays, which count their fields; their first byte is above every version. A
// field that an older program may keep unread is a new tag; a change that it must not carry along
// is a new version, which it refuses.

// maxVersion is below the first byte of any array in msgpack.
const maxVersion = 0x7f

// Row gives the row of v, in memory of about the right size.
func (r *Record[T]) Row(version byte, v *T, size int) []byte {
	e := Encoder{B: append(make([]byte, 0, size), version)}
	r.Append(&e, v)
	return e.B
}

// ReadRow takes a row of Row up to a version. v is zero in its fields before. Old says that the row
// is of an older program: then nothing was read. A row of a later version is ErrNewer.
func (r *Record[T]) ReadRow(row []byte, version byte, v *T) (old bool, err error) {
	if len(row) == 0 || row[0] == 0 {
		return false, fmt.Errorf("%w: %s without a version", ErrMalformed, r.Name)
	}
	switch first := row[0]; {
	case first > maxVersion:
		return true, nil
	case first > version:
		return false, fmt.Errorf("%w: %s of version %d, this program reads up to %d", ErrNewer, r.Name, first, version)
	}
	d := Decoder{B: row[1:]}
	r.Read(&d, v)
	return false, d.Err
}
