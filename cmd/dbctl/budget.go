package main

import "github.com/ctxpage/ctxpage/internal/budgetcli"

// budgetCmd hands its arguments on as they are: the allocator works without a database.
type budgetCmd struct {
	Args []string `arg:"" optional:"" passthrough:"" help:"compile < request.json > answer.json; budget compile --help describes both."`
}

func (c *budgetCmd) Run(a *app) error {
	return a.passedOn(budgetcli.Run(c.Args, interruptible{a.ctx, a.in}, a.out, a.err))
}
