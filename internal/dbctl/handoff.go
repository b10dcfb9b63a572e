package dbctl

import (
	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/handoff"
	"github.com/ctxpage/ctxpage/session"
)

type handoffCmd struct {
	talkArgs
	Contract string `arg:"" optional:"" type:"path" help:"With --format limn: the strict contract file to append to. Created if missing."`
	Format   string `help:"Output format: md (document), json (packet), limn (statements of a strict contract)." enum:"md,json,limn" default:"md"`
	To       string `help:"Name of the recipient."`
	DryRun   bool   `help:"With a contract file: print what would be appended and leave the file unchanged."`
	rootFlags
}

func (c *handoffCmd) Run(a *app) error {
	if c.Contract != "" && c.Format != "limn" {
		return usage("a contract file takes --format limn; for %s leave the file out", c.Format)
	}
	if c.DryRun && c.Contract == "" {
		return usage("--dry-run needs a contract file: without one nothing is written but the manifest")
	}
	if err := c.allow(a); err != nil {
		return err
	}
	return c.withKnown(a, true, func(s *ctxpage.Session) error {
		p, err := s.Handoff(a.ctx, c.To)
		if err != nil {
			return err
		}
		if c.Contract != "" {
			return c.append(a, s, p)
		}
		out, err := c.render(p, a.JSON)
		if err != nil {
			return err
		}
		if c.Format == "json" { // without --json the guard of a terminal takes it for text
			out = []byte(escapedFor(a.out, string(out)))
		}
		_, err = a.out.Write(out)
		return err
	})
}

func (c *handoffCmd) append(a *app, s *ctxpage.Session, p session.Packet) error {
	delta := func(have []byte) ([]byte, error) { return s.Contract(a.ctx, have, &p) }
	if c.DryRun {
		return previewContract(a, c.Contract, delta)
	}
	return growContract(a, c.Contract, delta)
}

func (c *handoffCmd) render(p session.Packet, asJSON bool) ([]byte, error) {
	switch {
	case c.Format == "json", asJSON:
		return p.JSON()
	case c.Format == "limn":
		return handoff.PacketContract(nil, p, nil)
	}
	return p.Markdown(), nil
}
