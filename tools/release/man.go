package main

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/ctxpage/ctxpage/internal/dbctl"
)

// manual writes a page of the manual for the tool, and one for each verb and subcommand, from the help of the tool itself.
func (r *release) manual() (pages []entry) {
	app := dbctl.Tool{}.Model()
	var visit func(n *kong.Node, name string)
	visit = func(n *kong.Node, name string) {
		pages = append(pages, entry{name: name + ".1", mode: 0o644, data: r.manPage(app, n, name)})
		for _, child := range n.Children {
			if !child.Hidden && child.Type == kong.CommandNode {
				visit(child, name+"-"+child.Name)
			}
		}
	}
	visit(app.Node, "dbctl")
	return pages
}

// manPage is one page, in the macros of man(7).
func (r *release) manPage(app *kong.Application, n *kong.Node, name string) []byte {
	var b bytes.Buffer
	help := n.Help
	if n == app.Node {
		help = summary
	}
	fmt.Fprintf(&b, ".TH %s 1 %s %s %s\n", quoted(strings.ToUpper(name)), quoted(r.date.Format("2006-01-02")), quoted("ctxpage "+r.number()), quoted("ctxpage"))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n.SH SYNOPSIS\n.B %s\n", roff(name), roff(strings.TrimSuffix(help, ".")), roff(n.Summary()))
	b.WriteString(".SH DESCRIPTION\n")
	text := n.Detail
	if n == app.Node {
		text = n.Help
	}
	paragraphs(&b, text)
	if len(n.Positional) > 0 {
		b.WriteString(".SH ARGUMENTS\n")
		for _, p := range n.Positional {
			fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", roff(p.Summary()), roff(p.Help))
		}
	}
	options(&b, "OPTIONS", n)
	if n != app.Node {
		options(&b, "OPTIONS OF EVERY VERB", app.Node)
	}
	var rows []string
	for _, child := range n.Children {
		if !child.Hidden && child.Type == kong.CommandNode {
			rows = append(rows, fmt.Sprintf(".TP\n.BR %s (1)\n%s\n", roff(name+"-"+child.Name), roff(child.Help)))
		}
	}
	if len(rows) > 0 {
		b.WriteString(".SH COMMANDS\n" + strings.Join(rows, ""))
	}
	fmt.Fprintf(&b, ".SH SEE ALSO\n%s\n", roff(homepage))
	return b.Bytes()
}

func options(b *bytes.Buffer, title string, n *kong.Node) {
	begun := false
	for _, f := range n.Flags {
		if f.Hidden {
			continue
		}
		if !begun {
			fmt.Fprintf(b, ".SH %s\n", title)
			begun = true
		}
		fmt.Fprintf(b, ".TP\n.B %s\n%s\n", roff(f.String()), roff(f.Help))
	}
}

// paragraphs writes text whose paragraphs are parted by empty lines. A line that begins with spaces is an example and keeps its form.
func paragraphs(b *bytes.Buffer, text string) {
	for _, p := range strings.Split(strings.TrimSpace(text), "\n\n") {
		b.WriteString(".PP\n")
		for _, line := range strings.Split(p, "\n") {
			if strings.HasPrefix(line, " ") {
				fmt.Fprintf(b, ".br\n.B %s\n", roff(strings.TrimSpace(line)))
				continue
			}
			b.WriteString(roff(line) + "\n")
		}
	}
}

// roff escapes text of one line: no control line, no escape of its own, hyphens that can be copied, and ASCII alone, which every reader of
// manuals takes.
func roff(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\\':
			b.WriteString(`\e`)
		case r == '-':
			b.WriteString(`\-`)
		case r == '\n':
			b.WriteByte(' ')
		case r > 126:
			fmt.Fprintf(&b, `\[u%04X]`, r)
		default:
			b.WriteRune(r)
		}
	}
	s = b.String()
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		s = `\&` + s
	}
	return s
}

// quoted is an argument of a macro.
func quoted(s string) string { return `"` + strings.ReplaceAll(roff(s), `"`, `\(dq`) + `"` }

// completions are the scripts that dbctl itself prints.
func completions() (files []entry) {
	for _, c := range [][2]string{{"bash", "dbctl.bash"}, {"fish", "dbctl.fish"}, {"zsh", "_dbctl"}} {
		shell, name := c[0], c[1]
		var out, problems bytes.Buffer
		if (dbctl.Tool{}).Run([]string{"completion", shell}, nil, &out, &problems) != 0 {
			panic("dbctl completion " + shell + ": " + problems.String()) // a test runs it
		}
		files = append(files, entry{"completions/" + name, 0o644, out.Bytes()})
	}
	return files
}
