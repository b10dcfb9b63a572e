package dbctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/eraseplan"
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/store"
)

type restoreCmd struct {
	Backup string `arg:"" help:"Backup, which is itself a database."`
	File   string `arg:"" help:"Database to create, or to replace with --force."`
	Force  bool   `help:"Replace an existing database. Refused while a process has it open."`
	Head   string `help:"Head kept elsewhere to verify the backup against: the line itself, or a file that ends with it. It must not be newer than the backup."`
	By     string `help:"Name of the operator, for the manifest."`
	DryRun bool   `help:"Verify the backup and write nothing."`

	Erased []string `help:"Receipt of an erase that came after the backup was made; may be given several times. The erase is repeated before the database is in place." placeholder:"RECEIPT" sep:"none"`
}

type restoreView struct {
	Backup string `json:"backup"`
	File   string `json:"file"`
	Head   string `json:"head,omitempty"`
	DryRun bool   `json:"dry_run,omitempty"`

	Erased []*ops.Report `json:"erased,omitempty"` // what was erased again
}

func (c *restoreCmd) Run(a *app) error {
	head, err := readHead("--head", c.Head)
	if err != nil {
		return err
	}
	receipts, err := readReceipts("restore", c.Erased)
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
	given := a.Keyring
	if live := c.File + ".keys"; a.key != nil && a.Keyring == "" { // a backup has no keyring
		if _, err := os.Lstat(live); err == nil {
			a.Keyring = live
		}
	}
	if _, err := os.Lstat(c.Backup); errors.Is(err, os.ErrNotExist) && !fileless(c.Backup) {
		return fmt.Errorf("restore: there is no backup %s; name the main file of a backup: the one without -wal or -manifest", c.Backup)
	}
	ans, err := a.checkInChild(c.Backup, false)
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
		err = c.try(a, head, receipts, &v)
	} else {
		err = c.restore(a, given, head, receipts, &v)
	}
	if err != nil {
		return err
	}
	return a.emit(v, func(w io.Writer) {
		for _, r := range v.Erased {
			eraseView{Report: r}.print(w)
		}
		if c.DryRun {
			fmt.Fprintf(w, "%s is sound; it would be restored to %s\n", v.Backup, v.File)
			return
		}
		fmt.Fprintf(w, "restored %s from %s\nthe backup vouched for %s\n", v.File, v.Backup, v.Head)
	})
}

// try does what a dry run does: it verifies the audit of the backup, and repeats the erases as a dry run.
func (c *restoreCmd) try(a *app, head *manifest.Head, receipts []*ops.Receipt, v *restoreView) error {
	err := a.audit(c.Backup, func(l auditOf) error { _, err := l.Verify(a.ctx, head, nil); return err })
	if err != nil || len(receipts) == 0 {
		return err
	}
	return a.with(c.Backup, false, func(db *ctxpage.DB) error {
		v.Erased, err = db.Admin().RepeatErase(a.ctx, receipts, true, a.progress())
		return err
	})
}

// restore puts the backup in its place. keyring is the one that the user named.
func (c *restoreCmd) restore(a *app, keyring string, head *manifest.Head, receipts []*ops.Receipt, v *restoreView) error {
	o := filestore.RestoreOptions{Key: a.key, Keyring: keyring, Replace: c.Force, Head: head, By: c.By, Progress: a.progress(), Clock: a.now}
	if len(receipts) > 0 {
		o.Prepare = func(ctx context.Context, st store.Store) (err error) {
			v.Erased, err = eraseplan.Repeat(ctx, st, receipts, false, a.progress())
			return err
		}
	}
	got, err := filestore.Restore(a.ctx, c.Backup, c.File, o)
	v.Head = got.String()
	return err
}

// readReceipts reads and checks the receipts of --erased.
func readReceipts(verb string, paths []string) (list []*ops.Receipt, err error) {
	for _, path := range paths {
		r, err := readReceipt(path, nil)
		if err == nil {
			err = r.Verify(nil)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: --erased %s: %w", verb, path, err)
		}
		list = append(list, r)
	}
	return list, nil
}
