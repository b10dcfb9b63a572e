package dbctl

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

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
