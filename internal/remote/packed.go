package remote

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/ctxpage/ctxpage/store"
)

// A list of candidates, and one of the pages of a leaf, is sent as a packed table, which takes few
// bytes and little time: one byte string.
//
//	rows      uvarint
//	columns   each: length of the name (a byte), name, form (a byte), length of the values (four bytes, big-endian), values
//
// Each column has the name of a field once and its values in the order of the rows. A field of a
// nested struct has the name Outer.Inner. In the form "each" there is a value for each row; in the
// form "same" there is one value, which all rows have. A column of zeros is left out, and a column
// that the reader does not know is skipped.
//
//	whole numbers   uvarint of the difference from the value before, the first from 0: zigzag, 64 bits, with overflow
//	flags           a byte: 0 or 1
//	reals           eight bytes of IEEE 754, big-endian
//	texts           the lengths of all as uvarints, then the bytes of all
//	spans           uvarint of how many and 1, 0 for nil; then both ends of each as uvarints
//	Cosine          a byte: whether there is one; and a real if there is

// The forms of a column.
const (
	packedEach = 0
	packedSame = 1
)

// oneText is up to how many bytes the texts of a column share one memory.
const oneText = 16 << 10

// errPacked means that a packed table ends within a value, or later than its last value.
var errPacked = errors.New("a packed column does not end where its last value does")

// putPacked writes a packed table as one byte string. The length is always written in four bytes,
// so that it can be filled in when the table is complete.
func putPacked[T any](w *writer, fields []accessor[T], rows []T) {
	w.b = append(w.b, codeBin32, 0, 0, 0, 0)
	at := len(w.b)
	w.b = packTable(w.b, fields, rows)
	binary.BigEndian.PutUint32(w.b[at-4:], uint32(len(w.b)-at))
}

// packTable appends a packed table. Many rows never have a column in the form "same": then a reader
// can hold the number of rows against the number of bytes before it takes memory for them.
func packTable[T any](b []byte, fields []accessor[T], rows []T) []byte {
	b = binary.AppendUvarint(b, uint64(len(rows)))
	if len(rows) == 0 {
		return b
	}
	for i := range fields {
		f := &fields[i]
		form, values := byte(packedEach), rows
		switch {
		case f.same == nil || len(rows) > atOnce:
			if f.none(rows) {
				continue
			}
		case f.same(rows):
			if f.zero(&rows[0]) {
				continue
			}
			form, values = packedSame, rows[:1]
		}
		b = append(append(b, byte(len(f.name))), f.name...)
		b = append(b, form, 0, 0, 0, 0)
		at := len(b)
		b = f.pack(b, values)
		binary.BigEndian.PutUint32(b[at-4:], uint32(len(b)-at))
	}
	return b
}

// getPacked reads a packed table. n is believed only as far as the message has bytes: a table of
// more than atOnce rows has at least one byte for each row. A row in memory is larger than that (a
// Candidate has 264 bytes, a Page 112), so a peer can make this process take that many times the
// bytes it sends, up to maxRequest or maxAnswer. The peer is of the same user, which bounds what it
// gains.
func getPacked[T any](r *reader, fields []accessor[T], into *[]T) error {
	b, err := r.shared()
	if err != nil {
		return err
	}
	n, k := binary.Uvarint(b)
	if k <= 0 || n > uint64(max(atOnce, len(b))) {
		return fmt.Errorf("a packed table of %d rows in %d bytes", n, len(b))
	}
	rows := make([]T, n)
	at := 0 // columns come in the order of the fields
	for b = b[k:]; len(b) > 0; {
		col, rest, err := nextColumn(b)
		if err != nil {
			return err
		}
		b = rest
		i := accessorAt(fields, at, col.name)
		if i < 0 {
			continue
		}
		at = i + 1
		if err := unpackColumn(&fields[i], col, rows); err != nil {
			return fmt.Errorf("column %s: %w", col.name, err)
		}
	}
	*into = rows
	return nil
}

// packedColumn is a column in the memory of the message.
type packedColumn struct {
	name   []byte
	form   byte
	values []byte
}

// nextColumn reads the head of the next column. b is not empty. col.values shares the memory of the
// message; every length is compared with what is left before it is used.
//
//	┌───┬──────┬──────┬────────────┬────────┐
//	│ l │ name │ form │ length (4) │ values │
//	└───┴──────┴──────┴────────────┴────────┘
//	 1 B  l B    1 B      4 B       length B
func nextColumn(b []byte) (col packedColumn, rest []byte, err error) {
	name := 1 + int(b[0])
	if len(b) < name+5 {
		return col, nil, errPacked
	}
	col.name, col.form = b[1:name], b[name]
	n := binary.BigEndian.Uint32(b[name+1:])
	if b = b[name+5:]; uint64(n) > uint64(len(b)) {
		return col, nil, errPacked
	}
	col.values = b[:n]
	return col, b[n:], nil
}

// unpackColumn fills one field of all rows. Values that end early, and bytes behind the last value,
// are errPacked: either means that writer and reader disagree about the rows.
func unpackColumn[T any](f *accessor[T], col packedColumn, rows []T) error {
	values := rows
	switch {
	case len(rows) == 0:
		return errPacked
	case col.form == packedSame && f.spread != nil:
		values = rows[:1]
	case col.form != packedEach:
		return fmt.Errorf("form %d, expected %d, or %d where values can be compared", col.form, packedEach, packedSame)
	}
	left, err := f.unpack(col.values, values)
	if err == nil && len(left) > 0 {
		err = errPacked
	}
	if err == nil && col.form == packedSame {
		f.spread(rows)
	}
	return err
}

// How the values of each kind are packed, and unpacked from b, of which the rest is returned.

// packWhole writes differences: a number near the one before takes one byte. The difference of two
// 64-bit numbers may overflow; unpackWhole overflows back.
func packWhole[T any, N ~int | ~int64 | ~uint8 | ~uint16 | ~uint32 | ~uint64](at func(*T) *N) func([]byte, []T) []byte {
	return func(b []byte, rows []T) []byte {
		last := uint64(0)
		for i := range rows {
			v := uint64(*at(&rows[i]))
			step := v - last
			last = v
			if step = step<<1 ^ uint64(int64(step)>>63); step < 0x80 {
				b = append(b, byte(step))
			} else {
				b = binary.AppendUvarint(b, step)
			}
		}
		return b
	}
}

// unpackWhole refuses a number that the field cannot hold, in place of cutting it.
func unpackWhole[T any, N ~int | ~int64 | ~uint8 | ~uint16 | ~uint32 | ~uint64](at func(*T) *N) func([]byte, []T) ([]byte, error) {
	return func(b []byte, rows []T) ([]byte, error) {
		last := uint64(0)
		for i := range rows {
			if len(b) == 0 {
				return nil, errPacked
			}
			step, k := uint64(b[0]), 1
			if step >= 0x80 {
				if step, k = binary.Uvarint(b); k <= 0 {
					return nil, errPacked
				}
			}
			b = b[k:]
			last += step>>1 ^ -(step & 1)
			n := N(last)
			if uint64(n) != last {
				return nil, misfitError[N](last)
			}
			*at(&rows[i]) = n
		}
		return b, nil
	}
}

// packFlags takes a byte for each flag. A column of flags is sent only if one of them is set.
func packFlags[T any](at func(*T) *bool) func([]byte, []T) []byte {
	return func(b []byte, rows []T) []byte {
		for i := range rows {
			if *at(&rows[i]) {
				b = append(b, 1)
			} else {
				b = append(b, 0)
			}
		}
		return b
	}
}

// unpackFlags takes every byte but 0 for true.
func unpackFlags[T any](at func(*T) *bool) func([]byte, []T) ([]byte, error) {
	return func(b []byte, rows []T) ([]byte, error) {
		if len(b) < len(rows) {
			return nil, errPacked
		}
		for i := range rows {
			*at(&rows[i]) = b[i] != 0
		}
		return b[len(rows):], nil
	}
}

// packReals takes eight bytes for each: a score must be the same on both sides.
func packReals[T any](at func(*T) *float64) func([]byte, []T) []byte {
	return func(b []byte, rows []T) []byte {
		for i := range rows {
			b = binary.BigEndian.AppendUint64(b, math.Float64bits(*at(&rows[i])))
		}
		return b
	}
}

// unpackReals is the inverse of packReals.
func unpackReals[T any](at func(*T) *float64) func([]byte, []T) ([]byte, error) {
	return func(b []byte, rows []T) ([]byte, error) {
		if len(b) < 8*len(rows) {
			return nil, errPacked
		}
		for i := range rows {
			*at(&rows[i]) = math.Float64frombits(binary.BigEndian.Uint64(b[8*i:]))
		}
		return b[8*len(rows):], nil
	}
}

// packTexts writes all lengths before the first text, so that a reader can make one string of all.
func packTexts[T any](at func(*T) *string) func([]byte, []T) []byte {
	return func(b []byte, rows []T) []byte {
		for i := range rows {
			b = binary.AppendUvarint(b, uint64(len(*at(&rows[i]))))
		}
		for i := range rows {
			b = append(b, *at(&rows[i])...)
		}
		return b
	}
}

// unpackTexts makes one string of all texts while they are few bytes: a text that is kept keeps all
// the others.
func unpackTexts[T any](at func(*T) *string) func([]byte, []T) ([]byte, error) {
	return func(b []byte, rows []T) ([]byte, error) {
		bytes := b
		for range rows {
			_, k := binary.Uvarint(bytes)
			if k <= 0 {
				return nil, errPacked
			}
			bytes = bytes[k:]
		}
		all := ""
		if len(bytes) <= oneText {
			all = string(bytes)
		}
		from := 0
		for i := range rows {
			n, k := binary.Uvarint(b)
			if b = b[k:]; n > uint64(len(bytes)-from) {
				return nil, errPacked
			}
			to := from + int(n)
			if all != "" {
				*at(&rows[i]) = all[from:to]
			} else {
				*at(&rows[i]) = string(bytes[from:to])
			}
			from = to
		}
		return bytes[from:], nil
	}
}

// packSpans writes one number more than there are spans, because nil differs from an empty list.
func packSpans[T any](at func(*T) *[][2]uint32) func([]byte, []T) []byte {
	return func(b []byte, rows []T) []byte {
		for i := range rows {
			spans := *at(&rows[i])
			if spans == nil {
				b = append(b, 0)
				continue
			}
			b = binary.AppendUvarint(b, uint64(len(spans))+1)
			for _, span := range spans {
				b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(span[0])), uint64(span[1]))
			}
		}
		return b
	}
}

// unpackSpans leaves nil where there is none: the rows are new. The number of spans is compared
// with the bytes that are left before memory is taken for them.
func unpackSpans[T any](at func(*T) *[][2]uint32) func([]byte, []T) ([]byte, error) {
	return func(b []byte, rows []T) (left []byte, err error) {
		for i := range rows {
			n, k := binary.Uvarint(b)
			if k <= 0 || n > uint64(len(b)) { // a span has at least two bytes
				return nil, errPacked
			}
			if b = b[k:]; n == 0 {
				continue
			}
			spans := make([][2]uint32, n-1)
			for j := range spans {
				for end := range spans[j] {
					v, k := binary.Uvarint(b)
					if k <= 0 {
						return nil, errPacked
					}
					if v > math.MaxUint32 {
						return nil, misfitError[uint32](v)
					}
					spans[j][end], b = uint32(v), b[k:]
				}
			}
			*at(&rows[i]) = spans
		}
		return b, nil
	}
}

// packCosines is a column of its own kind, because a cosine may be absent, which is not 0.
func packCosines(b []byte, rows []store.Candidate) []byte {
	for i := range rows {
		if c := rows[i].Cosine; c != nil {
			b = binary.BigEndian.AppendUint64(append(b, 1), math.Float64bits(*c))
		} else {
			b = append(b, 0)
		}
	}
	return b
}

// unpackCosines takes one array for all cosines of the table and points into it: a candidate that
// is kept keeps the array.
func unpackCosines(b []byte, rows []store.Candidate) ([]byte, error) {
	values := make([]float64, len(rows))
	for i := range rows {
		if len(b) == 0 || b[0] != 0 && len(b) < 9 {
			return nil, errPacked
		}
		has := b[0] != 0
		if b = b[1:]; has {
			values[i] = math.Float64frombits(binary.BigEndian.Uint64(b))
			rows[i].Cosine, b = &values[i], b[8:]
		}
	}
	return b, nil
}
