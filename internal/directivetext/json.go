package directivetext

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Why a reader and a writer of JSON of our own: encoding/json takes the last of
// two equal keys, turns lone surrogates and broken UTF-8 into U+FFFD, and
// escapes other runes than the canonical form does.

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

// ParseJSON reads Exactly one value by RFC 8259. Errors name the byte offset.
func ParseJSON(data []byte) (Value, error) {
	if !utf8.Valid(data) {
		return Value{}, fmt.Errorf("%w: the text must be UTF-8", ErrJSON)
	}
	p := jsonReader{s: string(data)}
	v, err := p.value(0)
	if err == nil {
		if p.space(); p.i < len(p.s) {
			err = errors.New("expected one JSON value, found more after it")
		}
	}
	if err != nil {
		return Value{}, fmt.Errorf("%w: offset %d: %w", ErrJSON, p.i, err)
	}
	return v, nil
}

type jsonReader struct {
	s string
	i int
}

func (p *jsonReader) space() {
	for p.i < len(p.s) && strings.IndexByte(" \t\n\r", p.s[p.i]) >= 0 {
		p.i++
	}
}

// next skips white space and takes c if it stands there.
func (p *jsonReader) next(c byte) bool {
	p.space()
	if p.i < len(p.s) && p.s[p.i] == c {
		p.i++
		return true
	}
	return false
}

func (p *jsonReader) word(w string) bool {
	if strings.HasPrefix(p.s[p.i:], w) {
		p.i += len(w)
		return true
	}
	return false
}

func (p *jsonReader) value(depth int) (Value, error) {
	if depth > maxDepth {
		return Value{}, errDepth
	}
	switch {
	case p.next('{'):
		return p.object(depth)
	case p.next('['):
		return p.array(depth)
	case p.next('"'):
		s, err := p.str()
		return Value{Kind: JSONString, Text: s}, err
	case p.word("null"):
		return Value{}, nil
	case p.word("true"), p.word("false"):
		return Value{Kind: JSONBool}, nil
	}
	return p.number()
}

func (p *jsonReader) object(depth int) (Value, error) {
	v := Value{Kind: JSONObject}
	if p.next('}') {
		return v, nil
	}
	for {
		if !p.next('"') {
			return v, errors.New("expected a member name in double quotes")
		}
		key, err := p.str()
		if err != nil {
			return v, err
		}
		if !p.next(':') {
			return v, errors.New("expected ':'")
		}
		value, err := p.value(depth + 1)
		if err != nil {
			return v, err
		}
		v.Members = append(v.Members, Member{key, value})
		if p.next('}') {
			return v, nil
		}
		if !p.next(',') {
			return v, errors.New("expected ',' or '}'")
		}
	}
}

func (p *jsonReader) array(depth int) (Value, error) {
	v := Value{Kind: JSONArray}
	if p.next(']') {
		return v, nil
	}
	for {
		if _, err := p.value(depth + 1); err != nil {
			return v, err
		}
		if p.next(']') {
			return v, nil
		}
		if !p.next(',') {
			return v, errors.New("expected ',' or ']'")
		}
	}
}

func (p *jsonReader) number() (Value, error) {
	from := p.i
	p.take('-')
	ok := p.take('0') || p.digits()
	if p.take('.') {
		ok = p.digits() && ok
	}
	if p.take('e') || p.take('E') {
		_ = p.take('+') || p.take('-')
		ok = p.digits() && ok
	}
	if !ok {
		return Value{}, errors.New("expected a value")
	}
	return Value{Kind: JSONNumber, Text: p.s[from:p.i]}, nil
}

func (p *jsonReader) take(c byte) bool {
	if p.i < len(p.s) && p.s[p.i] == c {
		p.i++
		return true
	}
	return false
}

func (p *jsonReader) digits() bool {
	from := p.i
	for p.i < len(p.s) && '0' <= p.s[p.i] && p.s[p.i] <= '9' {
		p.i++
	}
	return p.i > from
}

// str reads a string whose opening quote was taken.
func (p *jsonReader) str() (string, error) {
	from := p.i
	for p.i < len(p.s) && p.s[p.i] != '"' && p.s[p.i] != '\\' && p.s[p.i] >= ' ' {
		p.i++
	}
	if p.take('"') {
		return p.s[from : p.i-1], nil
	}
	var b strings.Builder
	b.WriteString(p.s[from:p.i])
	for p.i < len(p.s) {
		c := p.s[p.i]
		p.i++
		switch {
		case c == '"':
			return b.String(), nil
		case c < ' ':
			return "", errors.New("control characters in a string must be escaped")
		case c != '\\':
			b.WriteByte(c)
			continue
		}
		r, err := p.escape()
		if err != nil {
			return "", err
		}
		b.WriteRune(r)
	}
	return "", errors.New("expected a closing quote")
}

const escapes, escaped = `"\/bfnrt`, "\"\\/\b\f\n\r\t"

// escape reads what follows a backslash.
func (p *jsonReader) escape() (rune, error) {
	if p.i == len(p.s) {
		return 0, errors.New("expected an escape")
	}
	c := p.s[p.i]
	p.i++
	if at := strings.IndexByte(escapes, c); at >= 0 {
		return rune(escaped[at]), nil
	}
	if c != 'u' {
		return 0, errors.New("unknown escape")
	}
	r, err := p.hex()
	if err != nil || !utf16.IsSurrogate(r) {
		return r, err
	}
	if p.word(`\u`) {
		low, err := p.hex()
		if r = utf16.DecodeRune(r, low); err != nil || r != utf8.RuneError {
			return r, err
		}
	}
	// A Go string cannot hold it, and U+FFFD would be another text.
	return 0, errors.New("lone surrogate")
}

func (p *jsonReader) hex() (rune, error) {
	if p.i+4 > len(p.s) {
		return 0, errors.New("expected four hex digits")
	}
	n, err := strconv.ParseUint(p.s[p.i:p.i+4], 16, 32)
	if err != nil {
		return 0, errors.New("expected four hex digits")
	}
	p.i += 4
	return rune(n), nil
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
