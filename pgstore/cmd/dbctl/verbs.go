package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/ctxpage/ctxpage/internal/dbctl"
	"github.com/ctxpage/ctxpage/internal/remote"
	"github.com/ctxpage/ctxpage/pgstore"
	"github.com/ctxpage/ctxpage/store"
)

type postgresCmd struct {
	Migrate     migrateCmd     `cmd:"" help:"Make the schema, or bring it to this program's version."`
	Ls          lsCmd          `cmd:"" help:"List the databases in the schema, with the hosts that follow them."`
	Copy        copyCmd        `cmd:"" help:"Copy an embedded database to a server or back, with its history and audit, and verify the copy."`
	Image       imageCmd       `cmd:"" help:"Write an image now, so that hosts start fast, and delete the records it makes superfluous."`
	FinishErase finishEraseCmd `cmd:"" help:"Go on with erases that an error or a crash stopped."`
	Follow      followCmd      `cmd:"" help:"Follow a database and serve it to the processes of this host at a socket."`
}

func (postgresCmd) Help() string {
	return `URL names server and user: postgres://user@host/database. Passwords are better kept in PGPASSFILE. --database names one of the databases in the schema. All other verbs take the URL in place of FILE.`
}

// flags passes the flags of the command line to the verbs.
func (c *postgresCmd) flags(f *flags) {
	c.Copy.flags, c.Image.flags, c.FinishErase.flags, c.Follow.flags = f, f, f, f
}

type migrateCmd struct {
	URL    string `arg:"" help:"Server, database and user, who must be allowed to create tables."`
	DryRun bool   `help:"Only list the steps."`
}

func (c *migrateCmd) Run(a *dbctl.App) error {
	steps, err := pgstore.Migrate(a.Context(), c.URL, c.DryRun)
	if err != nil {
		return err
	}
	v := struct {
		DryRun bool           `json:"dry_run"`
		Steps  []pgstore.Step `json:"steps"`
	}{c.DryRun, append([]pgstore.Step{}, steps...)}
	return a.Emit(v, func(w io.Writer) {
		if len(steps) == 0 {
			fmt.Fprintln(w, "the schema is up to date")
			return
		}
		dbctl.Table(w, "VERSION FILE TOOK", func(row func(...any)) {
			for _, s := range steps {
				row(s.Version, s.File, s.Took)
			}
		})
	})
}

type lsCmd struct {
	URL string `arg:"" help:"Server and database."`
}

func (c *lsCmd) Run(a *dbctl.App) error {
	list, err := pgstore.List(a.Context(), c.URL)
	if err != nil {
		return err
	}
	return a.Emit(append([]pgstore.Listed{}, list...), func(w io.Writer) {
		dbctl.Table(w, "NAME ID RECORDS INBOX IMAGE HOSTS", func(row func(...any)) {
			for _, d := range list {
				var hosts []string
				for _, h := range d.Hosts {
					state := fmt.Sprintf("%d behind", h.Behind)
					if !h.Live {
						state = "gone since " + h.Seen.UTC().Format(time.DateTime)
					}
					hosts = append(hosts, fmt.Sprintf("%s (%s)", h.Name, state))
				}
				row(d.Name, d.ID, fmt.Sprintf("%d-%d", d.First, d.Last), d.Inbox, d.Image, strings.Join(hosts, ", "))
			}
		})
	})
}

type copyCmd struct {
	From  string `arg:"" help:"Embedded database that no other process has open, or a postgres:// URL."`
	To    string `arg:"" help:"The other: a postgres:// URL, where the name (--database) must be free, or a path where nothing is."`
	flags *flags
}

func (copyCmd) Help() string {
	return `The copy has the id, the history and the audit of the original; a head of the one verifies against the other. So use one of them from then on: what is written to both cannot be joined. A copy that is interrupted keeps what it has, in FILE-copy and on the server, and the same command goes on with it; --progress shows how far it is.

Example: dbctl postgres copy agent.ctx postgres://ctx@db/agents --database support`
}

func (c *copyCmd) Run(a *dbctl.App) error {
	var got pgstore.Copied
	var err error
	where := "on the server"
	switch from, to := isURL(c.From), isURL(c.To); {
	case from == to:
		return dbctl.Usage("copy: got %q and %q, expected a file and a postgres:// URL", c.From, c.To)
	case to:
		got, err = pgstore.CopyFile(a.Context(), c.From, c.To, pgstore.Options{Name: c.flags.Database}, a.ShowProgress())
	default:
		where = "in the file with its log and audit"
		got, err = pgstore.CopyToFile(a.Context(), c.From, c.To, pgstore.Options{Name: c.flags.Database, ImageBytes: -1}, a.ShowProgress())
	}
	if err != nil {
		return err
	}
	v := struct {
		pgstore.Copied
		Head string `json:"head"`
	}{got, got.Head.String()}
	return a.Emit(v, func(w io.Writer) {
		fmt.Fprintf(w, "copied and verified up to LSN %d, %d leaves; the copy takes %d bytes %s\n%s\n", got.LSN, got.Head.Size, got.Bytes, where, v.Head)
	})
}

func isURL(arg string) bool {
	return strings.HasPrefix(arg, "postgres://") || strings.HasPrefix(arg, "postgresql://")
}

type finishEraseCmd struct {
	URL   string `arg:"" help:"Server and database."`
	flags *flags
}

func (c *finishEraseCmd) Run(a *dbctl.App) error {
	st, err := pgstore.Open(a.Context(), c.URL, c.flags.options(true))
	if err != nil {
		return err
	}
	done, err := st.FinishErase(a.Context(), a.ShowProgress())
	if err = errors.Join(err, st.Close()); err != nil {
		return err
	}
	return a.Emit(append([]store.EraseReport{}, done...), func(w io.Writer) { fmt.Fprintf(w, "%d erases finished\n", len(done)) })
}

type imageCmd struct {
	URL   string        `arg:"" help:"Server and database."`
	Keep  time.Duration `help:"How long the server keeps records that the image covers." default:"168h"`
	flags *flags
}

func (c *imageCmd) Run(a *dbctl.App) error {
	opts := c.flags.options(true)
	opts.KeepRecords = max(c.Keep, 1)
	st, err := pgstore.Open(a.Context(), c.URL, opts)
	if err != nil {
		return err
	}
	written, err := st.WriteImage(a.Context(), a.ShowProgress())
	v := struct {
		Written bool   `json:"written"`
		LSN     uint64 `json:"lsn"`
	}{written, st.Mark().LSN}
	if err = errors.Join(err, st.Close()); err != nil {
		return err
	}
	return a.Emit(v, func(w io.Writer) {
		if written {
			fmt.Fprintf(w, "wrote an image up to LSN %d\n", v.LSN)
		} else {
			fmt.Fprintln(w, "nothing to write, or another host is writing one")
		}
	})
}

type followCmd struct {
	URL    string `arg:"" help:"Server and database."`
	Socket string `required:"" help:"Path of the socket. Its directory must be private to the user."`
	Create bool   `help:"Make the database if it does not exist."`
	flags  *flags
}

func (followCmd) Help() string {
	return `Runs until it is interrupted. One follower for each host is enough: its agents open the socket, and dbctl takes it as unix:PATH. Processes of other users are refused.

Example: dbctl postgres follow postgres://ctx@db/agents --database support --socket /run/user/1000/support.sock --cache /var/cache/support`
}

func (c *followCmd) Run(a *dbctl.App) error {
	opts := c.flags.options(false)
	opts.MustExist = !c.Create
	st, err := pgstore.Open(a.Context(), c.URL, opts)
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
	err = a.Emit(v, func(w io.Writer) { fmt.Fprintf(w, "serving at %s from LSN %d\n", v.Socket, v.LSN) })
	if err == nil {
		<-a.Context().Done()
	}
	return errors.Join(err, end(), st.Close())
}

// serve offers a store at a socket.
func serve(st *pgstore.Store, socket string) (end func() error, err error) {
	srv, err := remote.NewServer(context.Background(), st, remote.ServerOptions{Program: "dbctl"})
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
