package dbctl

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/view"
	"github.com/ctxpage/ctxpage/store"
)

type hookCmd struct {
	File    string `arg:"" help:"Database. It is created if missing."`
	Scope   string `help:"Scope of the conversations. Required."`
	Actor   string `help:"Who writes, for manifests. Default: the scope."`
	Session string `help:"Name of the conversation. Default: session_id of the event."`
	Subject string `help:"Whom the conversations are about, for exports and erases."`
	priorityFlags
	Window int `help:"Set the window of a conversation without one to this many tokens." placeholder:"TOKENS"`
	windowFlags
	MaxBytes int           `help:"Cut the input and the result of a tool after this many bytes." default:"32768"`
	Timeout  time.Duration `help:"Give up after this time, so that the host is not kept waiting." default:"5s"`
	Strict   bool          `help:"Exit with an error code if the event cannot be stored. Without it the exit code is 0 whatever happens."`
	DryRun   bool          `help:"Print the turns and write nothing."`
}

type hookView struct {
	Event   string     `json:"event"`
	Session string     `json:"session"`
	Refs    []string   `json:"refs"`
	DryRun  bool       `json:"dry_run"`
	Turns   []turnLine `json:"turns,omitempty"` // of a dry run
}

// Run never fails the host: unless --strict is given, an error is a line on standard error.
func (c *hookCmd) Run(a *app) error {
	err := c.run(a)
	if err == nil || c.Strict {
		return err
	}
	a.report(err)
	return nil
}

func (c *hookCmd) run(a *app) error {
	switch {
	case c.Scope == "":
		return usage("expected --scope: the scope of the conversations")
	case c.MaxBytes < 1 || c.MaxBytes > store.MaxToolBytes:
		return usage("--max-bytes %d: expected 1 to %d", c.MaxBytes, store.MaxToolBytes)
	case c.Window < 0 || c.Reserve != 0 && c.Window == 0:
		return usage("--window %d with --reserve %v: expected tokens above zero for both", c.Window, c.Reserve)
	case c.Timeout <= 0:
		return usage("--timeout %s: expected more than zero", c.Timeout)
	}
	ctx, cancel := context.WithTimeout(a.ctx, c.Timeout)
	defer cancel()
	e, err := readHook(interruptible{ctx, a.in})
	if err != nil {
		return err
	}
	turns, err := e.turns(c.MaxBytes)
	if err != nil {
		return err
	}
	if err := c.rate(turns); err != nil {
		return err
	}
	for i := range turns {
		turns[i].Subject = c.Subject
	}
	v := hookView{Event: e.Event, Session: e.SessionID, Refs: []string{}, DryRun: c.DryRun}
	if c.Session != "" {
		v.Session = c.Session
	}
	switch {
	case c.DryRun:
		for i := range turns {
			t := &turns[i]
			v.Turns = append(v.Turns, turnLine{ID: t.ID, Role: t.Role, Name: t.Name, Text: t.Text, ToolCalls: t.ToolCalls, ToolCallID: t.ToolCallID, At: t.At, Subject: t.Subject})
		}
	case len(turns) > 0:
		if v.Refs, err = c.append(ctx, a, v.Session, turns); err != nil {
			return err
		}
	}
	if !a.JSON && !c.DryRun {
		return nil
	}
	return a.emit(v, v.print)
}

func (v *hookView) print(w io.Writer) {
	fmt.Fprintf(w, "%s: %s in session %s\n", v.Event, plural(len(v.Turns), "turn", "turns"), line(v.Session))
	for _, t := range v.Turns {
		fmt.Fprintf(w, "%s: %s\n", t.Role, cut(or(t.Text, callsOf(t.ToolCalls)), 100))
	}
}

func callsOf(calls []store.ToolCall) string {
	var all []string
	for _, c := range calls {
		all = append(all, c.Name+" "+c.Arguments)
	}
	return strings.Join(all, ", ")
}

// append opens the database as every process does, and appends. Opening is in real time and is not ended by ctx: an owner that
// does not answer is given up after two seconds.
func (c *hookCmd) append(ctx context.Context, a *app, session string, turns []ctxpage.Turn) (refs []string, err error) {
	db, err := a.database(c.File, ctxpage.Options{Counter: a.counter, Key: a.key, Keyring: a.Keyring, LockTimeout: min(a.Wait, c.Timeout), Clock: a.now, NoWatch: a.noWatch}, false)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	var opts []ctxpage.ScopeOption
	if c.Actor != "" {
		opts = append(opts, ctxpage.WithActor(c.Actor))
	}
	s := db.Scope(c.Scope, opts...).Session(session)
	if err := c.limit(ctx, s); err != nil {
		return nil, err
	}
	if err := identify(ctx, s, turns); err != nil {
		return nil, err
	}
	got, err := s.Append(ctx, turns...)
	return view.Refs(got), err
}

// identify sets the id of a turn whose event has none, from its text and the turn before it: an event that the host reports twice adds
// nothing.
func identify(ctx context.Context, s *ctxpage.Session, turns []ctxpage.Turn) error {
	if len(turns) != 1 || turns[0].ID != "" {
		return nil
	}
	w, err := s.Inspect(ctx)
	if err != nil {
		return err
	}
	t, n := &turns[0], len(w.Turns)
	before := func(i int) string { // the id of a turn behind the i-th
		last := ""
		if i > 0 {
			last = w.Turns[i-1].ID
		}
		return "hook-" + t.Role + "-" + digest(s.ID(), last, t.Text)
	}
	t.ID = before(n)
	if n > 0 && w.Turns[n-1].ID == before(n-1) {
		t.ID = before(n - 1)
	}
	return nil
}

func digest(texts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(texts, "\x00")))
	return hex.EncodeToString(sum[:16])
}

// limit sets the window of a conversation that has none. The process that owns the database keeps headroom in it; this one
// does so before it ends if no other has the database.
func (c *hookCmd) limit(ctx context.Context, s *ctxpage.Session) error {
	if c.Window == 0 {
		return nil
	}
	cfg, err := c.window(c.Window)
	if err != nil {
		return err
	}
	w, err := s.Inspect(ctx)
	if err != nil || w.Limits != nil {
		return err
	}
	return s.SetWindow(ctx, cfg)
}

// spares reports whether a command line that cannot be read must end well all the same: hosts take an exit code of 2 as an
// order to block what the user or the model was about to do.
func spares(args []string) bool {
	if len(args) == 0 || args[0] != "hook" {
		return false
	}
	for _, arg := range args {
		if arg == "--strict" || strings.HasPrefix(arg, "--strict=") {
			return false
		}
	}
	return true
}
