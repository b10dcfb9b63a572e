package dbctl

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/schollz/progressbar/v3"
)

// emit prints v as JSON, or what text prints.
func (a *app) emit(v any, text func(w io.Writer)) error {
	if !a.JSON {
		text(a.out)
		return a.columnsKnown()
	}
	enc := json.NewEncoder(a.out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// unless ends a verb with an exit code if what it printed is not good. err is the error of printing.
func unless(good bool, code int, err error) error {
	if err == nil && !good {
		return ended(code)
	}
	return err
}

// would returns the word for what a verb did, or for what it would do in a dry run.
func would(dry bool, did, would string) string {
	if dry {
		return would
	}
	return did
}

// printEach prints a line for each text of a list.
func printEach(w io.Writer, format string, list []string) {
	for _, s := range list {
		fmt.Fprintf(w, format, line(s))
	}
}

func when(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02 15:04:05Z")
}

func or(s, none string) string { return cmp.Or(s, none) }

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// cut shortens text to n runes for a table.
func cut(s string, n int) string {
	r := []rune(strings.Join(strings.Fields(s), " "))
	if len(r) <= n {
		return string(r)
	}
	return string(r[:n-1]) + "…"
}

// Cursors are opaque: what is in them may change, and a cursor of one listing is refused by another.

func cursorOut(listing, raw string) string {
	if raw == "" {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString([]byte(listing + ":" + raw))
}

func cursorIn(listing, cursor string) (string, error) {
	if cursor == "" {
		return "", nil
	}
	b, err := base64.RawURLEncoding.DecodeString(cursor)
	raw, ok := strings.CutPrefix(string(b), listing+":")
	if err != nil || !ok {
		return "", usage("--cursor %q: expected a cursor that this listing printed", cursor)
	}
	return raw, nil
}

func more(w io.Writer, next string) {
	if next != "" {
		fmt.Fprintf(w, "more: --cursor %s\n", next)
	}
}

// progress draws a bar on standard error: on a terminal, or when asked for; never beside JSON.
func (a *app) progress() func(what string, done, total uint64) {
	if a.JSON || !a.Progress && !isTerminal(a.err) {
		return func(string, uint64, uint64) {}
	}
	var bar *progressbar.ProgressBar
	now := ""
	return func(what string, done, total uint64) {
		if what != now {
			now = what
			size := int64(total)
			if size == 0 { // nobody knows: a spinner
				size = -1
			}
			bar = progressbar.NewOptions64(size, progressbar.OptionSetWriter(unguarded(a.err)), progressbar.OptionSetDescription(what),
				progressbar.OptionShowCount(), progressbar.OptionClearOnFinish(), progressbar.OptionThrottle(65*time.Millisecond), progressbar.OptionSetWidth(30))
		}
		if total > 0 {
			done = min(done, total)
		}
		_ = bar.Set64(int64(done))
	}
}

// oneLine prints JSON on one line, for programs that read lines.
func oneLine(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// openInput opens a file to read. A named pipe that nobody writes to reads as empty: opening it otherwise waits for a writer, deaf to
// signals.
func openInput(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}

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
		if names, lines = g.chosen(names, lines); len(names) == 0 {
			return // columnsKnown says why
		}
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

// The JSON of dbctl is its own, apart from the library's types: its fields are pinned by a test, and the library's may grow.
// Pages have the form that all doors share (internal/view).

// nonNil makes an empty list [] in JSON, not null.
func nonNil[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}
