package token_test

import (
	"encoding/base64"
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/pkoukk/tiktoken-go-loader/assets"
	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/token"
)

var update = flag.Bool("update", false, "write the filters anew from the vocabularies")

// The filters are made from the published vocabularies.
func TestFiltersAreOfTheVocabularies(t *testing.T) {
	for _, name := range []string{token.O200k, token.CL100k} {
		vocabulary, err := assets.Assets.ReadFile(name + ".tiktoken")
		require.NoError(t, err)
		var tokens []string
		for line := range strings.Lines(string(vocabulary)) {
			code, _, _ := strings.Cut(line, " ")
			b, err := base64.StdEncoding.DecodeString(code)
			require.NoError(t, err)
			tokens = append(tokens, string(b))
		}
		slices.Sort(tokens)
		want := token.NewFilter(tokens)
		if *update {
			require.NoError(t, os.WriteFile(name+".filter", []byte(want), 0o644))
		}
		got, err := os.ReadFile(name + ".filter")
		require.NoError(t, err)
		require.True(t, want == string(got), "%s: write it with go test -run TestFilters ./token -update", name)
	}
}
