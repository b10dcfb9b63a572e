package engine

import (
	"context"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage/store"
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
		require.Equal(t, c.want, delayFor(c.unflushed, c.bytes), c)
	}
}

// A commit that is told to wait waits before anything happened: the end of its context leaves no trace.
func TestThrottledCommitEndsWithItsContext(t *testing.T) {
	m := newMemory(t, time.Now)
	m.unflushed.Store(1 << 50)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	_, err := m.Commit(ctx, m.batch("acme", store.Artefact{ID: "x", Text: "never"}))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, store.ErrOutcomeUnknown)
	require.Empty(t, m.records, "nothing is in the log")
	m.unflushed.Store(0) // the control: nothing else held it up
	out := m.put("acme", store.Artefact{ID: "x", Text: "now"})
	require.Equal(t, uint32(1), out.Refs[0].Version)
}
