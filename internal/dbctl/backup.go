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
