package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ctxpage/ctxpage/internal/http1"
	"github.com/ctxpage/ctxpage/store"
)

var background = context.Background()

// ClientOptions configure a Client. The zero value is ready to use.
type ClientOptions struct {
	// Program is what the client calls itself; "": the name of the executable.
	Program string
	// Answer is how long a server may be silent before it is taken to be stopped or hung; 0: 2 s. Work that takes longer
	// is no silence: the server is asked for its status meanwhile.
	Answer time.Duration
	// Again is for how long a call is tried when connections fail; 0: 2 s.
	Again time.Duration
	// Vacant is called while nobody serves at the socket, or its server is about to end. It may take the database over, and
	// then is true: the call ends with a *TakenError, and so do those after it. nil: the client waits for another server.
	// A client that has it notices without a call when its server ends.
	Vacant func(context.Context) bool
	// Socket tells where the socket is now; nil: where Dial was told.
	Socket func() string
	// Now is the clock of Mark.Heard; nil: the system's.
	Now func() time.Time

	protocol [2]int // of a test: the range it says it speaks
	peer     func(*net.UnixConn) (peerID, error)
	dial     func(ctx context.Context) (net.Conn, error) // of a test: connects without a socket
}

func (o ClientOptions) withDefaults() (ClientOptions, error) {
	if o.Program == "" {
		o.Program = programName()
	}
	if o.Answer == 0 {
		o.Answer = 2 * time.Second
	}
	if o.Again == 0 {
		o.Again = 2 * time.Second
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.protocol == [2]int{} {
		o.protocol = [2]int{MinProtocol, MaxProtocol}
	}
	if o.peer == nil {
		o.peer = peerOf
	}
	if o.Answer < 0 || o.Again < 0 {
		return o, store.Invalid("ClientOptions", "a negative time", "zero or more")
	}
	return o, nil
}

// Client is a store.Store that another process serves. All methods may be called concurrently.
//
// A call whose connection fails is made again (see the package comment). Besides the errors of store.Store a call
// returns an *UnavailableError when nobody answers, and a *SkewError when the server that answers now speaks another
// protocol. A Commit or Append of which it is not known whether it happened returns store.ErrOutcomeUnknown.
//
// Mark tells what the last answer said, and Heard when that was asked for; reads may see more.
type Client struct {
	path string
	opts ClientOptions
	http *http1.Client

	calls  atomic.Uint64
	ticket atomic.Uint64
	door   chan struct{} // of one: held by who says hello

	mu      sync.Mutex
	closed  bool
	session *welcome // nil: none
	server  Status   // that answered last
	mark    store.Mark
	holds   map[store.Ticket]store.Moment
	freed   []store.Ticket // to be released
	givenUp []uint64       // calls of Commit that nobody waits for

	let     chan struct{}   // of one: there are holds to be released
	ended   context.Context // when the client is closed
	end     context.CancelFunc
	running sync.WaitGroup
}

var _ store.Store = (*Client)(nil)

// Dial connects to the server at a socket. Errors: *UnavailableError, *SkewError, ErrForeign.
func Dial(ctx context.Context, path string, opts ClientOptions) (*Client, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &Client{path: path, opts: opts, door: make(chan struct{}, 1), let: make(chan struct{}, 1), holds: map[store.Ticket]store.Moment{}}
	if c.opts.Socket == nil {
		c.opts.Socket = func() string { return path }
	}
	c.http = &http1.Client{Dial: dialer(c.opts)}
	c.ended, c.end = context.WithCancel(background)
	if _, err := c.greet(ctx); err != nil {
		c.end()
		c.http.CloseIdle()
		return nil, c.noWelcome(ctx, err)
	}
	c.running.Add(1)
	go c.renew()
	if opts.Vacant != nil {
		c.running.Add(1)
		go c.attend()
	}
	return c, nil
}

// noWelcome is the error of a client that got no session.
func (c *Client) noWelcome(ctx context.Context, err error) error {
	var no *refused
	var skew *SkewError
	if ctx.Err() != nil || errors.As(err, &no) || errors.As(err, &skew) || errors.Is(err, ErrForeign) {
		return err
	}
	return c.unavailable(err)
}

// dialError is a connection that was not made: nothing was sent.
type dialError struct{ error }

func (e *dialError) Unwrap() error { return e.error }

// dialer connects to the socket, and talks to processes of this user only.
func dialer(opts ClientOptions) func(context.Context) (net.Conn, error) {
	if opts.dial != nil {
		return opts.dial
	}
	var d net.Dialer
	return func(ctx context.Context) (net.Conn, error) {
		path := opts.Socket()
		conn, err := d.DialContext(ctx, "unix", path)
		if err != nil {
			return nil, &dialError{err}
		}
		who, err := opts.peer(conn.(*net.UnixConn))
		if err == nil && who.uid != os.Geteuid() {
			err = fmt.Errorf("%w: %s by user %d", ErrForeign, path, who.uid)
		}
		if err != nil {
			_ = conn.Close()
			return nil, &dialError{err}
		}
		return conn, nil
	}
}

// Close ends the client: the server forgets its holds. Reads and waits under way end with store.ErrClosed, commits are
// waited for. The store of the server stays open.
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
		ctx, cancel := context.WithTimeout(background, min(byeTime, c.opts.Answer))
		defer cancel()
		if res, err := c.http.Do(ctx, "POST", "/bye", http1.Header{headerSession: session.Session}, nil); err == nil { // else the lease ends them
			res.Close()
		}
	}
	c.http.CloseIdle()
	return nil
}

// byeTime is how long a goodbye may take: nobody waits for a server that is stopped.
const byeTime = 200 * time.Millisecond

// abandon ends a client as a killed process ends: without a goodbye.
func (c *Client) abandon() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.end()
	c.running.Wait()
	c.http.CloseIdle()
}

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

// heard notes how far readers had come when a call that was begun at a time was answered.
func (c *Client) heard(lsn uint64, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mark.LSN = max(c.mark.LSN, lsn)
	if at.After(c.mark.Heard) {
		c.mark.Heard = at
	}
}

// letGo is how long releases are gathered. Nobody waits for them, but a job that drops versions.
const letGo = 2 * time.Millisecond

// renew keeps the session while it has holds, and tells of those that were released.
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
		case <-c.let:
			select {
			case <-c.ended.Done():
				return
			case <-time.After(letGo):
			}
		}
		c.mu.Lock()
		needed := len(c.holds)+len(c.freed) > 0
		c.mu.Unlock()
		if needed {
			c.tellReleased()
		}
	}
}

// attend keeps a connection that ends when the server does, and then finds out who serves: a database whose owner ended
// has another one before somebody asks.
func (c *Client) attend() {
	defer c.running.Done()
	const most = time.Second
	for pause := time.Millisecond; ; {
		res, err := c.http.Do(c.ended, "GET", "/wait", nil, nil)
		if err == nil {
			_, err = io.Copy(io.Discard, res.Body)
			res.Close()
		}
		if err == nil || c.ended.Err() != nil { // an answer: this server knows of no such request
			return
		}
		_, err = ask[none](c.ended, c, "Renew", renewAsk{}, how{})
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

// tellReleased sends the releases that the server does not know of. What cannot be sent is sent with the next.
func (c *Client) tellReleased() {
	c.mu.Lock()
	freed := c.freed
	c.freed = nil
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(background, c.opts.Answer)
	defer cancel()
	if _, err := ask[none](ctx, c, "Renew", renewAsk{freed}, how{}); err != nil { // the next turn of renew tries again
		c.mu.Lock()
		c.freed = append(freed, c.freed...)
		c.mu.Unlock()
	}
}

// unavailable is the error of a server that does not answer.
func (c *Client) unavailable(err error) error {
	c.mu.Lock()
	is := c.server
	c.mu.Unlock()
	e := &UnavailableError{Path: c.path, PID: is.PID, Program: is.Program, Since: is.Since, Err: err}
	var dial *dialError
	if errors.As(err, &dial) { // nobody listens
		e.PID = 0
	} else if e.PID == 0 {
		e.PID = holderOf(c.path, c.opts.peer)
	}
	return e
}

// holderOf asks the kernel whose socket it is; 0: nobody's.
func holderOf(path string, peer func(*net.UnixConn) (peerID, error)) int {
	conn, err := net.DialTimeout("unix", path, 100*time.Millisecond)
	if err != nil {
		return 0
	}
	defer conn.Close()
	who, err := peer(conn.(*net.UnixConn))
	if err != nil {
		return 0
	}
	return who.pid
}
