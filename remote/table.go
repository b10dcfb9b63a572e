package remote

import (
	"fmt"
	"reflect"
	"sync"
)

// table is a list of structs as columns: each has the name of a field once and its values in the order of the rows, and a
// field that is zero everywhere has none. A long list of candidates takes a third of the time that structs one by one take.
// A nested struct has columns of its fields, named Outer.Inner. A column that the reader does not know is left out.
type table struct {
	Rows    int
	Columns []column
}

var realPointer = reflect.TypeFor[*float64]()

// column is one field: one of the lists has a value for each row, the others are nil. A *float64 has two, Flags and Reals.
type column struct {
	Name  string
	Flags []bool
	Ints  []int64
	Uints []uint64
	Reals []float64
	Texts []string
}

// leaf is a field of a row that is no struct.
type leaf struct {
	name string
	path []int
}

var leaves sync.Map // by reflect.Type: []leaf

func leavesOf(t reflect.Type) []leaf {
	if known, ok := leaves.Load(t); ok {
		return known.([]leaf)
	}
	var out []leaf
	for _, m := range membersOf(t) {
		f := t.Field(m.index)
		if f.Type.Kind() != reflect.Struct || f.Type == timeType {
			out = append(out, leaf{m.name, []int{m.index}})
			continue
		}
		for _, in := range leavesOf(f.Type) {
			out = append(out, leaf{m.name + "." + in.name, append([]int{m.index}, in.path...)})
		}
	}
	leaves.Store(t, out)
	return out
}

// tableOf makes a table of rows. An error names a field that a table cannot have.
func tableOf[T any](rows []T) (table, error) {
	out := table{Rows: len(rows)}
	all := reflect.ValueOf(rows)
	for _, l := range leavesOf(reflect.TypeFor[T]()) {
		c := column{Name: l.name}
		zero := true
		for i := range rows {
			f := all.Index(i).FieldByIndex(l.path)
			zero = zero && f.IsZero()
			if err := c.add(f, len(rows)); err != nil {
				return out, fmt.Errorf("%s: %w", l.name, err)
			}
		}
		if !zero {
			out.Columns = append(out.Columns, c)
		}
	}
	return out, nil
}

// add adds the value of a row, of n rows.
func (c *column) add(f reflect.Value, n int) error {
	switch {
	case f.Kind() == reflect.Bool:
		c.Flags = append(room(c.Flags, n), f.Bool())
	case f.CanInt():
		c.Ints = append(room(c.Ints, n), f.Int())
	case f.CanUint():
		c.Uints = append(room(c.Uints, n), f.Uint())
	case f.CanFloat():
		c.Reals = append(room(c.Reals, n), f.Float())
	case f.Kind() == reflect.String:
		c.Texts = append(room(c.Texts, n), f.String())
	case f.Type() == realPointer: // two lists: whether it is there, and what it is
		there := !f.IsNil()
		c.Flags = append(room(c.Flags, n), there)
		v := 0.
		if there {
			v = f.Elem().Float()
		}
		c.Reals = append(room(c.Reals, n), v)
	default:
		return fmt.Errorf("a %s is no column", f.Type())
	}
	return nil
}

// room makes a list of the right size at its first value.
func room[E any](list []E, n int) []E {
	if list == nil {
		return make([]E, 0, n)
	}
	return list
}

// rowsOf makes the rows of a table.
func rowsOf[T any](t table) ([]T, error) {
	if t.Rows == 0 {
		return nil, nil
	}
	known := leavesOf(reflect.TypeFor[T]())
	for i := range t.Columns {
		if n := t.Columns[i].rows(); n != t.Rows {
			return nil, fmt.Errorf("column %.40q has %d values, expected %d", t.Columns[i].Name, n, t.Rows)
		}
	}
	if len(t.Columns) == 0 && t.Rows > atOnce { // rows of zeros cost nothing to send
		return nil, fmt.Errorf("a table of %d rows without columns, expected at most %d", t.Rows, atOnce)
	}
	rows := make([]T, t.Rows)
	all := reflect.ValueOf(rows)
	for i := range t.Columns {
		c := &t.Columns[i]
		for _, l := range known {
			if l.name != c.Name {
				continue
			}
			for r := range rows {
				if err := c.set(all.Index(r).FieldByIndex(l.path), r); err != nil {
					return nil, fmt.Errorf("column %s: %w", c.Name, err)
				}
			}
		}
	}
	return rows, nil
}

// rows is the number of values.
func (c *column) rows() int {
	return max(len(c.Flags), len(c.Ints), len(c.Uints), len(c.Reals), len(c.Texts))
}

// set sets a field to the value of a row.
func (c *column) set(f reflect.Value, r int) error {
	switch {
	case f.Kind() == reflect.Bool && r < len(c.Flags):
		f.SetBool(c.Flags[r])
	case f.CanInt() && r < len(c.Ints) && !f.OverflowInt(c.Ints[r]):
		f.SetInt(c.Ints[r])
	case f.CanUint() && r < len(c.Uints) && !f.OverflowUint(c.Uints[r]):
		f.SetUint(c.Uints[r])
	case f.CanFloat() && r < len(c.Reals):
		f.SetFloat(c.Reals[r])
	case f.Kind() == reflect.String && r < len(c.Texts):
		f.SetString(c.Texts[r])
	case f.Type() == realPointer && r < len(c.Flags) && r < len(c.Reals):
		if c.Flags[r] {
			f.Set(reflect.ValueOf(&c.Reals[r]))
		}
	default:
		return fmt.Errorf("the value of row %d does not fit a %s", r, f.Type())
	}
	return nil
}
