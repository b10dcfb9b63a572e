package remote

import (
	"fmt"
	"math"
	"math/bits"

	"github.com/ctxpage/ctxpage/manifest"
)

// Accessors of the structs that come in hundreds: candidates, and the pages of a manifest. Each
// field is written out, because reflection took more time than the search that found the
// candidates. The bytes are those that reflection writes. TestTableKeepsEverything and
// TestPagesKeepEverything fail where a field is missing.

// accessor writes and reads one field of a T, and the column of it in a table. A column has a loop
// of its own: a call of a function for each value took longer than the value.
//
//	zero, put, get    of a struct that is a map of its fields: zero fields are not sent
//	none, puts, gets  of a table: a column that is zero everywhere is not sent; the others have a value for each row
type accessor[T any] struct {
	name string
	raw  []byte // the name as msgpack
	list string // of a column: which of its lists has the values
	zero func(*T) bool
	put  func(*writer, *T)
	get  func(*reader, *T) error
	none func([]T) bool // all of a column are zero
	puts func(*writer, []T)
	gets func(*reader, []T) error
	odd  *oddColumn[T] // nil: a column has one list

	// Of a packed column (packed.go).
	same   func([]T) bool // all rows have the value of the first; nil: values cannot be compared
	spread func([]T)      // gives all rows that value
	pack   func([]byte, []T) []byte
	unpack func([]byte, []T) ([]byte, error) // returns what is left
}

// oddColumn writes and reads a column that is more than one list.
type oddColumn[T any] struct {
	put func(*writer, []T)
	get func(*reader, []T) error
}

// newAccessor makes an accessor of the field that at points to, from how one value of it is written
// and read.
func newAccessor[T any, F comparable](name, list string, at func(*T) *F, put func(*writer, F), get func(*reader) (F, error)) accessor[T] {
	var zero F
	var raw writer
	raw.text(name)
	return accessor[T]{
		name: name, raw: raw.b, list: list,
		zero: func(v *T) bool { return *at(v) == zero },
		put:  func(w *writer, v *T) { put(w, *at(v)) },
		get: func(r *reader, v *T) (err error) {
			*at(v), err = get(r)
			return err
		},
		none: func(rows []T) bool {
			for i := range rows {
				if *at(&rows[i]) != zero {
					return false
				}
			}
			return true
		},
		puts: func(w *writer, rows []T) {
			for i := range rows {
				put(w, *at(&rows[i]))
			}
		},
		gets: func(r *reader, rows []T) (err error) {
			for i := range rows {
				if *at(&rows[i]), err = get(r); err != nil {
					return err
				}
			}
			return nil
		},
		same: func(rows []T) bool {
			first := *at(&rows[0])
			for i := range rows {
				if *at(&rows[i]) != first {
					return false
				}
			}
			return true
		},
		spread: func(rows []T) {
			first := *at(&rows[0])
			for i := range rows {
				*at(&rows[i]) = first
			}
		},
	}
}

// flags, reals, texts, ints, uints and spans are accessors by the kind of the field. The kind names
// the list that a column has its values in.
func flags[T any](name string, at func(*T) *bool) accessor[T] {
	a := newAccessor(name, "Flags", at, (*writer).flag, (*reader).flag)
	a.pack, a.unpack = packFlags(at), unpackFlags(at)
	return a
}

// reals: see flags.
func reals[T any](name string, at func(*T) *float64) accessor[T] {
	a := newAccessor(name, "Reals", at, (*writer).float64, (*reader).float64)
	a.pack, a.unpack = packReals(at), unpackReals(at)
	return a
}

// texts reads a text that repeats that of the value before it, such as the name of a scope, without
// a copy.
func texts[T any](name string, at func(*T) *string) accessor[T] {
	a := newAccessor(name, "Texts", at, (*writer).text, (*reader).repeated)
	a.pack, a.unpack = packTexts(at), unpackTexts(at)
	a.gets = func(r *reader, rows []T) error {
		begun := *r
		for range rows {
			if _, err := r.shared(); err != nil {
				return err
			}
		}
		if r.at-begun.at > oneText { // a text that is kept would keep all the others
			*r = begun
			return getTexts(r, rows, at)
		}
		all, from := string(r.b[begun.at:r.at]), begun.at
		*r = begun
		for i := range rows {
			b, err := r.shared()
			if err != nil {
				return err
			}
			if end := r.at - from; string(b) != r.last {
				r.last = all[end-len(b) : end]
			}
			*at(&rows[i]) = r.last
		}
		return nil
	}
	return a
}

// oneText is up to how many bytes the texts of a column share one memory.
const oneText = 16 << 10

// getTexts reads a column of texts, each in memory of its own.
func getTexts[T any](r *reader, rows []T, at func(*T) *string) (err error) {
	for i := range rows {
		if *at(&rows[i]), err = r.repeated(); err != nil {
			return err
		}
	}
	return nil
}

// ints: see flags. A number that does not fit the field is an error, not a wrong number.
func ints[T any, N ~int | ~int64](name string, at func(*T) *N) accessor[T] {
	a := newAccessor(name, "Ints", at, func(w *writer, n N) { w.int(int64(n)) }, func(r *reader) (N, error) {
		n, err := r.int()
		if err == nil && int64(N(n)) != n {
			err = misfitError[N](n)
		}
		return N(n), err
	})
	a.pack, a.unpack = packWhole(at), unpackWhole(at)
	return a
}

// uints: see flags. Its loops are written out.
func uints[T any, N ~uint8 | ~uint16 | ~uint32 | ~uint64](name string, at func(*T) *N) accessor[T] {
	a := newAccessor(name, "Uints", at, func(w *writer, n N) { w.uint(uint64(n)) }, func(r *reader) (N, error) {
		n, err := r.uint()
		if err == nil && uint64(N(n)) != n {
			err = misfitError[N](n)
		}
		return N(n), err
	})
	a.pack, a.unpack = packWhole(at), unpackWhole(at)
	a.puts = func(w *writer, rows []T) {
		for i := range rows {
			w.uint(uint64(*at(&rows[i])))
		}
	}
	a.gets = func(r *reader, rows []T) error {
		for i := range rows {
			n, err := r.uint()
			if err == nil && uint64(N(n)) != n {
				err = misfitError[N](n)
			}
			if err != nil {
				return err
			}
			*at(&rows[i]) = N(n)
		}
		return nil
	}
	return a
}

// spans is the only field of a page that is a list.
func spans[T any](name string, at func(*T) *[][2]uint32) accessor[T] {
	var raw writer
	raw.text(name)
	a := accessor[T]{
		name: name, raw: raw.b, list: "Spans",
		zero: func(v *T) bool { return *at(v) == nil },
		put:  func(w *writer, v *T) { w.spans(*at(v)) },
		get: func(r *reader, v *T) (err error) {
			if r.null() {
				return nil
			}
			n, err := r.list()
			if err == nil {
				*at(v), err = getScalars(n, r.span)
			}
			return err
		},
		none: func(rows []T) bool {
			for i := range rows { // slices.ContainsFunc would copy each row to the heap
				if *at(&rows[i]) != nil {
					return false
				}
			}
			return true
		},
		puts: func(w *writer, rows []T) {
			for i := range rows {
				w.spans(*at(&rows[i]))
			}
		},
		pack: packSpans(at), unpack: unpackSpans(at),
	}
	a.gets = func(r *reader, rows []T) error {
		for i := range rows {
			if err := a.get(r, &rows[i]); err != nil {
				return err
			}
		}
		return nil
	}
	return a
}

// spans writes a list of ranges of bytes; nil is not an empty one.
func (w *writer) spans(all [][2]uint32) {
	if all == nil { // of a column: there is none
		w.null()
		return
	}
	w.list(len(all))
	for _, span := range all {
		w.list(2)
		w.uint(uint64(span[0]))
		w.uint(uint64(span[1]))
	}
}

// span reads one range.
func (r *reader) span() (span [2]uint32, err error) {
	n, err := r.list()
	if err == nil && n != len(span) {
		err = fmt.Errorf("%d numbers for a range of bytes, expected %d", n, len(span))
	}
	for i := 0; err == nil && i < len(span); i++ {
		var v uint64
		if v, err = r.uint(); err == nil && v > math.MaxUint32 {
			err = misfitError[uint32](v)
		}
		span[i] = uint32(v)
	}
	return span, err
}

// misfitError is the error for a number that does not fit its field.
func misfitError[N any](n any) error {
	var fits N
	return fmt.Errorf("%v does not fit a %T", n, fits)
}

// putFields writes a struct as reflection would: a map of the fields that are not zero. A T has at
// most 64 fields.
func putFields[T any](w *writer, all []accessor[T], v *T) {
	n, sent := 0, uint64(0)
	for i := range all {
		if !all[i].zero(v) {
			n++
			sent |= 1 << i
		}
	}
	w.dict(n)
	for ; sent != 0; sent &= sent - 1 {
		f := &all[bits.TrailingZeros64(sent)]
		w.b = append(w.b, f.raw...)
		f.put(w, v)
	}
}

// getFields reads a struct whose fields are zero, and skips what this program does not know.
func getFields[T any](r *reader, all []accessor[T], v *T) error {
	n, err := r.dict()
	if err != nil {
		return err
	}
	at := 0 // fields come in their order, mostly
	for range n {
		name, err := r.member()
		if err != nil {
			return err
		}
		i := accessorAt(all, at, name)
		if i < 0 {
			if err := r.skip(); err != nil {
				return err
			}
			continue
		}
		if err := all[i].get(r, v); err != nil {
			return fmt.Errorf("%s: %w", all[i].name, err)
		}
		at = i + 1
	}
	return nil
}

// accessorAt finds a field by its name, first behind the one before; -1: this program does not know
// it. Messages of this program have their fields in order, so the first loop ends at once.
func accessorAt[T any](all []accessor[T], at int, name []byte) int {
	for i := at; i < len(all); i++ {
		if all[i].name == string(name) {
			return i
		}
	}
	for i := range min(at, len(all)) {
		if all[i].name == string(name) {
			return i
		}
	}
	return -1
}

var pageFields = []accessor[manifest.Page]{
	uints("Num", func(p *manifest.Page) *uint64 { return &p.Num }),
	uints("Version", func(p *manifest.Page) *uint32 { return &p.Version }),
	uints("Form", func(p *manifest.Page) *manifest.Form { return &p.Form }),
	spans("Ranges", func(p *manifest.Page) *[][2]uint32 { return &p.Ranges }),
	ints("Tokens", func(p *manifest.Page) *int { return &p.Tokens }),
	uints("Score", func(p *manifest.Page) *manifest.Score { return &p.Score }),
	uints("R", func(p *manifest.Page) *manifest.Score { return &p.R }),
	uints("P", func(p *manifest.Page) *manifest.Score { return &p.P }),
	uints("S", func(p *manifest.Page) *manifest.Score { return &p.S }),
	uints("LexOwn", func(p *manifest.Page) *manifest.Score { return &p.LexOwn }),
	uints("LexNear", func(p *manifest.Page) *manifest.Score { return &p.LexNear }),
	uints("LexGroup", func(p *manifest.Page) *manifest.Score { return &p.LexGroup }),
	uints("LexSpeaker", func(p *manifest.Page) *manifest.Score { return &p.LexSpeaker }),
	uints("LexFirst", func(p *manifest.Page) *manifest.Score { return &p.LexFirst }),
	uints("LexDate", func(p *manifest.Page) *manifest.Score { return &p.LexDate }),
	uints("LexForms", func(p *manifest.Page) *manifest.Score { return &p.LexForms }),
	uints("LexLevel", func(p *manifest.Page) *manifest.Score { return &p.LexLevel }),
	uints("Vector", func(p *manifest.Page) *manifest.Score { return &p.Vector }),
	uints("Tag", func(p *manifest.Page) *manifest.Tag { return &p.Tag }),
	texts("Reason", func(p *manifest.Page) *string { return &p.Reason }),
	flags("Dirty", func(p *manifest.Page) *bool { return &p.Dirty }),
	flags("Refetched", func(p *manifest.Page) *bool { return &p.Refetched }),
	flags("Stale", func(p *manifest.Page) *bool { return &p.Stale }),
	uints("Via", func(p *manifest.Page) *uint64 { return &p.Via }),
}

// putPages writes the elements of a list of pages.
func putPages(w *writer, pages []manifest.Page) {
	for i := range pages {
		putFields(w, pageFields, &pages[i])
	}
}

// getPages reads n pages. Memory is taken as they come, not as they are announced.
func getPages(r *reader, n int) ([]manifest.Page, error) {
	pages := make([]manifest.Page, 0, min(n, atOnce, r.left()))
	for range n {
		pages = append(pages, manifest.Page{})
		if err := getFields(r, pageFields, &pages[len(pages)-1]); err != nil {
			return nil, err
		}
	}
	return pages, nil
}
