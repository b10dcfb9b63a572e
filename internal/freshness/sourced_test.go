package freshness

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSourcedScopesKeepTheRecent: what is remembered is bounded, scopes without files included, and the scopes that are
// asked for stay.
func TestSourcedScopesKeepTheRecent(t *testing.T) {
	c := &sourcedScopes{}
	entries := func() (n int) {
		for _, s := range c.in.Values() {
			n += s.entries()
		}
		return n
	}
	c.put("hot", &sourcedScope{lsn: 7, list: make([]File, 100)})
	for i := range 3 * maxSourced {
		size := 0
		if i%50 == 0 {
			size = MaxListed
		}
		c.put(fmt.Sprint("scope", i%(2*maxSourced)), &sourcedScope{lsn: 1, list: make([]File, size)})
		require.LessOrEqual(t, c.n, maxSourced)
		if i%1000 == 0 {
			require.Equal(t, entries(), c.n)
		}
		require.EqualValues(t, 7, c.get("hot").lsn, "asked for last, forgotten after %d", i)
	}
	require.Zero(t, c.get("scope0").lsn, "forgotten")
	for i := range 10 { // the same scope again takes its place and no other
		c.put("hot", &sourcedScope{lsn: uint64(i), list: make([]File, i)})
		require.Equal(t, entries(), c.n)
	}
}
