package plaintext

import (
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// webPage reports whether a file is HTML by its name.
func webPage(path string) bool {
	return slices.Contains([]string{".html", ".htm", ".xhtml"}, strings.ToLower(filepath.Ext(path)))
}

// unread are the elements that say nothing to a reader.
var unread = []atom.Atom{atom.Script, atom.Style, atom.Template, atom.Noscript}

// breaks are the elements that stand on lines of their own.
var breaks = []atom.Atom{
	atom.Address, atom.Article, atom.Aside, atom.Blockquote, atom.Br, atom.Dd, atom.Div, atom.Dl, atom.Dt, atom.Fieldset, atom.Figcaption, atom.Figure, atom.Footer, atom.Form,
	atom.Header, atom.Hr, atom.Li, atom.Main, atom.Nav, atom.Ol, atom.Option, atom.P, atom.Pre, atom.Section, atom.Table, atom.Title, atom.Tr, atom.Ul,
}

var headings = []atom.Atom{atom.H1, atom.H2, atom.H3, atom.H4, atom.H5, atom.H6}

// webText returns what a page of HTML says: its texts with entities decoded, headings as in Markdown, blocks on lines of their own.
func webText(page string) string {
	var w webWriter
	z := html.NewTokenizer(strings.NewReader(page))
	for {
		switch kind := z.Next(); kind {
		case html.ErrorToken: // its end: a tokenizer takes anything
			return strings.TrimSpace(string(w.out)) + "\n"
		case html.TextToken:
			w.text(z.Token().Data)
		case html.StartTagToken, html.EndTagToken, html.SelfClosingTagToken:
			w.tag(z.Token().DataAtom, kind == html.StartTagToken, kind == html.EndTagToken)
		}
	}
}

type webWriter struct {
	out  []byte
	skip int  // elements of unread around this place
	pre  int  // elements around this place in which blanks count
	gap  bool // a blank is due
}

func (w *webWriter) tag(a atom.Atom, begins, ends bool) {
	depth := 0
	if begins {
		depth = 1
	} else if ends {
		depth = -1
	}
	switch {
	case slices.Contains(unread, a):
		w.skip = max(0, w.skip+depth)
	case slices.Contains(headings, a):
		w.line()
		if begins {
			w.paragraph()
			w.out = append(w.out, strings.Repeat("#", slices.Index(headings, a)+1)+" "...)
		}
	case slices.Contains(breaks, a):
		w.line()
		if a == atom.P || a == atom.Pre || a == atom.Table {
			w.paragraph()
		}
		if a == atom.Pre {
			w.pre = max(0, w.pre+depth)
		}
	case a == atom.Td || a == atom.Th:
		w.gap = true
	}
}

// line begins a new line, unless one has begun.
func (w *webWriter) line() {
	if w.gap = false; len(w.out) > 0 && w.out[len(w.out)-1] != '\n' {
		w.out = append(w.out, '\n')
	}
}

// paragraph leaves a line empty.
func (w *webWriter) paragraph() {
	if len(w.out) > 1 && w.out[len(w.out)-2] != '\n' {
		w.out = append(w.out, '\n')
	}
}

func (w *webWriter) text(s string) {
	if w.skip > 0 {
		return
	}
	if w.pre > 0 {
		w.out = append(w.out, s...)
		return
	}
	for i, word := range strings.Fields(s) {
		fresh := len(w.out) == 0 || w.out[len(w.out)-1] == '\n' || w.out[len(w.out)-1] == ' '
		if !fresh && (w.gap || i > 0 || strings.TrimLeft(s, " \t\r\n\f") != s) {
			w.out = append(w.out, ' ')
		}
		w.gap, w.out = false, append(w.out, word...)
	}
	w.gap = w.gap || strings.TrimRight(s, " \t\r\n\f") != s
}
