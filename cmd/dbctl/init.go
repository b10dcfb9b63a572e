package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/ctxpage/ctxpage"
)

type initCmd struct {
	File   string `arg:"" help:"Path of the new database."`
	DryRun bool   `help:"Only say whether it could be made."`
}

func (initCmd) Help() string {
	return `Makes FILE, FILE-wal/, FILE-manifest/ and FILE.lock, readable by you alone. A path where something is is refused.

Example: dbctl init agent.ctx`
}

type initView struct {
	File   string `json:"file"`
	ID     string `json:"id,omitempty"`
	Format int    `json:"format"`
	DryRun bool   `json:"dry_run,omitempty"`
}

func (c *initCmd) Run(a *app) error {
	for _, suffix := range []string{"", "-wal", "-manifest"} {
		if _, err := os.Lstat(c.File + suffix); err == nil {
			return failed("init: %s exists; name a path that does not", c.File+suffix)
		}
	}
	v := initView{File: c.File, Format: ctxpage.FormatVersion, DryRun: c.DryRun}
	if !c.DryRun {
		db, err := ctxpage.Open(c.File, ctxpage.Options{Clock: a.now, LockTimeout: a.Wait})
		if err != nil {
			return err
		}
		st, err := db.Stats(a.ctx)
		if err = errors.Join(err, db.Close()); err != nil {
			return err
		}
		v.File, v.ID = st.Path, st.ID
	}
	return a.emit(v, func(w io.Writer) {
		if c.DryRun {
			fmt.Fprintf(w, "would make %s\n", c.File)
			return
		}
		fmt.Fprintf(w, "made %s, database %s, format %d\n", v.File, v.ID, v.Format)
	})
}
