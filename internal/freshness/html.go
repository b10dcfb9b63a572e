package freshness

import (
	"html"
	"path/filepath"
	"slices"
	"strings"
)

// webPage reports whether a file is HTML by its name.
func webPage(path string) bool {
	return slices.Contains([]string{".html", ".htm", ".xhtml"}, strings.ToLower(filepath.Ext(path)))
}

var (
	// unread are the elements without text for a reader.
	unread = []string{"script", "style", "template", "noscript"}
	// breaks are the elements that stand on lines of their own.
	breaks = strings.Fields("address article aside blockquote br dd div dl dt fieldset figcaption figure footer form header hr li main nav ol option p pre section table title tr ul")
	// headings are in the order of their levels.
	headings = []string{"h1", "h2", "h3", "h4", "h5", "h6"}
	// raw are the elements in which only their own end tag is markup. Entities count in the first two.
	raw = []string{"title", "textarea", "iframe", "noembed", "noframes", "noscript", "plaintext", "script", "style", "xmp"}
)

const blanks = " \t\r\n\f"

// webText returns the text of a page of HTML: entities decoded, headings as in Markdown, blocks on lines of their own. It takes any text,
// as browsers do: markup that does not end goes to the end of the page.
func webText(page string) string {
	var w webWriter
	page = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(page)
	for page != "" {
		text, markup := nextMarkup(page)
		w.text(html.UnescapeString(text))
		page = markup
		switch {
		case page == "":
		case strings.HasPrefix(page, "<!--"):
			page = afterComment(page[len("<!--"):])
		case page[1] == '!', page[1] == '?', page[1] == '/' && !letter(page[2:]):
			_, page, _ = strings.Cut(page, ">")
		default:
			var t tag
			if t, page = readTag(page); t.name == "" {
				break
			}
			w.tag(t)
			if at := slices.Index(raw, t.name); at >= 0 && t.begins {
				text, page = cutRaw(page, t.name)
				if at < 2 {
					text = html.UnescapeString(text)
				}
				w.text(text)
			}
		}
	}
	return strings.TrimSpace(string(w.out)) + "\n"
}

func letter(s string) bool {
	return s != "" && (s[0]|0x20) >= 'a' && (s[0]|0x20) <= 'z'
}

// nextMarkup cuts a page at the next tag, comment or declaration.
func nextMarkup(page string) (text, markup string) {
	for at := 0; ; at++ {
		i := strings.IndexByte(page[at:], '<')
		if i < 0 {
			return page, ""
		}
		at += i
		if next := page[at+1:]; letter(next) || next != "" && (next[0] == '!' || next[0] == '?' || next[0] == '/' && len(next) > 1) {
			return page[:at], page[at:]
		}
	}
}

func afterComment(s string) string {
	for _, end := range []string{">", "->"} {
		if after, is := strings.CutPrefix(s, end); is {
			return after
		}
	}
	for {
		_, after, found := strings.Cut(s, "--")
		if !found {
			return ""
		}
		for _, end := range []string{">", "!>"} {
			if rest, is := strings.CutPrefix(after, end); is {
				return rest
			}
		}
		s = s[len(s)-len(after)-1:] // the second dash may begin the end
	}
}

// tag is one tag of a page. A tag that closes itself neither begins nor ends.
type tag struct {
	name         string
	begins, ends bool
}

// readTag reads the tag that begins a page, with its attributes. A tag without an end has no name.
func readTag(page string) (t tag, rest string) {
	s := strings.TrimPrefix(page[1:], "/")
	t.ends = len(s) < len(page)-1
	end := strings.IndexAny(s, blanks+"/>")
	if end < 0 {
		return tag{}, ""
	}
	t.name, s = strings.ToLower(s[:end]), s[end:]
	slash := false // the last byte was one, outside of a value
	for {
		s = strings.TrimLeft(s, blanks)
		if s == "" {
			return tag{}, ""
		}
		if s[0] == '>' {
			t.begins = !t.ends && !slash
			return t, s[1:]
		}
		s, slash = afterAttribute(s)
	}
}

// afterAttribute skips one attribute, or a slash. A value in quotes may hold anything but its quote.
func afterAttribute(s string) (rest string, slash bool) {
	end := strings.IndexAny(s[1:], "="+blanks+"/>") + 1
	if s[0] == '/' {
		end = 0
	} else if end == 0 {
		return "", false
	}
	s = strings.TrimLeft(s[end:], blanks)
	switch {
	case strings.HasPrefix(s, "/"):
		return s[1:], true
	case !strings.HasPrefix(s, "="):
		return s, false
	}
	if s = strings.TrimLeft(s[1:], blanks); s == "" || s[0] == '>' {
		return s, false
	}
	if s[0] == '"' || s[0] == '\'' {
		_, rest, _ = strings.Cut(s[1:], s[:1])
		return rest, false
	}
	if end = strings.IndexAny(s, blanks+">"); end < 0 {
		return "", false
	}
	return s[end:], false
}

// cutRaw cuts a page at the end tag of a raw element.
func cutRaw(page, name string) (text, rest string) {
	for at := 0; name != "plaintext"; at += 2 {
		i := strings.Index(page[at:], "</")
		if i < 0 {
			break
		}
		at += i
		after := page[at+2:]
		if len(after) > len(name) && strings.EqualFold(after[:len(name)], name) && strings.IndexByte(blanks+"/>", after[len(name)]) >= 0 {
			return page[:at], page[at:]
		}
	}
	return page, ""
}

type webWriter struct {
	out  []byte
	skip int  // elements of unread around this place
	pre  int  // elements around this place in which blanks count
	gap  bool // a blank is due
}

func (w *webWriter) tag(t tag) {
	depth := 0
	if t.begins {
		depth = 1
	} else if t.ends {
		depth = -1
	}
	switch {
	case slices.Contains(unread, t.name):
		w.skip = max(0, w.skip+depth)
	case slices.Contains(headings, t.name):
		w.line()
		if t.begins {
			w.paragraph()
			w.out = append(w.out, strings.Repeat("#", slices.Index(headings, t.name)+1)+" "...)
		}
	case slices.Contains(breaks, t.name):
		w.line()
		if t.name == "p" || t.name == "pre" || t.name == "table" {
			w.paragraph()
		}
		if t.name == "pre" {
			w.pre = max(0, w.pre+depth)
		}
	case t.name == "td" || t.name == "th":
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
		if !fresh && (w.gap || i > 0 || strings.TrimLeft(s, blanks) != s) {
			w.out = append(w.out, ' ')
		}
		w.gap, w.out = false, append(w.out, word...)
	}
	w.gap = w.gap || strings.TrimRight(s, blanks) != s
}
