package rendering

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
)

// TestSupersedesInALine: a long line of artefacts, each in place of the one before, costs what its members cost.
func TestSupersedesInALine(t *testing.T) {
	const n = 4000
	var s Supersedes
	writes := map[string]*store.Put{}
	put := func(id, old string) bool {
		p := &store.Put{Artefact: store.Artefact{ID: id, Supersedes: []string{old}}}
		if s.Leads(p.Artefact.Supersedes, id, writes) {
			return false
		}
		s.Forget(writes[id])
		s.Note(p)
		writes[id] = p
		return true
	}
	name := func(i int) string { return fmt.Sprint("s", i) }
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 2 { // and again
		for i := 1; i < n; i++ {
			require.True(t, put(name(i), name(i-1)))
		}
		require.Empty(t, s.seen, "a line that is written in order is never walked")
	}
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(16<<20))
	require.False(t, put(name(0), name(n-1)), "a circle")
	require.False(t, put(name(7), name(9)))
	s.Forget(writes[name(8)])
	delete(writes, name(8))
	require.True(t, put(name(7), name(9)), "the line was broken")
	require.False(t, put(name(8), name(7)) && put(name(9), name(8)))
}
