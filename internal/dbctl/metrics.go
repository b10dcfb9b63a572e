package dbctl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"path/filepath"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/mcpserver"
	"github.com/ctxpage/ctxpage/internal/metrics"
	"github.com/ctxpage/ctxpage/internal/view"
	"github.com/ctxpage/ctxpage/ops"
)

// metricsFlags serve /metrics at an address of their own: a scraper can use neither a unix socket nor the one-time link of the inspector, and
// its token reads nothing else.
type metricsFlags struct {
	Metrics       string `help:"Also serve /metrics for Prometheus at this loopback address." placeholder:"127.0.0.1:PORT"`
	MetricsToken  string `help:"File of the bearer token of /metrics, for credentials_file of Prometheus. It is made if missing. Only you may be able to read it. Default: the database's name with .metrics-token behind it." placeholder:"FILE" type:"path"`
	MetricsScopes int    `help:"Also count operations by scope, each under a keyed digest, of so many scopes; all others count as one." placeholder:"N"`

	counted *metrics.Metrics
}

// maxMetricsScopes bounds the series of a scrape.
const maxMetricsScopes = 1000

// observe has a database tell the metrics, if they are asked for. It is called before the database is opened.
func (f *metricsFlags) observe(o *ctxpage.Options) error {
	switch {
	case f.Metrics == "" && (f.MetricsToken != "" || f.MetricsScopes != 0):
		return usage("--metrics-token and --metrics-scopes are about --metrics: give its address, too")
	case f.MetricsScopes < 0 || f.MetricsScopes > maxMetricsScopes:
		return usage("--metrics-scopes %d: expected 0 to %d", f.MetricsScopes, maxMetricsScopes)
	case f.Metrics == "":
		return nil
	}
	f.counted = metrics.New(f.MetricsScopes)
	o.Observer = both(f.counted, o.Observer)
	return nil
}

// both has two observers told; nil: there is no second one.
func both(a, b ops.Observer) ops.Observer {
	if b == nil {
		return a
	}
	return observers{a, b}
}

type observers [2]ops.Observer

func (o observers) Observe(ctx context.Context, e ops.Event) {
	o[0].Observe(ctx, e)
	o[1].Observe(ctx, e)
}

// serveMetrics begins to serve /metrics, and returns its URL; "": they are not asked for. calls returns the calls under way by door. wait ends the server and returns when it has ended.
func (f *metricsFlags) serveMetrics(ctx context.Context, a *app, file string, db *ctxpage.DB, calls func() map[string]int) (url string, wait func(), err error) {
	if f.counted == nil {
		return "", func() {}, nil
	}
	if f.MetricsToken == "" {
		path, err := a.beside(file)
		if err != nil {
			return "", nil, err
		}
		f.MetricsToken = path + ".metrics-token"
	}
	token, err := metricsToken(f.MetricsToken)
	if err != nil {
		return "", nil, err
	}
	l, err := mcpserver.Listen(ctx, f.Metrics)
	if err != nil {
		return "", nil, usage("--metrics: %v", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", mcpserver.Bearer(token, f.handler(db, calls)))
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := mcpserver.ServeHTTP(ctx, l, mux); err != nil && ctx.Err() == nil {
			a.warn(fmt.Sprintf("/metrics ended: %v", err))
		}
	}()
	return "http://" + l.Addr().String() + "/metrics", func() { cancel(); <-ended }, nil
}

func (f *metricsFlags) handler(db *ctxpage.DB, calls func() map[string]int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		stats, err := db.Stats(r.Context())
		if err != nil {
			http.Error(w, "the state of the database cannot be read: "+err.Error(), http.StatusServiceUnavailable)
			return
		}
		var out bytes.Buffer
		if err := f.counted.Write(&out, &metrics.State{Stats: stats, Audit: bytesBelow(stats.Path + "-manifest"), Version: version(), Calls: calls()}); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		_, _ = w.Write(out.Bytes()) // a scraper that has gone asks again
	})
}

// bytesBelow is the size of the files below a directory; -1: it cannot be read, as when the database is no file.
func bytesBelow(dir string) int64 {
	sum := int64(0)
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil // a file that is replaced meanwhile
		}
		if err == nil {
			sum += info.Size()
		}
		return err
	})
	if err != nil {
		return -1
	}
	return sum
}

// metricsToken reads the token of a file that nobody else can read, or makes the file with a random token.
func metricsToken(path string) (string, error) {
	text, err := readOrMake("--metrics-token", path, "")
	if err != nil {
		return "", err
	}
	token := string(bytes.TrimSpace(text))
	if len(token) < view.MinToken || bytes.ContainsAny([]byte(token), " \t\r\n") {
		return "", usage("--metrics-token %s: expected one token of at least %d bytes", path, view.MinToken)
	}
	return token, nil
}
