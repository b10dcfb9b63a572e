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
	most := make([]File, MaxListed)
	for i := range 3 * maxSourced {
		scope := &sourcedScope{lsn: 1}
		if i%50 == 0 {
			scope.list = most
		}
		c.put(fmt.Sprint("scope", i%(2*maxSourced)), scope)
		if c.n > maxSourced || c.get("hot").lsn != 7 || i%1000 == 0 && entries() != c.n {
			t.Fatalf("after %d: %d of %d entries, and what was asked for last is %+v", i, c.n, maxSourced, c.get("hot").lsn)
		}
	}
	require.Zero(t, c.get("scope0").lsn, "forgotten")
	for i := range 10 { // the same scope again takes its place and no other
		c.put("hot", &sourcedScope{lsn: uint64(i), list: make([]File, i)})
		require.Equal(t, entries(), c.n)
	}
}
