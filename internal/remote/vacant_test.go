package remote_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage/internal/remote"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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
	require.ErrorAs(t, errOf(plain.Stat(ctx)), &nobody)
	require.ErrorAs(t, errOf(c.Stat(ctx)), &nobody)
	require.Positive(t, asked.Load())
	free.Store(true)
	var taken *remote.TakenError
	require.ErrorAs(t, errOf(c.Stat(ctx)), &taken)
}

// A call that finds nobody may ask for the place when another call has met the next server already. When it is answered, it tells
// that somebody serves: a reader would count from that moment how long it has found nobody.
func TestMetComesLast(t *testing.T) {
	t.Parallel()
	path, mem := socket(t), newMemory(t)
	end := serve(t, mem, path, remote.ServerOptions{})
	var c atomic.Pointer[remote.Client]
	var asked sync.Once
	var met atomic.Bool // since the place was asked for
	other := make(chan struct{})
	vacant := func(context.Context) bool {
		asked.Do(func() {
			defer close(other)
			serve(t, mem, path, remote.ServerOptions{})
			_, err := c.Load().Audit().Size(ctx) // the other call
			assert.NoError(t, err)
			assert.True(t, met.Swap(false), "the control: it met the next server")
		})
		return false
	}
	c.Store(dial(t, path, remote.ClientOptions{RetryFor: time.Minute, Vacant: vacant, Met: func() { met.Store(true) }}))
	end()
	must(c.Load().Stat(ctx))(t)
	<-other // which the beat of the client may have asked for, while Stat met the next server
	require.Eventually(t, met.Load, time.Minute, time.Millisecond)
}
