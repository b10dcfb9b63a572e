package main

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/session"
)

type watchCmd struct {
	talkArgs
	Total  int  `help:"Set the window to this many tokens before watching. The setting is kept."`
	DryRun bool `help:"Show the headroom and what a pass would do now; write nothing."`
	Once   bool `help:"Check once, compact if it is due, and exit."`
	Follow bool `short:"f" help:"Show what a running agent's watcher does, from the manifests, until Ctrl-C."`
}

func (watchCmd) Help() string {
	return `Keeps headroom in a session's window: checks once a second and compacts the least valuable turns, until Ctrl-C. dbctl session undo reverts what it did. It needs the file to itself. A running agent keeps its own headroom; --follow shows what it does.

Example: dbctl watch agent.ctx acme/support chat-1 --dry-run`
}

func (c *watchCmd) Run(a *app) error {
	if c.Follow {
		return c.follow(a)
	}
	if c.DryRun && c.Total != 0 {
		return usage("--total: a dry run shows the window that is set; dbctl watch --total %d --once sets it", c.Total)
	}
	return c.with(a, !c.DryRun, func(s *ctxpage.Session) error {
		if c.Total != 0 {
			if err := s.SetWindow(a.ctx, session.Config{Total: c.Total}); err != nil {
				return err
			}
		}
		w, err := s.Watch(a.ctx)
		if err != nil {
			return err
		}
		if c.DryRun {
			return c.plan(a, w)
		}
		if err := c.head(a, w); err != nil {
			return err
		}
		if c.Once {
			return c.once(a, w)
		}
		return c.live(a, w)
	})
}

type planView struct {
	Phase string       `json:"phase"`
	Plan  session.Plan `json:"plan"`
}

func (c *watchCmd) plan(a *app, w *ctxpage.Watcher) error {
	st, err := w.Stats(a.ctx)
	if err != nil {
		return err
	}
	p, err := w.Plan(a.ctx, a.now())
	if err != nil {
		return err
	}
	return a.emit(planView{st.Phase.String(), p}, func(out io.Writer) {
		printStats(out, &st)
		table(out, "TURN KIND PRIORITY SCORE FROM TO BEFORE AFTER WHY", func(row func(...any)) {
			for _, it := range p.Items {
				row(it.ID, it.Kind, it.Priority, fmt.Sprintf("%.4g", it.Score), it.From, it.To, it.Before, it.After, it.Reason)
			}
		})
		fmt.Fprintf(out, "dry run: %s, frees %d, leaves %d in the window\n", plural(len(p.Items), "item", "items"), p.Freed, p.Predicted)
		if p.Blocked != "" {
			fmt.Fprintf(out, "not worth a pass: %s\n", p.Blocked)
		}
	})
}

func printStats(w io.Writer, st *session.WatchStats) {
	l := st.Limits
	fmt.Fprintf(w, "%d of %d usable tokens (total %d; warns above %d, works above %d, down to %d), %d protected, %s\n",
		st.Actual, l.Usable, l.Total, l.Warn, l.Trigger, l.Target, st.Analysis.Protected, st.Phase)
	table(w, "OF ITEMS TOKENS SHARE", func(row func(...any)) {
		for _, rows := range [][]session.Row{st.Analysis.ByKind, st.Analysis.ByPriority} {
			for _, r := range rows {
				if r.Items > 0 {
					row(r.Name, r.Items, r.Tokens, fmt.Sprintf("%.1f%%", float64(r.Share)/10_000))
				}
			}
		}
	})
}

// headroomView is the first line of a watch; its events are the others.
type headroomView struct {
	Kind      string             `json:"kind"`
	At        time.Time          `json:"time"`
	Phase     string             `json:"phase"`
	Actual    int                `json:"actual"`
	Protected int                `json:"protected"`
	Limits    session.Thresholds `json:"thresholds"`
}

func (c *watchCmd) head(a *app, w *ctxpage.Watcher) error {
	st, err := w.Stats(a.ctx)
	if err != nil {
		return err
	}
	if a.JSON {
		return json.NewEncoder(a.out).Encode(headroomView{"headroom", a.now().UTC(), st.Phase.String(), st.Actual, st.Analysis.Protected, st.Limits})
	}
	printStats(a.out, &st)
	return nil
}

func (c *watchCmd) once(a *app, w *ctxpage.Watcher) error {
	events, err := w.Step(a.ctx, a.now())
	for _, e := range events {
		if err := a.event(e); err != nil {
			return err
		}
	}
	return err
}

// live runs the watcher and prints its events until the call is cancelled.
func (c *watchCmd) live(a *app, w *ctxpage.Watcher) error {
	if err := w.Start(a.ctx); err != nil {
		return err
	}
	defer w.Stop()
	for {
		select {
		case <-a.ctx.Done():
			return nil
		case e := <-w.Events():
			if err := a.event(e); err != nil {
				return err
			}
		}
	}
}

// event prints one event: a line, or an object a line.
func (a *app) event(e session.Event) error {
	if a.JSON {
		return json.NewEncoder(a.out).Encode(e)
	}
	_, err := fmt.Fprintf(a.out, "%s  %-11s  %d of %d usable  pass %d  %d items  %d freed  %s\n",
		e.At.UTC().Format(time.TimeOnly), e.Kind, e.Actual, e.Usable, e.Pass, e.Items, e.Freed, e.Reason)
	return err
}

type followView struct {
	At     time.Time `json:"time"`
	Action string    `json:"action"`
	Actual int       `json:"actual"`
	Usable int       `json:"usable"`
	Reason string    `json:"reason"`
}

// follow reads the manifests beside the process that has the file.
func (c *watchCmd) follow(a *app) error {
	from := uint64(0)
	if err := a.audit(c.File, func(l auditOf) (err error) { from, err = l.Size(a.ctx); return err }); err != nil {
		return err
	}
	return a.untilStopped(a.followAudit(c.File, from, func(r *manifest.Record) error {
		if r.Scope != c.Scope || r.Session != c.Session || r.Action == "" {
			return nil
		}
		v := followView{time.UnixMicro(r.Time).UTC(), r.Action, r.Tokens, r.Budget, r.Reason}
		if a.JSON {
			return json.NewEncoder(a.out).Encode(v)
		}
		_, err := fmt.Fprintf(a.out, "%s  %s  %s\n", v.At.Format(time.TimeOnly), line(v.Action), line(v.Reason))
		return err
	}))
}
