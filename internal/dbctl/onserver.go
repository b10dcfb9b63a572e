package dbctl

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"
)

// Databases on PostgreSQL are dbctl-pg's: dbctl links no driver. dbctl starts it with the same arguments. For most verbs dbctl-pg
// follows the database and starts dbctl on its socket.

// serverProgram is where to get the program that has the driver.
const serverProgram = "github.com/ctxpage/ctxpage/pgstore/cmd/dbctl-pg"

// startedEnv is set for dbctl-pg, and so for the dbctl that it starts: that one does not start another.
const startedEnv = "CTXPAGE_DBCTL_PG"

// onServer reports whether a name is the URL of a PostgreSQL server.
func onServer(name string) bool {
	scheme, _, ok := strings.Cut(name, "://")
	return ok && (scheme == "postgres" || scheme == "postgresql")
}

// namesServer reports whether a parsed command line has such a URL in the place of a file. A URL in a question is a question.
func namesServer(k *kong.Context) bool {
	node := k.Selected()
	return node != nil && slices.ContainsFunc(node.Positional, func(p *kong.Positional) bool {
		return (p.Name == "file" || p.Name == "backup") && onServer(p.Target.String())
	})
}

// forServer reports whether a command line that does not parse is meant for dbctl-pg: its verb or the flag --database is not dbctl's, or
// a URL stands where the verb has its file.
func forServer(verb string, args []string) bool {
	if !slices.ContainsFunc(args, onServer) {
		return false
	}
	words := slices.DeleteFunc(slices.Clone(args), func(arg string) bool { return strings.HasPrefix(arg, "-") })
	at := len(strings.Fields(verb))
	return at == 0 || at < len(words) && onServer(words[at]) ||
		slices.ContainsFunc(args, func(arg string) bool { return arg == "--database" || strings.HasPrefix(arg, "--database=") })
}

// errOnServer is of a verb that was given a URL where it has its file, and of a call that finds no dbctl-pg.
var errOnServer = usage("dbctl has no driver for PostgreSQL, and dbctl-pg, which takes the same arguments, is neither beside dbctl nor in PATH; install it: go install %s@latest", serverProgram)

// startServer runs dbctl-pg with the arguments of this call and gives its exit code.
func (a *app) startServer(args []string) int {
	path, err := findServer()
	if err != nil {
		return a.report(errOnServer)
	}
	cmd := exec.CommandContext(a.ctx, path, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = a.in, a.out, a.err
	cmd.Env = append(os.Environ(), startedEnv+"=1")
	if self, err := os.Executable(); err == nil && os.Getenv("DBCTL") == "" {
		cmd.Env = append(cmd.Env, "DBCTL="+self)
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	err = cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &exit) && exit.ExitCode() >= 0:
		return a.ends(exit.ExitCode())
	case a.ctx.Err() != nil:
		return a.ends(exitInterrupted)
	}
	return a.report(failed("%s: %v", path, err))
}

// findServer finds dbctl-pg beside this program, then in PATH.
func findServer() (string, error) {
	if os.Getenv(startedEnv) != "" {
		return "", exec.ErrNotFound
	}
	if self, err := os.Executable(); err == nil {
		if self, err = filepath.EvalSymlinks(self); err == nil {
			if path, err := exec.LookPath(filepath.Join(filepath.Dir(self), "dbctl-pg")); err == nil {
				return path, nil
			}
		}
	}
	return exec.LookPath("dbctl-pg")
}
