package view

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"
)

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
