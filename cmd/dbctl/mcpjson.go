package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Other programs' JSON files are edited as text: only the member that changes is rewritten, so order, unknown keys,
// numbers and spacing of everything else stay as they are.

// jsonMember is a member of an object, by offsets into the text.
type jsonMember struct {
	name               string
	key, value, behind int // first byte of the key and of the value, first byte after the value
}

// jsonObject is an object and its members.
type jsonObject struct {
	open, behind int // offset of the brace, and of the byte after the closing one
	members      []jsonMember
}

// readObject reads the object that starts at an offset of valid JSON.
func readObject(src []byte, at int) (o jsonObject, err error) {
	d := json.NewDecoder(bytes.NewReader(src[at:]))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return o, fmt.Errorf("expected an object, found %.20q", src[at:])
	}
	o.open = at + int(d.InputOffset()) - 1
	for d.More() {
		from := at + int(d.InputOffset())
		key := from + bytes.IndexByte(src[from:], '"')
		t, err := d.Token()
		if err != nil {
			return o, err
		}
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return o, err
		}
		behind := at + int(d.InputOffset())
		o.members = append(o.members, jsonMember{t.(string), key, behind - len(raw), behind})
	}
	if _, err := d.Token(); err != nil {
		return o, err
	}
	o.behind = at + int(d.InputOffset())
	return o, nil
}

// find gives the member of a name. A name that occurs twice is an error: programs differ in which of them counts.
func (o jsonObject) find(name string) (found jsonMember, ok bool, err error) {
	for _, m := range o.members {
		if m.name != name {
			continue
		}
		if ok {
			return found, false, fmt.Errorf("%q occurs twice in one object; remove one of them", name)
		}
		found, ok = m, true
	}
	return found, ok, nil
}

// jsonStyle is how a text is laid out.
type jsonStyle struct{ newline, unit string }

func styleOf(src []byte, root jsonObject) jsonStyle {
	s := jsonStyle{"\n", "  "}
	if bytes.Contains(src, []byte("\r\n")) {
		s.newline = "\r\n"
	}
	if len(root.members) > 0 {
		if _, unit, ok := gap(src[root.open+1 : root.members[0].key]); ok && unit != "" {
			s.unit = unit
		}
	}
	return s
}

// gap splits white space at its last line break; false: it has none.
func gap(space []byte) (before, indent string, ok bool) {
	i := bytes.LastIndexByte(space, '\n')
	if i < 0 {
		return "", "", false
	}
	return string(space[:i]), string(space[i+1:]), true
}

// written is a value as it stands behind an indent; in an object on one line it is on that line, too.
func (s jsonStyle) written(v any, indent string, broken bool) (string, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if broken {
		e.SetIndent(indent, s.unit)
	}
	if err := e.Encode(v); err != nil {
		return "", err
	}
	return strings.ReplaceAll(strings.TrimSuffix(b.String(), "\n"), "\n", s.newline), nil
}

// insert puts a member at the end of an object, laid out as those before it.
func (s jsonStyle) insert(src []byte, o jsonObject, depth int, name string, v any) ([]byte, error) {
	indent, broken := strings.Repeat(s.unit, depth), true
	at, lead, tail := o.open+1, "", s.newline+strings.Repeat(s.unit, depth-1)
	end := o.behind - 1
	if n := len(o.members); n > 0 {
		if _, has, ok := gap(src[o.open+1 : o.members[0].key]); ok {
			indent = has
		} else {
			broken = false
		}
		at, lead, tail = o.members[n-1].behind, ",", ""
		end = at
	}
	if broken {
		lead += s.newline + indent
	} else {
		lead += " "
	}
	value, err := s.written(v, indent, broken)
	if err != nil {
		return nil, err
	}
	key, err := json.Marshal(name)
	if err != nil {
		return nil, err
	}
	return splice(src, at, end, lead+string(key)+": "+value+tail), nil
}

func splice(src []byte, from, to int, text string) []byte {
	out := append(make([]byte, 0, len(src)+len(text)), src[:from]...)
	return append(append(out, text...), src[to:]...)
}

// setJSON sets container.name to a value, making the container if it is missing.
func setJSON(src []byte, container, name string, v serverEntry) ([]byte, error) {
	if len(bytes.TrimSpace(src)) == 0 {
		src = []byte("{}\n")
	}
	root, in, ok, err := containerOf(src, container)
	if err != nil {
		return nil, err
	}
	style := styleOf(src, root)
	if !ok {
		return style.insert(src, root, 1, container, map[string]any{name: v})
	}
	m, ok, err := in.find(name)
	if err != nil {
		return nil, err
	}
	if !ok {
		return style.insert(src, in, 2, name, v)
	}
	_, indent, broken := gap(src[in.open+1 : m.key])
	kept, err := keepOthers(src, m, v)
	if err != nil {
		return nil, err
	}
	value, err := style.written(kept, indent, broken)
	if err != nil {
		return nil, err
	}
	return splice(src, m.value, m.behind, value), nil
}

// keepOthers is an entry with what else the one that it replaces has: variables, timeouts, permissions.
func keepOthers(src []byte, old jsonMember, v serverEntry) (json.RawMessage, error) {
	out, err := json.Marshal(v)
	if err != nil || src[old.value] != '{' {
		return out, err
	}
	was, err := readObject(src, old.value)
	if err != nil {
		return nil, err
	}
	for _, m := range was.members {
		if !slices.Contains(entryKeys, m.name) {
			out = append(out[:len(out)-1], ',')
			out = append(append(out, src[m.key:m.behind]...), '}')
		}
	}
	return out, nil
}

// removeJSON removes container.name; a text without it comes back as it is.
func removeJSON(src []byte, container, name string) ([]byte, error) {
	if len(bytes.TrimSpace(src)) == 0 {
		return src, nil
	}
	_, in, ok, err := containerOf(src, container)
	if err != nil || !ok {
		return src, err
	}
	if _, ok, err := in.find(name); err != nil || !ok {
		return src, err
	}
	for i, m := range in.members {
		switch {
		case m.name != name:
		case i > 0:
			return splice(src, in.members[i-1].behind, m.behind, ""), nil
		case len(in.members) > 1:
			return splice(src, m.key, in.members[1].key, ""), nil
		default:
			return splice(src, in.open+1, in.behind-1, ""), nil
		}
	}
	return src, nil
}

// containerOf finds the object that holds the servers; false: the text has none.
func containerOf(src []byte, container string) (root, in jsonObject, ok bool, err error) {
	if !json.Valid(src) {
		return root, in, false, fmt.Errorf("expected plain JSON, without comments or trailing commas")
	}
	if root, err = readObject(src, 0); err != nil {
		return root, in, false, err
	}
	m, ok, err := root.find(container)
	if err != nil || !ok {
		return root, in, false, err
	}
	if in, err = readObject(src, m.value); err != nil {
		return root, in, false, fmt.Errorf("%q: %w", container, err)
	}
	return root, in, true, nil
}
