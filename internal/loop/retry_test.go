package loop

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRetryable(t *testing.T) {
	for code, again := range map[int]bool{200: false, 304: false, 400: false, 401: false, 404: false, 408: true, 410: false, 429: true, 500: true, 501: false, 502: true, 503: true, 504: true} {
		require.Equal(t, again, Retryable(code), code)
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		header string
		want   time.Duration
		ok     bool
	}{
		{"", 0, false}, {"3", 3 * time.Second, true}, {"0", 0, true}, {"-1", 0, false}, {"soon", 0, false},
		{"Sun, 01 Mar 2026 12:00:07 GMT", 7 * time.Second, true}, {"Sun, 01 Mar 2026 11:00:00 GMT", 0, true},
		{"9223372036854775807", 9223372036 * time.Second, true},
	} {
		got, ok := RetryAfter(c.header, now)
		require.Equal(t, c.ok, ok, c.header)
		require.Equal(t, c.want, got, c.header)
	}
}

func TestBackoff(t *testing.T) {
	var got []time.Duration
	for n := range 7 {
		got = append(got, Backoff(time.Second, 10*time.Second, n))
	}
	require.Equal(t, []time.Duration{1e9, 1e9, 2e9, 4e9, 8e9, 10e9, 10e9}, got)
	require.Equal(t, time.Second, Backoff(time.Minute, time.Second, 3))
	require.Equal(t, 10*time.Second, Backoff(time.Second, 10*time.Second, 1<<40))
}

func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		require.True(t, Wait(t.Context(), time.Hour))
		require.Equal(t, time.Hour, time.Since(start))
		require.True(t, Wait(t.Context(), 0))

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		start = time.Now()
		require.False(t, Wait(ctx, time.Hour))
		require.Zero(t, time.Since(start), "a wait beyond the deadline is not begun")
		cancel()
		require.False(t, Wait(ctx, 0))

		ctx, cancel = context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		start = time.Now()
		require.False(t, Wait(ctx, time.Hour))
		require.Equal(t, time.Second, time.Since(start))
	})
}
