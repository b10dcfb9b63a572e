package main

import (
	"fmt"
	"io"

	"github.com/ctxpage/ctxpage"
)

type salvageCmd struct {
	File  string `arg:"" help:"Damaged database; it is not changed."`
	Out   string `arg:"" help:"Database to make; nothing may be there."`
	Older bool   `help:"Also copy artefacts whose newest version is known to be lost, in the newest version that can be read: it says what was changed since."`
	By    string `help:"Who salvages, in the manifest of the new database."`
}

func (salvageCmd) Help() string {
	return `Copies every artefact that can be read whole, the drafts that wait for review, directives and file roots to a new database, and lists what is lost. A row is taken only if its checksum fits, a text only if its digest does. Where commits are lost and nothing says what they wrote, artefacts are copied in the newest state that can be proved, and each that may have changed since is listed. Versions begin at 1 in the copy; older versions and the audit stay in the old files, where the manifest verbs read them. Exit code 3 when anything is lost. A backup, where there is one, is better.

Example: dbctl salvage agent.ctx saved.ctx --by ann`
}

type salvageView struct {
	File string `json:"file"`
	Out  string `json:"out"`
	ctxpage.Salvaged
	older bool
}

func (c *salvageCmd) Run(a *app) error {
	got, err := ctxpage.Salvage(a.ctx, c.File, c.Out, ctxpage.SalvageOptions{Older: c.Older, By: c.By, Clock: a.now})
	if err != nil {
		return err
	}
	got.Lost = nonNil(got.Lost)
	v := salvageView{c.File, c.Out, got, c.Older}
	if err := a.emit(v, v.print); err != nil {
		return err
	}
	if len(v.Lost) > 0 {
		return ended(exitDamaged)
	}
	return nil
}

func (v salvageView) print(w io.Writer) {
	fmt.Fprintf(w, "copied %s (%d in an older version, %d that may have changed since), %s and %s to %s\n", plural(v.Artefacts, "artefact", "artefacts"), v.Older, v.Unproved,
		plural(v.Held, "held draft", "held drafts"), plural(v.State, "row of state", "rows of state"), v.Out)
	if v.Questions > 0 {
		fmt.Fprintf(w, "%s of the old audit stay behind with it\n", plural(v.Questions, "question", "questions"))
	}
	if len(v.Lost) == 0 {
		fmt.Fprintln(w, "nothing is lost")
		return
	}
	table(w, "LOST WHY", func(row func(...any)) {
		for _, l := range v.Lost {
			row(l.What, l.Why)
		}
	})
	if !v.older {
		fmt.Fprintln(w, "with --older, artefacts whose newest version is known to be lost are copied as they were before")
	}
}
