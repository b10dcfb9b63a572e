package dbctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/ctxpage/ctxpage/internal/triage"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

type manifestShowCmd struct {
	File string `arg:"" help:"Database."`
	Leaf string `arg:"" help:"Index of a leaf, or a trace."`
}

// leafPage is a page with the reference its number stands for.
type leafPage struct {
	Ref string `json:"ref"`
	manifest.Page
}

type leafExclusion struct {
	Reason  string     `json:"reason"`
	Count   int        `json:"count"`
	Nearest []leafPage `json:"nearest,omitempty"`
}

// leafView is a leaf whole.
type leafView struct {
	manifest.Record
	At       time.Time       `json:"at"`
	Asked    string          `json:"question_state,omitempty"` // kept, or why the text is not shown
	Pages    []leafPage      `json:"pages,omitempty"`
	Excluded []leafExclusion `json:"excluded,omitempty"`
}

type leavesView struct {
	Leaves []leafView `json:"leaves"`
}

func (c *manifestShowCmd) Run(a *app) error {
	return a.audit(c.File, func(l auditOf) error {
		leaves, err := c.leaves(a.ctx, l)
		if err != nil {
			return err
		}
		names, err := l.Names(a.ctx)
		if err != nil {
			return err
		}
		var out leavesView
		for _, r := range leaves {
			v := wholeOf(r, names)
			if v.Question, v.Asked, err = asked(a.ctx, l, r); err != nil {
				return err
			}
			out.Leaves = append(out.Leaves, v)
		}
		return a.emit(out, func(w io.Writer) {
			for i := range out.Leaves {
				if i > 0 {
					fmt.Fprintln(w)
				}
				out.Leaves[i].print(w, names)
			}
		})
	})
}

// notKept is said of a question of which the audit has the digest alone.
const notKept = "erased or not kept"

// asked returns the question of a leaf and its state: kept, or why the text is not shown. Both are empty for a leaf without a question.
func asked(ctx context.Context, l store.Audit, r *manifest.Record) (text, state string, err error) {
	if len(r.Query) == 0 {
		return "", "", nil
	}
	text, err = l.Question(ctx, r)
	var damaged *store.CorruptError
	switch {
	case err == nil:
		return text, "kept", nil
	case errors.Is(err, manifest.ErrNoQuestion):
		return "", notKept, nil
	case errors.Is(err, store.ErrLocked):
		return "", "in the file of the database, which is in use: " + err.Error(), nil
	case errors.As(err, &damaged):
		return "", "damaged: " + err.Error(), nil
	case errors.Is(err, os.ErrNotExist):
		return "", "in the file of the database, which is missing", nil
	}
	return "", "", err
}

func (c *manifestShowCmd) leaves(ctx context.Context, l auditOf) ([]*manifest.Record, error) {
	if i, err := strconv.ParseUint(c.Leaf, 10, 64); err == nil {
		r, err := l.Leaf(ctx, i)
		return []*manifest.Record{r}, err
	}
	trace, err := fullTrace(ctx, l, c.Leaf)
	if err != nil {
		return nil, err
	}
	return l.ByTrace(ctx, trace)
}

func refOf(names map[uint64]string, num uint64) string {
	return or(names[num], "page "+strconv.FormatUint(num, 10))
}

func wholeOf(r *manifest.Record, names map[uint64]string) leafView {
	v := leafView{Record: *r, At: time.UnixMicro(r.Time).UTC()}
	pages := func(ps []manifest.Page) (out []leafPage) {
		for _, p := range ps {
			out = append(out, leafPage{refOf(names, p.Num), p})
		}
		return out
	}
	v.Pages = pages(r.Pages)
	for _, x := range r.Excluded {
		v.Excluded = append(v.Excluded, leafExclusion{x.Reason, x.Count, pages(x.Nearest)})
	}
	return v
}

func (v *leafView) print(w io.Writer, names map[uint64]string) {
	r := &v.Record
	table(w, "", func(row func(...any)) {
		row("leaf", fmt.Sprintf("%d: %s", r.Index, r.Type))
		row("time", v.At.Format(time.RFC3339Nano))
		row("trace", r.Trace)
		setRows(row, "parent", r.Parent, "scope", r.Scope, "actor", r.Actor, "batch", r.From, "status", r.Status, "reason", r.Reason, "evaluator", r.Evaluator, "note", r.Note,
			"action", r.Action, "question", or(r.Question, v.Asked), "filter", r.Filter, "query digest", r.Query.String(), "rendered", r.Rendered.String())
		if r.Pruned != nil {
			row("body", fmt.Sprintf("%s, leaf %d; the hash stays", r.Pruned, r.Pruned.Leaf))
		}
		row("lsn", r.LSN)
		switch {
		case r.Gate > 0 && r.By != "":
			row("verdict", fmt.Sprintf("%.2f by %s, gate %.2f", r.Confidence, r.By, r.Gate))
		case r.By != "":
			row("by", r.By)
		}
		if r.Budget > 0 {
			row("budget", fmt.Sprintf("%d of %d tokens, %d reserved, tier %d, preset %s, counter %s", r.Tokens, r.Budget, r.Reserve, r.Tier, r.Preset, r.Counter))
		}
		if r.Type == manifest.TypeRestored {
			row("backup", fmt.Sprintf("%d leaves, root %s", r.Size, r.Root))
		}
		if r.Type == manifest.TypePrune {
			row("covers", fmt.Sprintf("%d leaves", r.Size))
		}
		if r.Type == manifest.TypeRecovered {
			row("cut", fmt.Sprintf("%d bytes after record %d", r.Lost, r.Cut))
		}
	})
	v.printPages(w)
	if len(r.Writes) > 0 {
		fmt.Fprintln(w)
		table(w, "PAGE WRITTEN DIGEST", func(row func(...any)) {
			for _, x := range r.Writes {
				what := "version " + strconv.FormatUint(uint64(x.Version), 10)
				if x.Deleted {
					what = "deleted"
				} else if x.Touch {
					what = "unchanged"
				} else if x.Gone {
					what += ", dropped"
				}
				row(or(x.Ref, "page "+strconv.FormatUint(x.Num, 10)), what, or(x.Digest.String(), "-"))
			}
		})
	}
	for _, s := range r.Stale {
		fmt.Fprintf(w, "stale: %s, %s\n", line(refOf(names, s.Num)), s.Reason)
	}
	for _, x := range r.Conflicts {
		fmt.Fprintf(w, "conflict: %s, expected lsn %d, found %d\n", line(x.Ref), x.Expect, x.Found)
	}
}

func (v *leafView) printPages(w io.Writer) {
	if len(v.Pages) == 0 && len(v.Excluded) == 0 {
		return
	}
	fmt.Fprintln(w)
	table(w, "PAGE ACTION SCORE R P S TAG TOKENS WHY", func(row func(...any)) {
		for _, p := range v.Pages {
			row(p.Ref, p.Form, score(p.Score), score(p.R), score(p.P), score(p.S), or(p.Tag.String(), "-"), p.Tokens, or(sourceState(&p.Page), "-"))
		}
		for _, x := range v.Excluded {
			for _, p := range x.Nearest {
				row(p.Ref, "out", score(p.Score), score(p.R), score(p.P), score(p.S), or(p.Tag.String(), "-"), p.Tokens, x.Reason)
			}
			if rest := x.Count - len(x.Nearest); rest > 0 {
				row(fmt.Sprintf("and %d more", rest), "out", "-", "-", "-", "-", "-", "-", x.Reason)
			}
		}
	})
	fmt.Fprintf(w, "R recency, P provenance, S relevance to the question, each from 0 to 1; SCORE joins them.\nTAG red: protected, or a score of %.1f or more; yellow: of %.1f or more; green: below; black: excluded by a rule.\n", triage.RedScore, triage.YellowScore)
}

func score(s manifest.Score) string { return fmt.Sprintf("%.3f", s.Float()) }

func sourceState(p *manifest.Page) string {
	switch {
	case p.Refetched:
		return "dirty, refetched"
	case p.Stale:
		return "dirty, served stale"
	case p.Dirty:
		return "dirty"
	}
	return p.Reason
}
