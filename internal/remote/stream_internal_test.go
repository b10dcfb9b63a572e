package remote

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/storetest"
	"github.com/stretchr/testify/require"
	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

// rawStream is a stream that a test writes byte by byte, and a session on its server.
type rawStream struct {
	net.Conn
	r       *bufio.Reader
	session string
}

func newRawStream(t *testing.T, opts ServerOptions) *rawStream {
	t.Helper()
	dir := must(os.MkdirTemp("", "ctxpage"))(t) // short enough for a socket
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	l := must(Listen(path))(t)
	return rawStreamOn(t, opts, l, func(context.Context) (net.Conn, error) { return Connect(context.Background(), path) })
}

// newPipedStream makes one in a bubble of synctest, whose clock no load moves.
func newPipedStream(t *testing.T, opts ServerOptions) *rawStream {
	t.Helper()
	l := dbtest.NewPipes()
	return rawStreamOn(t, opts, l, l.Dial)
}

func rawStreamOn(t *testing.T, opts ServerOptions, l net.Listener, dial func(context.Context) (net.Conn, error)) *rawStream {
	t.Helper()
	mem := must(storetest.NewMemory(storetest.Config{Now: time.Now}))(t)
	srv := must(NewServer(context.Background(), mem, opts))(t)
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	t.Cleanup(func() { require.NoError(t, srv.Close()); require.NoError(t, <-done) })
	sess := must(srv.begin())(t)
	conn := must(dial(context.Background()))(t)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(time.Minute)))
	must(io.WriteString(conn, greeting))(t)
	must(io.ReadFull(conn, make([]byte, len(greeting))))(t)
	return &rawStream{conn, bufio.NewReader(conn), sess.id}
}

// says sends a call and gives the answer: its kind, and a refusal's code.
func (s *rawStream) says(t *testing.T, h callHead, body []byte) (kind byte, code string) {
	t.Helper()
	must(s.Write(append(appendCall(nil, h), framed(frameEnd, body)...)))(t)
	kind, b, err := readMessage(s.r, maxAnswer, nil)
	require.NoError(t, err)
	if kind == frameRefused {
		return kind, parseRefusal(b).(*refused).Code
	}
	return kind, ""
}

// What is refused on a stream leaves it usable: only bytes that are no call end it.
func TestStreamRefuses(t *testing.T) {
	t.Parallel()
	s := newRawStream(t, ServerOptions{})
	empty := []byte{msgpcode.FixedMapLow}
	for n, c := range []struct {
		h    callHead
		body []byte
		kind byte
		code string
	}{
		{callHead{1, s.session, "Stat"}, empty, frameEnd, ""},
		{callHead{2, s.session, "Nothing"}, empty, frameRefused, refusedMethod},
		{callHead{3, "none", "Stat"}, empty, frameRefused, refusedSession},
		{callHead{3, "none", "Commit"}, empty, frameRefused, refusedSession},
		{callHead{0, "", "Stop"}, empty, frameRefused, refusedStop},
		{callHead{0, "", "Bye"}, empty, frameEnd, ""}, // of no session
		{callHead{0, "", "Status"}, empty, frameEnd, ""},
		{callHead{4, s.session, "State"}, []byte{msgpcode.Map16}, frameRefused, refusedBody},
		{callHead{5, s.session, "Held"}, append([]byte{msgpcode.Bin8, 16}, make([]byte, 16)...), frameError, ""}, // there is no such batch
		{callHead{6, s.session, "Stat"}, empty, frameEnd, ""},
	} {
		kind, code := s.says(t, c.h, c.body)
		require.Equal(t, string(c.kind)+c.code, string(kind)+code, "call %d", n)
	}
}

// Bytes that are no call end a stream.
func TestStreamOfNoCalls(t *testing.T) {
	t.Parallel()
	long := append([]byte{frameCall}, binary.BigEndian.AppendUint32(nil, maxCallHead+1)...)
	short := append([]byte{frameCall}, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 1, 200) // a session of 200 bytes in none
	for name, said := range map[string]string{
		"http":         "POST /v1/Stat HTTP/1.1\r\n\r\n",
		"no head":      "r\x00\x00\x00\x01\x80",
		"long head":    string(long),
		"short head":   string(short),
		"endless body": string(appendCall(nil, callHead{1, "x", "Stat"})) + "d\xff\xff\xff\xff",
		"no request":   string(appendCall(nil, callHead{1, "x", "Stat"})) + "e\x00\x00\x00\x00",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newRawStream(t, ServerOptions{})
			must(io.WriteString(s, said))(t)
			_, err := io.Copy(io.Discard, s.r)
			if err != nil { // the server closed it before it read everything
				require.ErrorContains(t, err, "reset")
			}
		})
	}
}

// A call that stops in the middle ends its stream after the patience of the server; a stream that is quiet between calls
// stays.
func TestStreamThatStops(t *testing.T) {
	t.Parallel()
	const short = 200 * time.Millisecond
	whole := string(appendCall(nil, callHead{1, strings.Repeat("x", 32), "Stat"})) + "r\x00\x00\x00\x01\x80"
	for _, n := range []int{1, frameHeader, frameHeader + 3, len(whole) - 3, len(whole) - 1} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newPipedStream(t, ServerOptions{patience: short})
				time.Sleep(2 * short)
				kind, _ := s.says(t, callHead{1, s.session, "Stat"}, []byte{msgpcode.FixedMapLow})
				require.EqualValues(t, frameEnd, kind, "it was quiet")
				begun := time.Now()
				must(io.WriteString(s, whole[:n]))(t)
				must(io.Copy(io.Discard, s.r))(t)
				require.Equal(t, short, time.Since(begun))
			})
		})
	}
}

// A call that is not known and came in two parts leaves no deadline behind: the stream may be quiet for as long as before.
func TestStreamAfterUnknownCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const short = 200 * time.Millisecond
		s := newPipedStream(t, ServerOptions{patience: short})
		unknown := append(appendCall(nil, callHead{1, s.session, "Nothing"}), framed(frameEnd, []byte{msgpcode.FixedMapLow})...)
		must(s.Write(unknown[:3]))(t)
		time.Sleep(short / 4)
		must(s.Write(unknown[3:]))(t)
		kind, b, err := readMessage(s.r, maxAnswer, nil)
		require.NoError(t, err)
		require.EqualValues(t, frameRefused, kind)
		require.Equal(t, refusedMethod, parseRefusal(b).(*refused).Code)
		time.Sleep(2 * short)
		kind, _ = s.says(t, callHead{2, s.session, "Stat"}, []byte{msgpcode.FixedMapLow})
		require.EqualValues(t, frameEnd, kind)
	})
}
