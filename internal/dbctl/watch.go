package dbctl

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/session"
)

// windowFlags set the window of a conversation.
type windowFlags struct {
	Reserve float64 `help:"Per cent of the window that stay free. Default: 15." placeholder:"PERCENT"`
}

// window returns the window of so many tokens.
func (f *windowFlags) window(total int) (session.Config, error) {
	if f.Reserve < 0 || f.Reserve >= 100 {
		return session.Config{}, usage("--reserve %v: expected per cent, from 0 to below 100", f.Reserve)
	}
	return session.Config{Total: total, Reserve: session.PPM(f.Reserve * 10_000)}, nil
}

type watchCmd struct {
	talkArgs
	Total int `help:"Set the window to this many tokens before watching. The setting is kept."`
	windowFlags
	DryRun bool `help:"Show the headroom and what a pass would do now; write nothing."`
	Once   bool `help:"Check once, compact if it is due, and exit."`
	summarizerFlags
}

func (c *watchCmd) Run(a *app) error {
	switch {
	case c.DryRun && c.Total != 0:
		return usage("--total: a dry run shows the window that is set; dbctl watch --total %d --once sets it", c.Total)
	case c.Reserve != 0 && c.Total == 0:
		return usage("--reserve is a part of a window that is being set: give --total, too")
	}
	cfg, err := c.window(c.Total)
	if err = errors.Join(err, c.summarizeWith(a)); err != nil {
		return err
	}
	a.noWatch = c.Once || c.DryRun
	return c.with(a, !c.DryRun, func(s *ctxpage.Session) error {
		if c.Total != 0 {
			if err := s.SetWindow(a.ctx, cfg); err != nil {
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
	return a.emit(planView{st.Phase, p}, func(out io.Writer) {
		printStats(out, &st)
		rows(out, "TURN KIND PRIORITY SCORE FROM TO BEFORE AFTER WHY", p.Items, func(it *session.PlanItem) []any {
			return []any{it.ID, it.Kind, it.Priority, fmt.Sprintf("%.4g", it.Score), it.From, it.To, it.Before, it.After, it.Reason}
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
		return json.NewEncoder(a.out).Encode(headroomView{"headroom", a.now().UTC(), st.Phase, st.Actual, st.Analysis.Protected, st.Limits})
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

// live prints the events of the watcher until the call is cancelled.
func (c *watchCmd) live(a *app, w *ctxpage.Watcher) error {
	if a.summarizer != nil {
		if err := w.Start(a.ctx); err != nil {
			return err
		}
		defer w.Stop()
	}
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
