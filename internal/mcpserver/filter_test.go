package mcpserver

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/view"
)

// A filter restricts search, list and assemble, and says what is wrong with it.
func TestToolsFilter(t *testing.T) {
	t.Parallel()
	db := memory(t)
	for i := range 6 {
		must(db.Scope("acme/support").Put(t.Context(), ctxpage.Artefact{
			ID: fmt.Sprint("ticket-", i), Text: fmt.Sprint("a zebra was returned, case ", i), Tags: []string{[]string{"open", "closed"}[i%2]}, Meta: map[string]string{"rank": fmt.Sprint(i * 5)},
		}))(t)
	}
	s := connect(t, Config{DB: db, Scope: "acme/support"}, nil)
	f := &view.Filter{TagsAny: []string{"open"}, Meta: map[string]any{"rank": map[string]any{"$gte": 10}}}
	var found searchOut
	require.Empty(t, call(t, s, "search", searchIn{Query: "zebra", Filter: f}, &found))
	require.Len(t, found.Hits, 2)
	var list listOut
	require.Empty(t, call(t, s, "list", listIn{Filter: f, Newest: true}, &list))
	require.Len(t, list.Items, 2)
	require.Equal(t, "ticket-4", list.Items[0].ID)
	var a assembleOut
	require.Empty(t, call(t, s, "assemble", assembleIn{Query: "zebra", Filter: f}, &a))
	require.Len(t, a.Blocks, 2)
	require.Positive(t, a.LeftOut["excluded by the filter"])
	f = &view.Filter{WrittenSince: time.Now().Add(time.Hour).Format(time.RFC3339)}
	require.Empty(t, call(t, s, "search", searchIn{Query: "zebra", Filter: f}, &found))
	require.Empty(t, found.Hits)
	for says, f := range map[string]*view.Filter{
		"expected a time such as": {Since: "yesterday"},
		"one of $eq, $ne":         {Meta: map[string]any{"k": map[string]any{"$in": "x"}}},
		"filter.tags_any":         {TagsAny: []string{""}},
		"one of system":           {Kinds: []string{"nonsense"}},
	} {
		require.Contains(t, call(t, s, "search", searchIn{Query: "zebra", Filter: f}, &found), says)
		require.Contains(t, call(t, s, "list", listIn{Filter: f}, &list), says)
		require.Contains(t, call(t, s, "assemble", assembleIn{Query: "zebra", Filter: f}, &a), says)
	}
}
