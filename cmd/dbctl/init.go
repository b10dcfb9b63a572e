package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/ctxpage/ctxpage"
)

type initCmd struct {
	File   string `arg:"" help:"Path of the new database."`
	DryRun bool   `help:"Only say whether it could be made."`
}

func (initCmd) Help() string {
	return `Makes FILE, FILE-wal/, FILE-manifest/ and FILE.lock, readable by you alone. A path where something is is refused, and one whose directory is not there: make that first.

Example: dbctl init agent.ctx`
}

type initView struct {
	File   string `json:"file"`
	ID     string `json:"id,omitempty"`
	Format int    `json:"format"`
	DryRun bool   `json:"dry_run,omitempty"`
}

func (c *initCmd) Run(a *app) error {
	if err := mayMake("init", c.File, "name a path that does not"); err != nil {
		return err
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

// mayMake says before a verb begins, and to a dry run, what the library would refuse, and what to do instead; "": what is
// there may be replaced.
func mayMake(verb, file, instead string) error {
	dir := filepath.Dir(file)
	switch st, err := os.Stat(dir); {
	case errors.Is(err, os.ErrNotExist):
		return failed("%s: there is no directory %s; make it first", verb, dir)
	case err != nil:
		return failed("%s: %v", verb, err)
	case !st.IsDir():
		return failed("%s: %s is not a directory", verb, dir)
	}
	for _, suffix := range []string{"", "-wal", "-manifest"} {
		if _, err := os.Lstat(file + suffix); err == nil && instead != "" {
			return failed("%s: %s exists; %s", verb, file+suffix, instead)
		}
	}
	return nil
}
