package remote_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/remote"
)

// A server that is about to close tells one client, serves on while that gets ready, and then closes. A client that has nothing to
// do, as one of an older program, does not keep it; nor does a server without clients.
func TestAnnounce(t *testing.T) {
	t.Parallel()
	nobody := func(context.Context) bool { return false }
	start := func(t *testing.T) (*remote.Server, string) {
		path := socket(t)
		srv, err := remote.NewServer(ctx, newMemory(t), remote.ServerOptions{})
		require.NoError(t, err)
		l, err := remote.Listen(path)
		require.NoError(t, err)
		served := make(chan error, 1)
		go func() { served <- srv.Serve(l) }()
		t.Cleanup(func() { require.NoError(t, srv.Close()); require.NoError(t, <-served) })
		return srv, path
	}
	announced := func(t *testing.T, srv *remote.Server) { // the client's wait may be on its way still
		require.Eventually(t, func() bool { return srv.Announce(time.Minute) }, time.Minute, time.Millisecond)
	}
	t.Run("a client gets ready", func(t *testing.T) {
		t.Parallel()
		srv, path := start(t)
		getting, ready, told := make(chan struct{}), make(chan struct{}), make(chan struct{})
		c := dial(t, path, remote.ClientOptions{Vacant: nobody, Ready: func(context.Context) { close(getting); <-ready }})
		go func() { announced(t, srv); close(told) }()
		<-getting
		_, err := c.Stat(ctx)
		require.NoError(t, err, "it serves on")
		select {
		case <-told:
			t.Fatal("the client is not ready")
		default:
		}
		close(ready)
		<-told
		_, err = c.Stat(ctx)
		require.NoError(t, err)
	})
	t.Run("a client has nothing to do", func(t *testing.T) {
		t.Parallel()
		srv, path := start(t)
		c := dial(t, path, remote.ClientOptions{Vacant: nobody})
		announced(t, srv)
		_, err := c.Stat(ctx)
		require.NoError(t, err)
	})
	t.Run("a client is not ready in time", func(t *testing.T) {
		t.Parallel()
		srv, path := start(t)
		getting := make(chan struct{})
		dial(t, path, remote.ClientOptions{Vacant: nobody, Ready: func(ctx context.Context) { close(getting); <-ctx.Done() }})
		require.Eventually(t, func() bool {
			require.False(t, srv.Announce(time.Millisecond))
			select {
			case <-getting:
				return true
			default:
				return false
			}
		}, time.Minute, time.Millisecond)
	})
	t.Run("there is none", func(t *testing.T) {
		t.Parallel()
		srv, _ := start(t)
		require.False(t, srv.Announce(time.Hour))
	})
}

// A server that is closing still has its database, so for a while nobody tries to take that over. When it is closed, its clients do.
func TestClosingServerIsLeftAlone(t *testing.T) {
	t.Parallel()
	path := socket(t)
	srv, err := remote.NewServer(ctx, newMemory(t), remote.ServerOptions{})
	require.NoError(t, err)
	l, err := remote.Listen(path)
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	asked := make(chan time.Time, 1000)
	c := dial(t, path, remote.ClientOptions{Vacant: func(context.Context) bool { asked <- time.Now(); return true }})
	_, err = c.Stat(ctx)
	require.NoError(t, err)
	begun := time.Now()
	srv.Drain()
	var taken *remote.TakenError
	_, err = c.Stat(ctx)
	require.ErrorAs(t, err, &taken, "it is asked for in the end, though the server does not close")
	require.Greater(t, (<-asked).Sub(begun), 100*time.Millisecond)
	require.NoError(t, srv.Close())
	require.NoError(t, <-served)
}
