package view

import (
	"container/list"
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// MinToken is the least length in bytes of a bearer token of a server.
const MinToken = 16

// ServeLimited runs srv at l with at most n connections. At the limit, the connection that has been without a request for longest is
// closed for the next one. If requests are under way on all, the next one receives full, a whole response of HTTP, and is closed.
// ServeLimited sets srv.ConnState and srv.ConnContext. It returns the error of srv.Serve.
func ServeLimited(srv *http.Server, l net.Listener, n int, full []byte) error {
	r := newRoom(l, n, full)
	srv.ConnState = r.is
	srv.ConnContext = func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) }
	return srv.Serve(r)
}

func newRoom(l net.Listener, n int, full []byte) *room {
	return &room{Listener: l, most: n, full: full, turned: make(chan struct{}, maxTurned), open: map[*conn]*list.Element{}, idle: list.New()}
}

// room is a listener that counts.
type room struct {
	net.Listener
	most   int
	full   []byte
	turned chan struct{} // a place for each connection that is being told that all places are taken

	mu   sync.Mutex
	open map[*conn]*list.Element // nil: a request is under way
	idle *list.List              // of *conn, the longest idle first
}

// Accept returns the next connection for which there is a place.
func (r *room) Accept() (net.Conn, error) {
	for {
		c, err := r.Listener.Accept()
		if err != nil {
			return nil, err
		}
		placed, out := r.place(c)
		if out != nil {
			_ = out.Close()
		}
		if placed != nil {
			return placed, nil
		}
		r.turnAway(c)
	}
}

// place finds a place for a connection. The caller must close out, whose place it may take.
func (r *room) place(c net.Conn) (placed, out *conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.open) >= r.most {
		first := r.idle.Front()
		if first == nil {
			return nil, nil
		}
		out = first.Value.(*conn)
		r.forget(out)
	}
	placed = &conn{Conn: c, room: r}
	r.open[placed] = r.idle.PushBack(placed)
	return placed, out
}

// is follows the states of a connection. One whose head is on its way counts as idle.
func (r *room) is(nc net.Conn, state http.ConnState) {
	c, ok := nc.(*conn)
	if !ok || state != http.StateActive && state != http.StateIdle {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	at, ok := r.open[c]
	switch {
	case !ok: // it is closed
	case state == http.StateActive && at != nil:
		r.idle.Remove(at)
		r.open[c] = nil
	case state == http.StateIdle && at == nil:
		r.open[c] = r.idle.PushBack(c)
	}
}

// forget takes a connection out. mu is held.
func (r *room) forget(c *conn) {
	if at := r.open[c]; at != nil {
		r.idle.Remove(at)
	}
	delete(r.open, c)
}

// maxTurned bounds the connections that are being told so; further ones are closed at once, because the files need descriptors.
const maxTurned = 64

// turnTime is for how long a connection that is turned away may read why.
const turnTime = time.Second

// turnAway tells a connection that all places are taken. What it sent is read: a connection that is
// closed before loses its answer on TCP.
func (r *room) turnAway(c net.Conn) {
	select {
	case r.turned <- struct{}{}:
	default:
		_ = c.Close()
		return
	}
	go func() {
		defer func() { _ = c.Close(); <-r.turned }()
		_ = c.SetDeadline(time.Now().Add(turnTime))
		if _, err := c.Write(r.full); err != nil {
			return
		}
		if half, ok := c.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
			_, _ = io.Copy(io.Discard, c)
		}
	}()
}

type conn struct {
	net.Conn
	room *room
}

// Close frees the place of the connection.
func (c *conn) Close() error {
	err := c.Conn.Close()
	c.room.mu.Lock()
	defer c.room.mu.Unlock()
	c.room.forget(c)
	return err
}

// unreadTime is for how long the rest of a request is awaited that was answered before it was read.
const unreadTime = time.Second

type connKey struct{}

// RefuseRequest is called before an answer that refuses a request and ends its connection. The rest of the request is not awaited,
// and the connection makes place at once for the next one: a program without a token takes nothing from those that have one.
func RefuseRequest(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Connection", "close")
	_ = http.NewResponseController(w).SetReadDeadline(time.Now())
	if c, ok := r.Context().Value(connKey{}).(*conn); ok {
		c.room.refused(c)
	}
}

// refused puts a connection first among those that make place.
func (r *room) refused(c *conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if at, ok := r.open[c]; ok && at == nil {
		r.open[c] = r.idle.PushFront(c)
	}
}

// LimitUnread bounds the rest of a request that is answered before it is read: net/http waits for it
// without end. Call it first; whoever reads the request sets another deadline.
func LimitUnread(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 { // else net/http reads already, to see the caller leave
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(unreadTime)) // a recorder of a test has no deadlines
	}
}
