package dbctl

import (
	"fmt"
	"io"

	"github.com/ctxpage/ctxpage"
)

type rollbackCmd struct {
	File   string `arg:"" help:"Database."`
	Scope  string `arg:"" help:"Scope of the assembly."`
	Trace  string `required:"" help:"Trace of the assembly whose answer was discarded."`
	Actor  string `help:"Name of who discards it. Default: the scope."`
	DryRun bool   `help:"Show whether the assembly exists; write nothing."`
}

type rollbackView struct {
	Trace  string `json:"trace"`
	Batch  string `json:"batch"`
	DryRun bool   `json:"dry_run,omitempty"`
}

func (c *rollbackCmd) Run(a *app) error {
	return show(a, c.File, true, func(db *ctxpage.DB) (v rollbackView, err error) {
		trace, err := assemblyTrace(a, db, c.Trace)
		if err != nil {
			return v, err
		}
		tx, err := (&readFlags{Actor: c.Actor}).scope(db, c.Scope).Resume(a.ctx, trace)
		if err != nil {
			return v, err
		}
		if !c.DryRun {
			err = tx.Rollback()
		}
		return rollbackView{tx.Trace(), tx.ID(), c.DryRun}, err
	}, func(v rollbackView, w io.Writer) {
		fmt.Fprintf(w, "%s that the answer to %s was dropped\n", would(v.DryRun, "recorded", "would record"), v.Trace)
	})
}
