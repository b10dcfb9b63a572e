package main

import (
	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/session"
)

type handoffCmd struct {
	talkArgs
	Contract string `arg:"" optional:"" type:"path" help:"With --format limn: the strict contract file to append to; it is made when it is not there."`
	Format   string `help:"md, a document; json, by the schema; limn, statements for a strict contract." enum:"md,json,limn" default:"md"`
	To       string `help:"For whom."`
	DryRun   bool   `help:"With a contract file: print what would be appended, and leave the file alone."`
	rootFlags
}

func (handoffCmd) Help() string {
	return `Packages a session for another agent, without asking a model. Sources are verified when their hash, computed now, is the one they were read with, and the manifests show that an answer of this session read them. The packet stays short however long the session was: the newest turns are named one by one, the others as ranges, and what is left out is counted. It names first lines of turns, so it leaves a manifest and opens the file for writing.

With --format limn and a contract file, what the file does not say is appended to it with one write, and what it says of this session and the packet has no more is removed there: work that is done, directives that were taken back, questions that were answered. Without a contract file a whole new contract is printed; never append that to another one.

Example: dbctl handoff agent.ctx acme/support chat-1 --to 'night shift' >handoff-packet.md
Example: dbctl handoff agent.ctx acme/support chat-1 session.limn --format limn`
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
	delta := func(have []byte) ([]byte, error) { return s.HandoffContract(p, have) }
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
		return p.Limn(new(session.Ledger))
	}
	return p.Markdown(), nil
}
