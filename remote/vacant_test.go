package remote_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/remote"
)

// A client whose time is over when it hears that nobody serves, because it stood still meanwhile, takes the free place all the same.
// The control: where the place is not free, or nobody is asked, it gives up.
func TestPlaceIsAskedForLast(t *testing.T) {
	t.Parallel()
	path := socket(t)
	end := serve(t, newMemory(t), path, remote.ServerOptions{})
	var free atomic.Bool
	var asked atomic.Int64
	vacant := func(context.Context) bool {
		asked.Add(1)
		time.Sleep(2 * time.Millisecond)
		return free.Load()
	}
	c := dial(t, path, remote.ClientOptions{RetryFor: 1, Vacant: vacant})
	plain := dial(t, path, remote.ClientOptions{RetryFor: 1})
	end()
	var nobody *remote.UnavailableError
	_, err := plain.Stat(ctx)
	require.ErrorAs(t, err, &nobody)
	_, err = c.Stat(ctx)
	require.ErrorAs(t, err, &nobody)
	require.Positive(t, asked.Load())
	free.Store(true)
	var taken *remote.TakenError
	_, err = c.Stat(ctx)
	require.ErrorAs(t, err, &taken)
}
