package main

import (
	"fmt"
	"io"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/manifest"
)

type whyCmd struct {
	File  string `arg:"" help:"Database."`
	Trace string `arg:"" help:"Trace of an assembly."`
	Ref   string `arg:"" help:"Id, or a reference like policy#2 or acme:policy#2@3."`
}

func (whyCmd) Help() string {
	return `Answers from the manifest and the stored versions, without assembling again. Read-only.

Example: dbctl why agent.ctx 01J… refund-policy`
}

type whyView struct {
	Trace string         `json:"trace"`
	Ref   string         `json:"ref"`
	In    bool           `json:"in"`
	Asked string         `json:"question,omitempty"`
	Gone  bool           `json:"question_gone,omitempty"`
	Steps []string       `json:"steps"`
	Page  *manifest.Page `json:"page,omitempty"`
}

func whyOf(w *ctxpage.Why) whyView {
	ref := w.Ref.String()
	if w.Ref.Scope == "" {
		ref = w.Ref.ID
	}
	return whyView{w.Trace, ref, w.In, w.Question, w.QuestionGone, nonNil(w.Steps), w.Page}
}

func (v whyView) print(w io.Writer) {
	place := "is not in"
	if v.In {
		place = "is in"
	}
	fmt.Fprintf(w, "%s %s the context of trace %s\n", line(v.Ref), place, v.Trace)
	if v.Asked != "" || v.Gone {
		fmt.Fprintln(w, "  question:", line(or(v.Asked, notKept)))
	}
	for _, s := range v.Steps {
		fmt.Fprintln(w, " ", line(s))
	}
}

// named finds what is asked about, as the scope of the assembly sees it. What is not there may have been, or may be out
// of its sight: a reference is one then.
func (c *whyCmd) named(a *app, db *ctxpage.DB, trace string) (ctxpage.Ref, error) {
	leaves, err := db.Manifests().ByTrace(a.ctx, trace)
	if err != nil || len(leaves) == 0 {
		return ctxpage.Ref{ID: c.Ref}, nil // Why says so
	}
	n := &namer{a: a, db: db, scope: leaves[0].Scope}
	ref, err := n.find(a.ctx, c.Ref)
	if err == nil && ref.Scope == "" {
		if parsed, perr := ctxpage.ParseRef(c.Ref); perr == nil {
			return parsed, nil
		}
	}
	if ref.ID == c.Ref {
		ref.Scope = "" // whichever of the scopes had it then
	}
	return ref, err
}

func (c *whyCmd) Run(a *app) error {
	return a.with(c.File, false, func(db *ctxpage.DB) error {
		trace, err := fullTrace(a.ctx, db.Manifests(), c.Trace)
		if err != nil {
			return err
		}
		ref, err := c.named(a, db, trace)
		if err != nil {
			return err
		}
		w, err := db.Why(a.ctx, trace, ref)
		if err != nil {
			return err
		}
		v := whyOf(w)
		return a.emit(v, v.print)
	})
}
