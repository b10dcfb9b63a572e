package loop

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTraceparent: only a well-formed trace context comes through, whatever a caller sends.
func TestTraceparent(t *testing.T) {
	good := "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	require.Equal(t, good, Traceparent(WithTraceparent(t.Context(), good)))
	require.Empty(t, Traceparent(t.Context()))
	for _, bad := range []string{
		"", "00", good + "0", strings.ToUpper(good), "01" + good[2:], strings.Replace(good, "-", "_", 1), good[:54] + "\n",
		"00-00000000000000000000000000000000-00f067aa0ba902b7-01", "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01", strings.Repeat("x", 1<<20),
	} {
		require.Empty(t, Traceparent(WithTraceparent(t.Context(), bad)), "%.80q", bad)
	}
}
