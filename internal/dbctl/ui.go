package dbctl

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync/atomic"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/mcpserver"
	"github.com/ctxpage/ctxpage/internal/remote"
	"github.com/ctxpage/ctxpage/ui"
)

type uiCmd struct {
	File  string `arg:"" help:"Database."`
	Write bool   `help:"Also let people approve and reject held batches, and keep questions."`
	Port  int    `help:"Port at 127.0.0.1; 0: any free one." placeholder:"N"`
	Open  bool   `help:"Open the page in the browser."`
	metricsFlags
	modelFlags
	rootFlags
	ReadOnly bool `help:"Leave no manifest of what is looked at."`
}

// uiView is the first line of output.
type uiView struct {
	URL  string `json:"url"`
	PID  int    `json:"pid"`
	Path string `json:"path"`

	Metrics string `json:"metrics,omitempty"`
}

func (c *uiCmd) Run(a *app) error {
	switch {
	case c.Write && c.ReadOnly:
		return usage("--write and --read-only: expected one of them")
	case c.Port < 0 || c.Port > 65535:
		return usage("--port %d: expected a port, or 0 for any free one", c.Port)
	}
	if err := errors.Join(c.allow(a), c.embedWith(a)); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(a.ctx)
	defer cancel(nil)
	o := a.options()
	o.MustExist, o.ReadOnly, o.Stop = true, c.ReadOnly, func() { cancel(errEnough) }
	o.NoWatch = o.NoWatch || !c.Write // a page that only reads decides nothing about a window
	if err := c.observe(&o); err != nil {
		return err
	}
	db, err := a.database(c.File, o, true)
	if err != nil {
		return err
	}
	return cmp.Or(c.serve(ctx, a, db), db.Close())
}

// serve listens, says where, and answers until something ends ctx.
func (c *uiCmd) serve(ctx context.Context, a *app, db *ctxpage.DB) error {
	secret := make([]byte, 32)
	if _, err := rand.Read(secret); err != nil {
		return err
	}
	token := base64.RawURLEncoding.EncodeToString(secret)
	h, err := ui.New(ui.Options{
		DB: db, Write: c.Write, ReadOnly: c.ReadOnly, Token: token, Name: a.label(c.File), Counter: a.counter, Embedder: a.embedder != nil,
		Facts: c.facts(a), Now: a.now,
	})
	if err != nil {
		return err
	}
	defer h.Close()
	l, err := mcpserver.Listen(ctx, net.JoinHostPort("127.0.0.1", strconv.Itoa(c.Port)))
	if err != nil {
		return usage("--port: %v", err)
	}
	var calls atomic.Int64 // under way
	metrics, wait, err := c.serveMetrics(ctx, a, c.File, db, func() map[string]int { return map[string]int{"ui": int(calls.Load())} })
	if err != nil {
		return errors.Join(err, l.Close())
	}
	defer wait()
	v := uiView{URL: fmt.Sprintf("http://%s/enter?token=%s", l.Addr(), token), PID: os.Getpid(), Path: db.Path(), Metrics: metrics}
	if a.JSON {
		err = oneLine(a.out, v)
	} else {
		if v.Metrics != "" {
			a.warn("metrics: " + v.Metrics)
		}
		_, err = fmt.Fprintf(a.out, "%s\nThe link works once. Ctrl-C ends the inspector.\n", v.URL)
	}
	if err != nil {
		return errors.Join(err, l.Close())
	}
	if c.Open {
		if err := browse(v.URL); err != nil {
			a.warn(fmt.Sprintf("--open: %v; open the link yourself", err))
		}
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	context.AfterFunc(ctx, h.Close) // ends the streams, which would keep the server
	return mcpserver.ServeHTTP(ctx, l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		defer calls.Add(-1)
		h.ServeHTTP(w, r)
	}))
}

// browse opens a link in the browser of the desktop.
func browse(link string) error {
	args := map[string][]string{"darwin": {"open"}, "windows": {"rundll32", "url.dll,FileProtocolHandler"}}[runtime.GOOS]
	if args == nil {
		args = []string{"xdg-open"}
	}
	cmd := exec.Command(args[0], append(args[1:], link)...)
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() { _ = cmd.Wait() }()
	return nil
}

// facts says who has the files, as the view of health shows it.
func (c *uiCmd) facts(a *app) func(ctx context.Context) [][2]string {
	if onServer(c.File) {
		return nil
	}
	return func(ctx context.Context) [][2]string {
		where, is := atSocket(c.File)
		if !is {
			var err error
			if where, err = remote.SocketPath(c.File); err != nil {
				return nil
			}
		}
		s, err := remote.GetStatus(ctx, where, remote.ClientOptions{Now: a.now})
		if err != nil {
			return [][2]string{{"owner of the files", "none serves them: " + hint(err)}}
		}
		who := fmt.Sprintf("%s, pid %d", s.Program, s.PID)
		if s.PID == os.Getpid() {
			who += ", this inspector"
		}
		return [][2]string{{"owner of the files", who}, {"since", when(s.Since)}, {"connected processes", strconv.Itoa(s.Clients)}, {"this process", fmt.Sprintf("pid %d", os.Getpid())}}
	}
}
