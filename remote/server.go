package remote

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/ctxpage/ctxpage/internal/http1"
	"github.com/ctxpage/ctxpage/internal/jsontext"
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

	protocol [2]int        // of a test: the range it says it speaks
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
	http    *http1.Server
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
	if opts.protocol == [2]int{} {
		opts.protocol = [2]int{MinProtocol, MaxProtocol}
	}
	if opts.patience == 0 {
		opts.patience = frameTime
	}
	if opts.Lease < 0 || opts.MaxClients < 0 {
		return nil, store.Invalid("ServerOptions", "a negative lease or number of clients", "zero or more")
	}
	s := &Server{opts: opts, sessions: map[string]*session{}, ready: make(chan struct{}), is: Status{
		Min: opts.protocol[0], Max: opts.protocol[1], PID: os.Getpid(), Program: opts.Program, Since: opts.Now().UTC(), Lease: opts.Lease, State: stateOpening,
	}}
	s.drained, s.drain = context.WithCancel(background)
	s.http = &http1.Server{Handle: s.answer, Patience: opts.patience, Reading: frameTime, Conns: maxConns}
	return s, nil
}

// Offer gives a prepared server its store. Call it once; the store must stay open until the server is closed.
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
	if err := s.http.Serve(l); !errors.Is(err, http1.ErrClosed) {
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
	err := s.http.Close()
	for _, sess := range all {
		sess.end(s.store)
	}
	if err != nil {
		return fmt.Errorf("ctxpage: close the server: %w", err)
	}
	return nil
}

// answer answers one request.
func (s *Server) answer(e *http1.Exchange) {
	if s.isClosed() {
		e.Cut() // the client asks whoever serves next
		return
	}
	name, call := strings.CutPrefix(e.Path, "/v1/")
	if call && e.Method == "POST" {
		s.serveCall(e, name)
		return
	}
	switch e.Method + " " + e.Path {
	case "GET /status":
		writeJSON(e, 200, s.status())
	case "GET /wait":
		s.serveWait(e)
	case "POST /stop":
		s.serveStop(e)
	case "POST /hello":
		s.serveHello(e)
	case "POST /bye":
		s.serveBye(e)
	case "POST " + streamPath:
		s.serveStream(e)
	case "POST /backup":
		s.serveBackup(e)
	default:
		refuse(e, &refused{404, refusal{Code: refusedMethod, Message: fmt.Sprintf("there is no %s %s", e.Method, e.Path)}})
	}
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

// serveStop calls Options.Stop once, whoever asks how often. The answer goes out before the server
// ends.
func (s *Server) serveStop(e *http1.Exchange) {
	if s.opts.Stop == nil {
		refuse(e, &refused{403, refusal{Code: refusedStop, Message: "this process serves the database beside its own work: end it there"}})
		return
	}
	writeJSON(e, 202, s.status())
	s.stop.Do(func() { go s.opts.Stop() })
}

// serveWait never answers: the connection ends with the server.
func (s *Server) serveWait(e *http1.Exchange) {
	e.Listen()
	<-e.Ctx.Done()
	e.Cut()
}

// serveHello begins a session, when the store is there. A client without a protocol in common gets
// the status, from which it says which program to end.
func (s *Server) serveHello(e *http1.Exchange) {
	var h hello
	_, err := readJSON(e, &h)
	if err != nil {
		refuse(e, &refused{400, refusal{Code: refusedBody, Message: "a hello is JSON with min, max, pid and program: " + err.Error()}})
		return
	}
	is := s.status()
	if h.Min > is.Max || h.Max < is.Min {
		message := fmt.Sprintf("protocol %d to %d is spoken here, not %d to %d", is.Min, is.Max, h.Min, h.Max)
		refuse(e, &refused{409, refusal{Code: refusedSkew, Message: message, Server: &is}})
		return
	}
	e.Listen()
	if !s.opened(e) {
		return
	}
	sess, err := s.begin()
	if err != nil {
		refuse(e, err)
		return
	}
	writeJSON(e, 200, welcome{Status: s.status(), Protocol: min(h.Max, is.Max), Session: sess.id, LSN: s.store.Mark().LSN})
}

// opened waits for the store, or for the end of the server; false: the client left.
func (s *Server) opened(e *http1.Exchange) bool {
	select {
	case <-s.ready:
	case <-s.drained.Done():
	case <-e.Ctx.Done():
		e.Cut()
		return false
	}
	return true
}

// serveBackup copies the database for a client that may speak no protocol of this server.
func (s *Server) serveBackup(e *http1.Exchange) {
	var q backupAsk
	b, err := readJSON(e, &q)
	if err == nil && !filepath.IsAbs(q.Path) {
		err = fmt.Errorf("got %.200q", b)
	}
	if err != nil {
		refuse(e, &refused{400, refusal{Code: refusedBody, Message: "a backup is JSON with path, an absolute one: " + err.Error()}})
		return
	}
	e.Listen()
	if !s.opened(e) {
		return
	}
	done, err := s.backup(e.Ctx, q.Path)
	if err != nil {
		refuse(e, err)
		return
	}
	writeJSON(e, 200, done)
}

// backup copies the database. A server that drains waits for it, not for the client that reads the
// answer.
func (s *Server) backup(alive context.Context, path string) (done backupDone, err error) {
	if !s.begins() {
		return done, refuseClosing()
	}
	defer s.calls.Done()
	ctx, cancel := context.WithCancel(alive)
	defer cancel()
	defer context.AfterFunc(s.drained, cancel)()
	rep, err := s.store.Maintain(ctx, store.Job{Kind: store.JobBackup, Path: path}, nil)
	done.Bytes = rep.Bytes
	if err == nil {
		head, bad := s.store.Head(ctx)
		done.Head, err = head.String(), bad
	}
	if err != nil {
		err = &refused{500, refusal{Code: refusedBackup, Message: err.Error()}}
	}
	return done, err
}

// maxHello bounds a hello.
const maxHello = 64 << 10

// readJSON reads a request that every version understands, and the fields that this one knows.
func readJSON(e *http1.Exchange, into any) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(e.Body, maxHello))
	if err == nil {
		err = json.Unmarshal(b, into)
	}
	if err == nil {
		err = jsontext.KnownFields(b, into)
	}
	return b, err
}

// errClosing is returned for a call that arrived while the server was closing, or was cancelled by that. It was not made.
var errClosing = errors.New("ctxpage: the server is closing")

// refuseClosing is the refusal of a server that is about to end.
func refuseClosing() *refused {
	return &refused{503, refusal{Code: refusedClosing, Message: errClosing.Error()}}
}

// begin starts a session.
func (s *Server) begin() (*session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.drained.Err() != nil {
		return nil, refuseClosing()
	}
	if len(s.sessions) >= s.opts.MaxClients {
		return nil, &refused{503, refusal{Code: refusedFull, Message: fmt.Sprintf("%d clients are served, which is the limit; close one", len(s.sessions))}}
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

// serveBye ends the session of the client, and with it the holds.
func (s *Server) serveBye(e *http1.Exchange) {
	if sess := s.find(e.Header.Get(headerSession)); sess != nil {
		s.forget(sess)
	}
	_ = e.Reply(204, "", nil)
}

// refused is the error for a request that did not become a call.
type refused struct {
	status int
	refusal
}

func (e *refused) Error() string { return "ctxpage: refused: " + e.Message }

// refuse answers a request that did not become a call. An error that is no refusal is one of the
// server itself.
func refuse(e *http1.Exchange, err error) {
	var no *refused
	if !errors.As(err, &no) {
		no = &refused{500, refusal{Code: refusedFull, Message: err.Error()}}
	}
	writeJSON(e, no.status, no.refusal)
}

// writeJSON answers with JSON, as everything does that must be understood across versions.
func writeJSON(e *http1.Exchange, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		e.Cut()
		return
	}
	_ = e.Reply(status, jsonType, append(b, '\n')) // a client that went away asks again
}
