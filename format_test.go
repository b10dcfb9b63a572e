package ctxpage

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
)

// TestFormatNames: rows that are msgpack maps are read by the names of their fields for ever: FORMAT.md has them all.
func TestFormatNames(t *testing.T) {
	b, err := os.ReadFile("FORMAT.md")
	require.NoError(t, err)
	for _, row := range []struct {
		name string
		of   any
	}{{"**Outcome**", Outcome{}}, {"**Outcome**", Ref{}}} {
		_, text, ok := strings.Cut(string(b), row.name)
		require.True(t, ok, row.name)
		text, _, _ = strings.Cut(text, "\n")
		for f := range reflect.TypeOf(row.of).NumField() {
			if f := reflect.TypeOf(row.of).Field(f); f.IsExported() && f.Tag.Get("msgpack") != "-" {
				require.Contains(t, text, "`"+f.Name+"`", row.name)
			}
		}
	}
	_, text, ok := strings.Cut(string(b), "**Held batch**") // no longer written that way: each name must still be a field
	require.True(t, ok)
	text, _, _ = strings.Cut(text, "\n")
	names := regexp.MustCompile("`([A-Z][A-Za-z]+)`").FindAllStringSubmatch(text, -1)
	require.Len(t, names, 27)
	for i, name := range names {
		of := reflect.TypeFor[store.HeldBatch]()
		if i > 9 { // after the name of the second map
			of = reflect.TypeFor[store.Batch]()
		}
		f, ok := of.FieldByName(name[1])
		require.True(t, ok && f.Tag.Get("msgpack") == "", name[1])
	}
	for typ := manifest.TypeGet; typ.Known(); typ++ {
		require.Regexp(t, "[ |]\\d+ "+typ.String()+"[, |]", string(b))
	}
}
