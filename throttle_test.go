//go:build rehome

package ctxpage

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage/filestore"
	"github.com/stretchr/testify/require"
)

func TestThrottleGrows(t *testing.T) {
	for _, c := range []struct {
		unflushed, bytes int64
		want             time.Duration
	}{
		{0, 1 << 10, 0},
		{filestore.throttleBytes, 1 << 10, 0},
		{filestore.throttleBytes * 5 / 4, 1 << 10, filestore.throttleDelay / 4},
		{filestore.throttleBytes * 2, 0, filestore.throttleDelay},
		{filestore.throttleBytes * 2, 4 * filestore.throttleUnit, 4 * filestore.throttleDelay},
		{filestore.throttleBytes * 9, 1 << 20, filestore.throttleMost},
	} {
		require.Equal(t, c.want, filestore.throttled(c.unflushed, c.bytes), c)
	}
}

// A commit that is told to wait waits before anything happened: the end of its context leaves no trace.
func TestThrottledCommitEndsWithItsContext(t *testing.T) {
	db := openTest(t, filepath.Join(t.TempDir(), "agent.ctx"), Options{})
	defer db.Close()
	st := db.store.(*filestore.Store)
	st.unflushed.Store(1 << 50)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	_, err := db.Scope("acme").Put(ctx, Artefact{ID: "x", Text: "never"})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, ErrOutcomeUnknown)
	st.unflushed.Store(0) // the control: nothing else held it up
	ref, err := db.Scope("acme").Put(context.Background(), Artefact{ID: "x", Text: "now"})
	require.NoError(t, err)
	require.Equal(t, uint32(1), ref.Version)
}
