package bpe

import (
	"flag"
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/internal/pieces"
)

var update = flag.Bool("update", false, "write the filters of package token anew from the vocabularies")

// The filters of package token are those of the published vocabularies.
func TestFiltersAreOfTheVocabularies(t *testing.T) {
	for _, c := range []*counter{o200k, cl100k} {
		file := "../" + c.name + ".filter"
		want := pieces.NewFilter(slices.Sorted(maps.Keys(c.load())))
		if *update {
			require.NoError(t, os.WriteFile(file, []byte(want), 0o644))
		}
		got, err := os.ReadFile(file)
		require.NoError(t, err)
		require.True(t, string(want) == string(got), "%s: write it with go test -run TestFilters ./token/bpe -update", file)
	}
}
