package dbctl

import (
	"errors"
	"fmt"
	"io"

	"github.com/ctxpage/ctxpage"
)

type replayCmd struct {
	File  string `arg:"" help:"Database."`
	Trace string `arg:"" help:"Trace of an assembly."`
	quietFlags
}

// quietFlags are the flags of verbs that show contents and change nothing else.
type quietFlags struct {
	ReadOnly bool `help:"Write no manifest of this read."`
}

type replayView struct {
	Trace   string   `json:"trace"`
	Same    bool     `json:"same"`
	Bytes   int      `json:"bytes"`
	Missing []string `json:"missing"`
	Text    string   `json:"text"`
}

func (c *replayCmd) Run(a *app) error {
	return a.with(c.File, !c.ReadOnly, func(db *ctxpage.DB) error {
		trace, err := fullTrace(a.ctx, db.Manifests(), c.Trace)
		if err != nil {
			return err
		}
		r, err := db.Replay(a.ctx, trace)
		if r == nil {
			return err
		}
		v := replayView{r.Trace, r.Same, len(r.Text), nonNil(r.Missing), r.Text}
		return errors.Join(a.emit(v, func(w io.Writer) { fmt.Fprint(w, printable(w, v.Text)) }), err)
	})
}
