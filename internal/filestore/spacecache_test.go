package filestore

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The disk is asked again before another program could have filled it, and at once while it has little.
func TestSpaceCacheExpires(t *testing.T) {
	var c spaceCache
	now := time.Unix(1_000_000, 0)
	require.False(t, c.fresh(now), "nobody asked yet")
	require.False(t, c.put(now, spaceCacheAbove-1))
	require.False(t, c.fresh(now))

	require.True(t, c.put(now, spaceCacheAbove))
	require.False(t, c.fresh(now), "as much as is enough, and not a byte more")

	require.True(t, c.put(now, spaceCacheAbove+fillRate/100))
	require.True(t, c.fresh(now.Add(9*time.Millisecond)))
	require.False(t, c.fresh(now.Add(10*time.Millisecond)), "it may be full by now")

	require.True(t, c.put(now, 1<<50))
	require.True(t, c.fresh(now.Add(spaceCacheFor-1)))
	require.False(t, c.fresh(now.Add(spaceCacheFor)))

	require.True(t, c.put(now, -1), "where nobody knows")
	require.True(t, c.fresh(now))
}
