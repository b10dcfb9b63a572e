package dbctl

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/store"
)

type eraseLsCmd struct {
	File string `arg:"" help:"Database."`
}

func (c *eraseLsCmd) Run(a *app) error {
	return show(a, c.File, false, func(db *ctxpage.DB) (erasuresView, error) {
		list, err := db.Admin().Erasures(a.ctx)
		return erasuresView{nonNil(list)}, err
	}, erasuresView.print)
}

type erasuresView struct {
	Erases []store.EraseReport `json:"erases"`
}

func (v erasuresView) print(w io.Writer) {
	if len(v.Erases) == 0 {
		fmt.Fprintln(w, "nothing was erased")
		return
	}
	rows(w, "TRACE AT BY ARTEFACTS HELD QUESTIONS STATE REASON", v.Erases, func(e *store.EraseReport) []any {
		return []any{e.Trace, e.At.UTC().Format("2006-01-02T15:04:05Z"), e.By, e.Artefacts, e.Held, e.Questions, e.State, e.Reason}
	})
}

type eraseReceiptCmd struct {
	File  string `arg:"" help:"Database."`
	Trace string `arg:"" help:"Trace of the erase, or a unique beginning of it."`
	Out   string `short:"o" help:"New file for the receipt. Default: standard output." placeholder:"PATH"`
}

func (c *eraseReceiptCmd) Run(a *app) error {
	return a.with(c.File, false, func(db *ctxpage.DB) error {
		list, err := db.Admin().Erasures(a.ctx)
		if err != nil {
			return err
		}
		var found []store.EraseReport
		for _, e := range list {
			if strings.HasPrefix(e.Trace, strings.ToUpper(c.Trace)) {
				found = append(found, e)
			}
		}
		switch {
		case len(found) == 0:
			return fmt.Errorf("%w: no finished erase has the trace %s; dbctl erase ls lists them", store.ErrNotFound, c.Trace)
		case len(found) > 1:
			return usage("erase receipt: %d erases begin with %s; give more of the trace", len(found), c.Trace)
		}
		r, err := newReceipt(a, db, &found[0])
		if err != nil {
			return err
		}
		if c.Out == "" {
			return json.NewEncoder(a.out).Encode(r)
		}
		if err := writeReceipt(c.Out, r); err != nil {
			return err
		}
		return a.emit(eraseReceiptView{found[0].Trace, c.Out}, func(w io.Writer) { fmt.Fprintf(w, "wrote the receipt of %s to %s\n", found[0].Trace, line(c.Out)) })
	})
}

type eraseReceiptView struct {
	Trace string `json:"trace"`
	Out   string `json:"out"`
}

// newReceipt makes the receipt of an erase for the present head.
func newReceipt(a *app, db *ctxpage.DB, done *store.EraseReport) (*ops.Receipt, error) {
	head, err := db.Head(a.ctx)
	if err != nil {
		return nil, err
	}
	return ops.NewReceipt(a.ctx, db.Manifests(), *done, head)
}

func writeReceipt(path string, r *ops.Receipt) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return failed("receipt: %v", err)
	}
	_, err = f.Write(append(b, '\n'))
	return errors.Join(err, f.Sync(), f.Close())
}
