package dbctl

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/foreign"
	"github.com/ctxpage/ctxpage/internal/portable"
)

type exportCmd struct {
	File     string `arg:"" help:"Database."`
	Scope    string `help:"Export only this scope and the scopes below it."`
	Subject  string `help:"Export only what is held about this person: what dbctl erase --subject would take. With --scope only in that scope and those below it."`
	Versions bool   `help:"Only versions of artefacts, without state and held batches: the first parts of a move, while writers go on. For the format jsonl."`
	Since    uint64 `help:"Leave out versions of commits up to this LSN, which an earlier export brought: the rest of a move. For the format jsonl." placeholder:"LSN"`
	Out      string `short:"o" help:"File to write. It must not exist. Default: standard output."`
	Format   string `help:"jsonl can be imported; md is for people to read; pam is Portable AI Memory 1.0, for other systems." enum:"jsonl,md,pam" default:"jsonl"`
	Owner    string `help:"For --format pam: the owner's id. Default: the subject, the scope or the id of the database."`
	Resume   bool   `help:"Complete the file of --out, which was cut off."`
	NoSecret bool   `help:"Leave out the secret from which the fences of contexts are derived. An imported copy then has other fences."`
	ReadOnly bool   `help:"Open the file for reading. The audit then does not record the export."`
	DryRun   bool   `help:"Count what would be exported; write nothing."`
}

type exportView struct {
	portable.Exported
	Out    string `json:"out,omitempty"`
	Format string `json:"format"`
	DryRun bool   `json:"dry_run,omitempty"`

	Memories int            `json:"memories,omitempty"` // of Portable AI Memory
	Left     map[string]int `json:"left,omitempty"`     // likewise: what is no memory, by kind
}

func (c *exportCmd) check(a *app) error {
	switch {
	case c.Owner != "" && c.Format != "pam":
		return usage("--owner: expected --format pam")
	case (c.Versions || c.Since > 0) && c.Format != "jsonl":
		return usage("--versions and --since: expected --format jsonl")
	case c.Resume && (c.Out == "" || c.Format != "jsonl" || c.DryRun):
		return usage("--resume: expected --out FILE and format jsonl")
	case a.JSON && c.Out == "" && !c.DryRun:
		return usage("--json prints what was done on standard output; expected --out FILE for the export")
	}
	return nil
}

func (c *exportCmd) Run(a *app) (err error) {
	if err := c.check(a); err != nil {
		return err
	}
	v := exportView{Out: c.Out, Format: c.Format, DryRun: c.DryRun}
	err = a.with(c.File, !c.ReadOnly && !c.DryRun, func(db *ctxpage.DB) error {
		opts := portable.ExportOptions{Scope: c.Scope, Subject: c.Subject, NoSecret: c.NoSecret, Versions: c.Versions, Since: c.Since, Progress: a.progress()}
		out, at, err := c.output(a)
		if err != nil {
			return err
		}
		opts.Resume = at
		var rep *portable.Exported
		if c.Format == "pam" {
			rep, err = c.pam(a, db, out, &v)
		} else {
			rep, err = c.write(a, db, out, opts)
		}
		if f, ok := out.(*os.File); ok && c.Out != "" && !c.DryRun { // else it is standard output
			err = errors.Join(err, f.Sync(), f.Close())
		}
		if err != nil {
			return c.left(err)
		}
		v.Exported = *rep
		return nil
	})
	if err != nil || c.Out == "" && !c.DryRun {
		return err
	}
	return a.emit(v, v.print)
}

// output opens what is written to.
func (c *exportCmd) output(a *app) (io.Writer, *portable.Position, error) {
	switch {
	case c.DryRun:
		return io.Discard, nil, nil
	case c.Out == "":
		return a.out, nil, nil
	case c.Resume:
		return c.reopen()
	}
	f, err := os.OpenFile(c.Out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil, nil, failed("--out %s: there is a file; expected a new name, or --resume if its export was cut off", c.Out)
	}
	if err != nil {
		return nil, nil, failed("--out: %v", err)
	}
	return f, nil, nil
}

// reopen opens an export that was cut off, to continue after its last whole line.
func (c *exportCmd) reopen() (io.Writer, *portable.Position, error) {
	f, err := os.OpenFile(c.Out, os.O_RDWR, 0)
	if err != nil {
		return nil, nil, failed("--resume: %v", err)
	}
	var from int64
	begun, err := hasHeader(f)
	var at *portable.Position
	if begun && err == nil {
		if at, err = portable.ReadPosition(rewound(f)); err == nil {
			from = at.Bytes
		}
	}
	if err == nil {
		err = f.Truncate(from)
	}
	if err == nil {
		_, err = f.Seek(from, io.SeekStart)
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("--resume %s: %w", c.Out, err), f.Close())
	}
	return f, at, nil
}

// hasHeader reports whether a file has more than the beginning of the first line of an export: one that was cut off there begins anew.
func hasHeader(f *os.File) (bool, error) {
	header := []byte(`{"type":"header","format":"` + portable.Format + `"`)
	b := make([]byte, 64<<10) // more than a header has
	n, err := io.ReadFull(f, b)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return false, err
	}
	b = b[:n]
	return bytes.IndexByte(b, '\n') >= 0 || !bytes.HasPrefix(header, b) && !bytes.HasPrefix(b, header), nil
}

// write exports, for people through a pipe.
func (c *exportCmd) write(a *app, db *ctxpage.DB, out io.Writer, opts portable.ExportOptions) (*portable.Exported, error) {
	if c.Format == "jsonl" {
		return db.Admin().Export(a.ctx, out, opts)
	}
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := portable.Markdown(a.ctx, out, r)
		r.CloseWithError(err)
		done <- err
	}()
	rep, err := db.Admin().Export(a.ctx, w, opts)
	w.CloseWithError(err)
	if shown := <-done; err == nil {
		err = shown
	}
	return rep, err
}

// pam exports for other systems.
func (c *exportCmd) pam(a *app, db *ctxpage.DB, out io.Writer, v *exportView) (*portable.Exported, error) {
	rep, err := foreign.ExportPAM(a.ctx, db, out, foreign.PAMOptions{Scope: c.Scope, Subject: c.Subject, Owner: c.Owner, At: a.now(), Progress: a.progress()})
	if err != nil {
		return nil, err
	}
	v.Memories, v.Left = rep.Memories, rep.Left
	return &portable.Exported{Scope: c.Scope, Subject: c.Subject}, nil
}

// left says what to do with a file that was cut off.
func (c *exportCmd) left(err error) error {
	if c.Out == "" || c.DryRun {
		return err
	}
	if c.Format == "jsonl" {
		if info, serr := os.Stat(c.Out); serr == nil && info.Size() > 0 {
			return fmt.Errorf("%w; %s is incomplete: run the command again with --resume to continue it", err, c.Out)
		}
	}
	if rerr := os.Remove(c.Out); rerr != nil {
		return errors.Join(err, rerr)
	}
	return err
}

func (v exportView) print(w io.Writer) {
	did := would(v.DryRun, "exported", "would export")
	if v.Format == "pam" {
		fmt.Fprintf(w, "%s %s", did, plural(v.Memories, "memory", "memories"))
		for _, kind := range slices.Sorted(maps.Keys(v.Left)) {
			fmt.Fprintf(w, "; left out %d of kind %s", v.Left[kind], kind)
		}
		fmt.Fprintln(w)
		return
	}
	fmt.Fprintf(w, "%s %s in %s, %s, %s and %s as of lsn %d", did, plural(int(v.Artefacts), "artefact", "artefacts"), plural(int(v.Versions), "version", "versions"),
		plural(int(v.State), "row of state", "rows of state"), plural(int(v.Held), "held batch", "held batches"), plural(int(v.Questions), "question", "questions"), v.LSN)
	if v.Out != "" && !v.DryRun {
		fmt.Fprintf(w, " to %s", v.Out)
	}
	fmt.Fprintln(w)
}
