package systest_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	. "github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/stretchr/testify/require"
)

// Every leaf comes once and in order, also when checkpoints cut the log under the follower.
func TestFollowManifests(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	path := filepath.Join(t.TempDir(), "agent.ctx")
	db := openTest(t, path, Options{})
	s := db.Scope("acme")
	const puts = 60
	written := make(chan struct{})
	defer func() { <-written }()
	go func() {
		defer close(written)
		for i := range puts {
			if _, err := s.Put(context.Background(), Artefact{ID: fmt.Sprint(i), Text: "what is followed"}); err != nil { // ctx may end before the answer
				t.Error(err)
				cancel()
				return
			}
			if i%7 == 0 {
				if _, err := db.Admin().Checkpoint(ctx); err != nil {
					t.Error(err)
					cancel()
				}
			}
		}
	}()
	var next uint64
	require.ErrorIs(t, filestore.FollowManifests(ctx, path, nil, "", 0, time.Millisecond, func(r *manifest.Record) error {
		require.Equal(t, next, r.Index)
		if next++; next == puts {
			cancel()
		}
		return nil
	}), context.Canceled)
	require.EqualValues(t, puts, next)
}
