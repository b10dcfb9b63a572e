package commands

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/big"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// encoding/json is of no use here: it loses the order of keys, the difference
// between 2 and 2.0, and lone surrogates; and it refuses NaN. This reader
// accepts what Python's json module accepts, no more and no less.

type kind uint8

const (
	null kind = iota
	boolean
	numeric
	str
	list
	object
)

var kindNames = [...]string{"null", "a boolean", "a number", "a string", "a list", "an object"}

// value is one JSON value. Strings hold lone surrogates as three bytes each
// (WTF-8).
type value struct {
	kind kind
	yes  bool
	num  number
	text string
	list []value
	keys []string // of an object, in order of their first appearance
	vals map[string]value
}

func (v value) get(key string) (value, bool) {
	got, ok := v.vals[key]
	return got, ok
}

// maxDepth is the depth to which Python's reader follows nested containers.
const maxDepth = 993

type reader struct {
	s   string
	pos int
}

// parse reads one whole document.
func parse(raw []byte) (value, error) {
	if !utf8.Valid(raw) {
		return value{}, errors.New("not valid UTF-8")
	}
	if bytes.HasPrefix(raw, []byte("\uFEFF")) {
		return value{}, errors.New("starts with a byte order mark; save it without")
	}
	r := &reader{s: string(raw)}
	r.space()
	v, err := r.value(0)
	if err != nil {
		return value{}, err
	}
	if r.space(); r.pos < len(r.s) {
		return value{}, r.fault("more text after the value")
	}
	return v, nil
}

func (r *reader) fault(what string) error {
	return fmt.Errorf("not JSON: %s at byte %d", what, r.pos)
}

func (r *reader) space() {
	for r.pos < len(r.s) && strings.IndexByte(" \t\n\r", r.s[r.pos]) >= 0 {
		r.pos++
	}
}

// take moves over a literal if it stands here.
func (r *reader) take(lit string) bool {
	if !strings.HasPrefix(r.s[r.pos:], lit) {
		return false
	}
	r.pos += len(lit)
	return true
}

func (r *reader) value(depth int) (value, error) {
	switch {
	case r.take("{"):
		return r.object(depth + 1)
	case r.take("["):
		return r.array(depth + 1)
	case r.take(`"`):
		s, err := r.str()
		return value{kind: str, text: s}, err
	case r.take("null"):
		return value{}, nil
	case r.take("true"):
		return value{kind: boolean, yes: true}, nil
	case r.take("false"):
		return value{kind: boolean}, nil
	}
	return r.number()
}

func (r *reader) array(depth int) (value, error) {
	v := value{kind: list}
	if depth > maxDepth {
		return v, r.fault("nested too deep")
	}
	if r.space(); r.take("]") {
		return v, nil
	}
	for {
		r.space()
		item, err := r.value(depth)
		if err != nil {
			return v, err
		}
		v.list = append(v.list, item)
		if r.space(); r.take("]") {
			return v, nil
		}
		if !r.take(",") {
			return v, r.fault("expected , or ]")
		}
	}
}

func (r *reader) object(depth int) (value, error) {
	v := value{kind: object, vals: map[string]value{}}
	if depth > maxDepth {
		return v, r.fault("nested too deep")
	}
	if r.space(); r.take("}") {
		return v, nil
	}
	for {
		if err := r.member(&v, depth); err != nil {
			return v, err
		}
		if r.space(); r.take("}") {
			return v, nil
		}
		if !r.take(",") {
			return v, r.fault("expected , or }")
		}
	}
}

// member reads one key and its value; a repeated key keeps its first place and
// takes the last value.
func (r *reader) member(v *value, depth int) error {
	if r.space(); !r.take(`"`) {
		return r.fault("expected a key in double quotes")
	}
	key, err := r.str()
	if err != nil {
		return err
	}
	if r.space(); !r.take(":") {
		return r.fault("expected :")
	}
	r.space()
	item, err := r.value(depth)
	if err != nil {
		return err
	}
	if _, ok := v.vals[key]; !ok {
		v.keys = append(v.keys, key)
	}
	v.vals[key] = item
	return nil
}

// str reads a string after its opening quote.
func (r *reader) str() (string, error) {
	var b []byte
	for r.pos < len(r.s) {
		c := r.s[r.pos]
		switch {
		case c == '"':
			r.pos++
			return string(b), nil
		case c < 0x20:
			return "", r.fault("raw control character in a string")
		case c == '\\':
			r.pos++
			u, err := r.escape()
			if err != nil {
				return "", err
			}
			b = appendRune(b, u)
		default:
			b = append(b, c)
			r.pos++
		}
	}
	return "", r.fault("string without an end")
}

// escape reads what follows a backslash.
func (r *reader) escape() (rune, error) {
	if r.pos == len(r.s) {
		return 0, r.fault("string without an end")
	}
	c := r.s[r.pos]
	r.pos++
	if i := strings.IndexByte(`"\/bfnrt`, c); i >= 0 {
		return rune("\"\\/\b\f\n\r\t"[i]), nil
	}
	if c != 'u' {
		return 0, r.fault("unknown escape")
	}
	u, err := r.hex()
	if err != nil || u < 0xD800 || u > 0xDBFF || !strings.HasPrefix(r.s[r.pos:], `\u`) {
		return u, err
	}
	back := r.pos
	r.pos += 2
	low, err := r.hex()
	if err != nil {
		return 0, err
	}
	if low < 0xDC00 || low > 0xDFFF {
		r.pos = back
		return u, nil
	}
	return 0x10000 + (u-0xD800)<<10 + (low - 0xDC00), nil
}

func (r *reader) hex() (rune, error) {
	if len(r.s)-r.pos < 4 {
		return 0, r.fault(`expected four hex digits after \u`)
	}
	u, err := strconv.ParseUint(r.s[r.pos:r.pos+4], 16, 32)
	if err != nil || strings.ContainsAny(r.s[r.pos:r.pos+4], "_+-") {
		return 0, r.fault(`expected four hex digits after \u`)
	}
	r.pos += 4
	return rune(u), nil
}

var numberForm = regexp.MustCompile(`^-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?`)

func (r *reader) number() (value, error) {
	switch {
	case r.take("NaN"):
		return value{kind: numeric, num: number{f: math.NaN()}}, nil
	case r.take("Infinity"):
		return value{kind: numeric, num: number{f: math.Inf(1)}}, nil
	case r.take("-Infinity"):
		return value{kind: numeric, num: number{f: math.Inf(-1)}}, nil
	}
	m := numberForm.FindStringSubmatchIndex(r.s[r.pos:])
	if m == nil {
		return value{}, r.fault("expected a value")
	}
	text := r.s[r.pos : r.pos+m[1]]
	if m[2] >= 0 || m[4] >= 0 {
		r.pos += m[1]
		f, _ := strconv.ParseFloat(text, 64) // out of range it is infinity, as it should be
		return value{kind: numeric, num: number{f: f}}, nil
	}
	if len(strings.TrimPrefix(text, "-")) > maxDigits {
		return value{}, r.fault(errDigits.Error())
	}
	r.pos += m[1]
	i, _ := new(big.Int).SetString(text, 10)
	return value{kind: numeric, num: number{i: i}}, nil
}

// appendRune encodes a code point, surrogates too (three bytes).
func appendRune(b []byte, r rune) []byte {
	if r >= 0xD800 && r <= 0xDFFF {
		return append(b, 0xE0|byte(r>>12), 0x80|byte(r>>6)&0x3F|0x80, 0x80|byte(r)&0x3F)
	}
	return utf8.AppendRune(b, r)
}

// decodeRune is the counterpart of appendRune.
func decodeRune(s string) (rune, int) {
	r, size := utf8.DecodeRuneInString(s)
	if r == utf8.RuneError && size == 1 && len(s) >= 3 {
		return rune(s[0]&0x0F)<<12 | rune(s[1]&0x3F)<<6 | rune(s[2]&0x3F), 3
	}
	return r, size
}

// writeValue prints a value as Python's json.dumps does.
func writeValue(w *bytes.Buffer, v value) error {
	switch v.kind {
	case null:
		w.WriteString("null")
	case boolean:
		w.WriteString(strconv.FormatBool(v.yes))
	case numeric:
		s, err := v.num.json()
		if err != nil {
			return err
		}
		w.WriteString(s)
	case str:
		writeString(w, v.text)
	case list:
		return writeList(w, v.list)
	case object:
		return writeObject(w, v)
	}
	return nil
}

func writeList(w *bytes.Buffer, items []value) error {
	w.WriteByte('[')
	for i, v := range items {
		if i > 0 {
			w.WriteString(", ")
		}
		if err := writeValue(w, v); err != nil {
			return err
		}
	}
	w.WriteByte(']')
	return nil
}

func writeObject(w *bytes.Buffer, v value) error {
	w.WriteByte('{')
	for i, k := range v.keys {
		if i > 0 {
			w.WriteString(", ")
		}
		writeString(w, k)
		w.WriteString(": ")
		if err := writeValue(w, v.vals[k]); err != nil {
			return err
		}
	}
	w.WriteByte('}')
	return nil
}

// joinLines puts commas between the lines of JSON records.
func joinLines(b []byte) string {
	return strings.ReplaceAll(strings.TrimSuffix(string(b), "\n"), "\n", ",")
}
