package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/pgstore"
	"github.com/ctxpage/ctxpage/store"
)

type migrateCmd struct {
	DSN    string `arg:"" help:"Server, database and user, who must be allowed to create tables."`
	DryRun bool   `help:"Only list the steps."`
}

func (c *migrateCmd) Run(a *app) error {
	steps, err := pgstore.Migrate(a.ctx, c.DSN, c.DryRun)
	if err != nil {
		return err
	}
	v := struct {
		DryRun bool           `json:"dry_run"`
		Steps  []pgstore.Step `json:"steps"`
	}{c.DryRun, append([]pgstore.Step{}, steps...)}
	return a.emit(v, func(w io.Writer) {
		if len(steps) == 0 {
			fmt.Fprintln(w, "the schema is up to date")
			return
		}
		table(w, "VERSION FILE TOOK", func(row func(...any)) {
			for _, s := range steps {
				row(s.Version, s.File, s.Took)
			}
		})
	})
}

type initCmd struct {
	DSN string `arg:"" help:"Server and database."`
}

func (c *initCmd) Run(a *app) error {
	list, err := pgstore.List(a.ctx, c.DSN)
	if err != nil {
		return err
	}
	for _, d := range list {
		if d.Name == a.Name {
			return fmt.Errorf("the server already has a database %q; choose another --database", a.Name)
		}
	}
	st, err := pgstore.Open(a.ctx, c.DSN, pgstore.Options{Name: a.Name})
	if err != nil {
		return err
	}
	info, err := st.Info(a.ctx)
	if err = errors.Join(err, st.Close()); err != nil {
		return err
	}
	v := struct {
		Name string `json:"name"`
		ID   string `json:"id"`
	}{a.Name, info.ID}
	return a.emit(v, func(w io.Writer) { fmt.Fprintf(w, "made database %s, %s\n", v.Name, v.ID) })
}

type lsCmd struct {
	DSN string `arg:"" help:"Server and database."`
}

func (c *lsCmd) Run(a *app) error {
	list, err := pgstore.List(a.ctx, c.DSN)
	if err != nil {
		return err
	}
	return a.emit(append([]pgstore.Listed{}, list...), func(w io.Writer) {
		table(w, "NAME ID RECORDS INBOX IMAGE HOSTS", func(row func(...any)) {
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

type headCmd struct {
	DSN string `arg:"" help:"Server and database."`
}

func (c *headCmd) Run(a *app) error {
	st, err := a.open(c.DSN)
	if err != nil {
		return err
	}
	defer st.Close()
	h, err := st.Head(a.ctx)
	if err != nil {
		return err
	}
	v := struct {
		Head string `json:"head"`
		DB   string `json:"db"`
		Size uint64 `json:"size"`
	}{h.String(), h.DB, h.Size}
	return a.emit(v, func(w io.Writer) { fmt.Fprintln(w, v.Head) })
}

type verifyCmd struct {
	DSN  string `arg:"" help:"Server and database."`
	Head string `help:"File with a head that was kept elsewhere, or the head itself."`
}

func (verifyCmd) Help() string {
	return `With --head it also shows what a failover lost: if the server has fewer leaves than the head, or others, the exit code is 3.

Example: dbctl-pg verify postgres://ctx@db/agents --head head.txt`
}

func (c *verifyCmd) Run(a *app) error {
	var against *manifest.Head
	if c.Head != "" {
		text := c.Head
		if b, err := os.ReadFile(c.Head); err == nil {
			text = string(b)
		}
		h, err := manifest.ParseHead(strings.TrimSpace(text))
		if err != nil {
			return usageError{fmt.Errorf("--head: %w; expected a line that dbctl-pg head or dbctl manifest head printed, or a file with one", err)}
		}
		against = &h
	}
	st, err := a.open(c.DSN)
	if err != nil {
		return err
	}
	defer st.Close()
	p := a.progress()
	got, err := st.Audit().Verify(a.ctx, against, func(done, total uint64) {
		if p != nil {
			p("verify", done, total)
		}
	})
	if err != nil {
		return err
	}
	return a.emit(got, func(w io.Writer) { fmt.Fprintf(w, "%d leaves, root %s: verified\n", got.Size, got.Root) })
}

type checkCmd struct {
	DSN string `arg:"" help:"Server and database."`
}

var errProblems = errors.New("the database has problems")

func (c *checkCmd) Run(a *app) error {
	st, err := a.open(c.DSN)
	if err != nil {
		return err
	}
	defer st.Close()
	rep, err := st.Maintain(a.ctx, store.Job{Kind: store.JobCheck}, a.progress())
	if err != nil {
		return err
	}
	v := struct {
		Problems []store.Problem `json:"problems"`
	}{append([]store.Problem{}, rep.Problems...)}
	err = a.emit(v, func(w io.Writer) {
		if len(v.Problems) == 0 {
			fmt.Fprintln(w, "no problems")
			return
		}
		table(w, "INVARIANT WHERE WHAT", func(row func(...any)) {
			for _, p := range v.Problems {
				row(p.Invariant, p.Where, p.What)
			}
		})
	})
	if err == nil && len(v.Problems) > 0 {
		err = errProblems
	}
	return err
}

type copyCmd struct {
	From string `arg:"" help:"Embedded database that no other process has open, or a postgres:// URL."`
	To   string `arg:"" help:"The other: a postgres:// URL, where the name (--database) must be free, or a path where nothing is."`
}

func (copyCmd) Help() string {
	return `The copy has the id, the history and the audit of the original; a head of the one verifies against the other. So use one of them from then on: what is written to both cannot be joined. A copy that is interrupted keeps what it has, in FILE-copy and on the server, and the same command goes on with it; --progress shows how far it is.

Example: dbctl-pg copy agent.ctx postgres://ctx@db/agents --database support`
}

func (c *copyCmd) Run(a *app) error {
	var got pgstore.Copied
	var err error
	where := "on the server"
	switch from, to := isURL(c.From), isURL(c.To); {
	case from == to:
		return usageError{fmt.Errorf("copy: got %q and %q, expected a file and a postgres:// URL", c.From, c.To)}
	case to:
		got, err = pgstore.CopyFile(a.ctx, c.From, c.To, pgstore.Options{Name: a.Name}, a.progress())
	default:
		where = "in the file with its log and audit"
		got, err = pgstore.CopyToFile(a.ctx, c.From, c.To, pgstore.Options{Name: a.Name, ImageBytes: -1}, a.progress())
	}
	if err != nil {
		return err
	}
	v := struct {
		pgstore.Copied
		Head string `json:"head"`
	}{got, got.Head.String()}
	return a.emit(v, func(w io.Writer) {
		fmt.Fprintf(w, "copied and verified up to LSN %d, %d leaves; the copy takes %d bytes %s\n%s\n", got.LSN, got.Head.Size, got.Bytes, where, v.Head)
	})
}

type finishEraseCmd struct {
	DSN string `arg:"" help:"Server and database."`
}

func (c *finishEraseCmd) Run(a *app) error {
	st, err := a.open(c.DSN)
	if err != nil {
		return err
	}
	defer st.Close()
	done, err := st.FinishErase(a.ctx, a.progress())
	if err != nil {
		return err
	}
	return a.emit(append([]store.EraseReport{}, done...), func(w io.Writer) { fmt.Fprintf(w, "%d erases finished\n", len(done)) })
}

type imageCmd struct {
	DSN  string        `arg:"" help:"Server and database."`
	Keep time.Duration `help:"How long the server keeps records that the image covers." default:"168h"`
}

func (c *imageCmd) Run(a *app) error {
	st, err := pgstore.Open(a.ctx, c.DSN, pgstore.Options{Name: a.Name, MustExist: true, ImageBytes: -1, KeepRecords: max(c.Keep, 1)})
	if err != nil {
		return err
	}
	defer st.Close()
	written, err := st.WriteImage(a.ctx, a.progress())
	if err != nil {
		return err
	}
	v := struct {
		Written bool   `json:"written"`
		LSN     uint64 `json:"lsn"`
	}{written, st.Mark().LSN}
	return a.emit(v, func(w io.Writer) {
		if written {
			fmt.Fprintf(w, "wrote an image up to LSN %d\n", v.LSN)
		} else {
			fmt.Fprintln(w, "nothing to write, or another host is writing one")
		}
	})
}
