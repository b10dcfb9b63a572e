package dbtest

import (
	"context"
	"net"
	"sync"
)

// Pipes is a listener whose connections are pipes in memory. In a bubble of testing/synctest a deadline on them is due at its
// time exactly, however busy the machine is: there the clock stands still while anybody works.
type Pipes struct {
	conns chan net.Conn
	ended chan struct{}
	end   sync.Once
}

// NewPipes makes one, inside the bubble.
func NewPipes() *Pipes { return &Pipes{conns: make(chan net.Conn), ended: make(chan struct{})} }

// Accept: see net.Listener.
func (p *Pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.ended:
		return nil, net.ErrClosed
	}
}

// Close: see net.Listener.
func (p *Pipes) Close() error {
	p.end.Do(func() { close(p.ended) })
	return nil
}

// Addr: see net.Listener.
func (p *Pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes", Net: "unix"} }

// Dial connects.
func (p *Pipes) Dial(ctx context.Context) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case p.conns <- pipe{there}:
		return pipe{here}, nil
	case <-p.ended:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// pipe writes nothing where there is nothing, as a socket does; that of net waits for a reader.
type pipe struct{ net.Conn }

func (c pipe) Write(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	return c.Conn.Write(b)
}
