package mcpserver

import (
	"bytes"
	"cmp"
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ctxpage/ctxpage/internal/view"
)

// HTTPPath is the path of the server.
const HTTPPath = "/mcp"

// legacyIdle ends the session of a client that has not been heard of for so long. It may begin another one.
const legacyIdle = 30 * time.Minute

// Limits of the door. A client that reaches one is told so, and harms nobody else.
const (
	maxLegacy   = 64  // sessions of older clients
	maxRequests = 256 // under way, streams of older clients included
	// maxConnections may be open. The one without a request for longest makes place for the next.
	maxConnections = 512
	maxBody        = 16 << 20         // bytes of a request
	partTime       = 30 * time.Second // a request, or a part of an answer, may take this long on its way
)

// stateless is the first revision without sessions; revisions are dates, and compare as text.
const stateless = "2026-07-28"

// Handler serves any number of clients, of both protocol revisions: clients of 2026-07-28 without sessions, older ones with
// the session that their revision needs to be asked something in the middle of a call. A page of a browser reaches nothing:
// the Host must be local and the Origin the server's own. A token, if there is one, is expected as a bearer.
func Handler(s *mcp.Server, token string) http.Handler {
	server := func(*http.Request) *mcp.Server { return s }
	current := mcp.NewStreamableHTTPHandler(server, &mcp.StreamableHTTPOptions{Stateless: true, PropagateRequestCancellation: true})
	legacy := mcp.NewStreamableHTTPHandler(server, &mcp.StreamableHTTPOptions{SessionTimeout: legacyIdle})
	mux := http.NewServeMux()
	mux.Handle(HTTPPath, http.NewCrossOriginProtection().Handler(Bearer(token, bounded(byRevision(current, fewSessions(s, legacy))))))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		view.LimitUnread(w, r)
		mux.ServeHTTP(w, r)
	})
}

// fewSessions refuses to begin a session when there are many: an older client that never says goodbye keeps one for
// legacyIdle.
func fewSessions(s *mcp.Server, legacy http.Handler) http.Handler {
	var beginning atomic.Int64
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Mcp-Session-Id") != "" {
			legacy.ServeHTTP(w, r)
			return
		}
		live := beginning.Add(1)
		defer beginning.Add(-1)
		for session := range s.Sessions() {
			if session.ID() != "" { // calls of current clients have none
				live++
			}
		}
		if live > maxLegacy {
			w.Header().Set("Retry-After", "60")
			http.Error(w, fmt.Sprintf("%d sessions are open, which is the limit; end one, or wait until one was idle for %s", maxLegacy, legacyIdle), http.StatusServiceUnavailable)
			return
		}
		legacy.ServeHTTP(w, r)
	})
}

// bounded keeps slow, huge and endless clients from taking what others need: a request arrives whole and in time before it
// is looked at, there are so many at once, and an answer that nobody reads is cut off.
func bounded(next http.Handler) http.Handler {
	slots := make(chan struct{}, maxRequests)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		default:
			w.Header().Set("Retry-After", "1")
			http.Error(w, fmt.Sprintf("%d requests are under way, which is the limit", maxRequests), http.StatusServiceUnavailable)
			return
		}
		c := http.NewResponseController(w)
		_ = c.SetReadDeadline(time.Now().Add(partTime)) // a recorder of a test has no deadlines
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		_ = c.SetReadDeadline(time.Time{})
		var large *http.MaxBytesError
		switch {
		case errors.As(err, &large):
			http.Error(w, fmt.Sprintf("the request has more than %d bytes", maxBody), http.StatusRequestEntityTooLarge)
			return
		case err != nil:
			http.Error(w, "the request did not arrive whole", http.StatusBadRequest)
			return
		}
		if err := cmp.Or(single(body), unambiguous(body)); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(&timed{ResponseWriter: w, c: c}, r)
	})
}

// timed sets a deadline for each part of an answer. There is none between parts: a stream may be silent.
type timed struct {
	http.ResponseWriter
	c *http.ResponseController
}

func (t *timed) Write(p []byte) (int, error) {
	_ = t.c.SetWriteDeadline(time.Now().Add(partTime))
	n, err := t.ResponseWriter.Write(p)
	_ = t.c.SetWriteDeadline(time.Time{})
	return n, err
}

// Flush: see http.Flusher.
func (t *timed) Flush() { _ = t.FlushError() }

// FlushError is called by http.ResponseController.
func (t *timed) FlushError() error {
	_ = t.c.SetWriteDeadline(time.Now().Add(partTime))
	err := t.c.Flush()
	_ = t.c.SetWriteDeadline(time.Time{})
	return err
}

// Unwrap lets http.ResponseController reach the other methods.
func (t *timed) Unwrap() http.ResponseWriter { return t.ResponseWriter }

// byRevision passes a request to the handler of its revision. One that names no revision, and no
// method in a header as current clients do, is from an older client that begins a session.
func byRevision(current, legacy http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		version := r.Header.Get("Mcp-Protocol-Version")
		if r.Header.Get("Mcp-Session-Id") != "" || r.Header.Get("Mcp-Method") == "" && version < stateless {
			legacy.ServeHTTP(w, r)
			return
		}
		current.ServeHTTP(w, r)
	})
}

// Bearer lets requests with a token through to a handler; "": all.
func Bearer(token string, next http.Handler) http.Handler {
	if token == "" {
		return next
	}
	want := []byte(token)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		scheme, given, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		if !strings.EqualFold(scheme, "Bearer") || subtle.ConstantTimeCompare([]byte(given), want) != 1 {
			view.RefuseRequest(w, r)
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "expected the token of this server as a bearer", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Listen opens a loopback address. Another one would offer the memory to the network.
func Listen(ctx context.Context, addr string) (net.Listener, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("address %q: expected one like 127.0.0.1:8700", addr)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return nil, fmt.Errorf("address %q: expected a loopback address such as 127.0.0.1", addr)
	}
	return new(net.ListenConfig).Listen(ctx, "tcp", addr)
}

// noPlace is the response when the connection limit is reached.
func noPlace() []byte {
	why := fmt.Sprintf("%d connections are open, which is the limit\n", maxConnections)
	return fmt.Appendf(nil, "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nRetry-After: 1\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", len(why), why)
}

// ServeHTTP serves until ctx ends, then waits up to five seconds for calls under way.
func ServeHTTP(ctx context.Context, l net.Listener, h http.Handler) error {
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10}
	ended := make(chan error, 1)
	go func() { ended <- view.ServeLimited(srv, l, maxConnections, noPlace()) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := srv.Shutdown(last); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return srv.Close()
}
