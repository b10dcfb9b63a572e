package remote

import (
	"context"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"time"

	"github.com/ctxpage/ctxpage/store"
	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

// Abandon ends the client without a goodbye, as a kill would.
func (c *Client) Abandon() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.end()
	c.running.Wait()
}

// Patient gives options of a server that waits for so long for the rest of a request.
func Patient(o ServerOptions, d time.Duration) ServerOptions {
	o.patience = d
	return o
}

func seesUser(uid int) func(net.Conn) (peerID, error) {
	return func(net.Conn) (peerID, error) { return peerID{uid: uid}, nil }
}

// SeesUser gives options of a client that finds a user at the other end.
func SeesUser(o ClientOptions, uid int) ClientOptions {
	o.peer = seesUser(uid)
	return o
}

// SeesProcess gives options of a client that finds processes at the other end.
func SeesProcess(o ClientOptions, pid func() int) ClientOptions {
	o.peer = func(net.Conn) (peerID, error) { return peerID{uid: os.Geteuid(), pid: pid()}, nil }
	return o
}

// ListenSeeing listens for connections that seem to be a user's.
func ListenSeeing(path string, uid int) (net.Listener, error) { return listen(path, seesUser(uid)) }

// Greeting is the first that each end of a connection sends.
const Greeting = greeting

// Call is a call as it is sent.
func Call(number uint64, session, name string, body []byte) []byte {
	return append(appendCall(nil, callHead{number, session, name}), framed(frameEnd, body)...)
}

// HelloOn greets and says hello on a connection, and returns the session.
func HelloOn(c net.Conn) (session string, err error) {
	if _, err = c.Write(append([]byte(greeting), Call(0, "", "Hello", []byte{msgpcode.FixedMapLow})...)); err != nil {
		return "", err
	}
	if _, err = io.ReadFull(c, make([]byte, len(greeting))); err != nil {
		return "", err
	}
	var w welcome
	_, b, err := readMessage(c, maxAnswer, nil)
	if err == nil {
		err = unpack(b, &w)
	}
	return w.Session, err
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
