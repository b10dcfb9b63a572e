package remote

import (
	"bufio"
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"time"
)

// acceptor accepts connections and starts a goroutine for each. Its methods are safe for concurrent use.
type acceptor struct {
	serve func(net.Conn) // returns when the connection is closed

	mu        sync.Mutex
	closed    bool
	listeners map[net.Listener]bool
	conns     map[net.Conn]bool
	running   sync.WaitGroup
}

// run returns errServerClosed after close.
var errServerClosed = errors.New("the server is closed")

// run accepts connections until close.
func (a *acceptor) run(l net.Listener) error {
	if !a.take(l) {
		return errServerClosed
	}
	return a.accept(l, 0)
}

// attend is run in the background. Where the listener can be watched, no goroutine waits at it while nobody connects.
func (a *acceptor) attend(l net.Listener) {
	if a.take(l) {
		a.await(l)
	}
}

// watched is a listener that tells when somebody connects; see listener.wait.
type watched interface {
	wait(ring func()) bool
	SetDeadline(time.Time) error
}

// await accepts connections from the next one on.
func (a *acceptor) await(l net.Listener) {
	if w, ok := l.(watched); ok && w.wait(func() { a.attended(l, linger) }) {
		return
	}
	a.attended(l, 0)
}

// linger is how long a goroutine goes on accepting when nobody connects: clients open their connections one after the other.
const linger = time.Second

// attended starts the goroutine that accepts connections.
func (a *acceptor) attended(l net.Listener, patience time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return
	}
	a.running.Go(func() {
		if errors.Is(a.accept(l, patience), os.ErrDeadlineExceeded) {
			a.await(l)
		}
	})
}

// take makes the listener one that close closes; false: that was called already.
func (a *acceptor) take(l net.Listener) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		_ = l.Close()
		return false
	}
	if a.listeners == nil {
		a.listeners, a.conns = map[net.Listener]bool{}, map[net.Conn]bool{}
	}
	a.listeners[l] = true
	return true
}

// accept accepts connections until close, or until nobody has connected for the time patience; 0: until close.
func (a *acceptor) accept(l net.Listener, patience time.Duration) error {
	if w, ok := l.(watched); ok && patience == 0 {
		_ = w.SetDeadline(time.Time{}) // that of an earlier wait would end each Accept at once
	}
	for pause := time.Duration(0); ; {
		if patience > 0 {
			if err := l.(watched).SetDeadline(time.Now().Add(patience)); err != nil {
				return err
			}
		}
		c, err := l.Accept()
		if err == nil {
			pause = 0
			a.begin(c)
			continue
		}
		a.mu.Lock()
		closed := a.closed
		a.mu.Unlock()
		if closed {
			return errServerClosed
		}
		var slow interface{ Temporary() bool } // out of file descriptors, say
		if errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &slow) || !slow.Temporary() {
			return err
		}
		pause = min(max(2*pause, 5*time.Millisecond), time.Second)
		time.Sleep(pause)
	}
}

// begin serves a connection, or closes it if there are too many.
func (a *acceptor) begin(c net.Conn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed || len(a.conns) >= maxConns {
		_ = c.Close()
		return
	}
	a.conns[c] = true
	a.running.Go(func() {
		a.serve(c)
		_ = c.Close()
		a.mu.Lock()
		delete(a.conns, c)
		a.mu.Unlock()
	})
}

// close closes listeners and connections, which ends the contexts of calls under way, and waits for
// them.
func (a *acceptor) close() error {
	a.mu.Lock()
	a.closed = true
	var errs []error
	for l := range a.listeners {
		if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	for c := range a.conns {
		_ = c.Close()
	}
	a.mu.Unlock()
	a.running.Wait()
	return errors.Join(errs...)
}

// ear notices that the peer of a connection leaves while its call is answered. Most answers are given
// before it listens.
//
// Its timer is set once for all answers of a while, and is not stopped when one is given: a timer for
// each of them woke a thread that slept until a later one.
type ear struct {
	conn net.Conn
	r    *bufio.Reader

	mu    sync.Mutex
	timer *time.Timer
	set   bool               // the timer is running
	since time.Time          // when the answer was begun
	end   context.CancelFunc // of the answer; nil: there is none
	heard chan struct{}      // closed when nobody listens any more; nil: nobody did
}

// earAfter is how long an answer may take before anybody listens: most are given at once, and a
// goroutine that waits for the peer costs them more than the answer.
const earAfter = 2 * time.Millisecond

// begin ends a context when the peer leaves, within a few milliseconds. The message was read to its
// end, and answered follows.
func (l *ear) begin(end context.CancelFunc) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end, l.since = end, time.Now()
	switch {
	case l.set:
		return
	case l.timer == nil:
		l.timer = time.AfterFunc(earAfter, l.look)
	default:
		l.timer.Reset(earAfter)
	}
	l.set = true
}

// look listens if the answer has taken long enough, and is called again if it has not.
func (l *ear) look() {
	l.mu.Lock()
	if left := earAfter - time.Since(l.since); l.end != nil && left > 0 {
		l.timer.Reset(left)
		l.mu.Unlock()
		return
	}
	l.set = false
	if l.end == nil {
		l.mu.Unlock()
		return
	}
	end, heard := l.end, make(chan struct{})
	l.heard = heard
	l.mu.Unlock()
	defer close(heard)
	if _, err := l.r.Peek(1); err != nil { // a byte is of the next call
		end()
	}
}

// answered is called before the next message is read. Nobody else reads from the connection
// afterwards.
func (l *ear) answered() {
	l.mu.Lock()
	heard := l.heard
	l.end, l.heard = nil, nil
	l.mu.Unlock()
	if heard != nil { // it stops: its deadline has passed
		_ = l.conn.SetReadDeadline(time.Unix(1, 0))
		<-heard
		_ = l.conn.SetReadDeadline(time.Time{})
	}
}
