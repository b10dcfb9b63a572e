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

// jsonChecker walks a value once, before it is decoded: package json takes the last of two equal keys, and puts a question mark for
// what is not UTF-8. Either would make an import that is not what the file says.
type jsonChecker struct {
	b    []byte
	at   int
	line int
	path []string
}

// check refuses a value that is not what it seems, with line and field.
func check(e element) error {
	c := &jsonChecker{b: e.raw, line: e.line}
	if err := c.value(0); err != nil {
		return err
	}
	if c.blank(); c.at < len(c.b) {
		return c.fail("more after the value", "one value")
	}
	return nil
}

func (c *jsonChecker) fail(got, expected string) error {
	return &portable.LineError{Line: c.line, Field: strings.Join(c.path, "."), Err: store.Invalid("value", got, expected)}
}

func (c *jsonChecker) blank() {
	for c.at < len(c.b) {
		switch c.b[c.at] {
		case '\n':
			c.line++
		case ' ', '\t', '\r':
		default:
			return
		}
		c.at++
	}
}

func (c *jsonChecker) next() byte {
	if c.blank(); c.at < len(c.b) {
		return c.b[c.at]
	}
	return 0
}

func (c *jsonChecker) value(depth int) error {
	if depth > MaxDepth {
		return c.fail(fmt.Sprintf("more than %d levels", MaxDepth), "fewer")
	}
	switch b := c.next(); {
	case b == '{':
		return c.object(depth)
	case b == '[':
		return c.array(depth)
	case b == '"':
		_, err := c.str()
		return err
	default:
		return c.scalar()
	}
}

func (c *jsonChecker) object(depth int) error {
	c.at++
	seen := map[string]bool{}
	for first := true; ; first = false {
		b := c.next()
		if b == '}' && first {
			c.at++
			return nil
		}
		if b != '"' {
			return c.fail(fmt.Sprintf("%q", b), "a key in quotes")
		}
		raw, err := c.str()
		if err != nil {
			return err
		}
		var key string
		if err := json.Unmarshal(raw, &key); err != nil {
			return c.fail("a key that is no string", "a string")
		}
		c.path = append(c.path, short(key))
		if seen[key] {
			return c.fail("the key twice", "each key of an object once")
		}
		seen[key] = true
		if c.next() != ':' {
			return c.fail(fmt.Sprintf("%q", c.next()), "':'")
		}
		c.at++
		if err := c.value(depth + 1); err != nil {
			return err
		}
		c.path = c.path[:len(c.path)-1]
		switch c.next() {
		case ',':
			c.at++
		case '}':
			c.at++
			return nil
		default:
			return c.fail(fmt.Sprintf("%q", c.next()), "',' or '}'")
		}
	}
}

// short is a key in a message.
func short(key string) string {
	if r := []rune(key); len(r) > 40 {
		return string(r[:40]) + "…"
	}
	return key
}

func (c *jsonChecker) array(depth int) error {
	c.at++
	if c.next() == ']' {
		c.at++
		return nil
	}
	for i := 0; ; i++ {
		c.path = append(c.path, strconv.Itoa(i))
		if err := c.value(depth + 1); err != nil {
			return err
		}
		c.path = c.path[:len(c.path)-1]
		switch c.next() {
		case ',':
			c.at++
		case ']':
			c.at++
			return nil
		default:
			return c.fail(fmt.Sprintf("%q", c.next()), "',' or ']'")
		}
	}
}

// str reads a string with its quotes.
func (c *jsonChecker) str() ([]byte, error) {
	from := c.at
	for c.at++; c.at < len(c.b); c.at++ {
		switch b := c.b[c.at]; {
		case b == '\\':
			c.at++
		case b == '"':
			c.at++
			raw := c.b[from:c.at]
			if !utf8.Valid(raw) {
				return nil, c.fail("bytes that are not UTF-8", "UTF-8 text")
			}
			return raw, nil
		case b < 0x20:
			return nil, c.fail("a control character in a string", "it escaped")
		}
	}
	return nil, c.fail("a string without an end", "a quote")
}

// scalar reads a number or a word.
func (c *jsonChecker) scalar() error {
	from := c.at
	for c.at < len(c.b) && bytes.IndexByte([]byte(" \t\r\n,]}:\"[{"), c.b[c.at]) < 0 {
		c.at++
	}
	word := c.b[from:c.at]
	if !json.Valid(word) {
		return c.fail(strconv.Quote(short(strings.ToValidUTF8(string(word), "?"))), "a JSON value")
	}
	if len(word) > 64 {
		return c.fail("a number of more than 64 digits", "a shorter one")
	}
	return nil
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
