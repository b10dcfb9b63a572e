package dbctl

import (
	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/loop"
	"github.com/ctxpage/ctxpage/internal/view"
)

type historyCmd struct {
	File  string `arg:"" help:"Database."`
	Scope string `arg:"" help:"Scope to look from. It sees its own artefacts and those of its ancestors."`
	ID    string `arg:"" name:"id" help:"Id, or a reference like acme:policy."`
	pageFlags
}

func (c *historyCmd) Run(a *app) error {
	cursor, err := c.raw("history")
	if err != nil {
		return err
	}
	return a.with(c.File, false, func(db *ctxpage.DB) error {
		n := &namer{a: a, db: db, scope: c.Scope}
		ref, err := n.whole(a.ctx, c.ID)
		if err != nil {
			return err
		}
		var next string
		vs, err := loop.Collect(db.Scope(or(ref.Scope, c.Scope)).Versions(a.ctx, ref.ID, ctxpage.AtMost(c.Limit, cursor, &next)))
		if err != nil {
			return n.hinted(err, ref, c.ID)
		}
		return a.emitVersions("history", vs, next, "REF LSN KIND PROVENANCE TOKENS PUT BY STATE TRACE", func(v *view.Page) []any {
			return []any{v.Ref, v.LSN, v.Kind, v.Provenance, v.Tokens, when(v.PutAt), or(v.Actor, "-"), v.State(), or(v.Trace, "-")}
		})
	})
}
