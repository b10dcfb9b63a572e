package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/manifest"
)

type diffCmd struct {
	File string `arg:"" help:"Database."`
	A    string `arg:"" name:"a" help:"Trace of an assembly."`
	B    string `arg:"" name:"b" help:"Trace of another assembly."`
}

func (diffCmd) Help() string {
	return `Compares two contexts by their manifests: pages that only one has, pages that differ in version, form or score, and settings that differ. Read-only.

Example: dbctl diff agent.ctx 01J… 01J…`
}

type diffChange struct {
	Ref  string   `json:"ref"`
	What []string `json:"what"`
}

type diffView struct {
	A       string                 `json:"a"`
	B       string                 `json:"b"`
	Same    bool                   `json:"same"`
	Fields  []manifest.FieldChange `json:"fields"`
	Only    diffOnly               `json:"only"`
	Changed []diffChange           `json:"changed"`
}

type diffOnly struct {
	A []string `json:"a"`
	B []string `json:"b"`
}

func (c *diffCmd) Run(a *app) error {
	return a.with(c.File, false, func(db *ctxpage.DB) error {
		for _, t := range []*string{&c.A, &c.B} {
			var err error
			if *t, err = fullTrace(a.ctx, db.Manifests(), *t); err != nil {
				return err
			}
		}
		d, err := db.Diff(a.ctx, c.A, c.B)
		if err != nil {
			return err
		}
		names := func(pages []manifest.Page) []string {
			out := []string{}
			for _, p := range pages {
				out = append(out, db.RefOf(a.ctx, p.Num))
			}
			return out
		}
		v := diffView{A: c.A, B: c.B, Same: d.Empty(), Fields: nonNil(d.Fields), Only: diffOnly{names(d.Out), names(d.In)}, Changed: []diffChange{}}
		for _, x := range d.Changed {
			v.Changed = append(v.Changed, diffChange{db.RefOf(a.ctx, x.B.Num), x.What})
		}
		return a.emit(v, v.print)
	})
}

func (v diffView) print(w io.Writer) {
	if v.Same {
		fmt.Fprintln(w, "the same")
		return
	}
	table(w, "", func(row func(...any)) {
		for _, f := range v.Fields {
			row(f.Name+":", or(f.A, "-"), "→", or(f.B, "-"))
		}
		for _, r := range v.Only.A {
			row("-", r)
		}
		for _, r := range v.Only.B {
			row("+", r)
		}
		for _, x := range v.Changed {
			row("~", x.Ref, strings.Join(x.What, ", "))
		}
	})
}
