package mcpserver

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// HTTPPath is where the server answers.
const HTTPPath = "/mcp"

// legacyIdle ends the session of a client that has not been heard of for so long. It may begin another one.
const legacyIdle = 30 * time.Minute

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
	mux.Handle(HTTPPath, http.NewCrossOriginProtection().Handler(bearer(token, byRevision(current, legacy))))
	return mux
}

// byRevision gives a request to the handler of its revision. One that names no revision, and no
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

func bearer(token string, next http.Handler) http.Handler {
	if token == "" {
		return next
	}
	want := []byte("Bearer " + token)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), want) != 1 {
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

// ServeHTTP serves until ctx ends, then waits up to five seconds for calls under way.
func ServeHTTP(ctx context.Context, l net.Listener, h http.Handler) error {
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10}
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(l) }()
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
