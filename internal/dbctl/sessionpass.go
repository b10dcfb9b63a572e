package dbctl

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/session"
)

type sessionPassCmd struct {
	talkArgs
	Keywords []string `arg:"" optional:"" help:"Words or sentences that say what the conversation is about now."`
	Intent   string   `help:"JSON file with an intent IR object. Keywords are added to it." type:"path"`
	Preset   string   `help:"Parameters: recommended, or compat (those of the reference pager, without guards)." enum:"recommended,compat" default:"recommended"`
	Alpha    *float64 `help:"Weight of the similarity."`
	Beta     *float64 `help:"Weight of the recency."`
	Retain   *float64 `name:"retain-cut" help:"Keep turns with at least this score whole."`
	Evict    *float64 `name:"evict-cut" help:"Evict turns below this score."`
	KeepLast *int     `help:"Number of newest turns that always stay."`
	DryRun   bool     `help:"Show the verdicts and write nothing."`
	Verdicts bool     `short:"v" help:"Print the verdict of each turn."`
}

type verdictView struct {
	ID         string  `json:"id"`
	Action     string  `json:"action"`
	Score      float64 `json:"score"`
	Similarity float64 `json:"similarity"`
	Delta      int64   `json:"delta"`
	Reason     string  `json:"reason"`
	Why        string  `json:"why"`
}

type passView struct {
	Pass     uint64        `json:"pass"`
	Key      string        `json:"key"`
	Repeated bool          `json:"repeated"`
	DryRun   bool          `json:"dry_run"`
	Retained int           `json:"retained"`
	Paged    int           `json:"paged"`
	Evicted  int           `json:"evicted"`
	Verdicts []verdictView `json:"verdicts"`
}

func (c *sessionPassCmd) query() (q session.PassQuery, err error) {
	q = session.PassQuery{Keywords: c.Keywords, Params: session.RecommendedParams(), DryRun: c.DryRun}
	if c.Preset == "compat" {
		q.Params = session.CompatParams()
	}
	for _, f := range []struct{ from, to *float64 }{{c.Alpha, &q.Params.Alpha}, {c.Beta, &q.Params.Beta}, {c.Retain, &q.Params.RetainCut}, {c.Evict, &q.Params.EvictCut}} {
		if f.from != nil {
			*f.to = *f.from
		}
	}
	if c.KeepLast != nil {
		q.Params.KeepLast = *c.KeepLast
	}
	if c.Intent == "" {
		return q, nil
	}
	raw, err := os.ReadFile(c.Intent)
	if err != nil {
		return q, failed("--intent: %v", err)
	}
	ir, err := session.ParseIntentIR(raw)
	if err != nil {
		return q, usage("--intent %s: %v", c.Intent, err)
	}
	q.IR = &ir
	return q, nil
}

func (c *sessionPassCmd) Run(a *app) error {
	q, err := c.query()
	if err != nil {
		return err
	}
	if len(q.Keywords) == 0 && q.IR == nil {
		return usage("session pass: expected keywords, or --intent: a pass without an intent would judge by age alone")
	}
	return showTalk(a, &c.talkArgs, !c.DryRun, func(s *ctxpage.Session) (v passView, err error) {
		p, err := s.Pass(a.ctx, q)
		if err == nil {
			v = passOf(p, c.DryRun)
		}
		return v, err
	}, func(v passView, w io.Writer) { v.print(w, c.Verdicts || c.DryRun) })
}

func passOf(p *session.StoredPass, dry bool) passView {
	v := passView{
		Pass: p.Number, Key: p.Key, Repeated: p.Repeated, DryRun: dry, Retained: p.Count[session.Retain], Paged: p.Count[session.Page],
		Evicted: p.Count[session.Evict], Verdicts: []verdictView{},
	}
	for _, x := range p.Verdicts {
		v.Verdicts = append(v.Verdicts, verdictView{x.ID, x.Action.String(), x.R, x.Similarity, x.Delta, x.Reason, p.Explain(x)})
	}
	return v
}

func (v *passView) print(w io.Writer, verdicts bool) {
	if verdicts {
		rows(w, "TURN ACTION SCORE WHY", v.Verdicts, func(x *verdictView) []any {
			return []any{x.ID, x.Action, fmt.Sprintf("%.4f", x.Score), cut(x.Why, 120)}
		})
	}
	name := fmt.Sprintf("pass %d", v.Pass)
	switch {
	case v.DryRun:
		name = "dry run, nothing written"
	case v.Repeated:
		name += ", in force already"
	}
	fmt.Fprintf(w, "%s: retain %d, page %d, evict %d\n", name, v.Retained, v.Paged, v.Evicted)
}

type sessionUndoCmd struct {
	talkArgs
	Pass   uint64 `arg:"" optional:"" help:"Number of the pass. Default: the newest that was not undone."`
	DryRun bool   `help:"Show which pass would be undone."`
}

func (c *sessionUndoCmd) Run(a *app) error {
	return c.withKnown(a, !c.DryRun, func(s *ctxpage.Session) error {
		if c.DryRun {
			return c.name(a, s)
		}
		info, err := s.Undo(a.ctx, c.Pass)
		if err != nil {
			return err
		}
		return a.emit(passInfoOf(info), func(w io.Writer) { fmt.Fprintf(w, "pass %d undone\n", info.Number) })
	})
}

// name says which pass it would be.
func (c *sessionUndoCmd) name(a *app, s *ctxpage.Session) error {
	list, err := s.Passes(a.ctx)
	if err != nil {
		return err
	}
	for i := len(list) - 1; i >= 0; i-- {
		p := list[i]
		if !p.Undone && (c.Pass == 0 || c.Pass == p.Number) {
			return a.emit(passInfoOf(p), func(w io.Writer) {
				fmt.Fprintf(w, "dry run: would undo pass %d (%s) of %s, while nothing changed what it did\n", p.Number, p.Kind, when(p.At))
			})
		}
	}
	return failed("no such pass that was not undone")
}

type passInfoView struct {
	Pass     uint64    `json:"pass"`
	Kind     string    `json:"kind"`
	At       time.Time `json:"at"`
	Actor    string    `json:"actor"`
	Keywords []string  `json:"keywords"`
	Retained int       `json:"retained"`
	Paged    int       `json:"paged"`
	Evicted  int       `json:"evicted"`
	Items    int       `json:"items"`
	Freed    int       `json:"freed"`
	Undone   bool      `json:"undone"`
}

func passInfoOf(p session.PassInfo) passInfoView {
	return passInfoView{p.Number, p.Kind, p.At, p.Actor, nonNil(p.Keywords), p.Retained, p.Paged, p.Evicted, p.Items, p.Freed, p.Undone}
}

type passesView struct {
	Passes []passInfoView `json:"passes"`
}

type sessionPassesCmd struct{ talkArgs }

func (c *sessionPassesCmd) Run(a *app) error {
	return showTalk(a, &c.talkArgs, false, func(s *ctxpage.Session) (passesView, error) {
		v := passesView{[]passInfoView{}}
		list, err := s.Passes(a.ctx)
		for _, p := range list {
			v.Passes = append(v.Passes, passInfoOf(p))
		}
		return v, err
	}, func(v passesView, w io.Writer) {
		rows(w, "PASS AT KIND RETAIN PAGE EVICT COMPACTED FREED UNDONE ABOUT", v.Passes, func(p *passInfoView) []any {
			return []any{p.Pass, when(p.At), p.Kind, p.Retained, p.Paged, p.Evicted, p.Items, p.Freed, p.Undone, cut(strings.Join(p.Keywords, ", "), 40)}
		})
	})
}
