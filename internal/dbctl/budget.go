package dbctl

import (
	"slices"

	"github.com/ctxpage/ctxpage/compat/contexty"
)

// budgetCmd hands its arguments on as they are: the allocator works without a database.
type budgetCmd struct {
	Args []string `arg:"" optional:"" passthrough:"" help:"compile < request.json > answer.json; budget compile --help describes both."`
}

func (c *budgetCmd) Run(a *app) error {
	args := c.Args
	if len(args) > 0 && args[0] == "compile" {
		args = args[1:]
	}
	args = slices.Concat([]string{"compile", "--counter", a.Counter}, args)
	return a.passedOn(contexty.Run(args, interruptible{a.ctx, a.in}, a.out, a.err))
}
