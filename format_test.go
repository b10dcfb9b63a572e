package ctxpage

import (
	"os"
	"reflect"
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
	}{{"**Outcome**", Outcome{}}, {"**Held batch**", store.HeldBatch{}}, {"**Held batch**", store.Batch{}}, {"**Outcome**", Ref{}}} {
		_, text, ok := strings.Cut(string(b), row.name)
		require.True(t, ok, row.name)
		text, _, _ = strings.Cut(text, "\n")
		for f := range reflect.TypeOf(row.of).NumField() {
			if f := reflect.TypeOf(row.of).Field(f); f.IsExported() && f.Tag.Get("msgpack") != "-" {
				require.Contains(t, text, "`"+f.Name+"`", row.name)
			}
		}
	}
	for typ := manifest.TypeGet; typ.Known(); typ++ {
		require.Regexp(t, "[ |]\\d+ "+typ.String()+"[, |]", string(b))
	}
}
