package view

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"
)

// CheckUnicode finds in valid JSON what no Unicode text can have: bytes that are not UTF-8, and the
// escape of half a surrogate pair. A decoder puts U+FFFD in its place, and what is stored then is
// not what was sent.
func CheckUnicode(b []byte) error {
	if !utf8.Valid(b) {
		return errors.New("got bytes that are not UTF-8, expected UTF-8")
	}
	for {
		at := bytes.IndexByte(b, '\\') // an escape has two bytes at least
		if at < 0 || at+2 > len(b) {
			return nil
		}
		b = b[at:]
		r := escaped(b)
		switch {
		case !utf16.IsSurrogate(r):
			b = b[2:]
		case utf16.DecodeRune(r, escaped(b[6:])) == utf8.RuneError:
			return fmt.Errorf("got %s, half of a surrogate pair, expected both halves", b[:6])
		default:
			b = b[12:]
		}
	}
}

// escaped is the code unit that an escape such as \u00e9 stands for; 0: the text begins otherwise.
func escaped(b []byte) rune {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0
	}
	n, err := strconv.ParseUint(string(b[2:6]), 16, 16)
	if err != nil {
		return 0
	}
	return rune(n)
}

// ExplainJSON says what is wrong with an argument in the words of JSON, where the decoder names types of Go. Other errors stay as
// they are.
func ExplainJSON(err error) error {
	var kind *json.UnmarshalTypeError
	var moment *time.ParseError
	switch {
	case errors.As(err, &kind):
		return fmt.Errorf("%s: got a %s, expected %s", cmp.Or(kind.Field, "the argument"), kind.Value, nameOf(kind.Type))
	case errors.As(err, &moment):
		return fmt.Errorf("got %q, expected a time such as 2026-03-01T09:00:00Z", moment.Value)
	}
	return err
}

// CheckTypes refuses a JSON value that does not fit a type of Go.
func CheckTypes(b []byte, in any) error {
	if len(b) == 0 {
		return nil
	}
	return ExplainJSON(json.Unmarshal(b, reflect.New(reflect.TypeOf(in)).Interface()))
}

// nameOf is a type of Go in the words of JSON.
func nameOf(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Slice:
		return "a list"
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Map, reflect.Struct:
		return "an object"
	case reflect.Pointer:
		return nameOf(t.Elem())
	}
	return "a number (" + t.Kind().String() + ")"
}

// CheckFields finds in valid JSON the fields that a decoder into v would match in another case, take
// twice or not know. The decoder of Go takes {"TEXT": …} for text, and of two fields of one name the
// last: two programs that read the same request would see different ones. The error names the field
// and what was expected. JSON that is not valid is left to the decoder.
//
// v is a value of the type that the JSON is decoded into. Where that has no fields of its own, as
// maps, json.RawMessage and nil have none, only fields that come twice are found.
func CheckFields(b []byte, v any) error { return check(b, v, false) }

// CheckKnownFields is CheckFields for a sender that may add fields: those that v does not know are passed
// over, with all that is in them.
func CheckKnownFields(b []byte, v any) error { return check(b, v, true) }

func check(b []byte, v any, open bool) error {
	if !json.Valid(b) {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	w := walk{d, open}
	return w.value("", reflect.TypeOf(v))
}

// walk goes through one document. Valid JSON bounds its depth.
type walk struct {
	*json.Decoder
	open bool
}

// value reads the next value, which is decoded into t; nil: its fields have any name.
func (w walk) value(at string, t reflect.Type) error {
	token, err := w.Token()
	if err != nil {
		return err
	}
	t = plainType(t)
	switch token {
	case json.Delim('['):
		var of reflect.Type
		if t != nil && (t.Kind() == reflect.Slice || t.Kind() == reflect.Array) {
			of = t.Elem()
		}
		for i := 0; w.More(); i++ {
			if err := w.value(fmt.Sprintf("%s[%d]", at, i), of); err != nil {
				return err
			}
		}
	case json.Delim('{'):
		if err := w.object(at, t); err != nil {
			return err
		}
	default:
		return nil
	}
	_, err = w.Token() // the end
	return err
}

// object reads the fields of an object up to its end.
func (w walk) object(at string, t reflect.Type) error {
	seen, known := map[string]bool{}, fieldsOf(t)
	for w.More() {
		token, err := w.Token()
		if err != nil {
			return err
		}
		name, _ := token.(string)
		of, ok := known[name]
		inside := at + "." + name
		switch {
		case known == nil && t != nil && t.Kind() == reflect.Map:
			of = t.Elem()
		case known == nil || ok:
		default:
			like := slices.IndexFunc(names(known), func(n string) bool { return strings.EqualFold(n, name) })
			switch {
			case like >= 0:
				return fmt.Errorf("%s: got the field %q, expected %q", place(at), name, names(known)[like])
			case !w.open:
				return fmt.Errorf("%s: got the field %q, expected %s", place(at), name, oneOf(names(known)))
			}
			var passed json.RawMessage
			if err := w.Decode(&passed); err != nil {
				return err
			}
			continue
		}
		if seen[name] {
			return fmt.Errorf("%s: got the field %q twice, expected it once", place(at), name)
		}
		seen[name] = true
		if w.open && fieldsOf(plainType(of)) == nil { // what others write there is theirs
			var passed json.RawMessage
			if err := w.Decode(&passed); err != nil {
				return err
			}
			continue
		}
		if err := w.value(inside, of); err != nil {
			return err
		}
	}
	return nil
}

func place(at string) string {
	if at == "" {
		return "the object"
	}
	return strings.TrimPrefix(at, ".")
}

func names(known map[string]reflect.Type) []string {
	all := make([]string, 0, len(known))
	for name := range known {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

func oneOf(all []string) string {
	if len(all) == 0 {
		return "no field"
	}
	return "one of " + strings.Join(all, ", ")
}

var decodes = [...]reflect.Type{reflect.TypeFor[json.Unmarshaler](), reflect.TypeFor[interface{ UnmarshalText([]byte) error }]()}

// plainType is a type without its pointers; nil: it decodes itself, or takes anything.
func plainType(t reflect.Type) reflect.Type {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil || t.Kind() == reflect.Interface {
		return nil
	}
	for _, of := range decodes {
		if reflect.PointerTo(t).Implements(of) {
			return nil
		}
	}
	return t
}

// fieldsOf are the fields of a struct by their names in JSON; nil: it is no struct.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
	if t == nil || t.Kind() != reflect.Struct {
		return nil
	}
	all := map[string]reflect.Type{}
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || f.Anonymous && name == "":
			continue
		case !f.IsExported():
			continue
		case name == "":
			name = f.Name
		}
		all[name] = f.Type
	}
	return all
}
