package directivetext

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// encoding/json checks the grammar. What a text says is read here, because encoding/json takes the last of two equal
// keys and turns lone surrogates and broken UTF-8 into U+FFFD, and written here, because it escapes other runes than the
// canonical form does.

// jsonKind is the type of a JSON value.
type jsonKind uint8

const (
	JSONNull jsonKind = iota
	JSONBool
	JSONNumber
	JSONString
	JSONArray
	JSONObject
)

// Value is a parsed value: text holds a string's value or a number's literal;
// members are in the order of the text. Array elements are checked, not kept.
type Value struct {
	Kind    jsonKind
	Text    string
	Members []Member
}

type Member struct {
	Key   string
	Value Value
}

// ErrJSON is matched by the errors of ParseJSON.
var ErrJSON = errors.New("directive: not valid JSON")

// maxDepth bounds the nesting, so that no text can exhaust the stack.
const maxDepth = 1000

var errDepth = errors.New("nested too deeply")

// ParseJSON reads exactly one value by RFC 8259. Errors name the byte offset.
func ParseJSON(data []byte) (Value, error) {
	if !utf8.Valid(data) {
		return Value{}, fmt.Errorf("%w: the text must be UTF-8", ErrJSON)
	}
	if !json.Valid(data) {
		var at *json.SyntaxError
		errors.As(json.Unmarshal(data, new(json.RawMessage)), &at)
		return Value{}, fmt.Errorf("%w: offset %d: %w", ErrJSON, at.Offset, at)
	}
	p := jsonReader{s: string(data)}
	v, err := p.value(0)
	if err != nil {
		return Value{}, fmt.Errorf("%w: offset %d: %w", ErrJSON, p.i, err)
	}
	return v, nil
}

// jsonReader walks over a text that is known to be valid. A json.Decoder makes the import of a state three times slower.
type jsonReader struct {
	s string
	i int
}

// next skips white space and takes c if it stands there.
func (p *jsonReader) next(c byte) bool {
	for strings.IndexByte(" \t\n\r", p.s[p.i]) >= 0 {
		p.i++
	}
	if p.s[p.i] == c {
		p.i++
		return true
	}
	return false
}

func (p *jsonReader) value(depth int) (v Value, err error) {
	switch {
	case depth > maxDepth:
		return v, errDepth
	case p.next('"'):
		v.Kind = JSONString
		v.Text, err = p.str()
	case p.next('{'):
		v.Kind = JSONObject
		for err == nil && !p.next('}') {
			var m Member
			_, _ = p.next(','), p.next('"')
			if m.Key, err = p.str(); err == nil {
				p.next(':')
				m.Value, err = p.value(depth + 1)
			}
			v.Members = append(v.Members, m)
		}
	case p.next('['):
		v.Kind = JSONArray
		for err == nil && !p.next(']') {
			p.next(',')
			_, err = p.value(depth + 1)
		}
	case p.next('n'):
		p.i += len("ull")
	case p.next('t'):
		v.Kind = JSONBool
		p.i += len("rue")
	case p.next('f'):
		v.Kind = JSONBool
		p.i += len("alse")
	default:
		v.Kind = JSONNumber
		rest := p.s[p.i:]
		v.Text = rest[:len(rest)-len(strings.TrimLeft(rest, "+-.0123456789Ee"))]
		p.i += len(v.Text)
	}
	return v, err
}

// str reads a string whose opening quote was taken.
func (p *jsonReader) str() (string, error) {
	var b strings.Builder
	for from := p.i; ; p.i++ {
		switch p.s[p.i] {
		case '"':
			p.i++
			if b.Len() == 0 {
				return p.s[from : p.i-1], nil
			}
			b.WriteString(p.s[from : p.i-1])
			return b.String(), nil
		case '\\':
			b.WriteString(p.s[from:p.i])
			r, err := p.escape()
			if err != nil {
				return "", err
			}
			b.WriteRune(r)
			from = p.i
			p.i--
		}
	}
}

const escapes, escaped = `"\/bfnrt`, "\"\\/\b\f\n\r\t"

// escape reads an escape.
func (p *jsonReader) escape() (rune, error) {
	p.i += 2
	if at := strings.IndexByte(escapes, p.s[p.i-1]); at >= 0 {
		return rune(escaped[at]), nil
	}
	r := p.unit()
	if !utf16.IsSurrogate(r) {
		return r, nil
	}
	if strings.HasPrefix(p.s[p.i:], `\u`) {
		p.i += 2
		if r = utf16.DecodeRune(r, p.unit()); r != utf8.RuneError {
			return r, nil
		}
	}
	// A Go string cannot hold it, and U+FFFD would be another text.
	return 0, errors.New("lone surrogate")
}

// unit reads four hex digits.
func (p *jsonReader) unit() rune {
	n, _ := strconv.ParseUint(p.s[p.i:p.i+4], 16, 32)
	p.i += 4
	return rune(n)
}

// Exactly returns the values of an object that has these keys, each once, and no
// other, except that the last optional ones may be absent.
func (v Value) Exactly(optional int, keys ...string) ([]Value, bool) {
	values := make([]Value, len(keys))
	seen := make([]bool, len(keys))
	for _, m := range v.Members {
		at := -1
		for i, k := range keys {
			if k == m.Key {
				at = i
			}
		}
		if at < 0 || seen[at] {
			return nil, false
		}
		values[at], seen[at] = m.Value, true
	}
	for _, s := range seen[:len(keys)-optional] {
		if !s {
			return nil, false
		}
	}
	return values, v.Kind == JSONObject
}

const hexDigits = "0123456789abcdef"

// AppendString appends a string as canonical JSON: ASCII only. It escapes everything outside U+0020..U+007E, but not
// '<', '>', '&' and '/'.
func AppendString(b []byte, s string) []byte {
	b = append(b, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case ' ' <= r && r <= '~':
			b = append(b, byte(r))
		case r < ' ' && shortEscape(r) != 0:
			b = append(b, '\\', shortEscape(r))
		case r > 0xFFFF:
			high, low := utf16.EncodeRune(r)
			b = appendUnit(appendUnit(b, high), low)
		default:
			b = appendUnit(b, r)
		}
	}
	return append(b, '"')
}

func shortEscape(r rune) byte {
	if at := strings.IndexRune(escaped, r); at > 2 {
		return escapes[at]
	}
	return 0
}

func appendUnit(b []byte, r rune) []byte {
	return append(b, '\\', 'u', hexDigits[r>>12&15], hexDigits[r>>8&15], hexDigits[r>>4&15], hexDigits[r&15])
}

// AppendText writes a string, or null for "".
func AppendText(b []byte, s string) []byte {
	if s == "" {
		return append(b, "null"...)
	}
	return AppendString(b, s)
}
