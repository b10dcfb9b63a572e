package main

import (
	"fmt"
	"io"

	"github.com/ctxpage/ctxpage"
)

type backupCmd struct {
	File string `arg:"" help:"Database."`
	Out  string `arg:"" help:"Path of the copy. The directory must exist; the files must not."`
}

func (backupCmd) Help() string {
	return `Copies file, log and audit so that the copy can be opened as it is, and prints the head of the copy. Keep the head elsewhere: dbctl restore --head verifies the backup against it. Refused while an agent has the file open; the agent can call DB.Backup.

Example: dbctl backup agent.ctx backups/agent-2027-01-31.ctx`
}

type backupView struct {
	File  string `json:"file"`
	Out   string `json:"out"`
	Bytes int64  `json:"bytes"`
	Head  string `json:"head"`
}

func (c *backupCmd) Run(a *app) error {
	v := backupView{File: c.File, Out: c.Out}
	err := a.with(c.File, false, func(db *ctxpage.DB) error {
		rep, err := db.Backup(a.ctx, c.Out, a.progress())
		if err != nil {
			return err
		}
		head, err := db.Head(a.ctx)
		v.Bytes, v.Head = rep.Bytes, head.String()
		return err
	})
	if err != nil {
		return err
	}
	return a.emit(v, func(w io.Writer) { fmt.Fprintf(w, "copied %d bytes to %s\n%s\n", v.Bytes, v.Out, v.Head) })
}
