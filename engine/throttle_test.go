package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestThrottleGrows(t *testing.T) {
	for _, c := range []struct {
		unflushed, bytes int64
		want             time.Duration
	}{
		{0, 1 << 10, 0},
		{throttleBytes, 1 << 10, 0},
		{throttleBytes * 5 / 4, 1 << 10, throttleDelay / 4},
		{throttleBytes * 2, 0, throttleDelay},
		{throttleBytes * 2, 4 * throttleUnit, 4 * throttleDelay},
		{throttleBytes * 9, 1 << 20, throttleMost},
	} {
		require.Equal(t, c.want, throttled(c.unflushed, c.bytes), c)
	}
}
