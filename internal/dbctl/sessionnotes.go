package dbctl

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/compat/commands"
	"github.com/ctxpage/ctxpage/internal/handoff"
	"github.com/ctxpage/ctxpage/internal/view"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
)

type sessionNotesCmd struct {
	talkArgs
	Show bool `help:"Print the recorded notes instead of replacing them from standard input."`
}

func (c *sessionNotesCmd) Run(a *app) error {
	if c.Show {
		return c.with(a, false, func(s *ctxpage.Session) error {
			in, err := s.Inspect(a.ctx)
			if err != nil {
				return err
			}
			b, err := json.MarshalIndent(in.Notes, "", "  ")
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(a.out, escapedFor(a.out, string(b)))
			return err
		})
	}
	var n session.Notes
	d := json.NewDecoder(interruptible{a.ctx, a.in})
	d.DisallowUnknownFields()
	if err := d.Decode(&n); err != nil {
		return usage("notes on standard input: %v", err)
	}
	return c.with(a, true, func(s *ctxpage.Session) error {
		if err := s.Record(a.ctx, n); err != nil {
			return err
		}
		return a.emit(n, func(w io.Writer) { fmt.Fprintf(w, "notes of %s recorded\n", c.Session) })
	})
}

type sessionContractCmd struct {
	talkArgs
	Path    string `arg:"" help:"Contract file. Created if missing." type:"path"`
	Dialect string `help:"Dialect: strict (accepted by the real interpreter) or compat (as the reference writes it)." enum:"strict,compat" default:"strict"`
	DryRun  bool   `help:"Print what would be appended and write nothing."`
}

func (c *sessionContractCmd) Run(a *app) error {
	return c.withKnown(a, false, func(s *ctxpage.Session) error {
		delta := func(have []byte) ([]byte, error) {
			if c.Dialect == "strict" {
				return s.Contract(a.ctx, have, nil)
			}
			in, err := s.Inspect(a.ctx)
			if err != nil {
				return nil, err
			}
			if in.Force == nil {
				return nil, fmt.Errorf("%w: session %s has had no pass, or all were undone", store.ErrNotFound, c.Session)
			}
			return commands.ExportPass(in.Force, have)
		}
		if c.DryRun {
			return previewContract(a, c.Path, delta)
		}
		return growContract(a, c.Path, delta)
	})
}

type sessionReceiveCmd struct {
	talkArgs
	DryRun bool `help:"Validate the packet and list its references; write nothing."`
}

func (c *sessionReceiveCmd) Run(a *app) error {
	raw, err := io.ReadAll(io.LimitReader(a.in, store.MaxText))
	if err != nil {
		return failed("read the packet: %v", err)
	}
	p, err := session.ReadPacket(raw)
	if err != nil {
		return usage("%v; expected what dbctl handoff writes, with --format json or md", err)
	}
	if _, err := handoff.Pages(p, c.Session); err != nil {
		return usage("%v", err)
	}
	if c.DryRun {
		v := appendedView{[]string{}}
		for _, r := range handoff.References(p) {
			v.Refs = append(v.Refs, r.Ref)
		}
		return a.emit(v, func(w io.Writer) {
			fmt.Fprintf(w, "dry run: %s\n%s\n", plural(len(v.Refs), "reference", "references"), line(strings.Join(v.Refs, " ")))
		})
	}
	return c.with(a, true, func(s *ctxpage.Session) error {
		refs, err := s.Receive(a.ctx, p)
		if err != nil {
			return err
		}
		v := appendedView{view.Refs(refs)}
		return a.emit(v, func(w io.Writer) { fmt.Fprintf(w, "%s received\n", plural(len(refs), "reference", "references")) })
	})
}
