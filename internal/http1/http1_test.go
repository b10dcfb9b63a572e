package http1_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/http1"
)

func listen(t *testing.T) (net.Listener, func(context.Context) (net.Conn, error)) {
	t.Helper()
	dir, err := os.MkdirTemp("", "http1")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	return l, func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	}
}

// served serves a handler with this package.
func served(t *testing.T, handle func(*http1.Exchange)) (*http1.Server, func(context.Context) (net.Conn, error)) {
	t.Helper()
	return servedBy(t, &http1.Server{Handle: handle, Patience: 5 * time.Second})
}

func servedBy(t *testing.T, s *http1.Server) (*http1.Server, func(context.Context) (net.Conn, error)) {
	t.Helper()
	l, dial := listen(t)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		require.ErrorIs(t, <-done, http1.ErrClosed)
	})
	return s, dial
}

// echo gives the request back: whole, or in as many parts as the path says.
func echo(e *http1.Exchange) {
	b, err := io.ReadAll(e.Body)
	if err != nil {
		e.Cut()
		return
	}
	parts, err := strconv.Atoi(strings.TrimPrefix(e.Path, "/"))
	if err != nil {
		_ = e.Reply(200, "text/plain", b)
		return
	}
	_ = e.Begin(200, "text/plain", -1)
	for i := range parts {
		_, _ = e.Write(b[i*len(b)/parts : (i+1)*len(b)/parts])
	}
}

var bodies = []string{"", "x", strings.Repeat("refund ", 1000), strings.Repeat("0123456789", 300_000)}

// Net/http's client and this server understand each other, whole and in chunks, in both directions.
func TestServerSpeaksToNetHTTP(t *testing.T) {
	t.Parallel()
	_, dial := served(t, echo)
	c := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }}}
	for _, expect := range []string{"", "100-continue"} {
		for _, path := range []string{"/whole", "/1", "/7"} {
			for _, body := range bodies {
				for _, r := range []io.Reader{strings.NewReader(body), io.MultiReader(strings.NewReader(body))} { // the second has no length
					req, err := http.NewRequest("POST", "http://x"+path, r)
					require.NoError(t, err)
					req.Header.Set("Expect", expect)
					res, err := c.Do(req)
					require.NoError(t, err)
					got, err := io.ReadAll(res.Body)
					require.NoError(t, err)
					require.NoError(t, res.Body.Close())
					require.Equal(t, body, string(got))
				}
			}
		}
	}
}

// This client and net/http's server understand each other.
func TestClientSpeaksToNetHTTP(t *testing.T) {
	t.Parallel()
	l, dial := listen(t)
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		if r.URL.Path == "/chunks" {
			for len(b) > 0 {
				n := min(len(b), 100_000)
				_, _ = w.Write(b[:n])
				_ = http.NewResponseController(w).Flush()
				b = b[n:]
			}
		}
		_, _ = w.Write(b)
	})}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	c := &http1.Client{Dial: dial}
	defer c.CloseIdle()
	for _, path := range []string{"/whole", "/chunks"} {
		for _, body := range bodies {
			require.Equal(t, body, ask(t, c, path, body))
		}
	}
}

func ask(t *testing.T, c *http1.Client, path, body string) string {
	t.Helper()
	res, err := c.Do(context.Background(), "POST", path, nil, []byte(body))
	require.NoError(t, err)
	defer res.Close()
	require.Equal(t, 200, res.Status)
	b, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return string(b)
}

// A connection is used again; one that its server closed meanwhile is not.
func TestConnectionsAreKept(t *testing.T) {
	t.Parallel()
	_, dial := served(t, echo)
	var made []net.Conn
	c := &http1.Client{Dial: func(ctx context.Context) (net.Conn, error) {
		on, err := dial(ctx)
		made = append(made, on)
		return on, err
	}}
	defer c.CloseIdle()
	for range 10 {
		require.Equal(t, "a", ask(t, c, "/whole", "a"))
		require.Equal(t, "abc", ask(t, c, "/3", "abc"))
	}
	require.Len(t, made, 1)
	require.NoError(t, made[0].(*net.UnixConn).CloseRead()) // as a server that left
	require.Equal(t, "a", ask(t, c, "/whole", "a"))
	require.Len(t, made, 2)
}

// The context of a request ends when its client leaves; a request that follows on the connection is no leaving.
func TestLeavingIsNoticed(t *testing.T) {
	t.Parallel()
	came, left := make(chan struct{}), make(chan error, 1)
	_, dial := served(t, func(e *http1.Exchange) {
		_, _ = io.Copy(io.Discard, e.Body)
		e.Listen()
		if e.Path == "/wait" {
			close(came)
			<-e.Ctx.Done()
			left <- e.Ctx.Err()
		}
		_ = e.Reply(200, "", []byte("done"))
	})
	c := &http1.Client{Dial: dial}
	defer c.CloseIdle()
	ctx, cancel := context.WithCancel(context.Background())
	go func() { <-came; cancel() }()
	_, err := c.Do(ctx, "POST", "/wait", nil, nil)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, <-left, context.Canceled)
	for range 5 {
		require.Equal(t, "done", ask(t, c, "/now", "x"))
	}

	conn, err := dial(context.Background())
	require.NoError(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, strings.Repeat("POST /now HTTP/1.1\r\nContent-Length: 1\r\n\r\nx", 3))
	require.NoError(t, err)
	var got bytes.Buffer
	for strings.Count(got.String(), "done") < 3 {
		_, err := io.CopyN(&got, conn, 1)
		require.NoError(t, err)
	}
}

// An answer that ends before its length or its last chunk is an error, and so is what is not HTTP.
func TestWhatIsCut(t *testing.T) {
	t.Parallel()
	for name, said := range map[string]string{
		"nothing": "", "half a line": "HTTP/1.1 2", "half a head": "HTTP/1.1 200 OK\r\nContent-Le", "short": "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc",
		"no last chunk": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", "half a chunk": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nabc",
		"no fields after the last chunk": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", "two lengths": "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
		"both": "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "no number": "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
		"no HTTP": "SSH-2.0-OpenSSH_9.2\r\n\r\n", "long": "HTTP/1.1 200 OK\r\nA: " + strings.Repeat("x", 70_000) + "\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			l, dial := listen(t)
			defer l.Close()
			go func() {
				conn, err := l.Accept()
				if err == nil {
					_, _ = http.ReadRequest(bufio.NewReader(conn))
					_, _ = io.WriteString(conn, said)
					_ = conn.Close()
				}
			}()
			c := &http1.Client{Dial: dial}
			defer c.CloseIdle()
			res, err := c.Do(context.Background(), "GET", "/", nil, nil)
			if err == nil {
				_, err = io.ReadAll(res.Body)
				res.Close()
			}
			require.Error(t, err)
		})
	}
}

// A server answers what is not HTTP with 400 or by hanging up, and goes on.
func TestHostileRequests(t *testing.T) {
	t.Parallel()
	_, dial := served(t, echo)
	for _, said := range []string{
		"\r\n\r\n", "GET\r\n\r\n", "GET / HTTP/2\r\n\r\n", "GET http://x/ HTTP/1.1\r\n\r\n", "POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
		"POST / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n", "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "POST / HTTP/1.1\r\nno field\r\n\r\n",
		strings.Repeat("x", 100_000),
	} {
		conn, err := dial(context.Background())
		require.NoError(t, err)
		_, _ = io.WriteString(conn, said)
		require.NoError(t, conn.(*net.UnixConn).CloseWrite())
		got, err := io.ReadAll(conn)
		require.True(t, err == nil || errors.Is(err, io.EOF) || strings.Contains(err.Error(), "reset"), "%v", err)
		require.True(t, len(got) == 0 || strings.HasPrefix(string(got), "HTTP/1.1 400 "), "%.40q: %.60q", said, got)
		_ = conn.Close()
	}
	c := &http1.Client{Dial: dial}
	defer c.CloseIdle()
	require.Equal(t, "still", ask(t, c, "/whole", "still"))
}

// A long request that is refused before it was read gets its answer, and the connection goes on.
func TestRefusedBeforeRead(t *testing.T) {
	t.Parallel()
	_, dial := served(t, func(e *http1.Exchange) { _ = e.Reply(200, "", []byte("no")) })
	c := &http1.Client{Dial: dial}
	defer c.CloseIdle()
	for range 3 {
		require.Equal(t, "no", ask(t, c, "/", bodies[3]))
	}
}

// piped serves a request through pipes in memory, in a bubble of synctest: what is said there of time is exact on any machine.
func piped(t *testing.T, s *http1.Server) (dial func(context.Context) (net.Conn, error)) {
	t.Helper()
	l, served := dbtest.NewPipes(), make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		require.ErrorIs(t, <-served, http1.ErrClosed)
	})
	return l.Dial
}

// begin connects and sends a part of a request.
func begin(t *testing.T, dial func(context.Context) (net.Conn, error), said string) net.Conn {
	t.Helper()
	conn, err := dial(context.Background())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	_, err = io.WriteString(conn, said)
	require.NoError(t, err)
	return conn
}

// Who does not read an answer, or does not send the head of a request to its end, is cut off; who waits between requests for
// longer than that is not.
func TestSlowPeers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const short = 50 * time.Millisecond
		wrote := make(chan error, 1)
		dial := piped(t, &http1.Server{Patience: short, Reading: short, Handle: func(e *http1.Exchange) {
			if e.Path != "/long" {
				echo(e)
				return
			}
			wrote <- e.Reply(200, "", []byte(bodies[3]))
		}})
		begun := time.Now()
		_ = begin(t, dial, "GET /long HTTP/1.1\r\n\r\n")
		half := begin(t, dial, "GET /whole HTTP/1.1\r\nConte")
		got, err := io.ReadAll(half)
		require.NoError(t, err)
		require.Empty(t, got)
		require.Equal(t, short, time.Since(begun), "the head has its time, and no more")
		require.ErrorIs(t, <-wrote, os.ErrDeadlineExceeded)
		require.GreaterOrEqual(t, time.Since(begun), short)
		require.LessOrEqual(t, time.Since(begun), short+time.Second, "a write may take a second longer: its deadline is not moved for each")

		c := &http1.Client{Dial: dial}
		defer c.CloseIdle()
		require.Equal(t, "a", ask(t, c, "/whole", "a"))
		time.Sleep(2*short + time.Second) // the deadline of the write before is over
		require.Equal(t, bodies[2], ask(t, c, "/7", bodies[2]))
		go func() { <-wrote }()
		require.Equal(t, bodies[3], ask(t, c, "/long", ""), "the control: a peer that reads")
	})
}

// Who sends a body a byte at a time, or stops in the middle of it, is cut off once its time is over, whether or not the
// handler reads it, and nobody else waits meanwhile. Who sends one slowly within its time is answered.
func TestSlowBodies(t *testing.T) {
	t.Parallel()
	synctest.Test(t, slowBodies)
}

// cutOff sends a part of a request, and then a byte each time until it is cut off.
func cutOff(t *testing.T, dial func(context.Context) (net.Conn, error), said string, every time.Duration) (took time.Duration, got string) {
	begun := time.Now()
	conn := begin(t, dial, said)
	defer conn.Close()
	done := make(chan struct{})
	defer close(done)
	if every > 0 {
		go func() {
			for err := error(nil); err == nil; _, err = io.WriteString(conn, "x") {
				select {
				case <-done:
					return
				case <-time.After(every):
				}
			}
		}()
	}
	b, _ := io.ReadAll(conn) // a reset is an end, too
	return time.Since(begun), string(b)
}

func slowBodies(t *testing.T) {
	const short = 300 * time.Millisecond
	dial := piped(t, &http1.Server{Patience: short, Handle: func(e *http1.Exchange) {
		if e.Path == "/unread" {
			_ = e.Reply(200, "", []byte("no"))
			return
		}
		echo(e)
	}})
	const sized, chunks = " HTTP/1.1\r\nContent-Length: 100000\r\n\r\n{", " HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nfffff\r\nx"
	var all sync.WaitGroup
	for _, said := range []string{"POST /whole" + sized, "POST /whole" + chunks, "POST /unread" + sized, "POST /unread" + chunks} {
		for _, every := range []time.Duration{0, 10 * time.Millisecond} {
			all.Go(func() {
				took, got := cutOff(t, dial, said, every)
				assert.Equal(t, short, took, said)
				assert.Equal(t, strings.Contains(said, "unread"), strings.Contains(got, "no"), "%s: %s", said, got)
			})
		}
	}
	c := &http1.Client{Dial: dial}
	defer c.CloseIdle()
	for begun := time.Now(); time.Since(begun) < short; time.Sleep(short / 10) {
		at := time.Now()
		require.Equal(t, "a", ask(t, c, "/whole", "a"), "others are answered meanwhile")
		require.Equal(t, at, time.Now(), "and wait for nobody")
	}
	all.Wait()

	conn, err := dial(context.Background())
	require.NoError(t, err)
	defer conn.Close()
	r := bufio.NewReader(conn)
	for range 3 { // longer in all than one request may take
		for _, part := range []string{"POST /whole HTTP/1.1\r\nContent-Length: 2\r\n\r\n", "a", "b"} {
			_, err := io.WriteString(conn, part)
			require.NoError(t, err)
			time.Sleep(short / 6)
		}
		res, err := http.ReadResponse(r, nil)
		require.NoError(t, err, "the control: slow, but in time")
		got, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		require.Equal(t, "ab", string(got))
	}

	conn = begin(t, piped(t, &http1.Server{Handle: echo}), "POST /whole"+sized)
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(time.Hour)))
	_, err = conn.Read(make([]byte, 1))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded, "the negative control: a server without a deadline cuts nobody off")
}

// Connections above the limit are closed, and those that are open go on. When one ends, there is room for another.
func TestManyConnections(t *testing.T) {
	t.Parallel()
	const most = 3
	_, dial := servedBy(t, &http1.Server{Handle: echo, Conns: most})
	asks := func(conn net.Conn) error {
		if _, err := io.WriteString(conn, "POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\nhi"); err != nil {
			return err
		}
		_, err := bufio.NewReader(conn).ReadString('\n')
		return err
	}
	var open []net.Conn
	for range most {
		conn, err := dial(t.Context())
		require.NoError(t, err)
		require.NoError(t, asks(conn))
		open = append(open, conn)
	}
	extra, err := dial(t.Context())
	require.NoError(t, err)
	defer extra.Close()
	require.Error(t, asks(extra))
	for _, conn := range open[1:] {
		require.NoError(t, asks(conn))
		defer conn.Close()
	}
	require.NoError(t, open[0].Close())
	require.Eventually(t, func() bool {
		conn, err := dial(t.Context())
		require.NoError(t, err)
		defer conn.Close()
		return asks(conn) == nil
	}, time.Minute, 5*time.Millisecond)
}
