package dbctl

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/store"
)

type eraseCmd struct {
	Run     eraseRunCmd     `cmd:"" default:"withargs" help:"Erase content from every file of a database."`
	Ls      eraseLsCmd      `cmd:"" help:"List the erases of a database, oldest first."`
	Receipt eraseReceiptCmd `cmd:"" help:"Write the receipt of a finished erase."`
	Verify  eraseVerifyCmd  `cmd:"" help:"Check the receipt of an erase, without the database."`
}

type eraseRunCmd struct {
	File    string   `arg:"" help:"Database."`
	Refs    []string `arg:"" optional:"" name:"ref" help:"Artefacts, as scope:id; all their versions are erased."`
	Subject string   `help:"Erase every artefact that is about this person or thing, in all scopes or, with --scope, in one and those below it." placeholder:"S"`
	Scope   string   `help:"Erase a scope and everything below it; with --subject, only what is about the subject there." placeholder:"P"`
	Session string   `help:"Erase a conversation: its scope, a slash, its id; or scope:id, percent-encoded." placeholder:"P/ID"`
	By      string   `help:"Name of the operator. It stays in the audit." required:""`
	Reason  string   `help:"Why. It stays in the audit, so it must not contain what is erased." required:""`
	Cascade string   `help:"What happens to artefacts derived from what is erased: keep, rederive or erase. Summaries and copies are always erased." enum:"keep,rederive,erase" default:"keep"`
	Names   bool     `help:"Also remove ids, scopes and sessions of what is erased: from the audit, where the bodies of leaves that name them are removed and their hashes stay, and from every row."`
	Receipt string   `help:"Write the receipt to this new file." placeholder:"PATH"`
	DryRun  bool     `help:"Report what would be erased and what is affected. Opens the file read-only."`
}

// eraseView is a report, with the receipt of what was done.
type eraseView struct {
	*ops.Report
	Receipt *ops.Receipt `json:"receipt,omitempty"`
}

func (c *eraseRunCmd) Run(a *app) error {
	req, err := c.request()
	if err != nil {
		return err
	}
	req.Progress = a.progress()
	if c.Receipt != "" {
		if _, err := os.Lstat(c.Receipt); err == nil {
			return usage("erase: --receipt: %s exists; name a file that does not", c.Receipt)
		}
	}
	return show(a, c.File, !c.DryRun, func(db *ctxpage.DB) (v eraseView, err error) {
		if err := c.named(a, db, &req); err != nil {
			return v, err
		}
		if v.Report, err = db.Admin().Erase(a.ctx, req); err == nil && v.Done != nil {
			v.Receipt, err = c.receipt(a, db, v.Report)
		}
		return v, err
	}, eraseView.print)
}

// receipt makes the receipt of what was done, and writes it where it is asked for.
func (c *eraseRunCmd) receipt(a *app, db *ctxpage.DB, rep *ops.Report) (*ops.Receipt, error) {
	r, err := newReceipt(a, db, rep.Done)
	if err == nil && c.Receipt != "" {
		err = writeReceipt(c.Receipt, r)
	}
	if err != nil {
		return nil, fmt.Errorf("erase %s is done, its receipt was not written; dbctl erase receipt %s %s makes it: %w", rep.Done.Trace, c.File, rep.Done.Trace, err)
	}
	return r, nil
}

func (c *eraseRunCmd) request() (ops.Request, error) {
	req := ops.Request{Subject: c.Subject, Scope: c.Scope, By: c.By, Reason: c.Reason, Cascade: ops.Cascade(c.Cascade), Names: c.Names, DryRun: c.DryRun}
	if c.Session != "" {
		all := sessionReadings(c.Session)
		if len(all) == 0 {
			return req, usage("erase: --session %s: expected a scope, a slash, and the id of a session; or scope:id, percent-encoded", c.Session)
		}
		req.Session = all[0]
	}
	for _, s := range c.Refs {
		ref, err := store.ParseRef(s)
		if err != nil {
			return req, usage("erase: %s: %v", s, err)
		}
		req.Refs = append(req.Refs, ref)
	}
	if err := req.Check(); err != nil {
		return req, usage("erase: %v", err)
	}
	return req, nil
}

// sessionReadings lists what --session may mean: a scope and an id with a slash between, both of which may have slashes of their
// own, or a reference.
func sessionReadings(s string) (all []store.Ref) {
	for at := len(s) - 2; at > 0; at-- {
		if s[at] == '/' && store.CheckScope(s[:at]) == nil {
			all = append(all, store.Ref{Scope: s[:at], ID: s[at+1:]})
		}
	}
	if r, err := store.ParseRef(s); err == nil && r.Scope != "" && r.Page == 0 && r.Version == 0 {
		all = append(all, r)
	}
	return all
}

// named decides which session is meant: the one that is there. If more are there, the wrong one could be erased.
func (c *eraseRunCmd) named(a *app, db *ctxpage.DB, req *ops.Request) error {
	all := sessionReadings(c.Session)
	if len(all) < 2 {
		return nil
	}
	var there []string
	for _, r := range all {
		for id, err := range db.Scope(r.Scope).Sessions(a.ctx) {
			if err != nil {
				return err
			}
			if id == r.ID {
				req.Session, there = r, append(there, r.String())
				break
			}
		}
	}
	if len(there) > 1 {
		return usage("erase: --session %s: it may be %s; name the one you mean like that, with %%2F for each slash", c.Session, strings.Join(there, " or "))
	}
	return nil
}

func (v eraseView) print(w io.Writer) {
	verb := would(v.Done == nil, "erased", "would erase")
	fmt.Fprintf(w, "%s %s, %s, %s, %s of state in %s\n", verb, plural(len(v.Erased), "artefact", "artefacts"), plural(len(v.Held), "held batch", "held batches"),
		plural(v.Questions, "question", "questions"), plural(v.Rows, "row", "rows"), plural(len(v.Scopes), "scope", "scopes"))
	for _, e := range v.Erased {
		fmt.Fprintf(w, "%s %s (%s, %s): %s\n", verb, line(e.Ref), e.Kind, plural(int(e.Versions), "version", "versions"), line(e.Why))
	}
	for _, h := range v.Held {
		fmt.Fprintf(w, "%s held batch %s of %s: %s\n", verb, h.ID, line(h.Scope), line(h.Why))
	}
	if v.Bodies > 0 {
		fmt.Fprintf(w, "%s the bodies of %s of the audit that name it\n", verb, plural(int(v.Bodies), "leaf", "leaves"))
	}
	printEach(w, "nothing is held of %s: mistyped, or erased before\n", v.Missing)
	printEach(w, "%s stays and still names what goes; erase it, too, or write it anew\n", v.NamedBy)
	for _, d := range v.Derived {
		fate := "stays"
		if !d.Stays {
			fate = "can be derived again from " + strings.Join(d.Left, ", ")
		}
		fmt.Fprintf(w, "%s was derived from %s and %s\n", line(d.Ref), line(strings.Join(d.From, ", ")), line(fate))
	}
	if len(v.Contexts) > 0 {
		table(w, "CONTEXT TYPE SCOPE ACTOR AT PAGES", func(row func(...any)) {
			for _, x := range v.Contexts {
				row(x.Trace, x.Type, x.Scope, x.Actor, x.At.Format("2006-01-02T15:04:05Z"), x.Pages)
			}
		})
	}
	for _, x := range v.Answers {
		fmt.Fprintf(w, "%s was written from context %s (%s): %s\n", x.Trace, x.Context, x.Status, line(strings.Join(x.Refs, ", ")))
	}
	for _, f := range v.Files {
		fmt.Fprintf(w, "not erased: file %s of the imported directory %s; the next refresh imports it again as %s: remove it, or exclude it by a .gitignore there\n", line(f.Path), line(f.Dir), line(f.Ref))
	}
	printBackups(w, v.Backups)
	if v.Done != nil {
		fmt.Fprintf(w, "trace %s, leaf %d; the file has %d bytes, it had %d\n", v.Done.Trace, v.Done.Leaf, v.Done.FileAfter, v.Done.FileBefore)
	}
}

// printBackups names the backups that an erase does not reach.
func printBackups(w io.Writer, list []store.Backup) {
	for _, b := range list {
		fmt.Fprintf(w, "not erased: backup %s of %s, lsn %d; delete it, or restore it with --erased RECEIPT\n", line(b.Name), b.At.UTC().Format("2006-01-02T15:04:05Z"), b.LSN)
	}
}

type eraseVerifyCmd struct {
	Receipt string `arg:"" help:"Receipt, or - for standard input."`
	Head    string `help:"Head kept elsewhere to check against instead of the one in the receipt: the line itself, or a file that ends with it. It must be of the same size."`
}

type receiptView struct {
	DB     string            `json:"db"`
	Done   store.EraseReport `json:"done"`
	Head   string            `json:"head"`
	Limits []string          `json:"limits"`
}

// maxReceipt bytes are more than any receipt has: a leaf has at most 4 MiB.
const maxReceipt = 16 << 20

// readReceipt reads a receipt; "-" is in, where there is one.
func readReceipt(path string, in io.Reader) (*ops.Receipt, error) {
	if path != "-" || in == nil {
		f, err := openInput(path)
		if err != nil {
			return nil, fmt.Errorf("receipt: %w", err)
		}
		defer f.Close()
		in = f
	}
	var r ops.Receipt
	d := json.NewDecoder(io.LimitReader(in, maxReceipt))
	if err := d.Decode(&r); err != nil {
		return nil, fmt.Errorf("%w: %s is no receipt: %w", ops.ErrReceipt, path, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: %s has something after the receipt", ops.ErrReceipt, path)
	}
	return &r, nil
}

func (c *eraseVerifyCmd) Run(a *app) error {
	head, err := readHead("--head", c.Head)
	if err != nil {
		return err
	}
	r, err := readReceipt(c.Receipt, a.in)
	if err != nil {
		return err
	}
	if err := r.Verify(head); err != nil {
		return err
	}
	limits := ops.Limits()
	return a.emit(receiptView{r.DB, r.Done, r.Head, limits}, func(w io.Writer) {
		fmt.Fprintf(w, "database %s has recorded, at %s: erased by %s, %s\n%s\nleaf %d is in the audit of %s\n", r.DB, r.Done.At.Format("2006-01-02T15:04:05Z"), line(r.Done.By), line(r.Done.Reason), format.EraseCounts(&r.Done), r.Done.Leaf, line(r.Head))
		if head == nil {
			fmt.Fprintln(w, "that head came with the receipt, so both could be forged together; compare it with a head that you keep elsewhere (--head)")
		} else {
			fmt.Fprintln(w, "it is the head that you gave")
		}
		printBackups(w, r.Done.Backups)
		printEach(w, "not proved: %s\n", limits)
	})
}

type eraseLsCmd struct {
	File string `arg:"" help:"Database."`
}

func (c *eraseLsCmd) Run(a *app) error {
	return show(a, c.File, false, func(db *ctxpage.DB) (erasuresView, error) {
		list, err := db.Admin().Erasures(a.ctx)
		return erasuresView{nonNil(list)}, err
	}, erasuresView.print)
}

type erasuresView struct {
	Erases []store.EraseReport `json:"erases"`
}

func (v erasuresView) print(w io.Writer) {
	if len(v.Erases) == 0 {
		fmt.Fprintln(w, "nothing was erased")
		return
	}
	rows(w, "TRACE AT BY ARTEFACTS HELD QUESTIONS STATE REASON", v.Erases, func(e *store.EraseReport) []any {
		return []any{e.Trace, e.At.UTC().Format("2006-01-02T15:04:05Z"), e.By, e.Artefacts, e.Held, e.Questions, e.State, e.Reason}
	})
}

type eraseReceiptCmd struct {
	File  string `arg:"" help:"Database."`
	Trace string `arg:"" help:"Trace of the erase, or a unique beginning of it."`
	Out   string `short:"o" help:"New file for the receipt. Default: standard output." placeholder:"PATH"`
}

func (c *eraseReceiptCmd) Run(a *app) error {
	return a.with(c.File, false, func(db *ctxpage.DB) error {
		list, err := db.Admin().Erasures(a.ctx)
		if err != nil {
			return err
		}
		var found []store.EraseReport
		for _, e := range list {
			if strings.HasPrefix(e.Trace, strings.ToUpper(c.Trace)) {
				found = append(found, e)
			}
		}
		switch {
		case len(found) == 0:
			return fmt.Errorf("%w: no finished erase has the trace %s; dbctl erase ls lists them", store.ErrNotFound, c.Trace)
		case len(found) > 1:
			return usage("erase receipt: %d erases begin with %s; give more of the trace", len(found), c.Trace)
		}
		r, err := newReceipt(a, db, &found[0])
		if err != nil {
			return err
		}
		if c.Out == "" {
			return json.NewEncoder(a.out).Encode(r)
		}
		if err := writeReceipt(c.Out, r); err != nil {
			return err
		}
		return a.emit(eraseReceiptView{found[0].Trace, c.Out}, func(w io.Writer) { fmt.Fprintf(w, "wrote the receipt of %s to %s\n", found[0].Trace, line(c.Out)) })
	})
}

type eraseReceiptView struct {
	Trace string `json:"trace"`
	Out   string `json:"out"`
}

// newReceipt makes the receipt of an erase for the present head.
func newReceipt(a *app, db *ctxpage.DB, done *store.EraseReport) (*ops.Receipt, error) {
	head, err := db.Head(a.ctx)
	if err != nil {
		return nil, err
	}
	return ops.NewReceipt(a.ctx, db.Manifests(), *done, head)
}

func writeReceipt(path string, r *ops.Receipt) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return failed("receipt: %v", err)
	}
	_, err = f.Write(append(b, '\n'))
	return errors.Join(err, f.Sync(), f.Close())
}
