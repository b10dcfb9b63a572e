package dbctl

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/ctxpage/ctxpage/internal/view"
)

// What is stored was written by others, and must not act on the terminal of who looks at it: every byte that goes to a
// terminal passes a guard, whatever verb it comes from. Tables are made fit for any reader.

// line makes text fit for a cell: what steers becomes a space, and what is hidden is shown by its number.
func line(s string) string {
	if strings.IndexFunc(s, func(r rune) bool { return view.Steers(r) || view.Hidden(r) }) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case view.Steers(r):
			b.WriteByte(' ')
		case view.Hidden(r):
			fmt.Fprintf(&b, "<U+%04X>", r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// printable is text for a terminal without what would steer it or hide in it, and byte for byte elsewhere.
func printable(w io.Writer, s string) string {
	if !isTerminal(w) {
		return s
	}
	return shown(s)
}

func shown(s string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && (view.Steers(r) || view.Hidden(r) && !view.Shapes(r)) {
			return '�'
		}
		return r
	}, s)
}

// escaped is JSON with every rune that steers or hides written by its number.
func escaped(s string) string {
	return view.EscapeJSON(s, func(r rune) bool { return r != '\n' && r != '\t' && (view.Steers(r) || view.Hidden(r)) })
}

// escapedFor is escaped for a terminal, and JSON byte for byte elsewhere.
func escapedFor(w io.Writer, s string) string {
	if !isTerminal(w) {
		return s
	}
	return escaped(s)
}

// guard stands before what dbctl prints to. A terminal shows what is written to it and is steered by none of it; what is
// written elsewhere passes as it is.
type guard struct {
	w        io.Writer
	terminal bool
	as       *globals // how to show it: what is written is JSON, which columns tables have
	rest     []byte   // the beginning of a rune whose end is still to come

	heads []string // of the tables shown so far: columns that can be asked for
}

// guarded puts a guard before standard output or standard error.
func guarded(w io.Writer, as *globals) *guard { return &guard{w: w, terminal: isTerminal(w), as: as} }

func (g *guard) Write(b []byte) (int, error) {
	if !g.terminal {
		return g.w.Write(b)
	}
	all := append(g.rest, b...)
	whole := len(all)
	for i := 1; i < utf8.UTFMax && i <= len(all); i++ {
		if tail := all[len(all)-i:]; utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) {
				whole -= i
			}
			break
		}
	}
	g.rest = bytes.Clone(all[whole:])
	clean := shown
	if g.as.JSON {
		clean = escaped
	}
	_, err := io.WriteString(g.w, clean(string(all[:whole])))
	return len(b), err
}

// unguarded is the terminal itself, for what dbctl draws there.
func unguarded(w io.Writer) io.Writer {
	if g, ok := w.(*guard); ok {
		return g.w
	}
	return w
}

// width returns the characters of a terminal line; 0: no limit, because the output is no terminal or --wide was given.
func (g *guard) width() int {
	f, ok := g.w.(*os.File)
	if !ok || !g.terminal || g.as.Wide {
		return 0
	}
	n, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return n
}

func isTerminal(w any) bool {
	if g, ok := w.(*guard); ok {
		w = g.w
	}
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
