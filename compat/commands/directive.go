// Package commands has two published command lines to the letter: the directive engine's, a line loop with a text and a JSON form
// over an [Engine] (RunDirective), and the reference pager (RunPager).
//
// The pager differs on purpose in one way: a pass is all or nothing. Every block is scored and checked first; only then is the
// contract extended, with a single write. On any failure the contract stays as it was, no record is printed, and the error names the
// block and the field.
package commands

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"

	"github.com/ctxpage/ctxpage/directive"
)

// Engine is the engine behind the command line: in memory here ([Memory]); over a
// scope of a database in cmd/dbctl. An error ends the run.
type Engine interface {
	// Session is the session as it is now.
	Session() (directive.Session, error)
	// Step steps the session and returns it as it is afterwards.
	Step(input string, opts ...directive.Option) (directive.Session, directive.Decision, error)
	// Preview tells what Step would do.
	Preview(input string, opts ...directive.Option) (directive.Trial, error)
	// Load replaces the session by a preloaded one.
	Load(directive.Session) error
}

// Historian is an Engine that remembers what was decided. For it alone the line
// "history" is a command.
type Historian interface {
	// History lists the decisions, oldest first.
	History() ([]Entry, error)
}

// Inheritor is an Engine whose state is joined with its ancestors'. For it the line
// "state" also shows what they have set.
type Inheritor interface {
	// Inherited returns the directives that hold and were set elsewhere.
	Inherited() (directive.Effective, error)
}

// Entry is one remembered decision.
type Entry struct {
	Version uint64 // of the state after it
	Actor   string
	Action  string // "" or "step"; otherwise what was done without an input
	Input   string
	Kind    directive.Kind
	Changed bool
}

// Memory is an engine without a file. Its zero value is a fresh session.
type Memory struct{ session directive.Session }

// Session implements [Engine].
func (m *Memory) Session() (directive.Session, error) { return m.session, nil }

// Step implements [Engine].
func (m *Memory) Step(input string, opts ...directive.Option) (directive.Session, directive.Decision, error) {
	var d directive.Decision
	m.session, d = directive.Step(m.session, input, opts...)
	return m.session, d, nil
}

// Preview implements [Engine].
func (m *Memory) Preview(input string, opts ...directive.Option) (directive.Trial, error) {
	return directive.Preview(nil, m.session, input, opts...), nil
}

// Load implements [Engine].
func (m *Memory) Load(s directive.Session) error { m.session = s; return nil }

// Options are the options of [RunDirective].
type Options struct {
	Engine   Engine                                                             // nil: a fresh [Memory]
	Terminal bool                                                               // in and out both are a terminal
	Program  string                                                             // named in the help; "dbctl directive" when empty
	Version  string                                                             // printed by --version
	ReadFile func(path string) ([]byte, error)                                  // os.ReadFile when nil
	Suggest  func(program string) func(context.Context, string) (string, error) // runs the program of --suggest; nil: the option is unknown
	Hint     func(strict string)                                                // hears of inputs that passed through and look like a directive; nil: nobody
}

// RunDirective runs the command line and returns the exit code: 0, or 1 after an error,
// which is then on errw. It answers each line of in before it reads the next.
func RunDirective(args []string, in io.Reader, out, errw io.Writer, opt Options) int {
	opt = opt.withDefaults()
	if len(args) == 1 && (args[0] == "--help" || args[0] == "--version") {
		return answerAlone(args[0], out, opt)
	}
	f, err := parseFlags(args, opt.Suggest != nil)
	if err != nil {
		fmt.Fprintf(errw, "error: %v\nTry '%s --help' for usage.\n", err, opt.Program)
		return 1
	}
	if f.json && opt.Terminal {
		fmt.Fprintln(errw, "error: --json requires non-interactive stdin/stdout.")
		return 1
	}
	if err := f.preload(opt); err != nil {
		fmt.Fprintf(errw, "error: preload failed: %v\n", err)
		return 1
	}
	buffered := bufio.NewWriter(out)
	l := loop{engine: opt.Engine, in: &lineReader{r: bufio.NewReader(in)}, out: buffered, flags: f, terminal: opt.Terminal, hint: opt.Hint}
	if f.suggest != "" {
		l.draft = opt.Suggest(f.suggest)
	}
	l.show = text{buffered, opt.Terminal}
	if f.json {
		l.show = ndjson{buffered}
	}
	if err := l.run(); err != nil {
		fmt.Fprintf(errw, "error: %v\n", err)
		return 1
	}
	return 0
}

func (o Options) withDefaults() Options {
	if o.Engine == nil {
		o.Engine = &Memory{}
	}
	if o.Program == "" {
		o.Program = "dbctl directive"
	}
	if o.ReadFile == nil {
		o.ReadFile = os.ReadFile
	}
	return o
}

func answerAlone(flag string, out io.Writer, opt Options) int {
	if flag == "--version" {
		fmt.Fprintln(out, opt.Version)
		return 0
	}
	fmt.Fprintf(out, directiveUsage, opt.Program)
	return 0
}

const directiveUsage = `Usage: %s [options]

Reads one input per line and prints what the directive engine decides.

Options:
  --json                           one JSON object per answer (not on a terminal)
  --any-case                       keywords in any case, with any blanks: "Use Docker"
  --refuse-compound                ask for the parts of "use x and prohibit y"
  --suggest PROGRAM                for an input that passes through, run PROGRAM, which
                                   reads it and prints a directive; show what it would do
  --with-preprocessor              read lines that are one directive but for blanks around it
  --initial-state-json TEXT        start from an exported state
  --initial-state-file PATH
  --initial-checkpoint-json TEXT   start from a directive checkpoint, its open question included
  --initial-checkpoint-file PATH
  --help, --version                each alone

Lines: a directive or anything else is a step; 'step INPUT' the same;
'preview INPUT' tells what it would do; 'state'; 'exit'.
`
