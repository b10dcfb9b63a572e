package manifest

import (
	"fmt"
	"math"

	"github.com/oklog/ulid/v2"
	"github.com/vmihailenco/msgpack/v5"
	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

// The kinds of elements.

// text is a string. An empty one counts as missing, so it is left off at the end of a leaf.
func text(at func(*wire) *string) field {
	return field{
		func(w *wire) bool { return *at(w) == "" },
		func(b []byte, w *wire) ([]byte, error) { return appendString(b, *at(w)), nil },
		func(d *msgpack.Decoder, w *wire) (err error) { *at(w), err = d.DecodeString(); return err },
	}
}

// ident is an identifier: sixteen bytes if it is a ULID as ulid.ULID prints it,
// which all but a caller's own are; otherwise text.
func ident(at func(*wire) *string) field {
	return field{
		func(w *wire) bool { return *at(w) == "" },
		func(b []byte, w *wire) ([]byte, error) { return appendIdent(b, *at(w)), nil },
		func(d *msgpack.Decoder, w *wire) (err error) { *at(w), err = decIdent(d); return err },
	}
}

// appendIdent appends an identifier; see ident.
func appendIdent(b []byte, s string) []byte {
	if id, err := ulid.ParseStrict(s); err == nil && prints(id, s) {
		return appendBytes(b, id[:])
	}
	return appendString(b, s)
}

// prints reports whether an id prints as s.
func prints(id ulid.ULID, s string) bool {
	var b [ulid.EncodedSize]byte
	return id.MarshalTextTo(b[:]) == nil && string(b[:]) == s
}

// decIdent reads one.
func decIdent(d *msgpack.Decoder) (string, error) {
	code, err := d.PeekCode()
	if err != nil {
		return "", err
	}
	if code != msgpcode.Bin8 {
		return d.DecodeString()
	}
	b, err := d.DecodeBytes()
	if err != nil {
		return "", err
	}
	if len(b) != len(ulid.ULID{}) {
		return "", fmt.Errorf("an identifier of %d bytes, expected %d", len(b), len(ulid.ULID{}))
	}
	return ulid.ULID(b).String(), nil
}

// unsigned is a number that takes one to nine bytes.
func unsigned(at func(*wire) *uint64) field {
	return field{
		func(w *wire) bool { return *at(w) == 0 },
		func(b []byte, w *wire) ([]byte, error) { return appendUint(b, *at(w)), nil },
		func(d *msgpack.Decoder, w *wire) (err error) { *at(w), err = d.DecodeUint64(); return err },
	}
}

// signed is a number of either sign: the times, in µs.
func signed(at func(*wire) *int64) field {
	return field{
		func(w *wire) bool { return *at(w) == 0 },
		func(b []byte, w *wire) ([]byte, error) { return appendInt(b, *at(w)), nil },
		func(d *msgpack.Decoder, w *wire) (err error) { *at(w), err = d.DecodeInt64(); return err },
	}
}

// small is an unsigned number with a limit.
func small[T ~uint8 | ~uint32](at func(*wire) *T, limit uint64) field {
	return field{
		func(w *wire) bool { return *at(w) == 0 },
		func(b []byte, w *wire) ([]byte, error) { return appendUint(b, uint64(*at(w))), nil },
		func(d *msgpack.Decoder, w *wire) error {
			n, err := decUint(d, limit)
			*at(w) = T(n)
			return err
		},
	}
}

// count is an int that may not be negative.
func count(at func(*wire) *int) field {
	return field{
		func(w *wire) bool { return *at(w) == 0 },
		func(b []byte, w *wire) ([]byte, error) { return appendCount(b, *at(w)) },
		func(d *msgpack.Decoder, w *wire) error {
			n, err := decUint(d, math.MaxInt)
			*at(w) = int(n)
			return err
		},
	}
}

// float takes nine bytes; zero takes one.
func float(at func(*wire) *float64) field {
	return field{
		func(w *wire) bool { return *at(w) == 0 },
		func(b []byte, w *wire) ([]byte, error) {
			f := *at(w)
			if math.IsNaN(f) || math.IsInf(f, 0) {
				return b, fmt.Errorf("%v is not a finite number", f)
			}
			if f == 0 {
				return appendUint(b, 0), nil
			}
			return appendFloat(b, f), nil
		},
		func(d *msgpack.Decoder, w *wire) error {
			f, err := d.DecodeFloat64()
			if err == nil && (math.IsNaN(f) || math.IsInf(f, 0)) {
				return fmt.Errorf("%v is not a finite number", f)
			}
			*at(w) = f
			return err
		},
	}
}

// digest is a byte string, nil where it is empty.
func digest(at func(*wire) *Digest) field {
	return field{
		func(w *wire) bool { return len(*at(w)) == 0 },
		func(b []byte, w *wire) ([]byte, error) { return appendBytes(b, *at(w)), nil },
		func(d *msgpack.Decoder, w *wire) (err error) { *at(w), err = decBytes(d); return err },
	}
}

// list is an array, nil when empty.
func list[T any](at func(*wire) *[]T, enc func([]byte, *wire, *T) ([]byte, error), dec func(*msgpack.Decoder, *wire, *T) error) field {
	return field{
		func(w *wire) bool { return len(*at(w)) == 0 },
		func(b []byte, w *wire) ([]byte, error) { return appendList(b, w, *at(w), enc) },
		func(d *msgpack.Decoder, w *wire) (err error) { *at(w), err = decList(d, w, dec); return err },
	}
}

// appendList appends an array of items, nil if there are none. enc appends one item.
func appendList[T any](b []byte, w *wire, items []T, enc func([]byte, *wire, *T) ([]byte, error)) ([]byte, error) {
	if len(items) == 0 {
		return appendNil(b), nil
	}
	if len(items) > MaxPages {
		return b, fmt.Errorf("%d items; the limit is %d: split the call", len(items), MaxPages)
	}
	b = appendArrayLen(b, len(items))
	for i := range items {
		var err error
		if b, err = enc(b, w, &items[i]); err != nil {
			return b, err
		}
	}
	return b, nil
}

// decList grows as items are read, so a count alone allocates nothing.
func decList[T any](d *msgpack.Decoder, w *wire, dec func(*msgpack.Decoder, *wire, *T) error) (out []T, err error) {
	n, err := d.DecodeArrayLen()
	if n > MaxPages {
		return nil, fmt.Errorf("%d items; the limit is %d", n, MaxPages)
	}
	for i := 0; i < n && err == nil; i++ {
		var item T
		err = dec(d, w, &item)
		out = append(out, item)
	}
	return out, err
}

func encString(b []byte, _ *wire, s *string) ([]byte, error) { return appendString(b, *s), nil }

func decString(d *msgpack.Decoder, _ *wire, s *string) (err error) {
	*s, err = d.DecodeString()
	return err
}

// encWrite appends a write as a tuple of five. A reader needs the first four.
func encWrite(b []byte, _ *wire, x *Write) ([]byte, error) {
	var flags uint64
	if x.Deleted {
		flags |= 1
	}
	if x.Touch {
		flags |= 2
	}
	if x.Gone {
		flags |= 4
	}
	b = appendString(appendUint(appendArrayLen(b, 5), x.Num), x.Ref)
	return appendBytes(appendUint(appendUint(b, uint64(x.Version)), flags), x.Digest), nil
}

func decWrite(d *msgpack.Decoder, _ *wire, x *Write) error {
	var flags uint64
	err := decTuple(d, 4, &x.Num, &x.Ref, &x.Version, &flags, &x.Digest)
	x.Deleted, x.Touch, x.Gone = flags&1 != 0, flags&2 != 0, flags&4 != 0
	return err
}

// encStale appends a page that had changed under a batch: number, version seen, version found,
// reason.
func encStale(b []byte, _ *wire, x *Stale) ([]byte, error) {
	b = appendUint(appendUint(appendArrayLen(b, 4), x.Num), uint64(x.Seen))
	return appendString(appendUint(b, uint64(x.Now)), x.Reason), nil
}

func decStale(d *msgpack.Decoder, _ *wire, x *Stale) error {
	return decTuple(d, 4, &x.Num, &x.Seen, &x.Now, &x.Reason)
}

func encConflict(b []byte, _ *wire, x *Conflict) ([]byte, error) {
	return appendUint(appendUint(appendString(appendArrayLen(b, 3), x.Ref), x.Expect), x.Found), nil
}

func decConflict(d *msgpack.Decoder, _ *wire, x *Conflict) error {
	return decTuple(d, 3, &x.Ref, &x.Expect, &x.Found)
}

// encExclusion appends a reason for which pages were left out, how many, and rows of those that
// came nearest.
func encExclusion(b []byte, w *wire, x *Exclusion) ([]byte, error) {
	if x.Count < 0 {
		return b, fmt.Errorf("count %d is negative", x.Count)
	}
	rows, err := w.appendPages(x.Nearest)
	if err != nil {
		return b, err
	}
	b = appendUint(appendArrayLen(b, 3), w.reasonPlace(x.Reason))
	return appendBytes(appendUint(b, uint64(x.Count)), rows), nil
}

// decExclusion reads what encExclusion wrote. The rows count against MaxPages of the leaf.
func decExclusion(d *msgpack.Decoder, w *wire, x *Exclusion) error {
	var reason, n uint64
	var rows Digest
	err := decTuple(d, 3, &reason, &n, &rows)
	if err != nil {
		return err
	}
	if n > math.MaxInt {
		return fmt.Errorf("count %d is too large", n)
	}
	x.Count = int(n)
	if x.Reason, err = w.reason(reason); err != nil {
		return err
	}
	x.Nearest, err = w.readPages(rows)
	return err
}

func emptyPages(w *wire) bool { return len(w.Pages) == 0 }

// encPages appends the page rows as one byte string (rows.go).
func encPages(b []byte, w *wire) ([]byte, error) {
	rows, err := w.appendPages(w.Pages)
	return appendBytes(b, rows), err
}

func decPages(d *msgpack.Decoder, w *wire) error {
	rows, err := decBytes(d)
	if err != nil {
		return err
	}
	w.Pages, err = w.readPages(rows)
	return err
}

// decTuple reads an array of at least least elements into items and skips what
// a newer program put behind them. The least keeps memory in proportion: an
// item cannot be made of one byte.
func decTuple(d *msgpack.Decoder, least int, items ...any) error {
	n, err := d.DecodeArrayLen()
	if err == nil && n < least {
		err = fmt.Errorf("%d elements, expected %d", n, least)
	}
	for i := 0; i < n && err == nil; i++ {
		if i >= len(items) {
			err = d.Skip()
			continue
		}
		switch x := items[i].(type) {
		case *uint64:
			*x, err = d.DecodeUint64()
		case *uint32:
			var v uint64
			v, err = decUint(d, math.MaxUint32)
			*x = uint32(v)
		case *string:
			*x, err = d.DecodeString()
		case *Digest:
			*x, err = decBytes(d)
		}
	}
	return err
}

// decUint reads a number and refuses one above limit.
func decUint(d *msgpack.Decoder, limit uint64) (uint64, error) {
	n, err := d.DecodeUint64()
	if err == nil && n > limit {
		return 0, fmt.Errorf("%d is above the limit %d", n, limit)
	}
	return n, err
}

// decBytes reads a byte string, nil if it is empty: nil and empty have the same bytes, and a Record
// that was read must equal the one that was written.
func decBytes(d *msgpack.Decoder) ([]byte, error) {
	b, err := d.DecodeBytes()
	if len(b) == 0 {
		return nil, err
	}
	return b, err
}
