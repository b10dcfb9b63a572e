package main

import (
	"fmt"
	"io"

	"github.com/ctxpage/ctxpage/filestore"
	"github.com/ctxpage/ctxpage/manifest"
)

type restoreCmd struct {
	Backup string `arg:"" help:"Backup, which is itself a database."`
	File   string `arg:"" help:"Database to create, or to replace with --force."`
	Force  bool   `help:"Replace an existing database. Refused while a process has it open."`
	Head   string `help:"Head kept elsewhere to verify the backup against: the line itself, or a file that ends with it. It must not be newer than the backup."`
	By     string `help:"Name of the operator, for the manifest."`
	DryRun bool   `help:"Verify the backup and write nothing."`
}

func (restoreCmd) Help() string {
	return `Checks the whole backup and verifies its audit before writing anything. The audit of the restored database records the restore. A head taken after the backup does not verify against the restored database.

Example: dbctl restore backups/agent-2027-01-31.ctx agent.ctx --force --by ann`
}

type restoreView struct {
	Backup string `json:"backup"`
	File   string `json:"file"`
	Head   string `json:"head,omitempty"`
	DryRun bool   `json:"dry_run,omitempty"`
}

func (c *restoreCmd) Run(a *app) error {
	head, err := readHead("--head", c.Head)
	if err != nil {
		return err
	}
	instead := "name a path that does not, or replace it with --force"
	if c.Force {
		instead = ""
	}
	if err := mayMake("restore", c.File, instead); err != nil {
		return err
	}
	ans, err := a.checked(c.Backup, false)
	if err != nil {
		return err
	}
	if len(ans.Problems) > 0 {
		p := ans.Problems[0]
		return &exitError{code: exitDamaged, msg: fmt.Sprintf("restore: the backup is damaged, nothing was written: %s, the first: %s %s: %s",
			plural(len(ans.Problems), "problem", "problems"), p.Invariant, p.Where, p.What)}
	}
	v := restoreView{Backup: c.Backup, File: c.File, DryRun: c.DryRun}
	if c.DryRun {
		err = a.audit(c.Backup, func(l *manifest.Reader) error { _, err := l.Verify(a.ctx, head, nil); return err })
	} else {
		got, rerr := filestore.Restore(a.ctx, c.Backup, c.File, filestore.RestoreOptions{Replace: c.Force, Head: head, By: c.By, Progress: a.progress(), Clock: a.now})
		v.Head, err = got.String(), rerr
	}
	if err != nil {
		return err
	}
	return a.emit(v, func(w io.Writer) {
		if c.DryRun {
			fmt.Fprintf(w, "%s is sound; it would be restored to %s\n", v.Backup, v.File)
			return
		}
		fmt.Fprintf(w, "restored %s from %s\nthe backup vouched for %s\n", v.File, v.Backup, v.Head)
	})
}
