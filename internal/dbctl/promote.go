package dbctl

import (
	"errors"
	"fmt"
	"io"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/triage"
	"github.com/ctxpage/ctxpage/store"
)

type promoteCmd struct {
	File   string   `arg:"" help:"Database."`
	Scope  string   `arg:"" help:"Scope whose artefacts are raised."`
	ID     []string `arg:"" optional:"" help:"Artefacts. Without them, all that the filter selects."`
	To     string   `help:"Provenance they get: tool, validated, chunk or human-verified." default:"validated"`
	By     string   `required:"" help:"Who answers for them, for the audit."`
	Why    string   `help:"Why, for the audit."`
	All    bool     `help:"Raise all artefacts of the scope. Required without ids and without a filter."`
	DryRun bool     `help:"List what would be raised; write nothing."`
	filterFlags
}

type promotedView struct {
	ctxpage.Raised
	To     string `json:"to"`
	DryRun bool   `json:"dry_run,omitempty"`
}

func (c *promoteCmd) Run(a *app) error {
	filter, err := c.filter()
	to, bad := triage.ParseProvenance(c.To)
	switch {
	case err != nil:
		return err
	case bad != nil:
		return usage("--to: %v", bad)
	case len(c.ID) == 0 && filter.IsZero() && !c.All:
		return usage("expected ids, a filter such as --meta import.source=mem0, or --all")
	}
	return show(a, c.File, !c.DryRun, func(db *ctxpage.DB) (v promotedView, err error) {
		done, err := db.Admin().Raise(a.ctx, c.Scope, ctxpage.Raise{To: to, By: c.By, Why: c.Why, IDs: c.ID, Where: filter, DryRun: c.DryRun, Progress: a.progress()})
		if err != nil && done != nil && len(done.Refs) > 0 && !c.DryRun && !errors.Is(err, store.ErrNotFound) {
			return v, fmt.Errorf("promote stopped after %s; run it again to continue: %w", plural(len(done.Refs), "artefact", "artefacts"), err)
		}
		if err != nil {
			return v, err
		}
		return promotedView{*done, to.String(), c.DryRun}, nil
	}, promotedView.print)
}

func (v promotedView) print(w io.Writer) {
	for _, r := range v.Refs {
		fmt.Fprintln(w, line(r.String()))
	}
	fmt.Fprintf(w, "%s %s to %s, %d had it already\n", would(v.DryRun, "raised", "would raise"), plural(len(v.Refs), "artefact", "artefacts"), v.To, v.Above)
}
