package engine

import (
	"slices"
	"strings"
	"testing"

	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// A listing gives the same whenever it is asked for, and pages of it are the whole.
func TestListing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newCatalogue()
		c.addScope(1, "a")
		c.addScope(2, "b")
		ids := map[uint32][]string{}
		for num := uint64(1); num < 60; num++ {
			scope := uint32(rapid.IntRange(1, 2).Draw(t, "scope"))
			id := rapid.StringMatching(`[ab]{1,5}`).Draw(t, "id")
			if slices.Contains(ids[scope], id) {
				continue
			}
			c.growArts(c.arts.len() + 1)
			c.art(uint64(c.arts.len())).first = 1
			c.addKey(uint64(c.arts.len()), scope, id)
			ids[scope] = append(ids[scope], id)
			if rapid.IntRange(0, 3).Draw(t, "ask") == 0 {
				checkListing(t, c, scope, ids[scope], rapid.StringMatching(`[ab]{0,2}`).Draw(t, "prefix"), rapid.IntRange(1, 5).Draw(t, "limit"))
			}
		}
	})
}

func checkListing(t *rapid.T, c *catalogue, scope uint32, ids []string, prefix string, limit int) {
	want := slices.Sorted(slices.Values(ids))
	want = slices.DeleteFunc(want, func(id string) bool { return !strings.HasPrefix(id, prefix) })
	got, after := []string{}, ""
	for {
		page, last, err := (&Engine{cat: c}).listed(scope, &store.ScanQuery{Prefix: prefix, Cursor: after, Limit: limit})
		require.NoError(t, err)
		require.LessOrEqual(t, len(page), limit)
		for _, num := range page {
			got = append(got, c.id(c.art(num)))
		}
		if last == 0 {
			break
		}
		after = c.id(c.art(last))
	}
	require.Equal(t, want, got)
}

func TestLeastOf(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfDistinct(rapid.StringN(1, 3, -1), rapid.ID).Draw(t, "names")
		n := rapid.IntRange(1, 20).Draw(t, "n")
		want := slices.Sorted(slices.Values(names))
		require.ElementsMatch(t, want[:min(n, len(want))], leastOf(n, slices.Values(names)))
		require.True(t, slices.IsSorted(leastOf(n, slices.Values(names))))
	})
}
