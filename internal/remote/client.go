package remote

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ctxpage/ctxpage/store"
)

var background = context.Background()

// ClientOptions configure a Client. The zero value is ready to use.
type ClientOptions struct {
	// Answer is how long a server may be silent before it is considered stopped or hung; 0 means 2 s. Long work does not
	// count as silence: the server is asked for its status in the meantime.
	Answer time.Duration
	// RetryFor is how long a call is retried while connections fail; 0 means 2 s. The time begins anew with each
	// process that serves, so a call survives several owners that are killed one after the other.
	RetryFor time.Duration
	// Vacant is called while no server listens at the socket, or the server is closing. If it took the database over,
	// it returns true; then the current call and all later ones return a *TakenError. If Vacant is nil, the client
	// waits for another server. If it is set, the client notices the end of its server even between calls.
	Vacant func(context.Context) bool
	// Met, if not nil, is called when a session with a server has begun: after Dial, and with each server that replaces
	// another; and when a call that was retried is answered. It must not call the client.
	Met func()
	// Socket returns the current path of the socket; nil means the path given to Dial.
	Socket func() string
	// Now is the clock of Mark.Heard; nil means the system clock.
	Now func() time.Time

	peer    func(net.Conn) (peerID, error)
	dial    func(ctx context.Context) (net.Conn, error) // of a test: connects without a socket
	goodbye time.Duration                               // of a test: how long Close waits for the answer to it, if that is not byeTime
}

// withDefaults fills in what is zero, and refuses negative times.
func (o ClientOptions) withDefaults() (ClientOptions, error) {
	if o.Answer == 0 {
		o.Answer = 2 * time.Second
	}
	if o.RetryFor == 0 {
		o.RetryFor = 2 * time.Second
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.peer == nil {
		o.peer = peerOf
	}
	if o.goodbye == 0 {
		o.goodbye = byeTime
	}
	if o.Answer < 0 || o.RetryFor < 0 {
		return o, store.Invalid("ClientOptions", "a negative time", "zero or more")
	}
	return o, nil
}

// Client is a store.Store that another process serves. Its methods are safe for concurrent use.
//
// A call whose connection fails is retried (see the package comment). In addition to the errors of store.Store, a call
// returns an *UnavailableError if no server answers, and a *SkewError if the current server speaks another protocol. A
// Commit or Append whose outcome is not known returns store.ErrOutcomeUnknown.
//
// Mark returns what the last answer said, and its field Heard the time of that call; reads may see
// newer commits.
//
// Two goroutines run beside the calls. renew keeps the session alive while there are holds, and
// sends releases. watchServer, with Vacant set, notices the end of the server. Both end with Close.
//
// Fields: mu guards what follows it, down to streams. calls and ticket only rise, so a number that
// the client gave up is never sent for another call. helloLock, renewLock and releases are channels
// that hold one token.
type Client struct {
	path string
	opts ClientOptions
	dial func(context.Context) (net.Conn, error)

	calls     atomic.Uint64
	ticket    atomic.Uint64
	reached   atomic.Int64  // the process that was connected to last
	helloLock chan struct{} // of one: held by the goroutine that says hello
	renewLock chan struct{} // of one: held while releases are sent

	mu      sync.Mutex
	closed  bool
	session *welcome // nil: none
	server  Status   // that answered last
	mark    store.Mark
	holds   map[store.Ticket]store.Moment
	freed   []store.Ticket // to be released
	givenUp []uint64       // calls of Commit that no caller waits for
	streams []*stream      // idle ones, the latest used last
	// resolves are answers that may be old, for a Guess.
	resolves map[store.Ref]answeredResolve
	left     chan struct{} // closed when a server left, see watchServer; the next one is for the next server

	releases chan struct{}   // of one: there are holds to be released
	ended    context.Context // when the client is closed
	end      context.CancelFunc
	running  sync.WaitGroup
}

var _ store.Store = (*Client)(nil)

// Dial connects to the server at a socket. Errors: *UnavailableError, *SkewError, ErrForeign.
func Dial(ctx context.Context, path string, opts ClientOptions) (*Client, error) {
	c, err := newClient(path, opts)
	if err != nil {
		return nil, err
	}
	if _, err := c.greet(ctx); err != nil {
		c.end()
		return nil, c.noWelcome(ctx, err)
	}
	c.running.Add(1)
	go c.renew()
	if c.opts.Vacant != nil {
		c.running.Add(1)
		go c.watchServer()
	}
	return c, nil
}

// newClient returns a client without a session.
func newClient(path string, opts ClientOptions) (*Client, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &Client{path: path, opts: opts, helloLock: make(chan struct{}, 1), renewLock: make(chan struct{}, 1), releases: make(chan struct{}, 1), left: make(chan struct{}), holds: map[store.Ticket]store.Moment{}}
	if c.opts.Socket == nil {
		c.opts.Socket = func() string { return path }
	}
	c.dial = dialer(c.opts, &c.reached)
	c.ended, c.end = context.WithCancel(background)
	return c, nil
}

// noWelcome returns the error of a client that got no session.
func (c *Client) noWelcome(ctx context.Context, err error) error {
	var no *refused
	var skew *SkewError
	if ctx.Err() != nil || errors.As(err, &no) || errors.As(err, &skew) || errors.Is(err, ErrForeign) {
		return err
	}
	return c.unavailable(err)
}

// dialError means that no connection was made, so nothing was sent.
type dialError struct{ error }

func (e *dialError) Unwrap() error { return e.error }

// dialer connects to the socket and rejects a server that runs as another user. It notes the process
// of the server.
func dialer(opts ClientOptions, reached *atomic.Int64) func(context.Context) (net.Conn, error) {
	if opts.dial != nil {
		return opts.dial
	}
	return func(ctx context.Context) (net.Conn, error) {
		path := opts.Socket()
		conn, err := connect(ctx, path)
		if err != nil {
			return nil, &dialError{err}
		}
		who, err := opts.peer(conn)
		if err == nil && who.uid != os.Geteuid() {
			err = fmt.Errorf("%w: %s by user %d", ErrForeign, path, who.uid)
		}
		if err != nil {
			_ = conn.Close()
			return nil, &dialError{err}
		}
		reached.Store(int64(who.pid))
		return conn, nil
	}
}

// Close ends the client, and the server releases its holds. Reads and waits in progress return store.ErrClosed; Close waits
// for commits. The server's store stays open.
func (c *Client) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	session := c.session
	c.mu.Unlock()
	c.end()
	c.running.Wait()
	if session != nil {
		ctx, cancel := context.WithTimeout(background, min(c.opts.goodbye, c.opts.Answer))
		defer cancel()
		_ = c.plain(ctx, "Bye", session.Session, new(none), true) // otherwise the lease ends them
	}
	return nil
}

// byeTime bounds the goodbye, so that Close does not wait for a stopped server.
const byeTime = 200 * time.Millisecond

// enter counts a call; leave ends it.
func (c *Client) enter() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return store.ErrClosed
	}
	c.running.Add(1)
	return nil
}

// advanceMark records the LSN of an answer, and when its call began.
func (c *Client) advanceMark(lsn uint64, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mark.LSN = max(c.mark.LSN, lsn)
	if at.After(c.mark.Heard) {
		c.mark.Heard = at
	}
}

// releaseDelay is how long releases are collected before they are sent, so that an agent that assembles one context after the other
// makes no call for each of them. Only a job that drops versions waits for them.
const releaseDelay = 20 * time.Millisecond

// renew keeps the session alive while it has holds, and sends released ones.
func (c *Client) renew() {
	defer c.running.Done()
	for {
		c.mu.Lock()
		every := c.server.Lease / 3
		c.mu.Unlock()
		select {
		case <-c.ended.Done():
			return
		case <-time.After(max(every, time.Millisecond)):
		case <-c.releases:
			select {
			case <-c.ended.Done():
				return
			case <-time.After(releaseDelay):
			}
		}
		c.mu.Lock()
		needed := len(c.holds)+len(c.freed) > 0
		c.mu.Unlock()
		if needed {
			c.sendReleases(background, true)
		}
	}
}

// watchServer keeps a connection open that ends with the server, and then looks for the next owner. So a database whose owner
// ended has a new one before the next call.
func (c *Client) watchServer() {
	defer c.running.Done()
	const most = time.Second
	for pause := time.Millisecond; ; {
		_ = c.plain(c.ended, "Wait", "", new(none), true)
		if c.ended.Err() != nil {
			return
		}
		c.mu.Lock()
		close(c.left) // calls that wait for this server to close go on
		c.left = make(chan struct{})
		c.mu.Unlock()
		_, err := ask[none](c.ended, c, "Renew", renewAsk{}, callOptions{})
		var taken *TakenError
		if errors.As(err, &taken) || c.ended.Err() != nil {
			return
		}
		if pause = min(2*pause, most); err == nil {
			pause = time.Millisecond
		}
		select {
		case <-c.ended.Done():
		case <-time.After(pause):
		}
	}
}

// serverLeft returns a channel that is closed when the current server ends, if watchServer runs.
func (c *Client) serverLeft() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.left
}

// sendReleases sends the releases that the server has not heard of, after those that are under way. If that fails, they are sent
// with the next ones. renew: the session is kept alive, also where there are none.
func (c *Client) sendReleases(ctx context.Context, renew bool) {
	select {
	case c.renewLock <- struct{}{}:
	case <-ctx.Done():
		return
	}
	defer func() { <-c.renewLock }()
	c.mu.Lock()
	freed := c.freed
	c.freed = nil
	c.mu.Unlock()
	if len(freed) == 0 && !renew {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, c.opts.Answer)
	defer cancel()
	if _, err := ask[none](ctx, c, "Renew", renewAsk{freed}, callOptions{}); err != nil { // the next turn of renew tries again
		c.mu.Lock()
		c.freed = append(freed, c.freed...)
		c.mu.Unlock()
	}
}

// unavailable returns the error for a server that does not answer.
func (c *Client) unavailable(err error) error {
	c.mu.Lock()
	is := c.server
	c.mu.Unlock()
	e := &UnavailableError{Path: c.path, PID: is.PID, Program: is.Program, Since: is.Since, Err: err}
	var dial *dialError
	if errors.As(err, &dial) { // no server listens
		e.PID = 0
	} else if e.PID == 0 {
		e.PID = holderOf(c.path, c.opts.peer)
	}
	return e
}

// holderOf asks the kernel which process serves the socket; 0 means none.
func holderOf(path string, peer func(net.Conn) (peerID, error)) int {
	ctx, cancel := context.WithTimeout(background, 100*time.Millisecond)
	defer cancel()
	conn, err := connect(ctx, path)
	if err != nil {
		return 0
	}
	defer conn.Close()
	who, err := peer(conn)
	if err != nil {
		return 0
	}
	return who.pid
}
