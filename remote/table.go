package remote

import (
	"fmt"

	"github.com/ctxpage/ctxpage/store"
)

// table is a list of candidates that is sent as columns:
//
//	{Rows, Columns: [{Name, Flags | Ints | Uints | Reals | Texts}, …]}
//
// Each column has the name of a field once and its values in the order of the rows; a field that is zero everywhere has
// none. A field of a nested struct has the name Outer.Inner. A column that the reader does not know is left out.
type table []store.Candidate

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
	{name: cosineColumn, zero: func(c *store.Candidate) bool { return c.Cosine == nil }},
	reals("Beside", func(c *store.Candidate) *float64 { return &c.Beside }),
	texts("Excluded", func(c *store.Candidate) *string { return &c.Excluded }),
}

// cosineColumn is a number that may be absent: Flags say whether it is there, Reals what it is.
const cosineColumn = "Cosine"

// putTable writes a table as the struct that its comment shows.
func putTable(w *writer, rows table) {
	sent := make([]*accessor[store.Candidate], 0, 24)
	for i := range candidateFields {
		f := &candidateFields[i]
		for j := range rows {
			if !f.zero(&rows[j]) {
				sent = append(sent, f)
				break
			}
		}
	}
	switch {
	case len(rows) == 0:
		w.dict(0)
		return
	case len(sent) == 0:
		w.dict(1)
	default:
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
		putColumn(w, rows, f)
	}
}

func putColumn(w *writer, rows table, f *accessor[store.Candidate]) {
	if f.name == cosineColumn {
		putCosines(w, rows)
		return
	}
	w.dict(2)
	w.text("Name")
	w.b = append(w.b, f.raw...)
	w.text(f.list)
	w.list(len(rows))
	for i := range rows {
		f.put(w, &rows[i])
	}
}

func putCosines(w *writer, rows table) {
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

// getTable reads a table. Rows without columns cost nothing to send; those with columns take at least a byte each.
func getTable(r *reader) (table, error) {
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
	fields, err := r.dict()
	if err != nil {
		return nil, err
	}
	var rows table
	if n > 0 {
		rows = make(table, n)
	}
	for range fields {
		name, err := r.member()
		if err == nil && string(name) == "Columns" {
			err = getColumns(r, rows)
		} else if err == nil {
			err = r.skip()
		}
		if err != nil {
			return nil, err
		}
	}
	return rows, nil
}

func getColumns(r *reader, rows table) error {
	n, err := r.list()
	at := 0 // columns come in the order of the fields, mostly
	for i := 0; err == nil && i < n; i++ {
		name := []byte(nil)
		if named, ok := r.find("Name"); ok {
			if name, err = named.member(); err != nil {
				return err
			}
		}
		f := accessorAt(candidateFields, at, name)
		if f < 0 {
			err = r.skip()
			continue
		}
		at = f + 1
		if err = getColumn(r, rows, &candidateFields[f]); err != nil {
			err = fmt.Errorf("column %s: %w", name, err)
		}
	}
	return err
}

// getColumn reads the list that has the values of a field, and skips the others.
func getColumn(r *reader, rows table, f *accessor[store.Candidate]) error {
	fields, err := r.dict()
	if err != nil {
		return err
	}
	var have []bool
	found := false
	for range fields {
		list, err := r.member()
		switch {
		case err != nil:
			return err
		case f.name == cosineColumn && string(list) == "Flags":
			have = make([]bool, len(rows))
			err = getValues(r, len(rows), func(i int) (err error) { have[i], err = r.flag(); return err })
		case f.name == cosineColumn && string(list) == "Reals":
			values := make([]float64, len(rows))
			found = true
			err = getValues(r, len(rows), func(i int) (err error) {
				values[i], err = r.float64()
				rows[i].Cosine = &values[i]
				return err
			})
		case f.name != cosineColumn && string(list) == f.list:
			found = true
			err = getValues(r, len(rows), func(i int) error { return f.get(r, &rows[i]) })
		default:
			err = r.skip()
		}
		if err != nil {
			return err
		}
	}
	if !found || f.name == cosineColumn && have == nil {
		return fmt.Errorf("it has no values of its kind")
	}
	for i := range have {
		if !have[i] {
			rows[i].Cosine = nil
		}
	}
	return nil
}

// getValues reads a list with a value for each row.
func getValues(r *reader, rows int, get func(i int) error) error {
	n, err := r.list()
	if err == nil && n != rows {
		err = fmt.Errorf("%d values, expected %d", n, rows)
	}
	for i := 0; err == nil && i < n; i++ {
		err = get(i)
	}
	return err
}
