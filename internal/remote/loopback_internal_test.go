package remote

import (
	"context"
	"crypto/rand"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
)

// echo serves a loopback socket: what a connection says comes back.
func echo(t *testing.T, path string) net.Listener {
	t.Helper()
	l := must(listenLoopback(path, func(net.Conn) (peerID, error) { return peerID{uid: os.Geteuid()}, nil }))(t)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				if c.LocalAddr().Network() == "unix" { // no caller is asked for the name of a host
					_, _ = io.Copy(c, c)
				}
			}()
		}
	}()
	return l
}

// Both ends prove that they read the file: one that knows the port alone gets nothing, as a server or as a client.
func TestLoopback(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.ctx.sock")
	l := echo(t, path)
	require.Equal(t, path, l.Addr().String())
	is := must(readLoopback(path))(t)
	require.Equal(t, os.Getpid(), is.PID)

	c := must(connectLoopback(t.Context(), path))(t)
	defer c.Close()
	must(c.Write([]byte("hello")))(t)
	got := make([]byte, 5)
	must(io.ReadFull(c, got))(t)
	require.Equal(t, "hello", string(got))

	// A program without the secret: the server disconnects it, and echoes nothing.
	stranger := must(net.Dial("tcp", is.Address))(t)
	defer stranger.Close()
	require.NoError(t, stranger.SetDeadline(time.Now().Add(time.Minute)))
	guess := make([]byte, challengeBytes)
	must(rand.Read(guess))(t)
	require.ErrorIs(t, giveProof(stranger, guess), errUnproven, "the client notices, too")
	_, err := stranger.Write(make([]byte, 64))
	if err == nil {
		n, rerr := stranger.Read(make([]byte, 1))
		require.Zero(t, n)
		require.Error(t, rerr)
	}

	// A program at the port of a server that is gone: the client sends it a challenge and nothing else.
	fake := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer fake.Close()
	seen := make(chan int, 1)
	go func() {
		c, err := fake.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		b := make([]byte, challengeBytes)
		n, _ := io.ReadFull(c, b)
		_, _ = c.Write(make([]byte, 64))
		more, _ := io.Copy(io.Discard, c)
		seen <- n + int(more)
	}()
	other := filepath.Join(t.TempDir(), "other.sock")
	require.NoError(t, os.WriteFile(other, []byte(`{"loopback":"`+fake.Addr().String()+`","secret":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="}`), 0o600))
	require.ErrorIs(t, errOf(connectLoopback(t.Context(), other)), errUnproven)
	require.Equal(t, challengeBytes, <-seen)

	// Another file is left alone; a stale one is replaced; closing removes one's own.
	notes := filepath.Join(t.TempDir(), "notes")
	require.NoError(t, os.WriteFile(notes, []byte("buy milk"), 0o600))
	require.ErrorIs(t, errOf(listenLoopback(notes, nil)), store.ErrInvalid)
	second := echo(t, path)
	require.NoError(t, l.Close())
	require.FileExists(t, path, "it is the second server's")
	require.NoError(t, second.Close())
	require.NoFileExists(t, path)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, errOf(connectLoopback(ctx, path)), os.ErrNotExist)
}

// A caller that sends no more still gets the answer: what became of a write that it gave up is known.
func TestLoopbackHalfClosed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.ctx.sock")
	echo(t, path)
	c := must(connectLoopback(t.Context(), path))(t)
	defer c.Close()
	must(c.Write([]byte("hello")))(t)
	require.NoError(t, c.(interface{ CloseWrite() error }).CloseWrite())
	got := must(io.ReadAll(c))(t)
	require.Equal(t, "hello", string(got), "the other end saw the end, and answered")
	require.Error(t, errOf(c.Write([]byte("more"))), "the control")
}

// A server that ends before it has proved itself is noticed as at a socket: the connection is made, and cannot be used. So the caller knows
// which process it was.
func TestLoopbackServerEnds(t *testing.T) {
	ending := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer ending.Close()
	go func() {
		if c, err := ending.Accept(); err == nil {
			_ = c.Close()
		}
	}()
	path := filepath.Join(t.TempDir(), "agent.ctx.sock")
	require.NoError(t, os.WriteFile(path, []byte(`{"loopback":"`+ending.Addr().String()+`","pid":7,"secret":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="}`), 0o600))
	c := must(connectLoopback(t.Context(), path))(t)
	defer c.Close()
	require.Equal(t, 7, c.(*loopbackConn).pid)
	n, err := c.Write([]byte("secrets"))
	require.Error(t, err)
	require.Zero(t, n, "nothing was sent")
}
