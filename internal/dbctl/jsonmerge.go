package dbctl

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// object is a JSON object whose members keep their order and, but for spaces, their text.
type object []member

type member struct {
	name  string
	value json.RawMessage
}

// parseObject reads an object; no text at all is an empty one.
func parseObject(text []byte) (o object, err error) {
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, nil
	}
	if !json.Valid(text) {
		return nil, errors.New("expected plain JSON, without comments")
	}
	d := json.NewDecoder(bytes.NewReader(text))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.New("expected a JSON object")
	}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, err
		}
		m := member{name: fmt.Sprint(t)}
		if err := d.Decode(&m.value); err != nil {
			return nil, err
		}
		if slices.ContainsFunc(o, func(x member) bool { return x.name == m.name }) {
			return nil, fmt.Errorf("%q occurs twice", m.name)
		}
		o = append(o, m)
	}
	return o, nil
}

// MarshalJSON writes the members in their order.
func (o object) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	for i, m := range o {
		if i > 0 {
			b = append(b, ',')
		}
		name, err := json.Marshal(m.name)
		if err != nil {
			return nil, err
		}
		b = append(append(append(b, name...), ':'), m.value...)
	}
	return append(b, '}'), nil
}

// plainJSON is a value without the escapes that HTML needs.
func plainJSON(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSpace(b.Bytes()), err
}

// text is the object with an indent of two.
func (o object) text() ([]byte, error) {
	b, err := o.MarshalJSON()
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = json.Indent(&out, b, "", "  ")
	out.WriteByte('\n')
	return out.Bytes(), err
}

// edited is the object with a member changed by fn, which gets nil if there is none, and returns nil for none.
func (o object) edited(name string, fn func(json.RawMessage) (json.RawMessage, error)) (object, error) {
	at := slices.IndexFunc(o, func(m member) bool { return m.name == name })
	var old json.RawMessage
	if at >= 0 {
		old = o[at].value
	}
	value, err := fn(old)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", name, err)
	case value == nil && at >= 0:
		return slices.Delete(slices.Clone(o), at, at+1), nil
	case value == nil:
		return o, nil
	case at < 0:
		return append(slices.Clone(o), member{name, value}), nil
	}
	o = slices.Clone(o)
	o[at].value = value
	return o, nil
}

// inMember edits the member of an object that is a member itself. An object that becomes empty goes, too.
func inMember(name string, fn func(json.RawMessage) (json.RawMessage, error)) func(json.RawMessage) (json.RawMessage, error) {
	return func(old json.RawMessage) (json.RawMessage, error) {
		o, err := parseObject(old)
		if err != nil {
			return nil, err
		}
		was := len(o)
		if o, err = o.edited(name, fn); err != nil || len(o) == 0 && was > 0 {
			return nil, err
		}
		if len(o) == 0 {
			return old, nil
		}
		return o.MarshalJSON()
	}
}
