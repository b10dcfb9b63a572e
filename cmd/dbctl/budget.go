package main

import "github.com/ctxpage/ctxpage/internal/budgetcli"

// budgetCmd hands its arguments on as they are: the allocator works without a database.
type budgetCmd struct {
	Args []string `arg:"" optional:"" passthrough:"" help:"compile < request.json > answer.json; budget compile --help describes both."`
}

func (c *budgetCmd) Run(a *app) error {
	if code := budgetcli.Run(c.Args, a.in, a.out, a.err); code != exitOK {
		return ended(code)
	}
	return nil
}
