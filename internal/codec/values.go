package codec

import (
	"encoding/binary"
	"maps"
	"math"
	"slices"
	"time"
)

// The fields of records by the kind of their value. at gives the place of the value in the struct.

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
			list := make([]E, d.Count(1))
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

func (d *Decoder) texts() []string {
	list := make([]string, d.Count(1))
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
