package directivetext

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Object is a JSON object as it stands in a text: repeated keys are kept, so that
// an import can refuse them.
type Object []Member

// Member is one key of an [Object] with its value: nil, a bool, a json.Number, a
// string, a []any or an Object.
type Member struct {
	Key   string
	Value any
}

// ErrJSON is matched by the errors of ParseJSON.
var ErrJSON = errors.New("directive: not valid JSON")

// maxDepth bounds the nesting, so that no text can exhaust the stack.
const maxDepth = 1000

// escapes finds the escapes of a text, a surrogate pair as one; a match of the
// group is a surrogate without its other half.
var escapes = regexp.MustCompile(`(?i)\\(?:ud[89ab]..\\ud[c-f]..|(ud[89a-f]..)|.)`)

// ParseJSON reads exactly one value. What encoding/json would replace by U+FFFD,
// bytes that are not UTF-8 and lone surrogates, is an error: it would be another
// text.
func ParseJSON(data []byte) (any, error) {
	if !utf8.Valid(data) {
		return nil, fmt.Errorf("%w: the text must be UTF-8", ErrJSON)
	}
	var whole json.RawMessage
	if err := json.Unmarshal(data, &whole); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrJSON, err)
	}
	for _, m := range escapes.FindAllSubmatchIndex(data, -1) {
		if m[2] >= 0 {
			return nil, fmt.Errorf("%w: offset %d: lone surrogate", ErrJSON, m[0])
		}
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	v, err := parse(d, 0)
	if err != nil {
		return nil, fmt.Errorf("%w: offset %d: %w", ErrJSON, d.InputOffset(), err)
	}
	return v, nil
}

func parse(d *json.Decoder, depth int) (any, error) {
	if depth > maxDepth {
		return nil, errors.New("nested too deeply")
	}
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	var o Object
	var a []any
	for (t == json.Delim('{') || t == json.Delim('[')) && d.More() {
		var m Member
		if t == json.Delim('{') {
			key, err := d.Token()
			if err != nil {
				return nil, err
			}
			m.Key, _ = key.(string)
		}
		if m.Value, err = parse(d, depth+1); err != nil {
			return nil, err
		}
		o, a = append(o, m), append(a, m.Value)
	}
	switch t {
	case json.Delim('{'):
		_, err = d.Token()
		return o, err
	case json.Delim('['):
		_, err = d.Token()
		return a, err
	}
	return t, nil
}

// Exactly returns the values of an object that has these keys, each once, and no
// other, except that the last optional ones may be absent.
func Exactly(v any, optional int, keys ...string) ([]any, bool) {
	o, ok := v.(Object)
	values := make([]any, len(keys))
	seen := make([]bool, len(keys))
	for _, m := range o {
		at := slices.Index(keys, m.Key)
		if at < 0 || seen[at] {
			return nil, false
		}
		values[at], seen[at] = m.Value, true
	}
	return values, ok && !slices.Contains(seen[:len(keys)-optional], false)
}

// AppendString appends a string as canonical JSON: it escapes everything outside
// U+0020..U+007E, but not '<', '>', '&' and '/'.
func AppendString(b []byte, s string) []byte {
	const short, shorts = "\"\\\b\f\n\r\t", `"\bfnrt`
	b = append(b, '"')
	for _, r := range s {
		switch at := strings.IndexRune(short, r); {
		case at >= 0:
			b = append(b, '\\', shorts[at])
		case ' ' <= r && r <= '~':
			b = append(b, byte(r))
		default:
			for _, unit := range utf16.AppendRune(nil, r) {
				b = fmt.Appendf(b, `\u%04x`, unit)
			}
		}
	}
	return append(b, '"')
}

// AppendText writes a string, or null for "".
func AppendText(b []byte, s string) []byte {
	if s == "" {
		return append(b, "null"...)
	}
	return AppendString(b, s)
}
