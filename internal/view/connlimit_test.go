package view

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// door is a server with two places. The path /wait is answered when held is closed; entered gets a value for each request, idle one
// for each connection that waits for its next request.
type door struct {
	t             *testing.T
	addr          string
	entered, idle chan struct{}
	held          chan struct{}
}

func opened(t *testing.T, unread bool) *door {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	d := &door{t, l.Addr().String(), make(chan struct{}, 1000), make(chan struct{}, 1000), make(chan struct{})}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if unread {
			LimitUnread(w, r)
		}
		d.entered <- struct{}{}
		if r.URL.Path == "/wait" {
			<-d.held
		}
		_, _ = io.WriteString(w, "served")
	})}
	r := newRoom(l, 2, []byte("HTTP/1.1 503 Full\r\nContent-Length: 4\r\nConnection: close\r\n\r\nfull"))
	srv.ConnState = func(c net.Conn, state http.ConnState) {
		r.is(c, state)
		if state == http.StateIdle {
			d.idle <- struct{}{}
		}
	}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(r) }()
	t.Cleanup(func() {
		require.NoError(t, srv.Close())
		require.ErrorIs(t, <-done, http.ErrServerClosed)
	})
	return d
}

// caller is a connection.
type caller struct {
	net.Conn
	d *door
	r *bufio.Reader
}

func (d *door) call() *caller {
	d.t.Helper()
	c, err := net.Dial("tcp", d.addr)
	require.NoError(d.t, err)
	d.t.Cleanup(func() { _ = c.Close() })
	require.NoError(d.t, c.SetDeadline(time.Now().Add(time.Minute)))
	return &caller{c, d, bufio.NewReader(c)}
}

func (c *caller) ask(path string) *caller {
	_, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path)
	require.NoError(c.d.t, err)
	return c
}

func (c *caller) hears(want string) *caller {
	c.d.t.Helper()
	res, err := http.ReadResponse(c.r, nil)
	require.NoError(c.d.t, err)
	b, err := io.ReadAll(res.Body)
	require.NoError(c.d.t, err)
	require.Equal(c.d.t, want, string(b))
	return c
}

// served waits until the connection is idle again.
func (c *caller) served() *caller {
	c.d.t.Helper()
	c.hears("served")
	<-c.d.idle
	return c
}

func (c *caller) ended() {
	c.d.t.Helper()
	_, err := c.r.ReadByte()
	require.Error(c.d.t, err)
	require.NotErrorIs(c.d.t, err, os.ErrDeadlineExceeded, "it is still open")
}

// The connection that has been idle for longest makes place, whether it asked before or never did.
func TestIdleMakesPlace(t *testing.T) {
	t.Parallel()
	d := opened(t, true)
	asked := d.call().ask("/").served()
	silent := d.call()
	third := d.call().ask("/").served() // asked is idle for longest: silent came after its request
	asked.ended()
	fourth := d.call().ask("/").served()
	silent.ended()
	third.ask("/").served()
	d.call().ask("/").served()
	fourth.ended()
	third.ask("/").served()
}

// A crowd that asks nothing keeps nobody out.
func TestCrowdKeepsNobodyOut(t *testing.T) {
	t.Parallel()
	d := opened(t, true)
	for range 200 {
		d.call()
	}
	d.call().ask("/").served()
}

// A connection whose request is under way keeps its place: the next one is told that there is none.
func TestNoPlace(t *testing.T) {
	t.Parallel()
	d := opened(t, true)
	a, b := d.call().ask("/wait"), d.call().ask("/wait")
	<-d.entered
	<-d.entered
	d.call().ask("/").hears("full").ended()
	var crowd []*caller
	for range 3 * maxTurned { // maxTurned of them are told, the others only closed
		crowd = append(crowd, d.call())
	}
	for _, c := range crowd {
		_, err := io.Copy(io.Discard, c)
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "it is still open")
	}
	close(d.held)
	a.hears("served")
	b.hears("served")
	<-d.idle // of one of them
	<-d.idle
	a.ask("/").served() // b is idle for longest
	d.call().ask("/").served()
	a.ask("/").served()
	b.ended()
}

// A caller that owes the rest of a request which was answered loses its place. The control: net/http alone waits for it, and does
// not even send the answer.
func TestUnreadRequests(t *testing.T) {
	t.Parallel()
	for _, unread := range []bool{true, false} {
		d := opened(t, unread)
		c := d.call()
		_, err := io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
		require.NoError(t, err)
		<-d.entered
		if !unread {
			require.NoError(t, c.SetReadDeadline(time.Now().Add(3*unreadTime)))
			_, err := c.r.ReadByte()
			require.ErrorIs(t, err, os.ErrDeadlineExceeded, "net/http does this itself now: Unread can go")
			continue
		}
		c.hears("served").ended()
	}
}

// A connection that was refused makes place at once, although the rest of its request never comes. Without Refuse it keeps
// its place for a while: the control.
func TestRefusedMakesPlace(t *testing.T) {
	for _, refuse := range []bool{true, false} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		refused := make(chan struct{}, 2)
		srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				if refuse {
					LimitUnread(w, r)
					RefuseRequest(w, r)
				}
				refused <- struct{}{}
				w.WriteHeader(http.StatusUnauthorized)
			}
		})}
		done := make(chan error, 1)
		go func() {
			done <- ServeLimited(srv, l, 2, []byte("HTTP/1.1 503 Full\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"))
		}()
		send := func(request string) net.Conn {
			c, err := net.Dial("tcp", l.Addr().String())
			require.NoError(t, err)
			t.Cleanup(func() { _ = c.Close() })
			_, err = io.WriteString(c, request)
			require.NoError(t, err)
			return c
		}
		for range 2 {
			send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n")
			<-refused
		}
		a, err := http.ReadResponse(bufio.NewReader(send("GET / HTTP/1.1\r\nHost: x\r\n\r\n")), nil)
		require.NoError(t, err)
		require.Equal(t, map[bool]int{true: http.StatusOK, false: http.StatusServiceUnavailable}[refuse], a.StatusCode)
		require.NoError(t, srv.Close())
		require.ErrorIs(t, <-done, http.ErrServerClosed)
	}
}
