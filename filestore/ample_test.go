package filestore

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The disk is asked again before another program could have filled it, and at once while it has little.
func TestAmpleSpaceIsAskedForAgain(t *testing.T) {
	var a ample
	now := time.Unix(1_000_000, 0)
	require.False(t, a.at(now), "nobody asked yet")
	require.False(t, a.found(now, amplySpace-1))
	require.False(t, a.at(now))

	require.True(t, a.found(now, amplySpace))
	require.False(t, a.at(now), "as much as is enough, and not a byte more")

	require.True(t, a.found(now, amplySpace+fillRate/100))
	require.True(t, a.at(now.Add(9*time.Millisecond)))
	require.False(t, a.at(now.Add(10*time.Millisecond)), "it may be full by now")

	require.True(t, a.found(now, 1<<50))
	require.True(t, a.at(now.Add(ampleFor-1)))
	require.False(t, a.at(now.Add(ampleFor)))

	require.True(t, a.found(now, -1), "where nobody knows")
	require.True(t, a.at(now))
}
