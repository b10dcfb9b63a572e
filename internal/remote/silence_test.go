package remote_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/remote"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
)

// pipes is a listener without a socket, for a clock that is the test's. Once it is stuck, no connection passes a byte to
// the server any more.
type pipes struct {
	*dbtest.Pipes
	stuck atomic.Bool
}

func newPipes() *pipes { return &pipes{Pipes: dbtest.NewPipes()} }

func (p *pipes) Accept() (net.Conn, error) {
	c, err := p.Pipes.Accept()
	if err != nil {
		return nil, err
	}
	return &silentConn{c, p}, nil
}

// silentConn takes what is sent to it and gives none of it to the server while the pipes are stuck, as a process that is
// stopped does.
type silentConn struct {
	net.Conn
	p *pipes
}

func (c *silentConn) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		if err != nil || !c.p.stuck.Load() {
			return n, err
		}
	}
}

// slow is a store whose commits take a time.
type slow struct {
	store.Store
	takes time.Duration
}

func (s slow) Commit(ctx context.Context, b store.Batch) (store.Outcome, error) {
	time.Sleep(s.takes)
	return s.Store.Commit(ctx, b)
}

// inBubble serves a store to one client through pipes, on the clock of a synctest bubble.
func inBubble(t *testing.T, st store.Store, opts remote.ClientOptions, run func(t *testing.T, p *pipes, c *remote.Client)) {
	synctest.Test(t, func(t *testing.T) {
		srv := must(remote.NewServer(t.Context(), st, remote.ServerOptions{Program: "owner"}))(t)
		p, done := newPipes(), make(chan error, 1)
		go func() { done <- srv.Serve(p) }()
		c := must(remote.Dial(t.Context(), "pipes", remote.Through(opts, p.Dial)))(t)
		run(t, p, c)
		require.NoError(t, c.Close())
		require.NoError(t, srv.Close())
		require.NoError(t, <-done)
	})
}

// TestSilentServerTime: a server that stops to answer is given the time that Answer says, 2 s without it, and not more
// than a tenth beside. The clock is that of the test, so that load does not count.
// The controls: a server that answers its status is waited for, however long a call takes; and one with another Answer
// gets another time.
func TestSilentServerTime(t *testing.T) {
	t.Parallel()
	for _, answer := range []time.Duration{0, 400 * time.Millisecond, 10 * time.Second} {
		inBubble(t, newMemory(t), remote.ClientOptions{Answer: answer}, func(t *testing.T, p *pipes, c *remote.Client) {
			expected := answer
			if answer == 0 {
				expected = 2 * time.Second
			}
			p.stuck.Store(true)
			require.ErrorIs(t, errOf(c.Commit(ctx, fact(t, "fact", "zebra"))), store.ErrOutcomeUnknown, "it was sent")
			_, err := c.Commit(ctx, fact(t, "fact", "zebra"))
			require.ErrorIs(t, err, store.ErrLocked)
			require.NotErrorIs(t, err, store.ErrOutcomeUnknown, "no server greeted on the new connection, so none made the call")
			p.stuck.Store(false)
			must(c.Commit(ctx, fact(t, "fact", "zebra")))(t)
			for range 3 { // wherever it stands in its pings
				p.stuck.Store(true)
				began := time.Now()
				_, err := c.Commit(ctx, fact(t, "fact", "zebra"))
				took := time.Since(began)
				var silent *remote.UnavailableError
				require.ErrorAs(t, err, &silent)
				require.ErrorIs(t, err, store.ErrOutcomeUnknown)
				require.Equal(t, "owner", silent.Program)
				require.InDelta(t, expected, took, float64(expected)/10, "%v", took)
				p.stuck.Store(false)
				require.NoError(t, errOf(c.Commit(ctx, fact(t, "fact", "zebra"))), "it answers again")
			}
		})
	}
	inBubble(t, slow{newMemory(t), time.Minute}, remote.ClientOptions{}, func(t *testing.T, _ *pipes, c *remote.Client) {
		began := time.Now()
		require.NoError(t, errOf(c.Commit(ctx, fact(t, "fact", "zebra"))), "the control")
		require.InDelta(t, time.Minute, time.Since(began), float64(time.Second))
	})
}
