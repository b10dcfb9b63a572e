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
	Ref   string `arg:"" help:"Id, or a reference with its scope, like acme:policy#2."`
}

func (whyCmd) Help() string {
	return `Answers from the manifest and the stored versions; nothing is assembled again. It opens the file read-only.

Example: dbctl why agent.ctx 01J… refund-policy`
}

type whyView struct {
	Trace string         `json:"trace"`
	Ref   string         `json:"ref"`
	In    bool           `json:"in"`
	Steps []string       `json:"steps"`
	Page  *manifest.Page `json:"page,omitempty"`
}

func whyOf(w *ctxpage.Why) whyView {
	ref := w.Ref.String()
	if w.Ref.Scope == "" {
		ref = w.Ref.ID
	}
	return whyView{w.Trace, ref, w.In, nonNil(w.Steps), w.Page}
}

func (v whyView) print(w io.Writer) {
	place := "is not in"
	if v.In {
		place = "is in"
	}
	fmt.Fprintf(w, "%s %s the context of trace %s\n", line(v.Ref), place, v.Trace)
	for _, s := range v.Steps {
		fmt.Fprintln(w, " ", line(s))
	}
}

// argRef reads a reference or a plain id; an id that looks like a reference is written as one.
func argRef(s string) ctxpage.Ref {
	if ref, err := ctxpage.ParseRef(s); err == nil {
		return ref
	}
	return ctxpage.Ref{ID: s}
}

func (c *whyCmd) Run(a *app) error {
	return a.with(c.File, false, func(db *ctxpage.DB) error {
		trace, err := fullTrace(a.ctx, db.Manifests(), c.Trace)
		if err != nil {
			return err
		}
		w, err := db.Why(a.ctx, trace, argRef(c.Ref))
		if err != nil {
			return err
		}
		v := whyOf(w)
		return a.emit(v, v.print)
	})
}
