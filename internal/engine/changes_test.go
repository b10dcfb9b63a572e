package engine

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/store"
)

// What ended is told once to each who asks in time, and who comes too late is told to forget all.
func TestChanges(t *testing.T) {
	var c changes
	c.start(10)
	out, next := c.after(10)
	require.NotNil(t, next)
	require.Empty(t, out.Ended)
	c.add(11, []uint64{1, 2}, nil)
	<-next
	c.add(12, nil, []store.StateRow{{Key: "a", LSN: 12}, {Key: "b", LSN: 12}})
	c.add(13, []uint64{3}, []store.StateRow{{Key: "a", LSN: 13}})
	out, _ = c.after(10)
	require.ElementsMatch(t, []uint64{1, 2, 3}, out.Ended)
	require.Equal(t, uint64(13), out.LSN)
	require.ElementsMatch(t, []store.StateRow{{Key: "a", LSN: 13}, {Key: "b", LSN: 12}}, out.Told)
	out, _ = c.after(11)
	require.Equal(t, []uint64{3}, out.Ended)
	for n := range uint64(keptChanges) {
		c.add(14+n, []uint64{n}, nil)
	}
	out, _ = c.after(13)
	require.Len(t, out.Ended, keptChanges)
	require.False(t, out.All)
	out, _ = c.after(12)
	require.True(t, out.All)
	require.Empty(t, out.Ended)
	require.False(t, out.AllTold, "rows are remembered apart from pages")
	require.Len(t, out.Told, 1)
	for n := range uint64(keptChanges) {
		c.add(10_000+n, nil, []store.StateRow{{Key: "a", LSN: 10_000 + n}})
	}
	out, _ = c.after(9999)
	require.Len(t, out.Told, 1)
	out, _ = c.after(12)
	require.True(t, out.AllTold)
}
