package dbctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/internal/mcpserver"
	"github.com/ctxpage/ctxpage/internal/system"
	"github.com/ctxpage/ctxpage/serve"
	"github.com/ctxpage/ctxpage/store"
)

type serveCmd struct {
	File      string        `arg:"" help:"Database. It is created if missing, unless --must-exist."`
	MustExist bool          `help:"Fail if there is no database."`
	HTTP      string        `help:"Serve at this loopback address instead of a unix socket. Every call needs a token." placeholder:"127.0.0.1:PORT"`
	TokenFile string        `help:"File of bearer tokens, one per line: a role (agent, host or operator) and the token. Only you may be able to read it. With --http the default is FILE.http.tokens, which is made if it is missing." placeholder:"FILE" type:"path"`
	Most      string        `help:"Highest role that a caller at the socket can ask for: agent, host or operator." enum:"agent,host,operator" default:"operator"`
	Within    string        `help:"Serve only this scope and the scopes below it." placeholder:"SCOPE"`
	Idle      time.Duration `help:"End after this time without a call." placeholder:"DURATION"`
	Lease     time.Duration `help:"End a caller's key, and roll back an open transaction, after this time without a call." default:"10m"`
	Parent    int           `help:"End when this process ends." placeholder:"PID"`
	Stdin     bool          `help:"End when standard input ends."`
	metricsFlags
	evaluatorFlag
	modelFlags
	summarizerFlags
	rootFlags
}

// servingView is the first line of output.
type servingView struct {
	Socket  string `json:"socket,omitempty"`
	URL     string `json:"url,omitempty"`
	Metrics string `json:"metrics,omitempty"`
	PID     int    `json:"pid"`
	Version int    `json:"version"`
	Path    string `json:"path"`
}

func (c *serveCmd) Run(a *app) error {
	opts, err := c.options()
	if err != nil {
		return err
	}
	if err := errors.Join(c.allow(a), c.embedWith(a), c.summarizeWith(a)); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(a.ctx)
	defer cancel(nil)
	opts.Stop = func() { cancel(errEnough) }
	o := a.options()
	o.MustExist, o.Maintain, o.Stop = c.MustExist, 24*time.Hour, opts.Stop
	o.Logger = slog.New(slog.NewTextHandler(a.err, &slog.HandlerOptions{Level: slog.LevelWarn}))
	if err := c.observe(&o); err != nil {
		return err
	}
	db, err := a.database(c.File, o, true)
	if err != nil {
		return err
	}
	return cmp.Or(c.serve(ctx, cancel, a, db, opts), db.Close())
}

// options returns the options of the server that the command line sets.
func (c *serveCmd) options() (opts serve.Options, err error) {
	opts.Within, opts.Lease = c.Within, c.Lease
	if opts.Evaluator, err = c.evaluator(); err != nil {
		return opts, err
	}
	if opts.Grant, err = serve.ParseRole(c.Most); err != nil {
		return opts, err
	}
	switch {
	case c.Lease <= 0:
		return opts, usage("--lease %s: expected more than zero", c.Lease)
	case c.Idle < 0:
		return opts, usage("--idle %s: expected more than zero", c.Idle)
	case c.Parent < 0:
		return opts, usage("--parent %d: expected the id of a process", c.Parent)
	case c.TokenFile != "":
		opts.Tokens, err = readTokens(c.TokenFile, false)
	}
	return opts, err
}

// serve listens, says where, and serves until something ends ctx, as cancel does.
func (c *serveCmd) serve(ctx context.Context, cancel context.CancelCauseFunc, a *app, db *ctxpage.DB, opts serve.Options) error {
	path, err := a.beside(c.File)
	if err != nil {
		return err
	}
	if c.HTTP != "" && c.TokenFile == "" {
		if real, err := filepath.EvalSymlinks(path); err == nil { // all paths to a database lead to one file of tokens
			path = real
		}
		if opts.Tokens, err = readTokens(path+".http.tokens", true); err != nil {
			return err
		}
	}
	srv, err := serve.New(db, opts)
	if err != nil {
		return err
	}
	l, err := c.listen(ctx, path)
	if err != nil {
		return err
	}
	metrics, wait, err := c.serveMetrics(ctx, a, c.File, db, func() map[string]int {
		calls, streams, _ := srv.Load()
		return map[string]int{"socket": calls, "stream": streams}
	})
	if err != nil {
		return errors.Join(err, l.Close())
	}
	defer wait()
	v := servingView{PID: os.Getpid(), Version: serve.Version, Path: db.Path(), Socket: l.Addr().String(), Metrics: metrics}
	if c.HTTP != "" {
		v.Socket, v.URL = "", "http://"+l.Addr().String()
	}
	if err := c.say(a, v); err != nil {
		return errors.Join(err, l.Close())
	}
	var watches sync.WaitGroup
	defer watches.Wait()
	defer cancel(nil)
	c.watch(ctx, a, srv, cancel, &watches)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	select {
	case err := <-served:
		return errors.Join(err, srv.Close())
	case <-ctx.Done():
	}
	err = errors.Join(srv.Close(), <-served)
	if cause := context.Cause(ctx); err == nil && !errors.Is(cause, errEnough) {
		a.warn(fmt.Sprintf("stopped serving: %v", cause)) // which signal
	}
	return err
}

// errEnough is why a server ends that was told to, or has nothing to do any more.
var errEnough = errors.New("nothing to do")

func (c *serveCmd) listen(ctx context.Context, path string) (net.Listener, error) {
	if c.HTTP == "" {
		return serve.Listen(path)
	}
	l, err := mcpserver.Listen(ctx, c.HTTP)
	if err != nil {
		return nil, usage("--http: %v", err)
	}
	if c.TokenFile != "" { // a client that finds an announcement has the tokens of FILE.http.tokens
		return l, nil
	}
	return announced(l, path+".http")
}

// announced writes the address of a listener into a lock file, where clients that cannot use a unix socket find it. The first server
// of a database announces itself; further ones, for other scopes perhaps, serve without that.
func announced(l net.Listener, path string) (net.Listener, error) {
	lock, err := filestore.TakeLock(filestore.Options{Path: path})
	var taken *store.LockedError
	if errors.As(err, &taken) {
		return l, nil
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("announce %s: %w", l.Addr(), err), l.Close())
	}
	return lock.Guard(l, "http://"+l.Addr().String())
}

// say prints one line: who started serve reads it, and then calls.
func (c *serveCmd) say(a *app, v servingView) error {
	if a.JSON {
		return oneLine(a.out, v)
	}
	where := v.URL
	if where == "" {
		where = v.Socket
	}
	if v.Metrics != "" {
		a.warn("metrics: " + v.Metrics)
	}
	_, err := fmt.Fprintln(a.out, where)
	return err
}

// watch ends the server when it has nothing to do, or nobody to do it for.
func (c *serveCmd) watch(ctx context.Context, a *app, srv *serve.Server, end context.CancelCauseFunc, all *sync.WaitGroup) {
	if c.Idle > 0 {
		all.Go(func() {
			every(ctx, min(max(c.Idle/8, time.Millisecond), time.Second), func() bool {
				_, _, idle := srv.Load()
				return idle >= c.Idle
			}, end)
		})
	}
	if c.Parent > 0 {
		all.Go(func() {
			every(ctx, time.Second, func() bool { return !system.Alive(c.Parent) }, end)
		})
	}
	if c.Stdin {
		all.Go(func() {
			if _, err := io.Copy(io.Discard, interruptible{ctx, a.in}); ctx.Err() == nil {
				_ = err // input that cannot be read has ended, too
				end(errEnough)
			}
		})
	}
}

// every calls end once done reports true. It asks at an interval.
func every(ctx context.Context, interval time.Duration, done func() bool, end context.CancelCauseFunc) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if done() {
				end(errEnough)
				return
			}
		}
	}
}
