package ctxpage_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/ctxpage/ctxpage/store"

	"github.com/stretchr/testify/require"

	. "github.com/ctxpage/ctxpage"
)

// TestSearchLooksFurther: matches that cannot be served take no places, however many of them are better than those that
// can. Each source is asked once, and no more of them than it takes.
func TestSearchLooksFurther(t *testing.T) {
	m := newMemo()
	db := open(t, Options{Sources: map[string]store.Source{"memo": m}})
	s := db.Scope("acme")
	const lost, plain = 150, 20
	for i := range lost {
		m.set(fmt.Sprint(i), "zebra zebra")
		put(t, s, Artefact{ID: fmt.Sprint("lost-", i), Source: fmt.Sprint("memo:", i)})
	}
	for i := range plain {
		put(t, s, Artefact{ID: fmt.Sprintf("plain-%02d", i), Text: "a zebra among many other animals of the plain " + words(i, 30)})
	}
	search := func(limit int, opts ...ReadOption) Found {
		m.probes.Store(0)
		found, err := s.Search(ctx, "zebra", limit, opts...)
		require.NoError(t, err)
		return found
	}
	require.Len(t, search(10).Hits, 10)
	require.Equal(t, int64(10), m.probes.Load(), "nothing is lost: nobody beyond the limit is asked")

	m.do(func(m *memo) { m.fail = errors.New("the source is away") })
	for _, limit := range []int{1, 3, 10, plain} {
		found := search(limit)
		require.Len(t, found.Hits, limit)
		for _, h := range found.Hits {
			require.Contains(t, h.Ref.ID, "plain-")
		}
		require.Len(t, found.Left, lost)
		require.LessOrEqual(t, m.probes.Load(), int64(lost), "each once")
	}
	require.Len(t, search(plain+1).Hits, plain, "the matches end")
	stale := search(10, ServeStale())
	require.Len(t, stale.Hits, 10)
	require.Empty(t, stale.Left)
	require.LessOrEqual(t, m.probes.Load(), int64(10))
}
