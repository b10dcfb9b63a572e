package remote

import (
	"context"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/ctxpage/ctxpage/store"
)

// Abandon ends a client as a killed process ends.
func (c *Client) Abandon() { c.abandon() }

// Speaks gives options of a program that speaks another range of protocols.
func Speaks(o ClientOptions, from, to int) ClientOptions {
	o.protocol = [2]int{from, to}
	return o
}

// ServerSpeaks gives options of a server that speaks another range of protocols.
func ServerSpeaks(o ServerOptions, from, to int) ServerOptions {
	o.protocol = [2]int{from, to}
	return o
}

// Patient gives options of a server that waits for so long for the rest of a request.
func Patient(o ServerOptions, d time.Duration) ServerOptions {
	o.patience = d
	return o
}

func seesUser(uid int) func(*net.UnixConn) (peerID, error) {
	return func(*net.UnixConn) (peerID, error) { return peerID{uid: uid}, nil }
}

// SeesUser gives options of a client that finds a user at the other end.
func SeesUser(o ClientOptions, uid int) ClientOptions {
	o.peer = seesUser(uid)
	return o
}

// SeesProcess gives options of a client that finds processes at the other end.
func SeesProcess(o ClientOptions, pid func() int) ClientOptions {
	o.peer = func(*net.UnixConn) (peerID, error) { return peerID{uid: os.Geteuid(), pid: pid()}, nil }
	return o
}

// ListenSeeing listens for connections that seem to be a user's.
func ListenSeeing(path string, uid int) (net.Listener, error) { return listen(path, seesUser(uid)) }

// HTTPClient talks to a socket without this package.
func HTTPClient(path string) *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	}}}
}

// Framed is a request.
func Framed(b []byte) []byte { return framed(frameEnd, b) }

// Through gives options of a client whose connections a test makes.
func Through(o ClientOptions, dial func(context.Context) (net.Conn, error)) ClientOptions {
	o.dial = dial
	return o
}

// Goodbye gives options of a client that waits so long for the answer to its goodbye.
func Goodbye(o ClientOptions, d time.Duration) ClientOptions {
	o.goodbye = d
	return o
}

// Dying returns options of a server that calls f instead of ending the process.
func Dying(o ServerOptions, f func(why string)) ServerOptions {
	o.fatal = f
	return o
}

// Panicking runs fn as a call of the server.
func (s *Server) Panicking(name string, fn func()) (err error) {
	defer func() {
		if why := recover(); why != nil {
			err = s.panicked(method{}, name, why)
		}
	}()
	fn()
	return nil
}

// CallNames lists the calls, sorted.
func CallNames() []string { return slices.Sorted(maps.Keys(methods)) }

// MakeCall runs a call of a store with an argument as it comes from the socket. It does not recover.
func MakeCall(ctx context.Context, st store.Store, name string, body []byte) {
	sess := newSession("fuzz", time.Minute, func(*session) {})
	defer sess.end(st)
	_, _ = methods[name].run(&request{ctx: ctx, store: st, session: sess, progress: func(string, uint64, uint64) {}}, body)
}
