package view

import (
	"fmt"
	"strings"
	"unicode/utf16"

	"github.com/google/jsonschema-go/jsonschema"
)

// SchemaOf returns the JSON schema of a type. Its lists are plain arrays: the generator also allows null, which no door answers.
func SchemaOf[T any]() (*jsonschema.Schema, error) {
	s, err := jsonschema.For[T](&jsonschema.ForOptions{})
	if err == nil {
		forbidNullLists(s)
	}
	return s, err
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
