package ctxpage_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	. "github.com/ctxpage/ctxpage"
)

// TestSearchServesAnArtefactOnce: a long document takes one place among the hits, and names its other pages there; the
// places that its pages leave go to other documents.
func TestSearchServesAnArtefactOnce(t *testing.T) {
	s := open(t, Options{PageTokens: 64}).Scope("acme")
	var long strings.Builder
	for i := range 12 {
		fmt.Fprintf(&long, "# Part %d\n\nThe zebra and the zebra's stripes. %s\n\n", i, words(i, 40))
	}
	put(t, s, Artefact{ID: "long", Kind: KindChunk, Text: long.String()})
	for i := range 5 {
		put(t, s, Artefact{ID: fmt.Sprint("short-", i), Kind: KindChunk, Text: "one zebra, seen from far away " + words(50+i, 30)})
	}
	found, err := s.Search(ctx, "zebra stripes", 4)
	require.NoError(t, err)
	require.Len(t, found.Hits, 4)
	require.Equal(t, "long", found.Hits[0].Ref.ID)
	require.Len(t, found.Hits[0].More, 3)
	seen := map[string]bool{}
	for _, h := range found.Hits {
		require.False(t, seen[h.Ref.ID], "%s is there twice", h.Ref.ID)
		seen[h.Ref.ID] = true
	}
	for _, ref := range found.Hits[0].More {
		require.Equal(t, "long", ref.ID)
		require.NotEqual(t, found.Hits[0].Ref.Page, ref.Page)
	}
	more, err := s.Search(ctx, "zebra stripes", 100)
	require.NoError(t, err)
	require.Len(t, more.Hits, 6, "each artefact once")
	require.Empty(t, more.Left, "pages that are named are not left out")
}

// TestSearchPassesAPage: the best page of a document says what another one says, so the next of its pages is served.
func TestSearchPassesAPage(t *testing.T) {
	s := open(t, Options{PageTokens: 64}).Scope("acme")
	same := "# Animals\n\nThe zebra has stripes, and the zebra is known for its stripes. " + words(1, 26)
	put(t, s, Artefact{ID: "older", Kind: KindChunk, Text: same + "\n\n# More\n\nA zebra lives here. " + words(2, 45)})
	put(t, s, Artefact{ID: "twin", Kind: KindChunk, Text: same})
	found, err := s.Search(ctx, "zebra stripes", 2)
	require.NoError(t, err)
	require.Len(t, found.Hits, 2)
	require.Equal(t, "twin", found.Hits[0].Ref.ID)
	require.Equal(t, "older", found.Hits[1].Ref.ID)
	require.Equal(t, 2, found.Hits[1].Ref.Page)
	require.Len(t, found.Left, 1)
	require.Equal(t, "older", found.Left[0].Ref.ID)
	require.Equal(t, 1, found.Left[0].Ref.Page)
}
