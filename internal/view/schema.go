package view

import (
	"fmt"
	"reflect"
	"strings"
	"unicode/utf16"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/oklog/ulid/v2"

	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/store"
)

// SchemaOf returns the JSON schema of a type. Its lists are plain arrays: the generator also allows null, which no door answers.
func SchemaOf(t reflect.Type) (*jsonschema.Schema, error) {
	s, err := jsonschema.ForType(t, &jsonschema.ForOptions{TypeSchemas: texts()})
	if err == nil {
		forbidNullLists(s)
	}
	return s, err
}

// texts are the schemas of types that write themselves as text.
func texts() map[reflect.Type]*jsonschema.Schema {
	return map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[ops.Age]():   {Type: "string"},
		reflect.TypeFor[ulid.ULID](): {Type: "string"},
		reflect.TypeFor[store.Ref](): {Type: "string"},
	}
}

func forbidNullLists(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	if len(s.Types) == 2 && s.Types[0] == "null" {
		s.Type, s.Types = s.Types[1], nil
	}
	for _, p := range s.Properties {
		forbidNullLists(p)
	}
	forbidNullLists(s.Items)
	forbidNullLists(s.AdditionalProperties)
}

// EscapeJSON writes every rune of JSON for which escape reports true by its number. It stays JSON.
func EscapeJSON(text string, escape func(r rune) bool) string {
	var b strings.Builder
	for _, r := range text {
		switch {
		case !escape(r):
			b.WriteRune(r)
		case r > 0xffff:
			hi, lo := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, hi, lo)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}
