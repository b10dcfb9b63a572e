package dbctl

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/compat/commands"
	"github.com/ctxpage/ctxpage/internal/foreign"
	"github.com/ctxpage/ctxpage/internal/handoff"
	"github.com/ctxpage/ctxpage/internal/loop"
	"github.com/ctxpage/ctxpage/internal/view"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
)

type sessionCmd struct {
	Ls       sessionLsCmd       `cmd:"" help:"List the sessions of a scope."`
	Show     sessionShowCmd     `cmd:"" help:"Show the window of a session: each turn, its form and the reason."`
	Append   sessionAppendCmd   `cmd:"" help:"Append turns."`
	Export   sessionExportCmd   `cmd:"" help:"Print the conversation: messages of OpenAI or Anthropic, or Markdown."`
	Pass     sessionPassCmd     `cmd:"" help:"Decide which turns stay in the window for an intent."`
	Recall   sessionRecallCmd   `cmd:"" help:"Print a turn in full, even if the window shows less of it."`
	Explain  sessionExplainCmd  `cmd:"" help:"Explain the form a turn has in the window."`
	Pin      sessionPinCmd      `cmd:"" help:"Keep a turn whole regardless of passes, or stop doing so."`
	Undo     sessionUndoCmd     `cmd:"" help:"Undo a pass."`
	Passes   sessionPassesCmd   `cmd:"" help:"List the passes, oldest first."`
	Notes    sessionNotesCmd    `cmd:"" help:"Record goal, claims, questions and work for the contract and the handoff."`
	Contract sessionContractCmd `cmd:"" help:"Append the current pass to a contract file."`
	Receive  sessionReceiveCmd  `cmd:"" help:"Receive a handoff packet as unverified references."`
	Rm       sessionRmCmd       `cmd:"" help:"Remove a session: its turns, and what was decided and noted about them."`
	Page     sessionPageCmd     `cmd:"" passthrough:"" help:"Run the compatible pager: reads a history, writes a contract. Needs no database."`
}

// sessionPageCmd hands its arguments on as they are.
type sessionPageCmd struct {
	Args []string `arg:"" optional:"" passthrough:"" help:"--history H --contract C [--alpha A] [--beta B] [--retain-cut R] [--evict-cut E], or --matrix."`
}

func (c *sessionPageCmd) Run(a *app) error {
	return a.passedOn(commands.RunPager(c.Args, interruptible{a.ctx, a.in}, a.out, a.err, a.now))
}

// talkArgs name a session.
type talkArgs struct {
	File    string `arg:"" help:"Database."`
	Scope   string `arg:"" help:"Scope of the session."`
	Session string `arg:"" help:"Name of the session."`
}

func (t *talkArgs) with(a *app, write bool, fn func(s *ctxpage.Session) error) error {
	return a.with(t.File, write, func(db *ctxpage.DB) error { return fn(db.Scope(t.Scope).Session(t.Session)) })
}

// withKnown is with for the verbs that need a session which is there: a mistyped name is an error, not an empty answer.
func (t *talkArgs) withKnown(a *app, write bool, fn func(s *ctxpage.Session) error) error {
	return a.with(t.File, write, func(db *ctxpage.DB) error {
		if err := t.known(a, db); err != nil {
			return err
		}
		return fn(db.Scope(t.Scope).Session(t.Session))
	})
}

// showTalk opens a database, prints what get returns of a session that is there, and closes it.
func showTalk[T any](a *app, t *talkArgs, write bool, get func(s *ctxpage.Session) (T, error), text func(v T, w io.Writer)) error {
	return show(a, t.File, write, func(db *ctxpage.DB) (v T, err error) {
		if err = t.known(a, db); err == nil {
			v, err = get(db.Scope(t.Scope).Session(t.Session))
		}
		return v, err
	}, text)
}

func (t *talkArgs) known(a *app, db *ctxpage.DB) error {
	scope := db.Scope(t.Scope)
	names, err := loop.Collect(scope.Sessions(a.ctx))
	if err != nil || slices.Contains(names, t.Session) {
		return err
	}
	w, err := scope.Session(t.Session).Inspect(a.ctx) // one that plain puts alone have written to has no row
	if err == nil && len(w.Turns) == 0 {
		err = fmt.Errorf("%w: scope %s has no session %q; it has %s", store.ErrNotFound, t.Scope, t.Session, listed(names))
	}
	return err
}

// listed names the first of many.
func listed(names []string) string {
	const most = 8
	switch n := len(names); {
	case n == 0:
		return "none"
	case n > most:
		return fmt.Sprintf("%s and %d more (dbctl session ls)", strings.Join(names[:most], ", "), n-most)
	}
	return strings.Join(names, ", ")
}

type sessionLsCmd struct {
	File  string `arg:"" help:"Database."`
	Scope string `arg:"" help:"Scope."`
}

type sessionsView struct {
	Sessions []string `json:"sessions"`
}

func (c *sessionLsCmd) Run(a *app) error {
	return show(a, c.File, false, func(db *ctxpage.DB) (sessionsView, error) {
		names, err := loop.Collect(db.Scope(c.Scope).Sessions(a.ctx))
		return sessionsView{nonNil(names)}, err
	}, func(v sessionsView, w io.Writer) {
		printEach(w, "%s\n", v.Sessions)
		if len(v.Sessions) == 0 {
			fmt.Fprintln(w, "none")
		}
	})
}

type sessionShowCmd struct {
	talkArgs
	Text bool `help:"Show the first lines of the turns. This is a read and writes a manifest."`
}

type turnView struct {
	Ref     string `json:"ref"`
	ID      string `json:"id"`
	Seq     int64  `json:"seq"`
	Role    string `json:"role"`
	Kind    string `json:"kind"`
	Level   string `json:"level"`
	Tokens  int    `json:"tokens"`
	Stored  int    `json:"stored"`
	Pinned  bool   `json:"pinned"`
	Verdict string `json:"verdict"`
	Why     string `json:"why"`
	Trace   string `json:"trace,omitempty"` // of the context that it was written from, for dbctl why and replay
	Text    string `json:"text,omitempty"`
}

type windowView struct {
	Session string              `json:"session"`
	LSN     uint64              `json:"lsn"`
	Pass    uint64              `json:"pass"`
	InForce uint64              `json:"in_force"`
	Tokens  int                 `json:"tokens"`
	Stored  int                 `json:"stored"`
	Limits  *session.Thresholds `json:"limits,omitempty"`
	Turns   []turnView          `json:"turns"`
}

func (c *sessionShowCmd) Run(a *app) error {
	return showTalk(a, &c.talkArgs, c.Text, func(s *ctxpage.Session) (v windowView, err error) {
		w, err := s.Inspect(a.ctx)
		if err != nil {
			return v, err
		}
		v = windowView{w.Session, w.LSN, w.Pass, w.InForce, w.Tokens, w.Stored, w.Limits, []turnView{}}
		for _, t := range w.Turns {
			v.Turns = append(v.Turns, turnView{
				ctxpage.Ref{Scope: c.Scope, ID: t.ID, Version: t.Version}.String(), t.ID, t.Seq, t.Role, t.Kind, t.Level.String(), t.Tokens, t.Stored, t.Pinned, t.Verdict, t.Why, t.Trace, "",
			})
		}
		if c.Text {
			err = v.fill(a, s)
		}
		return v, err
	}, windowView.print)
}

// fill reads the texts of the turns.
func (v *windowView) fill(a *app, s *ctxpage.Session) error {
	texts := map[string]string{}
	for t, err := range s.Turns(a.ctx, 0) {
		if err != nil {
			return err
		}
		texts[t.ID] = view.Text(t)
	}
	for i := range v.Turns {
		v.Turns[i].Text = texts[v.Turns[i].ID]
	}
	return nil
}

func (v windowView) print(w io.Writer) {
	fmt.Fprintf(w, "%s: %s, %d of %d tokens in the window", line(v.Session), plural(len(v.Turns), "turn", "turns"), v.Tokens, v.Stored)
	if v.Limits != nil {
		fmt.Fprintf(w, "; usable %d of %d", v.Limits.Usable, v.Limits.Total)
	}
	if v.InForce > 0 {
		fmt.Fprintf(w, "; pass %d in force", v.InForce)
	}
	fmt.Fprintln(w)
	rows(w, "TURN ROLE ID SHOWN TOKENS STORED VERDICT TRACE WHY", v.Turns, func(t *turnView) []any {
		pin := ""
		if t.Pinned {
			pin = " (pinned)"
		}
		return []any{t.Seq, or(t.Role, t.Kind), t.ID, t.Level + pin, t.Tokens, t.Stored, or(t.Verdict, "-"), or(t.Trace, "-"), cut(or(t.Why, t.Text), 60)}
	})
}

type sessionExportCmd struct {
	talkArgs
	Format string `help:"openai and anthropic print one message a line, which session append --jsonl takes again; md is for people to read, and names the context that each answer was written from." enum:"openai,anthropic,md" default:"openai"`
	From   int64  `help:"Begin at this turn."`
}

func (c *sessionExportCmd) Run(a *app) error {
	if a.JSON && c.Format == "md" {
		return usage("--json with --format md: expected one of them")
	}
	return c.withKnown(a, true, func(s *ctxpage.Session) error {
		if a.JSON {
			return c.document(a, s)
		}
		_, left, err := foreign.Transcript(a.out, foreign.Format(c.Format), s.Turns(a.ctx, c.From))
		if left > 0 {
			fmt.Fprintf(a.err, "left out: %d calls, results or parts that %s does not accept\n", left, c.Format)
		}
		return err
	})
}

// transcriptView is the JSON of a transcript: the messages as one document.
type transcriptView struct {
	Session  string            `json:"session"`
	Format   string            `json:"format"`
	Messages []json.RawMessage `json:"messages"`
	LeftOut  int               `json:"left_out,omitempty"` // calls without a result, results without a call, and parts that the provider does not accept
}

// document prints the messages as one JSON document.
func (c *sessionExportCmd) document(a *app, s *ctxpage.Session) error {
	v := transcriptView{Session: c.Session, Format: c.Format, Messages: []json.RawMessage{}}
	w := lineFunc(func(line []byte) { v.Messages = append(v.Messages, bytes.Clone(line)) })
	var err error
	if _, v.LeftOut, err = foreign.Transcript(w, foreign.Format(c.Format), s.Turns(a.ctx, c.From)); err != nil {
		return err
	}
	return a.emit(v, func(w io.Writer) { fmt.Fprintln(w, len(v.Messages)) })
}

// lineFunc is called with each message that is written.
type lineFunc func(line []byte)

// Write takes one message.
func (f lineFunc) Write(p []byte) (int, error) {
	f(p)
	return len(p), nil
}

type sessionNotesCmd struct {
	talkArgs
	Show bool `help:"Print the recorded notes instead of replacing them from standard input."`
}

func (c *sessionNotesCmd) Run(a *app) error {
	if c.Show {
		return c.with(a, false, func(s *ctxpage.Session) error {
			in, err := s.Inspect(a.ctx)
			if err != nil {
				return err
			}
			b, err := json.MarshalIndent(in.Notes, "", "  ")
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(a.out, escapedFor(a.out, string(b)))
			return err
		})
	}
	var n session.Notes
	d := json.NewDecoder(interruptible{a.ctx, a.in})
	d.DisallowUnknownFields()
	if err := d.Decode(&n); err != nil {
		return usage("notes on standard input: %v", err)
	}
	return c.with(a, true, func(s *ctxpage.Session) error {
		if err := s.Record(a.ctx, n); err != nil {
			return err
		}
		return a.emit(n, func(w io.Writer) { fmt.Fprintf(w, "notes of %s recorded\n", c.Session) })
	})
}

type sessionContractCmd struct {
	talkArgs
	Path    string `arg:"" help:"Contract file. Created if missing." type:"path"`
	Dialect string `help:"Dialect: strict (accepted by the real interpreter) or compat (as the reference writes it)." enum:"strict,compat" default:"strict"`
	DryRun  bool   `help:"Print what would be appended and write nothing."`
}

func (c *sessionContractCmd) Run(a *app) error {
	return c.withKnown(a, false, func(s *ctxpage.Session) error {
		delta := func(have []byte) ([]byte, error) {
			if c.Dialect == "strict" {
				return s.Contract(a.ctx, have, nil)
			}
			in, err := s.Inspect(a.ctx)
			if err != nil {
				return nil, err
			}
			if in.Force == nil {
				return nil, fmt.Errorf("%w: session %s has had no pass, or all were undone", store.ErrNotFound, c.Session)
			}
			return commands.ExportPass(in.Force, have)
		}
		if c.DryRun {
			return previewContract(a, c.Path, delta)
		}
		return growContract(a, c.Path, delta)
	})
}

type sessionReceiveCmd struct {
	talkArgs
	DryRun bool `help:"Validate the packet and list its references; write nothing."`
}

func (c *sessionReceiveCmd) Run(a *app) error {
	raw, err := io.ReadAll(io.LimitReader(a.in, store.MaxText))
	if err != nil {
		return failed("read the packet: %v", err)
	}
	p, err := session.ReadPacket(raw)
	if err != nil {
		return usage("%v; expected what dbctl handoff writes, with --format json or md", err)
	}
	if _, err := handoff.Pages(p, c.Session); err != nil {
		return usage("%v", err)
	}
	if c.DryRun {
		v := appendedView{[]string{}}
		for _, r := range handoff.References(p) {
			v.Refs = append(v.Refs, r.Ref)
		}
		return a.emit(v, func(w io.Writer) {
			fmt.Fprintf(w, "dry run: %s\n%s\n", plural(len(v.Refs), "reference", "references"), line(strings.Join(v.Refs, " ")))
		})
	}
	return c.with(a, true, func(s *ctxpage.Session) error {
		refs, err := s.Receive(a.ctx, p)
		if err != nil {
			return err
		}
		v := appendedView{view.Refs(refs)}
		return a.emit(v, func(w io.Writer) { fmt.Fprintf(w, "%s received\n", plural(len(refs), "reference", "references")) })
	})
}

type turnArgs struct {
	talkArgs
	Turn string `arg:"" help:"Id of or reference to the turn."`
}

// withTurn is with for the verbs about one turn, which a text names as it names any artefact of the scope.
func (t *turnArgs) withTurn(a *app, write bool, fn func(s *ctxpage.Session, id string) error) error {
	return a.with(t.File, write, func(db *ctxpage.DB) error {
		if err := t.known(a, db); err != nil {
			return err
		}
		n := &namer{a: a, db: db, scope: t.Scope, writes: write}
		ref, err := n.turn(a.ctx, t.Turn)
		if err != nil {
			return err
		}
		return n.hinted(fn(db.Scope(t.Scope).Session(t.Session), ref.ID), ref, t.Turn)
	})
}

type sessionRecallCmd struct {
	turnArgs
	rootFlags
}

func (c *sessionRecallCmd) Run(a *app) error {
	if err := c.allow(a); err != nil {
		return err
	}
	return c.withTurn(a, true, func(s *ctxpage.Session, id string) error {
		got, err := s.Recall(a.ctx, id)
		if err != nil {
			return err
		}
		v := view.Whole(got)
		return a.emit(v, func(w io.Writer) {
			fmt.Fprint(w, printable(w, v.Text))
			for _, call := range got.ToolCalls {
				fmt.Fprintf(w, "\n%s(%s) as %s\n", line(call.Name), printable(w, call.Arguments), line(call.ID))
			}
			if isTerminal(w) {
				fmt.Fprintln(w)
				if v.Trace != "" {
					a.warn("written from the context of trace " + v.Trace)
				}
			}
		})
	})
}

type sessionExplainCmd struct{ turnArgs }

type explainView struct {
	ID    string   `json:"id"`
	Steps []string `json:"steps"`
}

func (c *sessionExplainCmd) Run(a *app) error {
	return c.withTurn(a, false, func(s *ctxpage.Session, id string) error {
		in, err := s.Inspect(a.ctx, id)
		if err != nil {
			return err
		}
		why := in.Turn[id]
		v := explainView{id, strings.Split(why, "\n")}
		return a.emit(v, func(w io.Writer) { fmt.Fprintln(w, printable(w, why)) })
	})
}

type sessionPinCmd struct {
	turnArgs
	Off bool `help:"Remove the pin."`
}

type pinView struct {
	ID     string `json:"id"`
	Pinned bool   `json:"pinned"`
}

func (c *sessionPinCmd) Run(a *app) error {
	return c.withTurn(a, true, func(s *ctxpage.Session, id string) error {
		set, said := s.Pin, "pinned"
		if c.Off {
			set, said = s.Unpin, "no longer pinned"
		}
		if err := set(a.ctx, id); err != nil {
			return err
		}
		return a.emit(pinView{id, !c.Off}, func(w io.Writer) { fmt.Fprintf(w, "%s: %s\n", line(id), said) })
	})
}
