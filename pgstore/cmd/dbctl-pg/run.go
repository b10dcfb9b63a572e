package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/alecthomas/kong"

	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/pgstore"
	"github.com/ctxpage/ctxpage/store"
)

// Exit codes, as dbctl's.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitDamaged     = 3
	exitInterrupted = 130
	exitPipe        = 141 // as a shell says of a program that wrote to a closed pipe
)

type globals struct {
	JSON     bool   `help:"Print JSON with stable fields instead of tables. Errors are one JSON line on standard error."`
	Progress bool   `help:"Show progress on standard error."`
	Name     string `name:"database" help:"Database in the schema." default:"main" env:"CTXPAGE_DATABASE"`
	Host     string `help:"Name of this host, the same at each start: file: sources are checked only on the host that read them. Default: that of the machine. For dbctl's verbs set CTXPAGE_HOST." env:"CTXPAGE_HOST"`
}

type cli struct {
	globals

	Migrate     migrateCmd     `cmd:"" help:"Make the schema, or bring it to this program's version."`
	Init        initCmd        `cmd:"" help:"Make an empty database."`
	Ls          lsCmd          `cmd:"" help:"List the databases in the schema, with the hosts that follow them."`
	Head        headCmd        `cmd:"" help:"Print the head of the audit. Keep it elsewhere: it shows later that nothing is missing."`
	Verify      verifyCmd      `cmd:"" help:"Verify the audit of a database, also against a head that was kept elsewhere."`
	Check       checkCmd       `cmd:"" help:"Check every record, row and text of a database."`
	Copy        copyCmd        `cmd:"" help:"Copy an embedded database to a server or back, with its history and audit, and verify the copy."`
	Image       imageCmd       `cmd:"" help:"Write an image now, so that hosts start fast, and delete the records it makes superfluous."`
	FinishErase finishEraseCmd `cmd:"" help:"Go on with erases that an error or a crash stopped."`
	Serve       serveCmd       `cmd:"" help:"Follow a database and serve it to the processes of this host at a socket."`
}

const description = `dbctl-pg works on ctxpage databases on PostgreSQL. DSN is a URL (postgres://user@host/database) or key=value pairs, as psql takes them; passwords are better kept in PGPASSFILE than in the DSN.

Any other verb is dbctl's: dbctl-pg VERB … with a postgres:// URL in place of FILE follows the database, serves it at a private socket, and runs dbctl VERB on it. dbctl is looked for beside this program, then in PATH; $DBCTL names another.

Exit codes: 0 ok, 1 failed, 2 usage error, 3 damage found, 130 interrupted; of dbctl's verbs, dbctl's.`

type app struct {
	globals
	ctx      context.Context
	out, err io.Writer
}

type usageError struct{ error }

// parsed stops kong where it would end the process.
type parsed int

// run is dbctl-pg: it parses args, runs the verb and gives the exit code.
func run(args []string, out, errw io.Writer) (code int) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	a := &app{ctx: ctx, out: out, err: errw}
	defer func() {
		if p := recover(); p != nil {
			end, is := p.(parsed)
			if !is {
				panic(p)
			}
			code = int(end)
		}
	}()
	if len(args) == 0 {
		args = []string{"--help"}
	}
	if verb := verbOf(args); verb != "" && !slices.Contains(own(), verb) {
		return a.passOn(args)
	}
	var c cli
	k := kong.Must(&c, kong.Name("dbctl-pg"), kong.Description(description), kong.Writers(out, errw),
		kong.Exit(func(code int) { panic(parsed(code)) }), kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 110}))
	kctx, err := k.Parse(args)
	a.globals = c.globals
	if err != nil {
		a.JSON = slices.Contains(args, "--json")
		return a.report(usageError{err})
	}
	return a.report(kctx.Run(a))
}

// own are the verbs of this program.
func own() (verbs []string) {
	var c cli
	for _, n := range kong.Must(&c, kong.Name("dbctl-pg")).Model.Children {
		verbs = append(verbs, n.Name)
	}
	return verbs
}

func (a *app) report(err error) int {
	if err == nil {
		return exitOK
	}
	code, kind := exitFailed, "failed"
	var usage usageError
	switch {
	case errors.As(err, &usage):
		code, kind = exitUsage, "usage"
	case errors.Is(err, context.Canceled):
		code, kind = exitInterrupted, "interrupted"
	case errors.Is(err, store.ErrCorrupt), errors.Is(err, errProblems):
		code, kind = exitDamaged, "damaged"
	case errors.Is(err, manifest.ErrHead):
		code, kind = exitDamaged, "head differs"
	case errors.Is(err, pgstore.ErrSchema):
		kind = "schema"
	case errors.Is(err, store.ErrNotExist):
		kind = "no database"
	case errors.Is(err, store.ErrInvalid):
		code, kind = exitUsage, "invalid"
	}
	if a.JSON {
		var j struct {
			Error struct {
				Kind    string `json:"kind"`
				Message string `json:"message"`
				Exit    int    `json:"exit"`
			} `json:"error"`
		}
		j.Error.Kind, j.Error.Message, j.Error.Exit = kind, err.Error(), code
		b, _ := json.Marshal(&j)
		fmt.Fprintln(a.err, string(b))
	} else {
		fmt.Fprintln(a.err, "dbctl-pg:", err)
	}
	return code
}

// emit prints v as JSON, or what text prints.
func (a *app) emit(v any, text func(w io.Writer)) error {
	if !a.JSON {
		text(a.out)
		return nil
	}
	enc := json.NewEncoder(a.out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// table aligns rows under a head.
func table(w io.Writer, head string, rows func(row func(cells ...any))) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, strings.ReplaceAll(head, " ", "\t"))
	rows(func(cells ...any) {
		for i, c := range cells {
			if i > 0 {
				fmt.Fprint(tw, "\t")
			}
			fmt.Fprint(tw, c)
		}
		fmt.Fprintln(tw)
	})
	tw.Flush()
}

// progress shows how far long work has come, a line each second at most.
func (a *app) progress() store.Progress {
	if !a.Progress {
		return nil
	}
	var last time.Time
	return func(what string, done, total uint64) {
		if time.Since(last) < time.Second && done != total {
			return
		}
		last = time.Now()
		fmt.Fprintf(a.err, "%s: %d of %d\n", what, done, total)
	}
}

// open follows a database that exists.
func (a *app) open(dsn string) (*pgstore.Store, error) {
	return pgstore.Open(a.ctx, dsn, pgstore.Options{Name: a.Name, Host: a.Host, MustExist: true, ImageBytes: -1})
}
