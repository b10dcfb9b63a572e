package codec

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
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

// Record is the list of fields of T. What few records need is a function instead of a method: dbctl calls methods by name, so the linker keeps
// the methods of every record.
type Record[T any] struct {
	Name   string // in errors: what T is called
	Fields []Field[T]
	// Unknown returns the place for fields with tags that are not listed, nil: a record that has some
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
func CheckUnknown[T any](r *Record[T], b []byte) error {
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
func But[T any](r *Record[T], names ...string) *Record[T] {
	out := *r
	out.Fields = slices.DeleteFunc(slices.Clone(r.Fields), func(f Field[T]) bool { return slices.Contains(names, f.Name) })
	if len(out.Fields)+len(names) != len(r.Fields) {
		panic(fmt.Sprintf("codec: %s has not all of the fields %v", r.Name, names)) // a list in the program is wrong
	}
	return &out
}

// Only is a record that reads some fields and passes over the others.
func Only[T any](r *Record[T], names ...string) *Record[T] {
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
func Same[T any](r *Record[T], a, b *T) bool {
	var x, y Encoder
	r.Append(&x, a)
	r.Append(&y, b)
	return bytes.Equal(x.B, y.B)
}

// A row whose fields have numbers begins with its version. A field that an older program may keep
// unread is a new tag; a change that it must not carry along is a new version, which it refuses.

// Row returns the row of v, in memory of about the right size.
func Row[T any](r *Record[T], version byte, v *T, size int) []byte {
	e := Encoder{B: append(make([]byte, 0, size), version)}
	r.Append(&e, v)
	return e.B
}

// ReadRow decodes a row of Row of at most the given version into v, whose fields must be zero.
// A row of a later version returns ErrNewer.
func ReadRow[T any](r *Record[T], row []byte, version byte, v *T) error {
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

// The fields of records by the kind of their value. at returns the place of the value in the struct.

// Text is a string.
func Text[T any](tag uint64, name string, at func(*T) *string) Field[T] {
	return Field[T]{tag, name,
		func(e *Encoder, v *T) { e.B = append(e.B, *at(v)...) },
		func(d *Decoder, v *T) { *at(v) = string(d.Rest()) }}
}

// Blob is a byte string; empty is nil.
func Blob[T any, B ~[]byte](tag uint64, name string, at func(*T) *B) Field[T] {
	return Field[T]{tag, name,
		func(e *Encoder, v *T) { e.Raw(*at(v)) },
		func(d *Decoder, v *T) { *at(v) = append(B(nil), d.Rest()...) }}
}

// Array is an array of bytes, all or none of which is stored.
func Array[T any](tag uint64, name string, at func(*T) []byte) Field[T] {
	return Field[T]{tag, name,
		func(e *Encoder, v *T) {
			if b := at(v); slices.ContainsFunc(b, func(x byte) bool { return x != 0 }) {
				e.Raw(b)
			}
		},
		func(d *Decoder, v *T) { b := at(v); copy(b, d.Take(len(b))) }}
}

// Uint is a number that is never negative.
func Uint[T any, N ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~int](tag uint64, name string, at func(*T) *N) Field[T] {
	return Field[T]{tag, name,
		func(e *Encoder, v *T) {
			if n := *at(v); n != 0 {
				e.Uvarint(uint64(n))
			}
		},
		func(d *Decoder, v *T) {
			n := d.Uvarint()
			if *at(v) = N(n); N(n) < 0 || uint64(N(n)) != n {
				d.Fail()
			}
		}}
}

// Int is a signed number.
func Int[T any, N ~int | ~int64](tag uint64, name string, at func(*T) *N) Field[T] {
	return Field[T]{tag, name,
		func(e *Encoder, v *T) {
			if n := *at(v); n != 0 {
				e.Varint(int64(n))
			}
		},
		func(d *Decoder, v *T) { *at(v) = N(d.Varint()) }}
}

// Fixed64 is a number whose bits are spread, a hash: 8 bytes.
func Fixed64[T any](tag uint64, name string, at func(*T) *uint64) Field[T] {
	return Field[T]{tag, name,
		func(e *Encoder, v *T) {
			if n := *at(v); n != 0 {
				e.U64(n)
			}
		},
		func(d *Decoder, v *T) { *at(v) = d.U64() }}
}

// Flag is true, or not there.
func Flag[T any](tag uint64, name string, at func(*T) *bool) Field[T] {
	return Field[T]{tag, name,
		func(e *Encoder, v *T) {
			if *at(v) {
				e.U8(1)
			}
		},
		func(d *Decoder, v *T) {
			if *at(v) = d.U8() == 1; !*at(v) {
				d.Fail()
			}
		}}
}

// Moment is a time in microseconds, in UTC when it is read.
func Moment[T any](tag uint64, name string, at func(*T) *time.Time) Field[T] {
	return Field[T]{tag, name,
		func(e *Encoder, v *T) {
			if us := Micros(*at(v)); us != 0 {
				e.Varint(us)
			}
		},
		func(d *Decoder, v *T) { *at(v) = FromMicros(d.Varint()) }}
}

// Float is a finite number: 8 bytes.
func Float[T any](tag uint64, name string, at func(*T) *float64) Field[T] {
	return Field[T]{tag, name,
		func(e *Encoder, v *T) {
			if x := *at(v); x != 0 {
				e.U64(math.Float64bits(x))
			}
		},
		func(d *Decoder, v *T) {
			x := math.Float64frombits(d.U64())
			if *at(v) = x; math.IsNaN(x) || math.IsInf(x, 0) {
				d.Fail()
			}
		}}
}

// OptFloat is a number that may be missing, which is not the same as 0.
func OptFloat[T any](tag uint64, name string, at func(*T) **float64) Field[T] {
	return Field[T]{tag, name,
		func(e *Encoder, v *T) {
			if x := *at(v); x != nil {
				e.U64(math.Float64bits(*x))
			}
		},
		func(d *Decoder, v *T) { x := math.Float64frombits(d.U64()); *at(v) = &x }}
}

// Texts is a list of strings; an empty one is nil.
func Texts[T any](tag uint64, name string, at func(*T) *[]string) Field[T] {
	return Field[T]{tag, name,
		func(e *Encoder, v *T) { e.texts(*at(v)) },
		func(d *Decoder, v *T) { *at(v) = d.texts() }}
}

// Pairs is a map, kept by key; an empty one is nil.
func Pairs[T any](tag uint64, name string, at func(*T) *map[string]string) Field[T] {
	return Field[T]{tag, name,
		func(e *Encoder, v *T) {
			m := *at(v)
			if len(m) == 0 {
				return
			}
			list := make([]string, 0, 2*len(m))
			for _, k := range slices.Sorted(maps.Keys(m)) {
				list = append(list, k, m[k])
			}
			e.texts(list)
		},
		func(d *Decoder, v *T) {
			list := d.texts()
			if len(list)%2 != 0 {
				d.Fail()
				return
			}
			m := make(map[string]string, len(list)/2)
			for i := 0; i < len(list); i += 2 {
				m[list[i]] = list[i+1]
			}
			*at(v) = m
		}}
}

// Ints is a list of numbers; an empty one is nil.
func Ints[T any](tag uint64, name string, at func(*T) *[]int) Field[T] {
	return Field[T]{tag, name,
		func(e *Encoder, v *T) {
			list := *at(v)
			if len(list) == 0 {
				return
			}
			e.Count(len(list))
			for _, n := range list {
				e.Varint(int64(n))
			}
		},
		func(d *Decoder, v *T) {
			list := make([]int, d.Count(1))
			for i := range list {
				list[i] = int(d.Varint())
			}
			*at(v) = list
		}}
}

// Inner is a record in a record.
func Inner[T, E any](tag uint64, name string, of *Record[E], at func(*T) *E) Field[T] {
	return Field[T]{tag, name,
		func(e *Encoder, v *T) { of.Append(e, at(v)) },
		func(d *Decoder, v *T) { of.Read(d, at(v)) }}
}

// List is a list of records; an empty one is nil.
func List[T, E any](tag uint64, name string, of *Record[E], at func(*T) *[]E) Field[T] {
	return Field[T]{tag, name,
		func(e *Encoder, v *T) {
			list := *at(v)
			if len(list) == 0 {
				return
			}
			e.Count(len(list))
			for i := range list {
				from := e.Begin()
				of.Append(e, &list[i])
				e.End(from)
			}
		},
		func(d *Decoder, v *T) {
			n := d.Count(1)
			if n == 0 { // as if it were left out
				return
			}
			list := make([]E, n)
			for i := range list {
				if d.Err != nil {
					return
				}
				item := d.Bytes()
				rest := d.B
				d.B = item
				of.Read(d, &list[i])
				d.B = rest
			}
			*at(v) = list
		}}
}

// texts writes a list of strings, and nothing if there are none: a field without bytes is left out.
func (e *Encoder) texts(list []string) {
	if len(list) == 0 {
		return
	}
	e.Count(len(list))
	for _, s := range list {
		e.Str(s)
	}
}

func (d *Decoder) texts() (list []string) {
	if n := d.Count(1); n > 0 {
		list = make([]string, n)
	}
	for i := range list {
		list[i] = d.Str()
	}
	return list
}

// Uvarint appends an unsigned number in the fewest bytes.
func (e *Encoder) Uvarint(v uint64) { e.B = binary.AppendUvarint(e.B, v) }

// Varint appends a signed number in the fewest bytes.
func (e *Encoder) Varint(v int64) { e.B = binary.AppendVarint(e.B, v) }

// Varint reads what Encoder.Varint wrote.
func (d *Decoder) Varint() int64 {
	v, n := binary.Varint(d.B)
	if n <= 0 {
		d.Fail()
		return 0
	}
	d.B = d.B[n:]
	return v
}

// Rest takes all that is left.
func (d *Decoder) Rest() []byte { return d.Take(len(d.B)) }

// FailAs sets the error, if there is none yet.
func (d *Decoder) FailAs(err error) {
	if d.Err == nil || d.Err == ErrMalformed {
		d.Err = err
	}
}
