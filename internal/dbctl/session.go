package dbctl

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/compat/commands"
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
