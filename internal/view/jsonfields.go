package view

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

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
