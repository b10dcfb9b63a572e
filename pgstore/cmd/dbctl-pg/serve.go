package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/ctxpage/ctxpage/internal/remote"
	"github.com/ctxpage/ctxpage/pgstore"
)

type serveCmd struct {
	DSN    string `arg:"" help:"Server and database."`
	Socket string `required:"" help:"Path of the socket. Its directory must be private to the user."`
	Cache  string `help:"Directory of a cache that is kept, so that the next start is fast. Default: a temporary one."`
	Create bool   `help:"Make the database if it does not exist."`
}

func (serveCmd) Help() string {
	return `Runs until it is interrupted. One follower for each host is enough: its agents open the socket (remote.Dial, ctxpage.Options.Store), and dbctl takes it as unix:PATH. Processes of other users are refused.

Example: dbctl-pg serve postgres://ctx@db/agents --socket /run/user/1000/support.sock --cache /var/cache/support`
}

func (c *serveCmd) Run(a *app) error {
	st, err := pgstore.Open(a.ctx, c.DSN, pgstore.Options{Name: a.Name, Host: a.Host, MustExist: !c.Create, CacheDir: c.Cache})
	if err != nil {
		return err
	}
	end, err := serve(st, c.Socket)
	if err != nil {
		return errors.Join(err, st.Close())
	}
	v := struct {
		Socket string `json:"socket"`
		LSN    uint64 `json:"lsn"`
	}{c.Socket, st.Mark().LSN}
	err = a.emit(v, func(w io.Writer) { fmt.Fprintf(w, "serving at %s from LSN %d\n", v.Socket, v.LSN) })
	if err == nil {
		<-a.ctx.Done()
	}
	return errors.Join(err, end(), st.Close())
}

// serve offers a store at a socket.
func serve(st *pgstore.Store, socket string) (end func() error, err error) {
	srv, err := remote.NewServer(context.Background(), st, remote.ServerOptions{Program: "dbctl-pg"})
	if err != nil {
		return nil, err
	}
	l, err := remote.Listen(socket)
	if err != nil {
		return nil, errors.Join(err, srv.Close())
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(l) // it ends when the socket is closed, and is asked nothing else
	}()
	return func() error {
		srv.Drain()
		_ = l.Close() // removes the socket
		err := srv.Close()
		<-done
		return err
	}, nil
}

// passOn runs a verb of dbctl on a database on a server.
func (a *app) passOn(args []string) int {
	at := slices.IndexFunc(args, isURL)
	if at < 0 {
		return a.report(usageError{fmt.Errorf("%q is no verb of dbctl-pg, and no argument is a postgres:// URL for dbctl to work on", args[0])})
	}
	if why := onFilesOnly[verbOf(args)]; why != "" {
		return a.report(usageError{fmt.Errorf("%s works on files; for a database on a server %s", verbOf(args), why)})
	}
	dbctl, err := findDBCtl()
	if err != nil {
		return a.report(err)
	}
	a.Name, a.Host = os.Getenv("CTXPAGE_DATABASE"), os.Getenv("CTXPAGE_HOST")
	a.JSON = slices.Contains(args, "--json")
	args, a.Name = takeName(args, a.Name)
	at = slices.IndexFunc(args, isURL)
	code, err := a.through(dbctl, args, at)
	if err != nil {
		return a.report(err)
	}
	return code
}

// onFilesOnly are verbs of dbctl that cannot work on a server, and what does instead.
var onFilesOnly = map[string]string{
	"backup":  "use the server's own backup (pg_basebackup, pg_dump), keep a head elsewhere (dbctl-pg head), or make a file with dbctl-pg copy",
	"restore": "restore the server's own backup, then compare it with a head: dbctl-pg verify --head",
	"salvage": "restore the server's own backup, then compare it with a head: dbctl-pg verify --head",
	"compact": "use the server's own VACUUM",
}

func isURL(arg string) bool {
	return strings.HasPrefix(arg, "postgres://") || strings.HasPrefix(arg, "postgresql://")
}

// takeName takes --database NAME out of the arguments: it is this program's and not dbctl's. What follows "--" is no flag.
func takeName(args []string, name string) (rest []string, _ string) {
	for i := 0; i < len(args); i++ {
		value, is := strings.CutPrefix(args[i], "--database=")
		switch {
		case args[i] == "--":
			return append(rest, args[i:]...), name
		case is:
			name = value
		case args[i] == "--database" && i+1 < len(args):
			i++
			name = args[i]
		default:
			rest = append(rest, args[i])
		}
	}
	return rest, name
}

// verbOf is the first argument that is no flag; "": there is none.
func verbOf(args []string) string {
	rest, _ := takeName(args, "")
	for _, arg := range rest {
		if !strings.HasPrefix(arg, "-") {
			return arg
		}
	}
	return ""
}

// through serves the database at a private socket and runs dbctl with the socket in place of the URL.
func (a *app) through(dbctl string, args []string, at int) (code int, err error) {
	st, err := a.open(args[at])
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	dir, err := os.MkdirTemp("", "dbctl-pg-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "s")
	end, err := serve(st, socket)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, end()) }()
	args = append([]string{}, args...)
	args[at] = "unix:" + socket
	cmd := exec.CommandContext(a.ctx, dbctl, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, a.out, a.err
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() >= 0 {
		return exit.ExitCode(), nil
	}
	if errors.As(err, &exit) {
		if status, is := exit.Sys().(syscall.WaitStatus); is && status.Signal() == syscall.SIGPIPE {
			return exitPipe, nil // whoever read the output has ended, as head does
		}
	}
	return 0, err
}

// findDBCtl finds the program whose verbs are passed on.
func findDBCtl() (string, error) {
	if path := os.Getenv("DBCTL"); path != "" {
		return path, nil
	}
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), "dbctl")
		if fi, err := os.Stat(beside); err == nil && fi.Mode().IsRegular() {
			return beside, nil
		}
	}
	path, err := exec.LookPath("dbctl")
	if err != nil {
		return "", fmt.Errorf("dbctl is neither beside dbctl-pg nor in PATH; install it, or name it in $DBCTL: %w", err)
	}
	return path, nil
}
