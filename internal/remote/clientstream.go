package remote

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/ctxpage/ctxpage/store"
)

// A stream at the client: idle ─begin▶ busy ─end▶ idle, or closed forever with the reason why.
//
// What watches a call belongs to the stream and lives as long: a timer that is set once for many
// calls, and one function for the end of the client. Contexts and timers of each call took longer
// than its bytes. Only a call whose own context can end adds a function to that.
//
// Locks: Client.mu for the idle list; stream.mu for the state. Neither is held while the connection
// is used.

// maxStreams is how many idle streams a client keeps.
const maxStreams = 32

// stream is a connection that carries one call at a time.
type stream struct {
	c      *Client
	conn   net.Conn
	r      *bufio.Reader
	out    []byte // the last request, for the memory
	met    bool   // the server has greeted
	detach func() bool

	mu      sync.Mutex
	busy    bool
	waited  bool               // Close of the client waits for the call
	watched bool               // the call ends with errSilent if the server is silent
	calls   uint64             // begun
	since   time.Time          // when the call was begun
	why     error              // the stream was closed for it; nil: it is open
	timer   *time.Timer        // of the watch
	set     bool               // it is running
	asking  context.CancelFunc // ends a question for the status; nil: there is none
}

// idleStream takes a stream that is open, as far as anybody knows; nil: there is none.
func (c *Client) idleStream(opts callOptions) *stream {
	for {
		c.mu.Lock()
		n := len(c.streams)
		if n == 0 {
			c.mu.Unlock()
			return nil
		}
		st := c.streams[n-1]
		c.streams = c.streams[:n-1]
		c.mu.Unlock()
		if st.r.Buffered() == 0 && st.begin(opts) {
			return st
		}
		st.close(nil)
	}
}

// openStream makes a stream that is busy. Its errors say that no call was sent.
func (c *Client) openStream(ctx context.Context, opts callOptions) (*stream, error) {
	conn, err := c.dial(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUnsent, err)
	}
	st := &stream{c: c, conn: conn, r: bufio.NewReaderSize(conn, readBuffer)}
	st.begin(opts)
	st.mu.Lock() // the client may end at once
	defer st.mu.Unlock()
	st.detach = context.AfterFunc(c.ended, st.clientEnded)
	return st, nil
}

// begin makes an idle stream busy; false: it was closed.
func (st *stream) begin(opts callOptions) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.why != nil {
		return false
	}
	st.busy, st.waited, st.watched, st.since = true, opts.waited, !opts.unwatched, time.Now()
	st.calls++
	switch half := st.c.opts.Answer / 2; {
	case st.set, !st.watched:
		return true
	case st.timer == nil:
		st.timer = time.AfterFunc(half, st.look)
	default:
		st.timer.Reset(half)
	}
	st.set = true
	return true
}

// end makes the stream idle again; why is the reason for which it was closed meanwhile.
func (st *stream) end(usable bool) (why error) {
	st.mu.Lock()
	st.busy = false
	if st.asking != nil {
		st.asking()
	}
	why = st.why
	st.mu.Unlock()
	c := st.c
	c.mu.Lock()
	keep := usable && why == nil && !c.closed && len(c.streams) < maxStreams
	if keep {
		c.streams = append(c.streams, st)
	}
	c.mu.Unlock()
	if !keep {
		st.close(nil)
	}
	return why
}

// close closes the stream. The first reason stays.
func (st *stream) close(why error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.closeLocked(why)
}

// closeLocked is close for a caller that holds mu.
func (st *stream) closeLocked(why error) {
	if st.why != nil {
		return
	}
	if st.why = why; why == nil {
		st.why = net.ErrClosed
	}
	_ = st.conn.Close()
	if st.timer != nil {
		st.timer.Stop()
	}
	if st.detach != nil {
		st.detach()
	}
}

// leave ends the call that its caller gave up. Of a call that writes, the server is heard to the end,
// which it comes to as soon as it sees that nobody sends any more: what became of the call would be
// unknown otherwise, as it is not in the process that owns the files.
func (st *stream) leave(why error, writes bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	half, ok := st.conn.(interface{ CloseWrite() error })
	if !writes || !ok || st.why != nil || half.CloseWrite() != nil || st.conn.SetReadDeadline(time.Now().Add(st.c.opts.Answer/2)) != nil {
		st.closeLocked(why)
	}
}

// clientEnded closes the stream unless it carries a call that Close waits for.
func (st *stream) clientEnded() {
	st.mu.Lock()
	defer st.mu.Unlock()
	if !st.busy || !st.waited {
		st.closeLocked(store.ErrClosed)
	}
}

// look asks a server for its status that has been silent for half of the time it may be. When that
// is not answered in the other half, the call ends with errSilent.
func (st *stream) look() {
	half := st.c.opts.Answer / 2
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.set = st.busy && st.watched && st.why == nil; !st.set {
		return
	}
	if left := half - time.Since(st.since); left > 0 {
		st.timer.Reset(left)
		return
	}
	call := st.calls
	short, stop := context.WithTimeout(background, half)
	defer stop()
	st.asking = stop
	st.mu.Unlock()
	err := st.c.plain(short, "Status", "", new(Status), true)
	st.mu.Lock()
	st.asking = nil
	if st.busy && st.calls == call && err != nil && errors.Is(short.Err(), context.DeadlineExceeded) {
		st.closeLocked(errSilent)
	}
	if st.set = st.why == nil; st.set {
		st.timer.Reset(half)
	}
}

// first makes an attempt on an idle stream, as nearly all calls do. tried is
// false where there is none.
func (t *pendingCall) first(ctx context.Context) (b []byte, tried bool, err error) {
	s := t.c.current()
	if s == nil {
		return nil, false, nil
	}
	if b, tried, err = t.onIdle(ctx, s.Session); tried {
		err = t.made(s, err)
	}
	return b, tried, err
}

// onIdle makes the call on the first idle stream that takes it. From others the server has left.
func (t *pendingCall) onIdle(ctx context.Context, session string) (b []byte, tried bool, err error) {
	for {
		st := t.c.idleStream(t.opts)
		if st == nil {
			return nil, false, nil
		}
		if b, err = t.carry(ctx, st, session); !unsent(err) || ctx.Err() != nil {
			return b, true, err
		}
	}
}

// onStream makes the call on an idle stream or on a new one.
func (t *pendingCall) onStream(ctx context.Context, session string) ([]byte, error) {
	if b, tried, err := t.onIdle(ctx, session); tried {
		return b, err
	}
	st, err := t.c.openStream(ctx, t.opts)
	if err != nil {
		return nil, err
	}
	return t.carry(ctx, st, session)
}

// carry makes the call on a stream that is busy with it.
func (t *pendingCall) carry(ctx context.Context, st *stream, session string) (b []byte, err error) {
	quiet := func() bool { return true }
	if ctx.Done() != nil {
		quiet = context.AfterFunc(ctx, func() { st.leave(ctx.Err(), t.opts.writes) })
	}
	b, err = t.exchange(st, session)
	var said *answered
	var no *refused
	usable := quiet() && (err == nil || errors.As(err, &said) || errors.As(err, &no))
	if why := st.end(usable); err != nil && !usable && why != nil && !errors.Is(why, net.ErrClosed) {
		err = fmt.Errorf("%w: %w", why, err)
	}
	return b, err
}

// exchange writes the request and reads the answer. The first call of a connection goes with the
// greeting. A server makes no call before it has greeted, so without its greeting nothing was done.
func (t *pendingCall) exchange(st *stream, session string) ([]byte, error) {
	head := st.out[:0]
	if !st.met {
		head = append(head, greeting...)
	}
	head = appendCall(head, callHead{t.number, session, t.name})
	n, err := int64(0), error(nil)
	if len(t.message) <= keptRequest {
		st.out = append(head, t.message...)
		var wrote int
		wrote, err = st.conn.Write(st.out)
		n = int64(wrote)
	} else {
		n, err = (&net.Buffers{head, t.message}).WriteTo(st.conn)
	}
	if !st.met && (err == nil || n > 0) { // a server that greets differently closes, and may do so before all is sent
		if bad := st.meet(); bad != nil {
			return nil, bad
		}
	}
	if err != nil {
		if n == 0 {
			err = fmt.Errorf("%w: %w", errUnsent, err)
		}
		return nil, err
	}
	if do := t.opts.meanwhile; do != nil {
		t.opts.meanwhile = nil // of a second attempt
		do()
	}
	return t.readAnswer(st.r)
}

// meet reads the greeting of the server.
func (st *stream) meet() error {
	said := make([]byte, len(greeting))
	n, err := io.ReadFull(st.r, said)
	switch {
	case err != nil && n == 0:
		return fmt.Errorf("%w: %w: %w", errUnsent, errCut, err)
	case err != nil && strings.HasPrefix(greeting, string(said[:n])): // it greeted, and may have made the call
		return fmt.Errorf("%w: %w", errCut, err)
	case string(said[:n]) != greeting:
		return fmt.Errorf("%w: %w", errUnsent, &SkewError{Path: st.c.path, PID: int(st.c.reached.Load()), Said: string(said[:n])})
	}
	st.met = true
	return nil
}

// keptRequest is up to how many bytes the memory of a request is kept.
const keptRequest = 64 << 10
