package dbctl

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode/utf8"
)

// A table has the columns of its head, or those that --columns names. On a terminal its widest cells are shortened until
// a row fits on one line, and where that is not enough, columns that tell least are left out and named below the table.
// Elsewhere, and with --wide, every cell is whole.

// shortest is the width below which a cell is not shortened: enough to tell traces apart by their beginnings.
const shortest = 13

// table aligns rows under a head of column names. A name with a minus before it is shown only with --wide or --columns.
// Without a head the rows are names and values, which are never shortened.
func table(w io.Writer, head string, rows func(row func(cells ...any))) {
	names := strings.Fields(head)
	var lines [][]string
	var out []string
	rows(func(cells ...any) {
		row := make([]string, len(cells))
		for i, c := range cells {
			row[i] = line(fmt.Sprint(c))
		}
		lines = append(lines, row)
	})
	if g, ok := w.(*guard); ok && head != "" {
		names, lines = g.chosen(names, lines)
		if width := g.width(); width > 0 {
			if len(g.as.Columns) == 0 {
				names, lines, out = narrowed(names, lines, width)
			}
			shorten(names, lines, width)
		}
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if head != "" {
		lines = append([][]string{names}, lines...)
	}
	for _, row := range lines {
		fmt.Fprintln(tw, strings.Join(row, "\t"))
	}
	tw.Flush()
	if len(out) > 0 {
		fmt.Fprintf(w, "not shown: %s; --wide and --columns show more\n", strings.Join(out, ", "))
	}
}

// rows prints a table with a row for each of a list.
func rows[T any](w io.Writer, head string, list []T, cells func(v *T) []any) {
	table(w, head, func(row func(...any)) {
		for i := range list {
			row(cells(&list[i])...)
		}
	})
}

// setRows prints the values that are set, each after its name.
func setRows(row func(...any), pairs ...string) {
	for pair := range slices.Chunk(pairs, 2) {
		if pair[1] != "" {
			row(pair[0], pair[1])
		}
	}
}

// narrowed leaves out columns of a table that does not fit even with short cells: those that are empty, then those that say
// the same in every row, then counts, each from the right. Columns of words stay.
func narrowed(names []string, rows [][]string, width int) (left []string, cells [][]string, out []string) {
	if len(rows) == 0 {
		return names, rows, nil
	}
	drop := make([]bool, len(names))
	sum := -2
	need := make([]int, len(names))
	for i := range names {
		need[i] = utf8.RuneCountInString(names[i])
		for _, row := range rows {
			need[i] = max(need[i], min(utf8.RuneCountInString(cellAt(row, i)), shortest))
		}
		sum += need[i] + 2
	}
	for _, tellsLittle := range []func(int) bool{
		func(i int) bool { return everyCell(rows, i, func(c string) bool { return c == "" || c == "-" }) },
		func(i int) bool {
			return len(rows) > 1 && everyCell(rows, i, func(c string) bool { return c == cellAt(rows[0], i) })
		},
		func(i int) bool {
			return everyCell(rows, i, func(c string) bool { return strings.Trim(c, "0123456789.-%") == "" })
		},
	} {
		for i := len(names) - 1; i > 0 && sum > width; i-- {
			if !drop[i] && tellsLittle(i) {
				drop[i] = true
				sum -= need[i] + 2
			}
		}
	}
	kept := func(row []string) (some []string) {
		for i, c := range row {
			if i >= len(drop) || !drop[i] {
				some = append(some, c)
			}
		}
		return some
	}
	for i, name := range names {
		if drop[i] {
			out = append(out, name)
		}
	}
	for _, row := range rows {
		cells = append(cells, kept(row))
	}
	return kept(names), cells, out
}

// cellAt is a cell; rows may end early.
func cellAt(row []string, i int) string {
	if i < len(row) {
		return row[i]
	}
	return ""
}

// everyCell reports whether all cells of a column are so.
func everyCell(rows [][]string, i int, so func(string) bool) bool {
	return !slices.ContainsFunc(rows, func(row []string) bool { return !so(cellAt(row, i)) })
}

// chosen keeps the columns that are to be shown.
func (g *guard) chosen(names []string, rows [][]string) ([]string, [][]string) {
	var keep []int
	for i, name := range names {
		bare, more := strings.CutPrefix(name, "-")
		names[i] = bare
		g.heads = append(g.heads, bare)
		asked := slices.ContainsFunc(g.as.Columns, func(c string) bool { return strings.EqualFold(c, bare) })
		if asked || len(g.as.Columns) == 0 && (!more || g.as.Wide) {
			keep = append(keep, i)
		}
	}
	pick := func(row []string) []string {
		out := make([]string, 0, len(keep))
		for _, i := range keep {
			if i < len(row) {
				out = append(out, row[i])
			}
		}
		return out
	}
	for i := range rows {
		rows[i] = pick(rows[i])
	}
	return pick(names), rows
}

// shorten cuts the widest columns until a row fits into width characters.
func shorten(names []string, rows [][]string, width int) {
	wide := make([]int, len(names))
	for _, row := range append([][]string{names}, rows...) {
		for i, cell := range row {
			wide[i] = max(wide[i], utf8.RuneCountInString(cell))
		}
	}
	sum := 2 * (len(names) - 1)
	for _, n := range wide {
		sum += n
	}
	for sum > width {
		widest := 0
		for i := range wide {
			if wide[i] > wide[widest] {
				widest = i
			}
		}
		if len(wide) == 0 || wide[widest] <= shortest {
			break
		}
		wide[widest]--
		sum--
	}
	for _, row := range rows {
		for i := range row {
			row[i] = cut(row[i], wide[i])
		}
	}
}

// columnsKnown refuses a column that none of the tables shown has.
func (a *app) columnsKnown() error {
	g, ok := a.out.(*guard)
	if !ok || len(g.heads) == 0 {
		return nil
	}
	for _, c := range a.Columns {
		if !slices.ContainsFunc(g.heads, func(h string) bool { return strings.EqualFold(h, c) }) {
			return usage("--columns %s: expected some of %s", c, strings.Join(g.heads, ","))
		}
	}
	return nil
}
