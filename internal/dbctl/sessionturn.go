package dbctl

import (
	"fmt"
	"io"
	"strings"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/view"
)

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
