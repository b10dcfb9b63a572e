package codec

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
)

// ErrNewer means that a row is sound and that a later release wrote it. Nothing may be read from
// it, because this program could not write it back as it is.
var ErrNewer = errors.New("a newer release wrote it")

// A record is the part of a row that can grow: fields with numbers.
//
//	field    uvarint tag · uvarint length · value     tags rise; a field that is zero is left out
//
// So a row of an older program, which has fewer fields, is read by a newer one: what is not there
// is zero. A row of a newer program has tags that an older one does not know. It keeps those fields
// as they are and writes them back, where the struct has a place for them (Unknown); else it
// refuses the row, ErrNewer. A change that an older program must not carry along blindly therefore
// raises the version of the row instead of adding a tag.
//
// The list of fields is the only place that names them: encoding, decoding, comparing and the tests
// walk it. A tag is never given twice, also not after its field is gone.

// Record is the list of fields of T.
type Record[T any] struct {
	Name   string // in errors: what T is called
	Fields []Field[T]
	// Unknown gives the place for fields with tags that are not listed, nil: a record that has some
	// is refused. What is kept there is well-formed, and has no listed tag.
	Unknown func(*T) *[]byte
}

// Field is one field of a record.
type Field[T any] struct {
	Tag  uint64
	Name string // of the Go field
	// Write appends the value, and nothing where it is zero.
	Write func(e *Encoder, v *T)
	// Read takes the value: all that the decoder has. What it leaves is an error.
	Read func(d *Decoder, v *T)
}

// Append writes the record of v. Equal values have equal bytes.
func (r *Record[T]) Append(e *Encoder, v *T) {
	var unknown Decoder
	if r.Unknown != nil {
		unknown.B = *r.Unknown(v)
	}
	for i := range r.Fields {
		f := &r.Fields[i]
		if len(unknown.B) > 0 {
			unknown.copyBelow(e, f.Tag)
		}
		at := len(e.B)
		if f.Tag < 0x80 {
			e.B = append(e.B, byte(f.Tag), 0)
		} else {
			e.Uvarint(f.Tag)
			e.Begin()
		}
		from := len(e.B)
		if f.Write(e, v); len(e.B) == from {
			e.B = e.B[:at]
			continue
		}
		e.End(from)
	}
	e.B = append(e.B, unknown.B...)
}

// Begin reserves the length of a value that is appended next, and returns where the value begins.
func (e *Encoder) Begin() (from int) {
	e.B = append(e.B, 0)
	return len(e.B)
}

// End completes a value that Begin began.
func (e *Encoder) End(from int) {
	n := len(e.B) - from
	if n < 0x80 {
		e.B[from-1] = byte(n)
		return
	}
	var length [binary.MaxVarintLen64]byte
	e.B = slices.Replace(e.B, from-1, from, length[:binary.PutUvarint(length[:], uint64(n))]...)
}

// copyBelow moves the fields below a tag to e.
func (d *Decoder) copyBelow(e *Encoder, tag uint64) {
	for len(d.B) > 0 && d.Err == nil {
		was := d.B
		if t := d.Uvarint(); t >= tag {
			d.B = was
			return
		}
		d.Bytes()
		e.Raw(was[:len(was)-len(d.B)])
	}
}

// Read takes a record: all that the decoder has. v is zero before.
func (r *Record[T]) Read(d *Decoder, v *T) { r.ReadTo(d, v, math.MaxUint64) }

// ReadTo reads the fields up to a tag, and none of the bytes behind them.
func (r *Record[T]) ReadTo(d *Decoder, v *T, to uint64) {
	i, last := 0, uint64(0)
	for len(d.B) > 0 && d.Err == nil {
		was := d.B
		tag := d.Uvarint()
		if tag > to {
			return
		}
		value := d.Bytes()
		if d.Err != nil || tag <= last || len(value) == 0 {
			d.Fail()
			return
		}
		last = tag
		for i < len(r.Fields) && r.Fields[i].Tag < tag {
			i++
		}
		rest := d.B
		if i == len(r.Fields) || r.Fields[i].Tag != tag {
			r.keep(d, v, tag, was[:len(was)-len(rest)])
			continue
		}
		d.B = value
		r.Fields[i].Read(d, v)
		if d.Err != nil || len(d.B) > 0 {
			d.FailAs(fmt.Errorf("%w: %s of %s", ErrMalformed, r.Fields[i].Name, r.Name))
			return
		}
		d.B = rest
	}
}

// keep puts a field of a later release aside.
func (r *Record[T]) keep(d *Decoder, v *T, tag uint64, field []byte) {
	if r.Unknown == nil {
		d.FailAs(fmt.Errorf("%w: field %d of %s is not known to this program", ErrNewer, tag, r.Name))
		return
	}
	at := r.Unknown(v)
	*at = append(*at, field...)
}

// CheckUnknown reports whether b may stand in the place for unknown fields: fields in order, none of
// them listed.
func (r *Record[T]) CheckUnknown(b []byte) error {
	last := uint64(0)
	for d := (Decoder{B: b}); len(d.B) > 0; {
		tag := d.Uvarint()
		value := d.Bytes()
		listed := slices.ContainsFunc(r.Fields, func(f Field[T]) bool { return f.Tag == tag })
		if d.Err != nil || tag <= last || len(value) == 0 || listed {
			return fmt.Errorf("%w: fields of %s", ErrMalformed, r.Name)
		}
		last = tag
	}
	return nil
}

// But is the record without some of its fields. Fields that it does not list any more are unknown
// to it.
func (r *Record[T]) But(names ...string) *Record[T] {
	out := *r
	out.Fields = slices.DeleteFunc(slices.Clone(r.Fields), func(f Field[T]) bool { return slices.Contains(names, f.Name) })
	if len(out.Fields)+len(names) != len(r.Fields) {
		panic(fmt.Sprintf("codec: %s has not all of the fields %v", r.Name, names)) // a list in the program is wrong
	}
	return &out
}

// Only is a record that reads some fields and passes over the others.
func (r *Record[T]) Only(names ...string) *Record[T] {
	out := *r
	out.Fields = slices.Clone(r.Fields)
	for i := range out.Fields {
		if f := &out.Fields[i]; !slices.Contains(names, f.Name) {
			f.Read = func(d *Decoder, _ *T) { d.Rest() }
		}
	}
	return &out
}

// Known is the record without a place for unknown fields: they are not written.
func (r *Record[T]) Known() *Record[T] {
	out := *r
	out.Unknown = nil
	return &out
}

// Same reports whether two values have the same fields.
func (r *Record[T]) Same(a, b *T) bool {
	var x, y Encoder
	r.Append(&x, a)
	r.Append(&y, b)
	return bytes.Equal(x.B, y.B)
}
