package dbctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/mcpserver"
	"github.com/ctxpage/ctxpage/internal/view"
	"github.com/ctxpage/ctxpage/store"
)

type mcpCmd struct {
	Serve  mcpServeCmd  `cmd:"" default:"withargs" help:"Serve a scope to an MCP client."`
	Config mcpConfigCmd `cmd:"" help:"Print a client's configuration for a server, or install it."`
}

// mcpFlags say what is served, and how.
type mcpFlags struct {
	Scope   string `help:"Scope to serve. The model sees its pages and those of its ancestors. Required."`
	Actor   string `help:"Name of the model, for manifests and reviews. Default: the scope."`
	Write   bool   `help:"Offer the tools put and delete."`
	Confirm string `help:"Name of the person whom the client asks before each write is committed." placeholder:"NAME"`
	HTTP    string `help:"Serve streamable HTTP on this loopback address, at /mcp, instead of standard input and output. Needs a bearer token of at least 16 bytes in CTXPAGE_MCP_TOKEN." placeholder:"127.0.0.1:PORT"`
	evaluatorFlag
	modelFlags
	summarizerFlags
}

func (f *mcpFlags) check() error {
	if f.Scope == "" {
		return usage("expected --scope: the scope to serve")
	}
	if err := store.CheckScope(f.Scope); err != nil {
		return usage("--%s", strings.TrimPrefix(err.Error(), "ctxpage: "))
	}
	if !f.Write && (f.Confirm != "" || f.Evaluator != "") {
		return usage("--confirm and --evaluator are about writes: give --write, too")
	}
	if f.Confirm != "" && f.Evaluator != "" {
		return usage("--confirm and --evaluator: expected one of them, who judges")
	}
	return nil
}

type mcpServeCmd struct {
	File string `arg:"" help:"Database. With --write it is created if missing."`
	mcpFlags
	rootFlags
}

func (c *mcpServeCmd) Run(a *app) error {
	if err := c.check(); err != nil {
		return err
	}
	if err := errors.Join(c.allow(a), c.embedWith(a), c.summarizeWith(a)); err != nil {
		return err
	}
	db, err := c.open(a)
	if err != nil {
		return err
	}
	return cmp.Or(a.untilStopped(c.serve(a, db)), db.Close())
}

func (c *mcpServeCmd) open(a *app) (*ctxpage.DB, error) {
	opts := a.options()
	if !fileless(c.File) {
		if db, err := a.open(c.File, true); !c.Write || !errors.Is(err, store.ErrNotExist) {
			return db, err
		}
	} else {
		opts.MustExist = true
	}
	return a.database(c.File, opts, true)
}

func (c *mcpServeCmd) serve(a *app, db *ctxpage.DB) error {
	config := mcpserver.Config{DB: db, Scope: c.Scope, Actor: c.Actor, Write: c.Write, Confirm: c.Confirm, Version: version()}
	var err error
	if config.Evaluator, err = c.evaluator(); err != nil {
		return err
	}
	s, err := mcpserver.New(config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(a.ctx)
	defer cancel()
	go untilOrphan(ctx, cancel, os.Getppid, 2*time.Second)
	if c.HTTP != "" {
		return c.serveHTTP(ctx, a, s)
	}
	err = mcpserver.ServeStdio(ctx, s, io.NopCloser(a.in), nopCloser{a.out})
	if ctx.Err() != nil && a.ctx.Err() == nil {
		return nil // the parent ended: so does the job
	}
	return err
}

func (c *mcpServeCmd) serveHTTP(ctx context.Context, a *app, s *mcp.Server) error {
	token := strings.TrimSpace(os.Getenv(mcpTokenVariable))
	if len(token) < view.MinToken {
		return usage("--http: any program of this machine can connect there: set %s to a bearer token of at least %d bytes, for the server and for its clients", mcpTokenVariable, view.MinToken)
	}
	l, err := mcpserver.Listen(ctx, c.HTTP)
	if err != nil {
		return usage("--http: %v", err)
	}
	fmt.Fprintf(a.err, "serving %s on http://%s%s\n", c.Scope, l.Addr(), mcpserver.HTTPPath)
	return mcpserver.ServeHTTP(ctx, l, mcpserver.Handler(s, token))
}

// mcpTokenVariable has the bearer token of mcp --http. An argument would show in the list of processes.
const mcpTokenVariable = "CTXPAGE_MCP_TOKEN"

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// untilOrphan cancels when another process than now becomes the parent: a host that was killed closes no pipe that a
// grandchild still holds, and its servers stayed on (one report had 53 servers on one lock).
func untilOrphan(ctx context.Context, cancel func(), parent func() int, every time.Duration) {
	born := parent()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if parent() != born {
				cancel()
				return
			}
		}
	}
}
