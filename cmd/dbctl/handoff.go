package main

import (
	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/session"
)

type handoffCmd struct {
	talkArgs
	Format string `help:"md, a document; json, by the schema; limn, statements for a strict contract." enum:"md,json,limn" default:"md"`
	To     string `help:"For whom."`
	rootFlags
}

func (handoffCmd) Help() string {
	return `Packages a session for another agent, without asking a model. Sources are verified when their hash, computed now, is the one they were read with, and the manifests show that an answer of this session read them. The packet stays short however long the session was: the newest turns are named one by one, the others as ranges, and what is left out is counted. It names first lines of turns, so it leaves a manifest and opens the file for writing.

Example: dbctl handoff agent.ctx acme/support chat-1 --to 'night shift' >handoff-packet.md`
}

func (c *handoffCmd) Run(a *app) error {
	if err := c.allow(a); err != nil {
		return err
	}
	return c.withKnown(a, true, func(s *ctxpage.Session) error {
		p, err := s.Handoff(a.ctx, c.To)
		if err != nil {
			return err
		}
		out, err := c.render(p, a.JSON)
		if err != nil {
			return err
		}
		_, err = a.out.Write(out)
		return err
	})
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
