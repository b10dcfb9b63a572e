package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// A TOML file is edited by whole tables: a table ends where the next header begins, so the scanner only has to know
// which lines are headers. Comments and everything outside the table stay as they are.

// tomlLine is a logical line: an assignment may span several.
type tomlLine struct {
	from, to int
	text     string // first physical line, trimmed
}

// tomlLines splits a text so that strings and arrays over several lines are one. An error says that the end is missing.
func tomlLines(src []byte) ([]tomlLine, error) {
	var out []tomlLine
	depth, quote := 0, ""
	from := 0
	for i := 0; i < len(src); i++ {
		rest := src[i:]
		switch c := src[i]; {
		case quote != "":
			if c == '\\' && quote[0] == '"' {
				i++
			} else if bytes.HasPrefix(rest, []byte(quote)) {
				i += len(quote) - 1
				for n := 0; n < len(quote)-1 && i+1 < len(src) && src[i+1] == quote[0]; n++ { // """a"""" ends in a quote of its own
					i++
				}
				quote = ""
			} else if c == '\n' && len(quote) == 1 {
				return nil, fmt.Errorf("a string has no end on its line: %.40q", src[from:i])
			}
		case c == '"' || c == '\'':
			quote = string(c)
			if triple := strings.Repeat(quote, 3); bytes.HasPrefix(rest, []byte(triple)) {
				quote = triple
				i += 2
			}
		case c == '#':
			if n := bytes.IndexByte(rest, '\n'); n >= 0 {
				i += n - 1
			} else {
				i = len(src) - 1
			}
		case c == '[' || c == '{':
			depth++
		case c == ']' || c == '}':
			depth--
		case c == '\n' && depth <= 0:
			out = append(out, tomlLineOf(src, from, i+1))
			from, depth = i+1, 0
		}
	}
	if quote != "" || depth > 0 {
		return nil, fmt.Errorf("the value that begins with %.40q has no end", src[from:])
	}
	if from < len(src) {
		out = append(out, tomlLineOf(src, from, len(src)))
	}
	return out, nil
}

func tomlLineOf(src []byte, from, to int) tomlLine {
	first, _, _ := strings.Cut(string(src[from:to]), "\n")
	return tomlLine{from, to, strings.TrimSpace(first)}
}

// tomlKey splits a dotted key; behind is what follows it.
func tomlKey(s string) (parts []string, behind string) {
	for {
		s = strings.TrimLeft(s, " \t")
		if s != "" && (s[0] == '"' || s[0] == '\'') {
			n := quotedEnd(s)
			if n < 0 {
				return parts, s
			}
			part := s[1 : n-1]
			if s[0] == '"' {
				_ = json.Unmarshal([]byte(s[:n]), &part) // an escape that JSON does not have stays as it is
			}
			parts, s = append(parts, part), s[n:]
		} else {
			n := strings.IndexAny(s, ".=] \t")
			if n < 0 {
				n = len(s)
			}
			parts, s = append(parts, s[:n]), s[n:]
		}
		s = strings.TrimLeft(s, " \t")
		if !strings.HasPrefix(s, ".") {
			return parts, s
		}
		s = s[1:]
	}
}

// quotedEnd is where a quoted key ends, behind its quote; -1: nowhere.
func quotedEnd(s string) int {
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] == s[0]:
			return i + 1
		case s[i] == '\\' && s[0] == '"':
			i++
		}
	}
	return -1
}

// tomlTable finds the table container.name with its subtables. found is false if there is none; an error says that the
// server is defined in a way that this editor does not change.
func tomlTable(src []byte, container, name string) (from, to int, found bool, err error) {
	lines, err := tomlLines(src)
	if err != nil {
		return 0, 0, false, err
	}
	want := []string{container, name}
	var at []string // the table the line is in
	inside, done := false, false
	for _, l := range lines {
		switch {
		case l.text == "" || l.text[0] == '#':
		case l.text[0] == '[':
			array := strings.HasPrefix(l.text, "[[")
			at, _ = tomlKey(strings.TrimLeft(l.text, "["))
			ours := len(at) >= 2 && slices.Equal(at[:2], want)
			if ours && (array || done || !inside && len(at) > 2) {
				return 0, 0, false, fmt.Errorf("%s: expected one table [%s.%s] with its subtables behind it", l.text, container, name)
			}
			if ours && !inside {
				from, inside, found = l.from, true, true
			}
			if !ours && inside {
				inside, done = false, true
			}
		default:
			key, _ := tomlKey(l.text)
			full := append(slices.Clone(at), key...)
			if !inside && (slices.Equal(full, want[:1]) || len(full) >= 2 && slices.Equal(full[:2], want)) {
				return 0, 0, false, fmt.Errorf("%.40q: expected a table [%s.%s]", l.text, container, name)
			}
		}
		if inside && l.text != "" && l.text[0] != '#' {
			to = l.to // comments and blank lines before the next header belong to that
		}
	}
	return from, to, found, nil
}

// setTOML sets the table container.name.
func setTOML(src []byte, container, name string, v serverEntry) ([]byte, error) {
	from, to, found, err := tomlTable(src, container, name)
	if err != nil {
		return nil, err
	}
	newline := "\n"
	if bytes.Contains(src, []byte("\r\n")) {
		newline = "\r\n"
	}
	text := strings.ReplaceAll(v.toml(container, name), "\n", newline)
	if found {
		if text, err = v.tomlOver(text, src[from:to]); err != nil {
			return nil, err
		}
		return splice(src, from, to, text), nil
	}
	lead := ""
	if n := len(src); n > 0 {
		if lead = newline; src[n-1] != '\n' {
			lead += newline
		}
	}
	return append(slices.Clone(src), lead+text...), nil
}

// tomlOver returns the new table with everything else that the old one and its subtables have.
func (e serverEntry) tomlOver(text string, old []byte) (string, error) {
	lines, err := tomlLines(old)
	if err != nil {
		return "", err
	}
	main := true // the table itself comes before its subtables
	for i, l := range lines {
		key, _ := tomlKey(l.text)
		if strings.HasPrefix(l.text, "[") && i > 0 {
			main = false
		}
		if i > 0 && (!main || len(key) != 1 || !slices.Contains(entryKeys, key[0])) {
			text += string(old[l.from:l.to])
		}
	}
	return text, nil
}

// removeTOML removes the table container.name with the blank line that setTOML put before it.
func removeTOML(src []byte, container, name string) ([]byte, error) {
	from, to, found, err := tomlTable(src, container, name)
	if err != nil || !found {
		return src, err
	}
	for _, newline := range []string{"\n", "\r\n"} {
		if bytes.HasSuffix(src[:from], []byte(newline+newline)) {
			from -= len(newline)
		}
	}
	return splice(src, from, to, ""), nil
}

func (e serverEntry) toml(container, name string) string {
	quoted := func(s string) string { // a JSON string is a TOML string
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		_ = enc.Encode(s) // a string is always written
		return strings.ReplaceAll(strings.TrimSuffix(b.String(), "\n"), "\x7f", `\u007f`)
	}
	out := fmt.Sprintf("[%s.%s]\n", container, name)
	if e.URL != "" {
		return out + "url = " + quoted(e.URL) + "\n"
	}
	args := make([]string, len(e.Args))
	for i, a := range e.Args {
		args[i] = quoted(a)
	}
	return out + "command = " + quoted(e.Command) + "\nargs = [" + strings.Join(args, ", ") + "]\n"
}
