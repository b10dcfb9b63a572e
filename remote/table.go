package remote

import (
	"errors"
	"fmt"

	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// table is a list of candidates that is sent as columns:
//
//	{Rows, Columns: [{Name, Flags | Ints | Uints | Reals | Texts}, …]}
//
// Each column has the name of a field once and its values in the order of the rows; a field that is
// zero everywhere has none. A field of a nested struct has the name Outer.Inner. A column that the
// reader does not know is left out.
type table []store.Candidate

// pageTable is a list of the pages of a leaf, sent in the same way. Ranges are Spans. A list of
// structs, as servers of protocol 2 expect of the pages, has the names of its fields again in each
// row.
type pageTable []manifest.Page

var candidateFields = []accessor[store.Candidate]{
	uints("Key.Num", func(c *store.Candidate) *uint64 { return &c.Key.Num }),
	uints("Key.Version", func(c *store.Candidate) *uint32 { return &c.Key.Version }),
	texts("Ref.Scope", func(c *store.Candidate) *string { return &c.Ref.Scope }),
	texts("Ref.ID", func(c *store.Candidate) *string { return &c.Ref.ID }),
	ints("Ref.Page", func(c *store.Candidate) *int { return &c.Ref.Page }),
	uints("Ref.Version", func(c *store.Candidate) *uint32 { return &c.Ref.Version }),
	uints("Kind", func(c *store.Candidate) *store.Kind { return &c.Kind }),
	uints("Provenance", func(c *store.Candidate) *store.Provenance { return &c.Provenance }),
	ints("AsOf", func(c *store.Candidate) *int64 { return &c.AsOf }),
	ints("Tokens", func(c *store.Candidate) *int { return &c.Tokens }),
	ints("Pages", func(c *store.Candidate) *int { return &c.Pages }),
	flags("Pinned", func(c *store.Candidate) *bool { return &c.Pinned }),
	flags("Recent", func(c *store.Candidate) *bool { return &c.Recent }),
	uints("Group", func(c *store.Candidate) *uint64 { return &c.Group }),
	texts("GroupName", func(c *store.Candidate) *string { return &c.GroupName }),
	ints("Seq", func(c *store.Candidate) *int64 { return &c.Seq }),
	uints("Lexical.Num", func(c *store.Candidate) *uint64 { return &c.Lexical.Num }),
	reals("Lexical.Score", func(c *store.Candidate) *float64 { return &c.Lexical.Score }),
	reals("Lexical.Own", func(c *store.Candidate) *float64 { return &c.Lexical.Own }),
	reals("Lexical.Near", func(c *store.Candidate) *float64 { return &c.Lexical.Near }),
	reals("Lexical.Group", func(c *store.Candidate) *float64 { return &c.Lexical.Group }),
	reals("Lexical.Speaker", func(c *store.Candidate) *float64 { return &c.Lexical.Speaker }),
	reals("Lexical.Date", func(c *store.Candidate) *float64 { return &c.Lexical.Date }),
	reals("Lexical.First", func(c *store.Candidate) *float64 { return &c.Lexical.First }),
	reals("Lexical.Forms", func(c *store.Candidate) *float64 { return &c.Lexical.Forms }),
	reals("Lexical.Level", func(c *store.Candidate) *float64 { return &c.Lexical.Level }),
	uints("Lexical.Via", func(c *store.Candidate) *uint64 { return &c.Lexical.Via }),
	flags("Near", func(c *store.Candidate) *bool { return &c.Near }),
	cosines(),
	reals("Beside", func(c *store.Candidate) *float64 { return &c.Beside }),
	texts("Excluded", func(c *store.Candidate) *string { return &c.Excluded }),
}

// cosineColumn is a number that may be absent: Flags say whether it is there, Reals what it is.
const cosineColumn = "Cosine"

// cosines is the column of Candidate.Cosine.
func cosines() accessor[store.Candidate] {
	var raw writer
	raw.text(cosineColumn)
	return accessor[store.Candidate]{
		name: cosineColumn, raw: raw.b,
		none: func(rows []store.Candidate) bool {
			for i := range rows {
				if rows[i].Cosine != nil {
					return false
				}
			}
			return true
		},
		odd:  &oddColumn[store.Candidate]{putCosines, getCosines},
		pack: packCosines, unpack: unpackCosines,
	}
}

// putTable writes a table as the struct that the comment of table shows.
func putTable[T any](w *writer, fields []accessor[T], rows []T) {
	if len(rows) == 0 {
		w.dict(0)
		return
	}
	sent := make([]*accessor[T], 0, 24)
	for i := range fields {
		if !fields[i].none(rows) {
			sent = append(sent, &fields[i])
		}
	}
	if len(sent) == 0 {
		w.dict(1)
	} else {
		w.dict(2)
	}
	w.text("Rows")
	w.int(int64(len(rows)))
	if len(sent) == 0 {
		return
	}
	w.text("Columns")
	w.list(len(sent))
	for _, f := range sent {
		if f.odd != nil {
			f.odd.put(w, rows)
			continue
		}
		w.dict(2)
		w.text("Name")
		w.b = append(w.b, f.raw...)
		w.text(f.list)
		w.list(len(rows))
		f.puts(w, rows)
	}
}

// putCosines writes the column: whether each candidate has a cosine, and the cosines, 0 where there
// is none.
func putCosines(w *writer, rows []store.Candidate) {
	w.dict(3)
	w.text("Name")
	w.text(cosineColumn)
	w.text("Flags")
	w.list(len(rows))
	for i := range rows {
		w.flag(rows[i].Cosine != nil)
	}
	w.text("Reals")
	w.list(len(rows))
	for i := range rows {
		var v float64
		if c := rows[i].Cosine; c != nil {
			v = *c
		}
		w.float64(v)
	}
}

// getTable reads a table. Rows without columns cost nothing to send; those with columns take at
// least a byte each.
func getTable[T any](r *reader, fields []accessor[T]) ([]T, error) {
	n := int64(0)
	if at, ok := r.find("Rows"); ok {
		var err error
		if n, err = at.int(); err != nil {
			return nil, err
		}
	}
	if n < 0 || n > int64(max(atOnce, r.left())) {
		return nil, fmt.Errorf("a table of %d rows in %d bytes", n, r.left())
	}
	parts, err := r.dict()
	if err != nil {
		return nil, err
	}
	var rows []T
	if n > 0 {
		rows = make([]T, n)
	}
	for range parts {
		name, err := r.member()
		if err == nil && string(name) == "Columns" {
			err = getColumns(r, fields, rows)
		} else if err == nil {
			err = r.skip()
		}
		if err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// getColumns reads the columns into the rows. A column that this program does not know is skipped.
func getColumns[T any](r *reader, fields []accessor[T], rows []T) error {
	n, err := r.list()
	at := 0 // columns come in the order of the fields, mostly
	for i := 0; err == nil && i < n; i++ {
		name := []byte(nil)
		if named, ok := r.find("Name"); ok {
			if name, err = named.member(); err != nil {
				return err
			}
		}
		f := accessorAt(fields, at, name)
		if f < 0 {
			err = r.skip()
			continue
		}
		at = f + 1
		if odd := fields[f].odd; odd != nil {
			err = odd.get(r, rows)
		} else {
			err = getColumn(r, rows, &fields[f])
		}
		if err != nil {
			err = fmt.Errorf("column %s: %w", name, err)
		}
	}
	return err
}

// errNoValues is of a column without a list of its kind.
var errNoValues = errors.New("it has no values of its kind")

// getColumn reads the list that has the values of a field, and skips the others.
func getColumn[T any](r *reader, rows []T, f *accessor[T]) error {
	lists, err := r.dict()
	if err != nil {
		return err
	}
	found := false
	for range lists {
		list, err := r.member()
		switch {
		case err != nil:
			return err
		case string(list) == f.list:
			found = true
			if err = checkRows(r, len(rows)); err == nil {
				err = f.gets(r, rows)
			}
		default:
			err = r.skip()
		}
		if err != nil {
			return err
		}
	}
	if !found {
		return errNoValues
	}
	return nil
}

// getCosines reads the values, and then removes those that are absent.
func getCosines(r *reader, rows []store.Candidate) error {
	lists, err := r.dict()
	if err != nil {
		return err
	}
	var have []bool
	var values []float64
	for range lists {
		list, err := r.member()
		switch {
		case err != nil:
		case string(list) == "Flags":
			if err = checkRows(r, len(rows)); err == nil {
				have, err = getScalars(len(rows), r.flag)
			}
		case string(list) == "Reals":
			if err = checkRows(r, len(rows)); err == nil {
				values, err = getScalars(len(rows), r.float64)
			}
		default:
			err = r.skip()
		}
		if err != nil {
			return err
		}
	}
	if have == nil || values == nil {
		return errNoValues
	}
	for i := range rows {
		if rows[i].Cosine = nil; have[i] {
			rows[i].Cosine = &values[i]
		}
	}
	return nil
}

// checkRows reads the length of a list that must have a value for each row.
func checkRows(r *reader, rows int) error {
	n, err := r.list()
	if err == nil && n != rows {
		err = fmt.Errorf("%d values, expected %d", n, rows)
	}
	return err
}
