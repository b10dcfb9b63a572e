package dbctl

import (
	"fmt"
	"io"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/store"
)

type compactCmd struct {
	File   string `arg:"" help:"Database."`
	DryRun bool   `help:"Say how much it would give back. Opens the file read-only."`
}

func (c *compactCmd) Run(a *app) error {
	return show(a, c.File, !c.DryRun, func(db *ctxpage.DB) (store.CompactReport, error) {
		return db.Admin().Compact(a.ctx, c.DryRun, a.progress())
	}, printCompact)
}

func printCompact(r store.CompactReport, w io.Writer) {
	if r.DryRun {
		fmt.Fprintf(w, "the file has %d bytes, of which %d are free; compacted it would have about %d\n", r.Before, r.Free, r.After)
		return
	}
	fmt.Fprintf(w, "the file has %d bytes, it had %d\n", r.After, r.Before)
	if r.Log > 0 {
		fmt.Fprintf(w, "%d bytes of the log were cut\n", r.Log)
	}
}
