package remote

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/ctxpage/ctxpage/store"
)

// ServerOptions configure a Server. The zero value is ready to use.
type ServerOptions struct {
	// Program names the server to clients; "" means the name of the executable.
	Program string
	// Lease is how long holds are kept for a silent client, in real time; 0 means 10 s.
	Lease time.Duration
	// MaxClients limits concurrent sessions; 0 means 256.
	MaxClients int
	// Stop is called once, in its own goroutine, when another process asks the server to end (Stop). It should close the
	// server. If nil, such requests are refused.
	Stop func()
	// Now is the clock of Status.Since; nil means the system clock.
	Now func() time.Time
	// Rand is the source of session ids; nil means crypto/rand. It is read by one goroutine at a time.
	Rand io.Reader

	patience time.Duration // of a test: frameTime
	fatal    func(string)  // of a test: ends the process
}

const (
	defaultLease   = 10 * time.Second
	defaultClients = 256
	// maxConns bounds the open connections, so that a program which opens them without end does not
	// take the descriptors that the files need. A client has at most maxStreams that are idle.
	maxConns = 2048
	// frameTime bounds the transfer of a request, and of each part of an answer. Slower peers are disconnected.
	frameTime = 30 * time.Second
)

// Server offers a store to clients. Its methods are safe for concurrent use.
//
//	opening ──Offer──▶ serving ──Drain──▶ closing ──Close──▶ closed
//
// It reports its status in every state before closed, so clients wait for an owner that is still opening its files, or
// closing them.
//
// mu guards sessions, the status and closed. It is not held while a session ends or the store is
// called. store may be read once ready is closed.
type Server struct {
	opts    ServerOptions
	door    acceptor
	ready   chan struct{}      // closed when there is a store
	drained context.Context    // ends when the server is closing
	drain   context.CancelFunc //

	store store.Store // behind ready

	mu       sync.Mutex
	is       Status
	sessions map[string]*session
	calls    sync.WaitGroup // under way; none begins when the server is closing
	closed   bool
	stop     sync.Once
}

// NewServer returns a server for a store. The caller still owns the store and must keep it open until the server is closed.
func NewServer(ctx context.Context, st store.Store, opts ServerOptions) (*Server, error) {
	s, err := Prepare(opts)
	if err != nil {
		return nil, err
	}
	return s, s.Offer(ctx, st)
}

// Prepare returns a server whose store is still being opened. Clients wait until Offer or Close is called.
func Prepare(opts ServerOptions) (*Server, error) {
	if opts.Program == "" {
		opts.Program = programName()
	}
	if opts.Lease == 0 {
		opts.Lease = defaultLease
	}
	if opts.MaxClients == 0 {
		opts.MaxClients = defaultClients
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.Rand == nil {
		opts.Rand = rand.Reader
	}
	if opts.patience == 0 {
		opts.patience = frameTime
	}
	if opts.Lease < 0 || opts.MaxClients < 0 {
		return nil, store.Invalid("ServerOptions", "a negative lease or number of clients", "zero or more")
	}
	s := &Server{opts: opts, sessions: map[string]*session{}, ready: make(chan struct{}), is: Status{
		PID: os.Getpid(), Program: opts.Program, Since: opts.Now().UTC(), Lease: opts.Lease, State: stateOpening,
	}}
	s.drained, s.drain = context.WithCancel(background)
	s.door.serve = s.serveConn
	return s, nil
}

// Offer sets the store of a prepared server. Call it once; the store must stay open until the server is closed.
func (s *Server) Offer(ctx context.Context, st store.Store) error {
	info, err := st.Info(ctx)
	if err != nil {
		return err
	}
	stats, err := st.Stat(ctx)
	if err != nil && !errors.Is(err, store.ErrCorrupt) { // a damaged row is for the calls that need it
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.store = st
	s.is.Format, s.is.Database, s.is.State = stats.Format, info.ID, ""
	close(s.ready)
	return nil
}

// Drain stops accepting calls, waits for those in progress and ends all sessions. The server still reports that it is
// closing, so clients wait and retry. Waiting reads are cancelled; commits are completed. It returns the number of
// clients that were connected: they will look for the next owner.
func (s *Server) Drain() (clients int) {
	s.mu.Lock()
	all := s.sessions
	s.sessions = map[string]*session{}
	s.is.State = stateClosing
	s.drain() // under mu, as begins asks: a call that was let in is counted before the wait
	s.mu.Unlock()
	s.calls.Wait()
	for _, sess := range all {
		sess.end(s.store)
	}
	return len(all)
}

// begins counts a call; false means that the server is closing.
func (s *Server) begins() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.drained.Err() != nil || s.closed {
		return false
	}
	s.calls.Add(1)
	return true
}

// programName is the name of the executable without its directory.
func programName() string {
	name, err := os.Executable()
	if err != nil {
		name = os.Args[0]
	}
	return filepath.Base(name)
}

// Serve answers clients until Close and then returns nil. Connections of other users are closed without an answer. The
// listener must come from Listen; it is closed with the server.
func (s *Server) Serve(l net.Listener) error {
	if err := s.door.run(l); !errors.Is(err, errServerClosed) {
		return fmt.Errorf("ctxpage: serve %s: %w", l.Addr(), err)
	}
	return nil
}

// Close ends the server: it cuts all connections, waits for calls in progress and releases all holds. The store stays open.
// A second Close does nothing.
func (s *Server) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	all := s.sessions
	s.sessions = map[string]*session{}
	s.mu.Unlock()
	s.drain()
	err := s.door.close()
	for _, sess := range all {
		sess.end(s.store)
	}
	if err != nil {
		return fmt.Errorf("ctxpage: close the server: %w", err)
	}
	return nil
}

// isClosed reports whether Close was called.
func (s *Server) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// status returns what any client may know of the server.
func (s *Server) status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	is := s.is
	is.Clients = len(s.sessions)
	return is
}

// serveHello begins a session, when the store is there.
func (s *Server) serveHello(alive context.Context) ([]byte, error) {
	select {
	case <-s.ready:
	case <-s.drained.Done():
	case <-alive.Done():
		return nil, alive.Err()
	}
	sess, err := s.begin()
	if err != nil {
		return nil, err
	}
	return packFrame(frameEnd, welcome{Status: s.status(), Session: sess.id, LSN: s.store.Mark().LSN})
}

// errClosing is returned for a call that arrived while the server was closing, or was cancelled by that. It was not made.
var errClosing = errors.New("ctxpage: the server is closing")

// refuseClosing is the refusal of a server that is about to end.
func refuseClosing() *refused {
	return refuse(refusedClosing, errClosing.Error())
}

// begin starts a session.
func (s *Server) begin() (*session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.drained.Err() != nil {
		return nil, refuseClosing()
	}
	if len(s.sessions) >= s.opts.MaxClients {
		return nil, refuse(refusedFull, fmt.Sprintf("%d clients are served, which is the limit; close one", len(s.sessions)))
	}
	var id [16]byte
	if _, err := io.ReadFull(s.opts.Rand, id[:]); err != nil {
		return nil, fmt.Errorf("ctxpage: id of a session: %w", err)
	}
	sess := newSession(hex.EncodeToString(id[:]), s.opts.Lease, s.forget)
	s.sessions[sess.id] = sess
	return sess, nil
}

// forget ends a session.
func (s *Server) forget(sess *session) {
	s.mu.Lock()
	delete(s.sessions, sess.id)
	s.mu.Unlock()
	sess.end(s.store)
}

// find returns a session; nil: it is not known, or has ended.
func (s *Server) find(id string) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sessions[id]
}

// refused is the error for a request that did not become a call.
type refused struct{ refusal }

func (e *refused) Error() string { return "ctxpage: refused: " + e.Message }

// refuse is the error of a call that is refused.
func refuse(code, message string) *refused { return &refused{refusal{code, message}} }
