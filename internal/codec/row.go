package codec

import (
	"fmt"
	"sync"
)

// A row whose fields have numbers begins with its version. A field that an older program may keep
// unread is a new tag; a change that it must not carry along is a new version, which it refuses.

var encoders = sync.Pool{New: func() any { return new(Encoder) }}

// Row returns the row of v, in memory of about the right size.
func (r *Record[T]) Row(version byte, v *T, size int) []byte {
	e := encoders.Get().(*Encoder) // of its own it would be allocated each time, as the fields are functions
	e.B = append(make([]byte, 0, size), version)
	r.Append(e, v)
	row := e.B
	e.B = nil
	encoders.Put(e)
	return row
}

// ReadRow decodes a row of Row of at most the given version into v, whose fields must be zero.
// A row of a later version returns ErrNewer.
func (r *Record[T]) ReadRow(row []byte, version byte, v *T) error {
	switch {
	case len(row) == 0 || row[0] == 0:
		return fmt.Errorf("%w: %s without a version", ErrMalformed, r.Name)
	case row[0] > version:
		return fmt.Errorf("%w: %s of version %d, this program reads up to %d", ErrNewer, r.Name, row[0], version)
	}
	d := Decoder{B: row[1:]}
	r.Read(&d, v)
	return d.Err
}
