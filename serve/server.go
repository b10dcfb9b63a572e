// Package serve offers a database to programs that are not written in Go: JSON over HTTP/1.1, at a
// unix socket or a loopback address. PROTOCOL.md describes the calls, with lines for curl; GET
// /v1/schema returns their JSON schemas.
//
// A program that has a database open serves it beside its own work:
//
//	srv, err := serve.New(db, serve.Options{Grant: serve.Operator})
//	l, err := serve.Listen(db.Path())
//	go srv.Serve(l)
//	…
//	srv.Close() // before db.Close
//
// dbctl serve does the same for a file, whether agents have it open or not.
//
// # Who may do what
//
// Each call is made by a caller: a scope, an actor and a role. The caller fixes them in its hello,
// or in the headers of one call. No call has an argument for a scope or an actor. An Agent reads,
// and its writes pass the commit gate; it cannot give a verdict. A Host also writes what it vouches
// for: pages, turns, directives and verdicts. An Operator also reviews held batches and sees the
// manifests of all scopes. A role is asked for in the hello and limited by Options.Grant or by the
// token that the caller shows.
package serve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/internal/remote"
	"github.com/ctxpage/ctxpage/internal/view"
	"github.com/ctxpage/ctxpage/store"
)

// Version is the version of the calls: the first part of their paths.
const Version = 1

// Defaults and limits. An error of a caller that exceeds one names it.
const (
	maxRequest      = 16 << 20         // bytes of a request
	defaultTimeout  = time.Minute      // of one call
	maxTimeout      = time.Hour        // that a caller may ask for
	defaultMaxCalls = 256              // under way at once
	defaultLease    = 10 * time.Minute // of a key or an open transaction without a call
	maxConnections  = 512              // of Serve
	maxKeys         = 1024
	maxTransactions = 256
	maxStreams      = 256              // of changes, beside the calls
	partTime        = 30 * time.Second // a request, or a MiB of an answer, may take this long on its way
	closeTime       = 5 * time.Second  // for which Close waits for calls under way
)

// Options configure a Server. The zero value serves agents.
type Options struct {
	// Grant is the highest role that a caller without a token can have. Zero: Agent.
	Grant Role
	// Tokens are bearer tokens and the highest role of each. If there are any, a caller must show
	// one, and Grant does not apply. A server on a TCP address needs tokens, because any program of
	// the machine can connect to it.
	Tokens map[string]Role
	// Within restricts callers to this scope and the scopes below it; "": any scope.
	Within string
	// Evaluator judges what agents write; nil: Options.Evaluator of the database. Without either,
	// their writes are held.
	Evaluator ctxpage.Evaluator
	// MaxCalls bounds the calls under way at once; 0: 256.
	MaxCalls int
	// Lease is the real time after which an unused key or open transaction ends; 0: 10 minutes.
	Lease time.Duration
	// Stop is called, once and in a goroutine of its own, when an operator asks the server to end.
	// nil: such a call is refused.
	Stop func()
	// Now is the clock of status; nil: the system's.
	Now func() time.Time
}

// Server answers calls on one database. It is an http.Handler, to be mounted in a server of the caller's, or run by Serve. All
// methods may be called concurrently.
//
//	serving    calls enter
//	closing    closed is set: calls are refused, streams end (ended), calls under way have closeTime
//	closed     keys and open transactions are dropped; what is not committed is rolled back
//
// mu guards the fields below it. Nothing that can block is done under it: an entry is taken out of keys or txns under mu, and its
// transaction is rolled back afterwards, so no lock of the database is taken inside mu. Neither keys nor open transactions are stored.
type Server struct {
	db   *ctxpage.DB
	opts Options
	// process, for status; does not change
	is      about
	handler http.Handler
	ended   context.Context // ends with Close: streams and waiting calls end
	end     context.CancelFunc
	stop    sync.Once

	mu     sync.Mutex
	closed bool
	// calls that entered and did not leave; at most Options.MaxCalls
	busy     int
	streams  map[string]int // under way, by scope; at most maxStreams
	lastBusy time.Time      // when the last call ended
	calls    sync.WaitGroup
	// at most maxKeys; an entry goes with bye, its lease, or Close
	keys map[string]*key
	// at most maxTransactions; see transactions.go
	txns map[txnName]*openTxn
	// of Serve, for Close to shut down
	servers []*http.Server
}

type about struct {
	PID     int
	Program string
	Since   time.Time
}

// New makes a server. The caller still owns the database and closes it after the server. New starts
// no goroutine. Errors: InvalidError for an option out of range.
//
// The handler refuses a POST that a browser sends for a page of another origin: a page may not act
// as the user who opened it.
func New(db *ctxpage.DB, opts Options) (*Server, error) {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.Lease == 0 {
		opts.Lease = defaultLease
	}
	if opts.MaxCalls == 0 {
		opts.MaxCalls = defaultMaxCalls
	}
	if err := opts.check(db); err != nil {
		return nil, err
	}
	s := &Server{db: db, opts: opts, lastBusy: time.Now(), streams: map[string]int{}, keys: map[string]*key{}, txns: map[txnName]*openTxn{}}
	program, err := os.Executable()
	if err != nil {
		program = os.Args[0]
	}
	s.is = about{os.Getpid(), filepath.Base(program), opts.Now().UTC()}
	s.ended, s.end = context.WithCancel(context.Background())
	pages := http.NewCrossOriginProtection()
	pages.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		writeError(w, refuse("origin", fmt.Sprintf("a page of the origin %.100q in a browser", r.Header.Get("Origin")), "call from a program"))
	}))
	s.handler = pages.Handler(http.HandlerFunc(s.answer))
	return s, nil
}

func (o *Options) check(db *ctxpage.DB) error {
	switch {
	case db == nil:
		return store.Invalid("serve", "no database", "an open one")
	case o.Grant > Operator:
		return store.Invalid("Options.Grant", fmt.Sprint(uint8(o.Grant)), "Agent, Host or Operator")
	case o.Lease < 0 || o.MaxCalls < 0:
		return store.Invalid("Options", "a negative lease or number of calls", "zero or more")
	case o.Within != "":
		if err := store.CheckScope(o.Within); err != nil {
			return err
		}
	}
	for token, role := range o.Tokens {
		if len(token) < view.MinToken || role > Operator {
			return store.Invalid("Options.Tokens", fmt.Sprintf("a token of %d bytes for role %d", len(token), role), fmt.Sprintf("at least %d bytes, and a known role", view.MinToken))
		}
	}
	return nil
}

// ServeHTTP answers one call.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// Serve answers callers at a listener until Close; then it returns nil. It closes the listener. At
// most 512 connections are open. For the next one, Serve closes the connection that has had no call
// for the longest time; if all have calls under way, the new one is told that the server is full.
// Idle or hostile connections cannot hold all places forever: a caller is cut off if its headers
// take longer than 10 seconds, if it is silent for 2 minutes between two calls, or if it has not sent
// the rest of a refused call within a second.
func (s *Server) Serve(l net.Listener) error {
	srv := &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		_ = l.Close()
		return nil
	}
	s.servers = append(s.servers, srv)
	s.mu.Unlock()
	if err := view.ServeLimited(srv, l, maxConnections, noPlace()); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("ctxpage: serve %s: %w", l.Addr(), err)
	}
	return nil
}

// Close ends the server: streams end, calls under way have five seconds, and transactions that are still open are rolled back. The
// database stays open. A second Close does nothing.
func (s *Server) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	servers := s.servers
	s.mu.Unlock()
	s.end()
	waiting, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	var errs []error
	for _, srv := range servers {
		if err := srv.Shutdown(waiting); err != nil {
			errs = append(errs, srv.Close())
		}
	}
	s.waitCalls(waiting)
	s.dropKeys()
	return errors.Join(errs...)
}

// waitCalls waits for the calls under way, or until ctx ends. Shutdown does not cover a handler mounted in another server.
func (s *Server) waitCalls(ctx context.Context) {
	done := make(chan struct{})
	go func() { s.calls.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// Load returns how many calls are under way, how many streams are open, and for how long, in real time, there has been neither, nor an open
// transaction; 0 while there is one.
func (s *Server) Load() (calls, streams int, idle time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.streams {
		streams += n
	}
	if s.busy == 0 && streams == 0 && len(s.txns) == 0 {
		idle = time.Since(s.lastBusy)
	}
	return s.busy, streams, idle
}

// enter counts a call, or refuses it. It counts under mu, where closed is read, so the wait of Close covers all calls.
func (s *Server) enter() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return refuse("closing", "the server is about to end", "connect again: another process may serve the database then")
	case s.busy >= s.opts.MaxCalls:
		return refuse("full", fmt.Sprintf("%d calls are under way, which is the limit", s.busy), "call again later")
	}
	s.busy++
	s.calls.Add(1)
	return nil
}

// admit refuses a call that entered if callers of its role fill their share of the calls.
func (s *Server) admit(who *caller) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return who.role.room("calls are under way", s.busy-1, 0, s.opts.MaxCalls, "call again later")
}

// beginStream counts a stream among the streams instead of the calls: it lasts as long as its caller likes. end counts it
// among the calls again, as which it leaves.
func (s *Server) beginStream(who *caller) (end func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := 0
	for _, n := range s.streams {
		all += n
	}
	if err := who.role.room("streams are open", all, s.streams[who.scope], maxStreams, "end one, or call again later"); err != nil {
		return nil, err
	}
	s.streams[who.scope]++
	s.busy--
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.busy++
		if s.streams[who.scope]--; s.streams[who.scope] == 0 {
			delete(s.streams, who.scope)
		}
	}, nil
}

func (s *Server) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy--
	s.lastBusy = time.Now()
	s.calls.Done()
}

// suffix sets this socket apart from the socket of the store, whose owner may be another process.
const suffix = ".api"

// SocketPath returns the path at which Listen serves a database: path + ".api.sock", links
// resolved. If that is longer than the system allows, it is a short name in the user's runtime
// directory (remote.SocketPath); then path + ".api.lock" must exist.
func SocketPath(path string) (string, error) { return remote.SocketPath(path + suffix) }

// Listen makes the socket of a database, for this user alone. One process at a time serves JSON for
// a database. The lock file path + ".api.lock" names it, and a second process gets a
// *store.LockedError. The process need not own the files of the database: Listen also works in a
// client. Closing the listener removes the socket.
func Listen(path string) (net.Listener, error) {
	lock, err := filestore.TakeLock(filestore.Options{Path: path + suffix})
	if err != nil {
		return nil, fmt.Errorf("JSON socket: %w", err)
	}
	where, err := SocketPath(path)
	if err != nil {
		return nil, errors.Join(err, lock.Release())
	}
	l, err := remote.Listen(where)
	if err != nil {
		return nil, errors.Join(err, lock.Release())
	}
	return lock.Guard(l, where)
}
