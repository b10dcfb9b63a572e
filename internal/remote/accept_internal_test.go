package remote

import (
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// fickle is a listener that can be watched once, and then no more: the process has no descriptor left for it.
type fickle struct {
	net.Listener
	conns chan net.Conn
	quit  chan struct{}

	mu       sync.Mutex
	deadline time.Time
	waits    int
}

func (f *fickle) wait(ring func()) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.waits++; f.waits == 1 {
		go ring()
	}
	return f.waits == 1 || f.waits > 100 // it ends a loop without end
}

func (f *fickle) SetDeadline(at time.Time) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.deadline = at
	return nil
}

func (f *fickle) Accept() (net.Conn, error) {
	f.mu.Lock()
	at := f.deadline
	f.mu.Unlock()
	var over <-chan time.Time
	if !at.IsZero() {
		over = time.After(time.Until(at))
	}
	select {
	case c := <-f.conns:
		return c, nil
	case <-over:
		return nil, os.ErrDeadlineExceeded
	case <-f.quit:
		return nil, net.ErrClosed
	}
}

func (f *fickle) Close() error {
	close(f.quit)
	return nil
}

// A goroutine waits at a listener that cannot be watched any more, and does not go round and round.
func TestListenerThatCannotBeWatchedAnyMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &fickle{conns: make(chan net.Conn), quit: make(chan struct{})}
		served := make(chan net.Conn, 1)
		a := &acceptor{serve: func(c net.Conn) { served <- c }}
		a.attend(l)
		time.Sleep(10 * linger)
		l.mu.Lock()
		waits := l.waits
		l.mu.Unlock()
		require.Equal(t, 2, waits)
		near, far := net.Pipe()
		defer near.Close()
		l.conns <- far
		require.Equal(t, far, <-served)
		require.NoError(t, a.close())
	})
}
