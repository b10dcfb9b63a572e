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

func (compactCmd) Help() string {
	return `Copies the rows to a new file, which then takes the place of the old one. What gc and deletions freed goes back to the disk; without this, later writes use it. Compacting takes about as long as copying the file, and as much space.

It works beside an agent that has the database open: the agent does it, and reads and writes go on. A crash at any step leaves one whole file. Ctrl-C before the new file is in place leaves the old one.

Example: dbctl compact agent.ctx --dry-run`
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
