package dbctl

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/remote"
	"github.com/ctxpage/ctxpage/store"
)

// A database is named by its file, by the socket of a process that serves it (unix:PATH), or by the URL of a server that this build has.

// Server opens databases that are not files.
type Server struct {
	Schemes []string // of its URLs
	// Grammar has the flags and verbs of the server, with the tags of kong: a pointer to a struct. Its verbs run with an *App.
	Grammar any
	// Open opens the database of a URL. The caller closes it.
	Open func(ctx context.Context, url string, o Opening) (store.Store, error)
	// Label names the database of a URL without secrets: URLs with one label are one database.
	Label func(url string) string
	// Again returns the flags that make another process open the same database.
	Again func() []string
	// Kind names an error of the server for scripts; "": it is not one.
	Kind func(err error) string
	// Instead says what replaces a verb that needs files.
	Instead map[string]string
}

// Opening says how a database on a server is opened.
type Opening struct {
	Create bool // make it if it does not exist
	Stay   bool // the process serves it until a signal ends it
}

// App is the state of one call of the tool, for the verbs of a Server.
type App = app

// Context ends with a signal.
func (a *app) Context() context.Context { return a.ctx }

// ShowProgress shows how far long work has come. It may be called often.
func (a *app) ShowProgress() store.Progress { return a.progress() }

// Emit prints v as JSON, or what text prints.
func (a *app) Emit(v any, text func(w io.Writer)) error { return a.emit(v, text) }

// Usage is the error of a command line that a verb does not take.
func Usage(format string, args ...any) error { return usage(format, args...) }

// Table prints rows under a head of column names.
func Table(w io.Writer, head string, rows func(row func(cells ...any))) { table(w, head, rows) }

const (
	socketScheme = "unix:"
	// serverBuild installs the build that opens databases on PostgreSQL.
	serverBuild = "go install github.com/ctxpage/ctxpage/pgstore/cmd/dbctl@latest"
)

// atSocket returns the path of a socket that a name stands for.
func atSocket(name string) (path string, is bool) { return strings.CutPrefix(name, socketScheme) }

// onServer reports whether a name is the URL of a database server.
func onServer(name string) bool {
	scheme, _, is := strings.Cut(name, "://")
	return is && scheme != "" && !strings.ContainsAny(scheme, "/.")
}

// fileless reports whether a name stands for no file.
func fileless(name string) bool {
	_, is := atSocket(name)
	return is || onServer(name)
}

// server returns the server of a URL, if this build has it and the verb under way works there.
func (a *app) server(url string) (*Server, error) {
	scheme, _, _ := strings.Cut(url, "://")
	switch {
	case a.tool.Server == nil && (scheme == "postgres" || scheme == "postgresql"):
		return nil, usage("%s: this build of dbctl has no driver for PostgreSQL; install the one that has it: %s", scheme, serverBuild)
	case a.tool.Server == nil || !slices.Contains(a.tool.Server.Schemes, scheme):
		return nil, usage("%.40q: this build of dbctl opens no databases of the scheme %s; expected a file or unix:PATH", url, scheme)
	}
	if instead := a.tool.Server.Instead[a.verb]; instead != "" {
		return nil, usage("%s works on files; for a database on a server %s", a.verb, instead)
	}
	return a.tool.Server, nil
}

// refused returns the error of a command line that names a server this build does not have, or a verb that does not work there.
func (a *app) refused(k *kong.Context) error {
	if k.Selected() == nil {
		return nil
	}
	for _, p := range k.Selected().Positional {
		if name := p.Target.String(); (p.Name == "file" || p.Name == "backup") && onServer(name) {
			if _, err := a.server(name); err != nil {
				return err
			}
		}
	}
	return nil
}

// located returns the words by which another process opens a database from any directory.
func (a *app) located(name string) ([]string, error) {
	switch socket, is := atSocket(name); {
	case is:
		path, err := filepath.Abs(socket)
		return []string{socketScheme + path}, err
	case onServer(name):
		s, err := a.server(name)
		if err != nil || s.Again == nil {
			return []string{name}, err
		}
		return append([]string{name}, s.Again()...), nil
	}
	path, err := filepath.Abs(name)
	return []string{path}, err
}

// store opens a database that is no file.
func (a *app) store(name string, o Opening) (store.Store, error) {
	if socket, is := atSocket(name); is {
		return remote.Dial(a.ctx, socket, remote.ClientOptions{Now: a.now})
	}
	s, err := a.server(name)
	if err != nil {
		return nil, err
	}
	return s.Open(a.ctx, name, o)
}

// answerTime limits how long the process that has a database open may be silent. A longer --wait extends it.
const answerTime = 10 * time.Second

// options returns the options that the command line sets for every database.
func (a *app) options() ctxpage.Options {
	return ctxpage.Options{
		Counter: a.counter, Key: a.key, Keyring: a.Keyring, RecordedRoots: !a.NoRoots, LockTimeout: a.Wait, AnswerTimeout: max(a.Wait, answerTime), Clock: a.now, FileRoots: a.roots,
		Embedder: a.embedder, Summarizer: a.summarizer, NoWatch: a.noWatch, Observer: a.tool.Observer, ObserveScopes: a.tool.ObserveScopes,
	}
}

// database opens what a name stands for. stay: the process serves it until a signal ends it.
func (a *app) database(name string, opts ctxpage.Options, stay bool) (*ctxpage.DB, error) {
	if !fileless(name) {
		return ctxpage.Open(name, opts)
	}
	if opts.Exclusive {
		return nil, usage("this verb needs the files of a database, and %s has none", a.label(name))
	}
	st, err := a.store(name, Opening{Create: !opts.MustExist, Stay: stay})
	if err != nil {
		return nil, err
	}
	opts.ReadOnly, opts.MustExist, opts.Stop, opts.LockTimeout, opts.Key, opts.Keyring = false, false, nil, 0, nil, ""
	opts.Store, opts.NoWatch = st, !stay || a.noWatch
	db, err := ctxpage.Open(a.label(name), opts)
	if err != nil {
		err = errors.Join(err, st.Close())
	}
	return db, err
}

// label names a database in what is printed: a URL may hold a password.
func (a *app) label(name string) string {
	if onServer(name) && a.tool.Server != nil {
		return a.tool.Server.Label(name)
	}
	return name
}

// beside is the path beside which dbctl serve has its socket and lock: the file, or one in the user's cache directory that stands for a
// database that is no file.
func (a *app) beside(name string) (string, error) {
	if !fileless(name) {
		return name, nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", failed("a place for the socket: %v", err)
	}
	dir = filepath.Join(dir, "ctxpage")
	return filepath.Join(dir, fmt.Sprintf("%x", sha256.Sum256([]byte(a.label(name))))[:16]), os.MkdirAll(dir, 0o700)
}

// open opens a database for reading, or for writing.
func (a *app) open(name string, write bool) (*ctxpage.DB, error) { return a.openAs(name, write, false) }

// openAs opens a database; exclusive: only if no other process has it. It waits in steps, so that Ctrl-C ends the wait.
func (a *app) openAs(name string, write, exclusive bool) (*ctxpage.DB, error) {
	const step = 200 * time.Millisecond
	opts := a.options()
	opts.MustExist, opts.ReadOnly, opts.Exclusive = true, !write, exclusive
	for until := time.Now().Add(a.Wait); ; {
		left := time.Until(until)
		opts.LockTimeout = max(0, min(step, left))
		db, err := a.database(name, opts, false)
		switch {
		case !errors.Is(err, store.ErrLocked) || left <= step:
			return db, err
		case a.ctx.Err() != nil:
			return nil, fmt.Errorf("waiting for %s: %w", name, a.ctx.Err())
		}
	}
}

// with opens a database, runs fn and closes it; a failed close is an error like any other.
func (a *app) with(name string, write bool, fn func(db *ctxpage.DB) error) error {
	return a.withAs(name, write, false, fn)
}

// show opens a database, prints what get returns, and closes it.
func show[T any](a *app, name string, write bool, get func(db *ctxpage.DB) (T, error), text func(v T, w io.Writer)) error {
	return a.with(name, write, func(db *ctxpage.DB) error {
		v, err := get(db)
		if err != nil {
			return err
		}
		return a.emit(v, func(w io.Writer) { text(v, w) })
	})
}

func (a *app) withAs(name string, write, exclusive bool, fn func(db *ctxpage.DB) error) error {
	db, err := a.openAs(name, write, exclusive)
	if err != nil {
		return err
	}
	err = fn(db)
	cerr := db.Close()
	var e *exitError
	if cerr != nil && errors.As(err, &e) && e.quiet {
		return cerr // what the verb printed is not the end of it
	}
	return errors.Join(err, cerr)
}
