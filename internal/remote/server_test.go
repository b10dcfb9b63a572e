package remote_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/remote"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Recorded bytes of programs made before v0.1.0, which spoke HTTP: the hello of a client, and what a server said to a request
// that it did not know.
const (
	oldHello  = "POST /hello HTTP/1.1\r\nHost: ctxpage\r\ncontent-type: application/json\r\nContent-Length: 47\r\n\r\n{\"min\":1,\"max\":5,\"pid\":4711,\"program\":\"dbctl\"}"
	oldAnswer = "HTTP/1.1 400 Bad Request\r\nDate: Sat, 28 Nov 2026 07:35:00 GMT\r\nContent-Type: text/plain\r\nContent-Length: 46\r\nConnection: close\r\n\r\nmalformed HTTP message: request \"ctxpage/1\"\n"
)

// A client from before is refused, and told so as it expects it; one that greets with another protocol is refused, too. Neither
// has anything done. The control: this protocol's greeting is answered.
func TestOtherClients(t *testing.T) {
	t.Parallel()
	mem := newMemory(t)
	path := socket(t)
	serve(t, mem, path, remote.ServerOptions{})
	say := func(said string) string {
		c := must(remote.Connect(context.Background(), path))(t)
		defer c.Close()
		must(io.WriteString(c, said))(t)
		require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Minute)))
		got, err := io.ReadAll(c)
		if err != nil { // what was not read resets the connection, behind the answer
			require.ErrorContains(t, err, "reset")
		}
		return string(got)
	}
	for _, said := range []string{oldHello, "GET /status HTTP/1.1\r\nHost: ctxpage\r\n\r\n"} {
		res := must(http.ReadResponse(bufio.NewReader(strings.NewReader(say(said))), nil))(t)
		var no struct{ Code, Message string }
		require.NoError(t, json.NewDecoder(res.Body).Decode(&no))
		require.NoError(t, res.Body.Close())
		require.Equal(t, http.StatusConflict, res.StatusCode)
		require.Equal(t, "skew", no.Code)
		require.Contains(t, no.Message, "made before v0.1.0")
	}
	require.Equal(t, remote.Greeting, say("ctxpage/2\r\n\r\n"+string(remote.Call(0, "", "Hello", []byte{0x80}))), "and nothing else")
	is := must(remote.GetStatus(ctx, path, remote.ClientOptions{}))(t)
	require.Zero(t, is.Clients)
	c := dial(t, path, remote.ClientOptions{})
	must(c.Stat(ctx))(t)
}

// A server from before is never asked for anything: its answer to the greeting is a typed error. So is that of another protocol.
func TestOtherServers(t *testing.T) {
	t.Parallel()
	for name, says := range map[string]string{"made before v0.1.0": oldAnswer, `greets with "ctxpage/2\r\n\r\n"`: "ctxpage/2\r\n\r\n"} {
		path := socket(t)
		l := must(remote.Listen(path))(t)
		var heard atomic.Value
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				b := make([]byte, len(remote.Greeting)+200)
				n, _ := c.Read(b)
				heard.Store(string(b[:n]))
				_, _ = io.WriteString(c, says)
				_ = c.Close()
			}
		}()
		ask := map[string]func() error{
			"dial":   func() error { _, err := remote.Dial(ctx, path, remote.ClientOptions{}); return err },
			"status": func() error { _, err := remote.GetStatus(ctx, path, remote.ClientOptions{}); return err },
			"stop":   func() error { _, err := remote.Stop(ctx, path, remote.ClientOptions{}); return err },
		}
		for what, do := range ask {
			err := do()
			var skew *remote.SkewError
			require.ErrorAs(t, err, &skew, what)
			require.Equal(t, path, skew.Path)
			require.Equal(t, os.Getpid(), skew.PID)
			require.Equal(t, says == oldAnswer, skew.Before())
			require.ErrorContains(t, err, name)
			require.ErrorContains(t, err, "end that program")
			require.False(t, remote.Gone(err), "it is there")
			require.NotErrorIs(t, err, store.ErrOutcomeUnknown)
			require.True(t, strings.HasPrefix(heard.Load().(string), "ctxpage/1\r\n\r\n"), "which an old server takes for a whole request")
		}
		require.NoError(t, l.Close())
	}
}

// A request that stops in the middle is cut off, whatever it asks for; nothing waits for it, and the server can end.
func TestRequestsThatStop(t *testing.T) {
	t.Parallel()
	const short = 300 * time.Millisecond
	path := socket(t)
	end := serve(t, newMemory(t), path, remote.Patient(remote.ServerOptions{}, short))
	c := dial(t, path, remote.ClientOptions{})
	raw := must(remote.Connect(context.Background(), path))(t)
	defer raw.Close()
	session := must(remote.HelloOn(raw))(t)
	stat := string(remote.Call(1, session, "Stat", []byte{0x80}))
	begun := time.Now()
	var all sync.WaitGroup
	for _, said := range []string{"ctx", remote.Greeting + "c", remote.Greeting + stat[:9], remote.Greeting + stat[:len(stat)-1]} {
		all.Go(func() {
			conn, err := remote.Connect(context.Background(), path)
			if !assert.NoError(t, err) {
				return
			}
			defer conn.Close()
			_, err = io.WriteString(conn, said)
			assert.NoError(t, err)
			assert.NoError(t, conn.SetReadDeadline(begun.Add(time.Minute)))
			got, err := io.ReadAll(conn)
			assert.NotErrorIs(t, err, os.ErrDeadlineExceeded, said)
			assert.NotContains(t, string(got), remote.Greeting+"r", said)
			assert.GreaterOrEqual(t, time.Since(begun), short, said)
		})
	}
	for n := 0; time.Since(begun) < short; n++ {
		require.NoError(t, errOf(c.Commit(ctx, fact(t, fmt.Sprint("fact-", n), "zebra"))), "others are served meanwhile")
	}
	all.Wait()
	for range 3 { // the connections of others are not cut when they are quiet for longer
		time.Sleep(short)
		must(c.Stat(ctx))(t)
	}
	stops := must(remote.Connect(context.Background(), path))(t)
	defer stops.Close()
	must(io.WriteString(stops, remote.Greeting+stat[:9]))(t)
	end()
}

// A server beside other work of its program is not stopped from outside.
func TestStopRefused(t *testing.T) {
	t.Parallel()
	path := socket(t)
	end := serve(t, newMemory(t), path, remote.ServerOptions{})
	require.ErrorContains(t, errOf(remote.Stop(ctx, path, remote.ClientOptions{})), "end it there")
	end()
	var nobody *remote.UnavailableError
	_, err := remote.GetStatus(ctx, path, remote.ClientOptions{})
	require.ErrorAs(t, err, &nobody)
	require.NotErrorIs(t, err, store.ErrLocked, "nobody has it")
}

// Processes of another user are not served, and not spoken to.
func TestForeignUser(t *testing.T) {
	t.Parallel()
	path := socket(t)
	serve(t, newMemory(t), path, remote.ServerOptions{})
	require.ErrorIs(t, errOf(remote.Dial(ctx, path, remote.SeesUser(remote.ClientOptions{}, os.Geteuid()+1))), remote.ErrForeign)
	c := must(remote.Dial(ctx, path, remote.SeesUser(remote.ClientOptions{}, os.Geteuid())))(t)
	require.NoError(t, c.Close())

	other := socket(t)
	srv := must(remote.NewServer(ctx, newMemory(t), remote.ServerOptions{}))(t)
	l := must(remote.ListenSeeing(other, os.Geteuid()+1))(t)
	go func() { _ = srv.Serve(l) }()
	defer srv.Close()
	_, err := remote.Dial(ctx, other, remote.ClientOptions{})
	var nobody *remote.UnavailableError
	require.ErrorAs(t, err, &nobody)
}

// The socket is this user's alone; a stale one is replaced, and nothing else is.
func TestListen(t *testing.T) {
	dbtest.NeedsPosix(t, "sockets with a mode; TestLoopback has the rest")
	t.Parallel()
	path := socket(t)
	l := must(remote.Listen(path))(t)
	st := must(os.Stat(path))(t)
	require.Equal(t, os.FileMode(0o600), st.Mode().Perm())
	l.(interface{ SetUnlinkOnClose(bool) }).SetUnlinkOnClose(false) // as after a kill
	require.NoError(t, l.Close())
	l = must(remote.Listen(path))(t)
	require.NoError(t, os.Remove(path))
	other := must(remote.Listen(path))(t) // of a database that was put in the place of the first
	require.NoError(t, l.Close())
	require.NoError(t, errOf(os.Stat(path)), "the socket of another server stays")
	require.NoError(t, other.Close())
	require.ErrorIs(t, errOf(os.Stat(path)), os.ErrNotExist)
	require.NoError(t, os.WriteFile(path, []byte("a file"), 0o600))
	require.ErrorIs(t, errOf(remote.Listen(path)), store.ErrInvalid)
	b := must(os.ReadFile(path))(t)
	require.Equal(t, "a file", string(b))
	require.ErrorIs(t, errOf(remote.Listen("/"+strings.Repeat("x", 1<<15))), store.ErrInvalid)
}

// A database with a long path is served at a short name in a directory of the user's own.
func TestSocketPath(t *testing.T) {
	dbtest.NeedsPosix(t, "a limit of the path of a socket")
	dir := filepath.Dir(socket(t))
	real := must(filepath.EvalSymlinks(dir))(t)
	short := filepath.Join(dir, "agent.ctx")
	got := must(remote.SocketPath(short))(t)
	require.Equal(t, filepath.Join(real, "agent.ctx.sock"), got)

	deep := filepath.Join(dir, strings.Repeat("d", 60), strings.Repeat("e", 60))
	require.NoError(t, os.MkdirAll(deep, 0o700))
	long := filepath.Join(deep, "agent.ctx")
	require.ErrorIs(t, errOf(remote.SocketPath(long)), os.ErrNotExist, "the lock file gives the name")
	require.NoError(t, os.WriteFile(long+".lock", nil, 0o600))
	require.NoError(t, os.Chmod(dir, 0o700))
	t.Setenv("XDG_RUNTIME_DIR", dir)
	got = must(remote.SocketPath(long))(t)
	require.Equal(t, dir, filepath.Dir(got))
	require.LessOrEqual(t, len(got), 103)
	require.NoError(t, os.Symlink(deep, filepath.Join(dir, "link")))
	same := must(remote.SocketPath(filepath.Join(dir, "link", "agent.ctx")))(t)
	require.Equal(t, got, same, "a link leads to the file's own socket")

	serve(t, newMemory(t), got, remote.ServerOptions{})
	dial(t, got, remote.ClientOptions{})
	own := fmt.Sprintf("/tmp/ctxpage-%d", os.Geteuid())
	require.NoError(t, os.Chmod(dir, 0o755))
	for _, unfit := range []string{dir, filepath.Join(dir, "missing"), ""} {
		t.Setenv("XDG_RUNTIME_DIR", unfit)
		got = must(remote.SocketPath(long))(t)
		require.Equal(t, own, filepath.Dir(got), "others can look into the directory, or there is none")
	}
}

// Results of any length pass: a page of the largest text, and more leaves than fit into one answer.
func TestLongResults(t *testing.T) {
	t.Parallel()
	mem := newMemory(t)
	path := socket(t)
	serve(t, mem, path, remote.ServerOptions{})
	c := dial(t, path, remote.ClientOptions{})
	text := strings.Repeat("zebra ", store.MaxText/6)
	var keys []store.PageKey
	for i := range 2 {
		id := fmt.Sprint("long ", i)
		must(c.Commit(ctx, fact(t, id, text)))(t)
		l := must(c.Resolve(ctx, store.Scopes{"acme"}, store.Ref{ID: id}))(t)
		keys = append(keys, l.Pages...)
	}
	got := must(c.Load(ctx, nil, keys, store.WantText))(t)
	require.True(t, got[0].Text == text && got[1].Text == text)
	require.Greater(t, len(got[0].Text)+len(got[1].Text), remote.MaxFrame)

	note := strings.Repeat("n", 100_000)
	for i := range 100 {
		require.NoError(t, c.Append(ctx, []*manifest.Record{{Type: manifest.TypeGet, Trace: fmt.Sprint(i), Time: 1, Note: note}}, store.Written))
	}
	for _, reverse := range []bool{false, true} {
		want := must(mem.Audit().Records(ctx, 3, 101, reverse, 90))(t)
		leaves := must(c.Audit().Records(ctx, 3, 101, reverse, 90))(t)
		require.Equal(t, want, leaves)
		require.Len(t, leaves, 90)
	}
}

// More clients than there are places for are refused.
func TestMaxClients(t *testing.T) {
	t.Parallel()
	path := socket(t)
	serve(t, newMemory(t), path, remote.ServerOptions{MaxClients: 1})
	c := dial(t, path, remote.Goodbye(remote.ClientOptions{}, time.Minute)) // until the server has forgotten it
	require.ErrorContains(t, errOf(remote.Dial(ctx, path, remote.ClientOptions{})), "1 clients are served, which is the limit")
	require.NoError(t, c.Close())
	dial(t, path, remote.ClientOptions{})
}

// A hundred clients write at once: each commit is there, once.
func TestManyClients(t *testing.T) {
	t.Parallel()
	mem := newMemory(t)
	path := socket(t)
	serve(t, mem, path, remote.ServerOptions{Lease: time.Hour})
	var wg sync.WaitGroup
	clients := make([]*remote.Client, 100)
	for i := range clients {
		batch := fact(t, fmt.Sprint("of ", i), "zebra")
		wg.Go(func() {
			c, err := remote.Dial(ctx, path, remote.Goodbye(remote.ClientOptions{Answer: time.Minute}, time.Minute)) // the machine may be busy with others
			if err == nil {
				_, err = c.Commit(ctx, batch)
			}
			if err != nil {
				t.Errorf("client %d: %v", i, err)
				return
			}
			clients[i] = c
		})
	}
	wg.Wait()
	for _, c := range clients {
		require.NotNil(t, c)
		require.NoError(t, c.Close())
	}
	require.EqualValues(t, 100, mem.Mark().LSN)
	is := must(remote.GetStatus(ctx, path, remote.ClientOptions{Answer: time.Minute}))(t)
	require.Zero(t, is.Clients, "each said goodbye")
}

// A client may be closed in the moment in which a call opens its stream: under the race detector, the two do not meet.
func TestCloseWhileStreamsOpen(t *testing.T) {
	path := socket(t)
	serve(t, newMemory(t), path, remote.ServerOptions{})
	for i := range 400 {
		c := must(remote.Dial(ctx, path, remote.ClientOptions{}))(t)
		for range 4 {
			go func() { _, _ = c.Stat(ctx) }()
		}
		time.Sleep(time.Duration(i%40) * 20 * time.Microsecond)
		require.NoError(t, c.Close())
	}
}
