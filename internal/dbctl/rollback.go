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

func (rollbackCmd) Help() string {
	return `Records in the manifest that the context led to no answer. It does not undo anything: committed answers stay.

Example: dbctl rollback agent.ctx acme/support --trace 01J…`
}

type rollbackView struct {
	Trace  string `json:"trace"`
	Batch  string `json:"batch"`
	DryRun bool   `json:"dry_run,omitempty"`
}

func (c *rollbackCmd) Run(a *app) error {
	return a.with(c.File, true, func(db *ctxpage.DB) error {
		trace, err := fullTrace(a.ctx, db.Manifests(), c.Trace)
		if err != nil {
			return err
		}
		if err := checkTrace(trace); err != nil {
			return err
		}
		tx, err := (&readFlags{Actor: c.Actor}).scope(db, c.Scope).Resume(a.ctx, trace)
		if err != nil {
			return err
		}
		if !c.DryRun {
			if err := tx.Rollback(); err != nil {
				return err
			}
		}
		return a.emit(rollbackView{tx.Trace(), tx.ID(), c.DryRun}, func(w io.Writer) {
			if c.DryRun {
				fmt.Fprintf(w, "would record that the answer to %s was dropped\n", tx.Trace())
				return
			}
			fmt.Fprintf(w, "recorded that the answer to %s was dropped\n", tx.Trace())
		})
	})
}
