package dbctl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/internal/remote"
	"github.com/ctxpage/ctxpage/serve"
	"github.com/ctxpage/ctxpage/store"
)

type stopCmd struct {
	File string `arg:"" help:"Database, or unix:PATH of a socket where it is served."`
}

type stopView struct {
	File    string `json:"file"`
	Stopped bool   `json:"stopped"` // false: no process had it open
	PID     int    `json:"pid,omitempty"`
	Program string `json:"program,omitempty"`
}

// server is one that may be asked to end.
type server struct {
	is   func(context.Context) (pid int, program string, err error)
	stop func(context.Context) error
}

func (c *stopCmd) Run(a *app) error {
	s, err := c.find(a)
	if err != nil {
		return err
	}
	v := stopView{File: c.File}
	if s == nil {
		return a.emit(v, func(w io.Writer) { fmt.Fprintf(w, "no process has %s open\n", c.File) })
	}
	if v.PID, v.Program, err = s.is(a.ctx); err != nil {
		return err
	}
	if err := s.stop(a.ctx); err != nil {
		return failed("pid %d (%s): %v", v.PID, v.Program, err)
	}
	if err := s.gone(a, v.PID); err != nil {
		return err
	}
	v.Stopped = true
	return a.emit(v, func(w io.Writer) { fmt.Fprintf(w, "pid %d (%s) has ended\n", v.PID, v.Program) })
}

// find returns the server of JSON for a database, which may be a client of the files, else the owner of the files; nil: there is
// neither.
func (c *stopCmd) find(a *app) (*server, error) {
	if where, is := atSocket(c.File); is {
		return owning(a, where), nil
	}
	path, err := a.beside(c.File)
	if err != nil {
		return nil, err
	}
	if api, err := serve.SocketPath(path); err == nil {
		s := offering(api)
		if _, _, err := s.is(a.ctx); err == nil {
			return s, nil
		}
	}
	if onServer(c.File) {
		_, err := a.server(c.File)
		return nil, err
	}
	lock, err := filestore.TakeLock(filestore.Options{Path: c.File, MustExist: true})
	var locked *store.LockedError
	switch {
	case err == nil:
		return nil, lock.Release()
	case errors.As(err, &locked) && locked.Socket != "":
		return owning(a, locked.Socket), nil
	}
	return nil, err
}

// owning is the process that serves files at a socket (package remote).
func owning(a *app, where string) *server {
	opts := remote.ClientOptions{Now: a.now}
	return &server{
		is: func(ctx context.Context) (int, string, error) {
			is, err := remote.GetStatus(ctx, where, opts)
			return is.PID, is.Program, err
		},
		stop: func(ctx context.Context) error {
			_, err := remote.Stop(ctx, where, opts)
			return err
		},
	}
}

// offering is the process that serves JSON at a socket (package serve).
func offering(where string) *server {
	client := &http.Client{Timeout: stopAnswer, Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return remote.Connect(ctx, where)
	}}}
	return &server{
		is: func(ctx context.Context) (int, string, error) {
			var is struct {
				PID     int    `json:"pid"`
				Program string `json:"program"`
			}
			err := askJSON(ctx, client, http.MethodGet, "status", &is)
			return is.PID, is.Program, err
		},
		stop: func(ctx context.Context) error { return askJSON(ctx, client, http.MethodPost, "stop", &struct{}{}) },
	}
}

// stopAnswer limits how long a server of JSON may be silent.
const stopAnswer = 2 * time.Second

// askJSON makes a call without arguments, as an operator.
func askJSON(ctx context.Context, client *http.Client, method, call string, out any) error {
	req, err := http.NewRequestWithContext(ctx, method, "http://ctxpage/v1/"+call, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Ctxpage-Role", "operator")
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if err != nil {
		return err
	}
	if res.StatusCode >= 300 {
		var no struct {
			Error struct{ Message, Hint string }
		}
		if json.Unmarshal(b, &no) == nil && no.Error.Message != "" {
			return fmt.Errorf("%s: %s", no.Error.Message, no.Error.Hint)
		}
		return fmt.Errorf("got status %d, expected the answer of a ctxpage server; it says %.200q", res.StatusCode, b)
	}
	return json.Unmarshal(b, out)
}

// gone waits until the process does not answer any more. Another one may have taken its place.
func (s *server) gone(a *app, pid int) error {
	ctx, cancel := context.WithTimeout(a.ctx, max(a.Wait, time.Millisecond))
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		now, _, err := s.is(a.ctx)
		if err != nil && a.ctx.Err() == nil || err == nil && now != pid {
			return nil
		}
		select {
		case <-a.ctx.Done():
			return a.ctx.Err()
		case <-ctx.Done():
			return failed("pid %d was asked to end and has not ended yet; --wait waits longer than %s", pid, a.Wait)
		case <-tick.C:
		}
	}
}
