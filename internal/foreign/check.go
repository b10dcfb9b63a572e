package foreign

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/ctxpage/ctxpage/internal/portable"
	"github.com/ctxpage/ctxpage/store"
)

// jsonChecker walks a value by its tokens before it is decoded: package json takes the last of two equal keys, and puts a question
// mark for what is not UTF-8. Either would make an import that is not what the file says.
type jsonChecker struct {
	*json.Decoder
	of   element
	path []string
}

func newChecker(e element) *jsonChecker {
	c := &jsonChecker{Decoder: json.NewDecoder(bytes.NewReader(e.raw)), of: e}
	c.UseNumber()
	return c
}

// check refuses a value that is not what it seems, with line and field.
func check(e element) error {
	c := newChecker(e)
	err := c.value(0)
	if err == nil && len(bytes.TrimSpace(e.raw[c.InputOffset():])) > 0 {
		err = c.fail("more after the value", "one value")
	}
	return err
}

func (c *jsonChecker) fail(got, expected string) error {
	at := int(c.InputOffset())
	for at < len(c.of.raw) && blank(c.of.raw[at]) {
		at++
	}
	return &portable.LineError{Line: c.of.line + bytes.Count(c.of.raw[:at], []byte("\n")), Field: strings.Join(c.path, "."), Err: store.Invalid("value", got, expected)}
}

// next returns the next token, whose bytes must be UTF-8.
func (c *jsonChecker) next() (json.Token, error) {
	from := c.InputOffset()
	t, err := c.Token()
	switch {
	case err != nil:
		return nil, c.fail("no JSON ("+err.Error()+")", "JSON")
	case !utf8.Valid(c.of.raw[from:c.InputOffset()]):
		return nil, c.fail("bytes that are not UTF-8", "UTF-8 text")
	}
	return t, nil
}

func (c *jsonChecker) value(depth int) error {
	if depth > MaxDepth {
		return c.fail(fmt.Sprintf("more than %d levels", MaxDepth), "fewer")
	}
	t, err := c.next()
	if err != nil {
		return err
	}
	switch t := t.(type) {
	case json.Delim:
		return c.inside(t == '{', depth)
	case json.Number:
		if len(t) > 64 {
			return c.fail("a number of more than 64 digits", "a shorter one")
		}
	}
	return nil
}

// inside walks the values of an object or a list up to its end.
func (c *jsonChecker) inside(object bool, depth int) error {
	seen := map[string]bool{}
	for i := 0; c.More(); i++ {
		key := strconv.Itoa(i)
		if object {
			t, err := c.next()
			if err != nil {
				return err
			}
			key, _ = t.(string) // the decoder refuses other keys
		}
		if c.path = append(c.path, short(key)); object && seen[key] {
			return c.fail("the key twice", "each key of an object once")
		}
		if object {
			seen[key] = true
		}
		if err := c.value(depth + 1); err != nil {
			return err
		}
		c.path = c.path[:len(c.path)-1]
	}
	_, err := c.next()
	return err
}

// short is a key in a message.
func short(key string) string {
	if r := []rune(key); len(r) > 40 {
		return string(r[:40]) + "…"
	}
	return key
}

// decode reads a checked element. Fields that v has not are of no interest here.
func decode(e element, v any) error {
	err := json.Unmarshal(e.raw, v)
	if err == nil {
		return nil
	}
	out := &portable.LineError{Line: e.line, Err: err}
	var kind *json.UnmarshalTypeError
	if errors.As(err, &kind) {
		out.Line += bytes.Count(e.raw[:min(int(kind.Offset), len(e.raw))], []byte("\n"))
		out.Field, out.Err = kind.Field, store.Invalid("value", "a "+kind.Value, jsonTypeName(kind.Type))
	}
	return out
}

// jsonTypeName returns the name of a type in JSON.
func jsonTypeName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Pointer:
		return jsonTypeName(t.Elem())
	case reflect.Float64, reflect.Int, reflect.Int64:
		return "a number"
	}
	return "a " + t.String()
}

// wrong is an error in a field of an element.
func (e element) wrong(field string, err error) error {
	if e.path != "" {
		field = strings.TrimSuffix(e.path+"."+field, ".")
	}
	return &portable.LineError{Line: e.line, Field: field, Err: err}
}
