package dbctl

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"syscall"

	"github.com/ctxpage/ctxpage"
)

type backupCmd struct {
	File string `arg:"" help:"Database."`
	Out  string `arg:"" help:"Path of the copy. The directory must exist; the files must not."`
}

func (backupCmd) Help() string {
	return `Copies file, log and audit so that the copy can be opened as it is, and prints the head of the copy. Keep the head elsewhere: dbctl restore --head verifies the backup against it. Beside an agent that has the file open, the agent makes the copy. The audit records the name and the time of the backup, so that the report of a later erase can name it; if the file cannot be written, it does not.

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
	err := a.withRecord(c.File, func(db *ctxpage.DB) error {
		rep, err := db.Admin().Backup(a.ctx, c.Out, a.progress())
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

// withRecord opens for writing, and where that is not allowed for reading.
func (a *app) withRecord(path string, fn func(db *ctxpage.DB) error) error {
	db, err := a.open(path, true)
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
		db, err = a.open(path, false)
	}
	if err != nil {
		return err
	}
	return errors.Join(fn(db), db.Close())
}
