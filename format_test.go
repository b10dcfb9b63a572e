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

// TestFormatNames: FORMAT.md has the fields of an outcome and all types of leaves.
func TestFormatNames(t *testing.T) {
	b, err := os.ReadFile("FORMAT.md")
	require.NoError(t, err)
	_, text, ok := strings.Cut(string(b), "**Outcome**")
	require.True(t, ok)
	text, _, _ = strings.Cut(text, "\n")
	for f := range reflect.TypeFor[store.Outcome]().Fields() {
		if f.IsExported() && f.Tag.Get("msgpack") != "-" {
			require.Contains(t, text, "`"+f.Name+"`")
		}
	}
	for typ := manifest.TypeGet; typ.Known(); typ++ {
		require.Regexp(t, "[ |]\\d+ "+typ.String()+"[, |]", string(b))
	}
}
