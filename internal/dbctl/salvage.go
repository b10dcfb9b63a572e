package dbctl

import (
	"fmt"
	"io"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/filestore"
)

type salvageCmd struct {
	File  string `arg:"" help:"Damaged database. It is not changed."`
	Out   string `arg:"" help:"Database to create. The path must not exist."`
	Older bool   `help:"If the newest version of an artefact is known to be lost, copy the newest readable version and list it as outdated. By default such artefacts are not copied."`
	By    string `help:"Name of the operator, for the new database's manifest."`
}

type salvageView struct {
	File string `json:"file"`
	Out  string `json:"out"`
	filestore.Salvaged
	older bool
}

func (c *salvageCmd) Run(a *app) error {
	got, err := ctxpage.Salvage(a.ctx, c.File, c.Out, filestore.SalvageOptions{Key: a.key, Keyring: a.Keyring, Older: c.Older, By: c.By, Clock: a.now})
	if err != nil {
		return err
	}
	got.Lost = nonNil(got.Lost)
	v := salvageView{c.File, c.Out, got, c.Older}
	return unless(len(v.Lost) == 0, exitDamaged, a.emit(v, v.print))
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
	rows(w, "LOST WHY", v.Lost, func(l *filestore.Loss) []any { return []any{l.What, l.Why} })
	if !v.older {
		fmt.Fprintln(w, "with --older, artefacts whose newest version is known to be lost are copied as they were before")
	}
}
