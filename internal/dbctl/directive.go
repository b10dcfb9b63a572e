package dbctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/compat/commands"
	"github.com/ctxpage/ctxpage/directive"
)

// directiveCmd hands its arguments on as they are: the loop has a command line of its own, in which nothing may be read
// as a flag of dbctl.
type directiveCmd struct {
	Args []string `arg:"" optional:"" name:"args" help:"FILE SCOPE or --memory, then options; see directive --help."`
}

const directiveHelp = `Usage: dbctl directive FILE SCOPE [--actor NAME] [--read-only] [options]
       dbctl directive --memory [options]

Reads the user's input, one line at a time, and records what the user decides:
the premise and the policies of a scope. A change is durable before the answer is
printed, and every context assembled from then on contains it. With --memory
nothing is stored.

  --actor NAME   name of the user, for journal and manifest; default: the scope
  --read-only    change nothing; an input that would change something ends the run
  For the options and the input lines, see dbctl directive --memory --help.
  With FILE and SCOPE, the line 'history' is also a command, and 'state' also
  shows what ancestors of the scope have set. Flags of dbctl itself, such as
  --wait, go before the word directive.

Example: echo 'prohibit shell' | dbctl directive agent.ctx acme --actor ann
`

func (c *directiveCmd) Run(a *app) error {
	memory := len(c.Args) > 0 && c.Args[0] == "--memory"
	switch {
	case memory:
		return a.directives(c.Args[1:], commands.Options{Program: "dbctl directive --memory"})
	case len(c.Args) == 0, slices.Equal(c.Args, []string{"--help"}):
		_, err := io.WriteString(a.out, directiveHelp)
		return err
	case len(c.Args) < 2 || strings.HasPrefix(c.Args[0], "-") || strings.HasPrefix(c.Args[1], "-"):
		return usage("directive: expected FILE SCOPE, or --memory, before the options; dbctl directive --help says more")
	}
	f, err := parseDirectiveFlags(c.Args[2:])
	if err != nil {
		return err
	}
	return a.with(c.Args[0], !f.readOnly, func(db *ctxpage.DB) error {
		s := db.Scope(c.Args[1], ctxpage.WithActor(or(f.actor, c.Args[1])))
		if _, err := s.Directives().State(a.ctx); err != nil {
			return err // a scope that is none, or damage: said once, before the first line is read
		}
		e := &scopeEngine{ctx: a.ctx, s: s}
		if !a.JSON && !slices.Contains(f.rest, "--json") {
			e.note = a.err
		}
		err := a.directives(f.rest, commands.Options{Engine: e, Program: "dbctl directive FILE SCOPE"})
		if e.failed != nil {
			return ended(codeOf(e.failed))
		}
		return err
	})
}

// directiveFlags are the options of the form with a file; the rest is the loop's.
type directiveFlags struct {
	actor    string
	readOnly bool
	rest     []string
}

func parseDirectiveFlags(args []string) (f directiveFlags, err error) {
	for i := 0; i < len(args); i++ {
		switch args[i] {
		case "--read-only":
			f.readOnly = true
		case "--actor":
			if i++; i == len(args) || args[i] == "" {
				return f, usage("directive: --actor: expected a name")
			}
			f.actor = args[i]
		case "--suggest", "--initial-state-json", "--initial-state-file", "--initial-checkpoint-json", "--initial-checkpoint-file":
			f.rest = append(f.rest, args[i:min(i+2, len(args))]...)
			i++
		default:
			if !strings.HasPrefix(args[i], "-") {
				return f, usage("directive: unexpected argument %q: what the user says is read from standard input, one input a line", args[i])
			}
			f.rest = append(f.rest, args[i])
		}
	}
	return f, nil
}

// directives runs the loop. What it had to say of an error it has said.
func (a *app) directives(args []string, opt commands.Options) error {
	if a.JSON && !slices.Contains(args, "--json") {
		args = append([]string{"--json"}, args...)
	}
	out := a.out
	if opt.Terminal = isTerminal(a.in) && isTerminal(a.out); opt.Terminal {
		out = plainWriter{a}
	}
	opt.Version = "dbctl " + version()
	opt.Suggest = func(program string) func(context.Context, string) (string, error) {
		return func(_ context.Context, message string) (string, error) {
			return runProgram(a.ctx, program, []byte(message))
		}
	}
	if !slices.Contains(args, "--json") {
		opt.Hint = func(strict string) {
			fmt.Fprintf(a.err, "dbctl directive: that passed through; as a directive it is written: %s\n", line(strict))
		}
	}
	return a.passedOn(commands.RunDirective(args, interruptible{a.ctx, a.in}, out, a.err, opt))
}

// plainWriter keeps what is stored from steering the terminal.
type plainWriter struct{ a *app }

func (w plainWriter) Write(b []byte) (int, error) {
	_, err := io.WriteString(w.a.out, printable(w.a.out, string(b)))
	return len(b), err
}

// interruptible ends a read that waits for somebody to type when its context ends, so that the database is closed.
type interruptible struct {
	ctx context.Context
	r   io.Reader
}

func (r interruptible) Read(b []byte) (int, error) {
	type result struct {
		b   []byte
		err error
	}
	done := make(chan result, 1)
	go func() {
		own := make([]byte, len(b))
		n, err := r.r.Read(own)
		done <- result{own[:n], err}
	}()
	select {
	case got := <-done:
		return copy(b, got.b), got.err
	case <-r.ctx.Done():
		return 0, fmt.Errorf("interrupted while reading: %w", r.ctx.Err())
	}
}

// scopeEngine is the loop's engine over a scope.
type scopeEngine struct {
	ctx    context.Context
	s      *ctxpage.Scope
	note   io.Writer // nil: for programs, which are told by the journal
	failed error
}

func (e *scopeEngine) Session() (directive.Session, error) {
	st, err := e.s.Directives().State(e.ctx)
	return st.Own, e.failing(err)
}

func (e *scopeEngine) Step(input string, opts ...directive.Option) (directive.Session, directive.Decision, error) {
	d, err := e.s.Directives().Step(e.ctx, input, opts...)
	if err != nil {
		return directive.Session{}, d, e.failing(err)
	}
	s, err := e.Session()
	return s, d, err
}

func (e *scopeEngine) Preview(input string, opts ...directive.Option) (directive.Trial, error) {
	t, err := e.s.Directives().Preview(e.ctx, input, opts...)
	return t, e.failing(err)
}

// Load puts a state in place of the scope's own, and says so: what was prohibited there may not be any more.
func (e *scopeEngine) Load(s directive.Session) error {
	d := e.s.Directives()
	old, err := d.State(e.ctx)
	if err == nil {
		err = d.Import(e.ctx, s)
	}
	if err != nil || old.Version == 0 || e.note == nil {
		return e.failing(err)
	}
	is, err := d.State(e.ctx)
	if err == nil && is.Version != old.Version {
		fmt.Fprintf(e.note, "dbctl directive: the state given is now that of %s, in place of version %d (history shows it)\n", line(e.s.Name()), old.Version)
	}
	return e.failing(err)
}

// Inherited has the directives in force that an ancestor has set.
func (e *scopeEngine) Inherited() (out directive.Effective, err error) {
	st, err := e.s.Directives().State(e.ctx)
	for _, p := range st.Effective.Premises {
		if p.Scope != e.s.Name() {
			out.Premises = append(out.Premises, p)
		}
	}
	for _, p := range st.Effective.Policies {
		if p.Scope != e.s.Name() {
			out.Policies = append(out.Policies, p)
		}
	}
	return out, e.failing(err)
}

func (e *scopeEngine) History() (out []commands.Entry, err error) {
	for v, err := range e.s.Directives().Entries(e.ctx) {
		if err != nil {
			return nil, e.failing(err)
		}
		out = append(out, commands.Entry{
			Version: v.Version, Actor: v.Actor, Action: v.Action, Input: v.Input, Kind: v.Decision.Kind, Changed: v.Decision.Changed,
		})
	}
	slices.Reverse(out)
	return out, nil
}

// failing keeps an error for the exit code and words it as dbctl does.
func (e *scopeEngine) failing(err error) error {
	if err == nil {
		return nil
	}
	e.failed = err
	return errors.New(hint(err))
}
