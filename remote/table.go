package remote

import (
	"fmt"

	"github.com/ctxpage/ctxpage/store"
)

// table is a list of candidates as columns: each has the name of a field once and its values in the order of the rows, and
// a field that is zero everywhere has none. A field of a nested struct has the name Outer.Inner. A column that the reader
// does not know is left out.
type table struct {
	Rows    int
	Columns []column
}

// column is one field: one of the lists has a value for each row, the others are nil. A *float64 has two, Flags and Reals.
type column struct {
	Name  string
	Flags []bool
	Ints  []int64
	Uints []uint64
	Reals []float64
	Texts []string
}

// field is how a field of a candidate gets into a column and out of it. They are written out, because reflection took
// more time than the search that found the candidates; TestTableKeepsEverything fails where one is missing.
type field struct {
	name string
	put  func(rows []store.Candidate, c *column) (zero bool)
	get  func(rows []store.Candidate, c *column) error
}

var candidateFields = []field{
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
	maybe("Cosine", func(c *store.Candidate) **float64 { return &c.Cosine }),
	reals("Beside", func(c *store.Candidate) *float64 { return &c.Beside }),
	texts("Excluded", func(c *store.Candidate) *string { return &c.Excluded }),
}

// scalar makes a field of a value that one of the lists of a column holds; to and from convert it, and from may refuse.
func scalar[T comparable, E any](name string, at func(*store.Candidate) *T, list func(*column) *[]E, to func(T) E, from func(E) (T, bool)) field {
	var zero T
	return field{
		name: name,
		put: func(rows []store.Candidate, c *column) bool {
			i := 0
			for i < len(rows) && *at(&rows[i]) == zero {
				i++
			}
			if i == len(rows) {
				return true
			}
			out := make([]E, len(rows))
			for i := range rows {
				out[i] = to(*at(&rows[i]))
			}
			*list(c) = out
			return false
		},
		get: func(rows []store.Candidate, c *column) error {
			in := *list(c)
			if len(in) != len(rows) {
				return fmt.Errorf("ctxpage: decode from the socket: column %s has %d values of its kind, expected %d", name, len(in), len(rows))
			}
			for i := range rows {
				v, ok := from(in[i])
				if !ok {
					return fmt.Errorf("ctxpage: decode from the socket: column %s: %v in row %d does not fit a %T", name, in[i], i, zero)
				}
				*at(&rows[i]) = v
			}
			return nil
		},
	}
}

func same[T any](v T) T          { return v }
func known[T any](v T) (T, bool) { return v, true }

func flags(name string, at func(*store.Candidate) *bool) field {
	return scalar(name, at, func(c *column) *[]bool { return &c.Flags }, same[bool], known[bool])
}

func texts(name string, at func(*store.Candidate) *string) field {
	return scalar(name, at, func(c *column) *[]string { return &c.Texts }, same[string], known[string])
}

func reals(name string, at func(*store.Candidate) *float64) field {
	return scalar(name, at, func(c *column) *[]float64 { return &c.Reals }, same[float64], known[float64])
}

func ints[T ~int | ~int64](name string, at func(*store.Candidate) *T) field {
	return scalar(name, at, func(c *column) *[]int64 { return &c.Ints }, func(v T) int64 { return int64(v) }, func(v int64) (T, bool) { return T(v), int64(T(v)) == v })
}

func uints[T ~uint8 | ~uint32 | ~uint64](name string, at func(*store.Candidate) *T) field {
	return scalar(name, at, func(c *column) *[]uint64 { return &c.Uints }, func(v T) uint64 { return uint64(v) }, func(v uint64) (T, bool) { return T(v), uint64(T(v)) == v })
}

// maybe is a number that may be absent: Flags say whether it is there, Reals what it is.
func maybe(name string, at func(*store.Candidate) **float64) field {
	return field{
		name: name,
		put: func(rows []store.Candidate, c *column) bool {
			flags, reals, zero := make([]bool, len(rows)), make([]float64, len(rows)), true
			for i := range rows {
				if v := *at(&rows[i]); v != nil {
					flags[i], reals[i], zero = true, *v, false
				}
			}
			if !zero {
				c.Flags, c.Reals = flags, reals
			}
			return zero
		},
		get: func(rows []store.Candidate, c *column) error {
			if len(c.Flags) != len(rows) || len(c.Reals) != len(rows) {
				return fmt.Errorf("ctxpage: decode from the socket: column %s has %d and %d values, expected %d", name, len(c.Flags), len(c.Reals), len(rows))
			}
			for i := range rows {
				if c.Flags[i] {
					*at(&rows[i]) = &c.Reals[i]
				}
			}
			return nil
		},
	}
}

// tableOf makes a table of candidates.
func tableOf(rows []store.Candidate) table {
	out := table{Rows: len(rows)}
	for i := range candidateFields {
		f := &candidateFields[i]
		c := column{Name: f.name}
		if !f.put(rows, &c) {
			out.Columns = append(out.Columns, c)
		}
	}
	return out
}

// rowsOf makes the candidates of a table.
func rowsOf(t table) ([]store.Candidate, error) {
	if t.Rows == 0 {
		return nil, nil
	}
	for i := range t.Columns {
		if n := t.Columns[i].rows(); n != t.Rows {
			return nil, fmt.Errorf("ctxpage: decode from the socket: column %.40q has %d values, expected %d", t.Columns[i].Name, n, t.Rows)
		}
	}
	if len(t.Columns) == 0 && (t.Rows < 0 || t.Rows > atOnce) { // rows of zeros cost nothing to send
		return nil, fmt.Errorf("ctxpage: decode from the socket: a table of %d rows without columns, expected at most %d", t.Rows, atOnce)
	}
	rows := make([]store.Candidate, t.Rows)
	at := 0 // columns come in the order of the fields, mostly
	for i := range t.Columns {
		c := &t.Columns[i]
		f := fieldAt(at, c.Name)
		if f < 0 {
			continue
		}
		if err := candidateFields[f].get(rows, c); err != nil {
			return nil, err
		}
		at = f + 1
	}
	return rows, nil
}

// fieldAt finds a field by its name, first behind the one before; -1: this program does not know it.
func fieldAt(at int, name string) int {
	for n := range candidateFields {
		if i := (at + n) % len(candidateFields); candidateFields[i].name == name {
			return i
		}
	}
	return -1
}

// rows is the number of values.
func (c *column) rows() int {
	return max(len(c.Flags), len(c.Ints), len(c.Uints), len(c.Reals), len(c.Texts))
}
