package dbctl

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"time"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/store"
)

type refreshCmd struct {
	File  string `arg:"" help:"Database."`
	Scope string `arg:"" optional:"" help:"Scope. Without it, all scopes are refreshed."`
	rootFlags
	Delete  bool          `help:"Delete artefacts of imported directories whose file is gone or no longer matches. If a directory cannot be read, nothing of it is deleted."`
	Files   bool          `help:"Refresh only file: sources and imported directories."`
	Forget  string        `help:"Do not refresh; forget this imported directory of SCOPE. Give --prefix as at import. Its artefacts stay." placeholder:"DIR"`
	Prefix  string        `help:"With --forget: the prefix given at import."`
	MinAge  time.Duration `help:"Skip sources that this process probed less than this long ago."`
	DryRun  bool          `help:"Show what changed; fetch and write nothing."`
	Verbose bool          `short:"v" help:"List all artefacts instead of the first 20 per list. --json always lists all."`
}

type refreshView struct {
	Scopes []ops.RefreshReport `json:"scopes"`
	DryRun bool                `json:"dry_run,omitempty"`
}

func (c *refreshCmd) Run(a *app) error {
	if err := c.allow(a); err != nil {
		return err
	}
	switch {
	case c.Forget != "" && c.Scope == "":
		return usage("--forget: expected the scope that the directory was imported into")
	case c.Forget == "" && c.Prefix != "":
		return usage("--prefix: expected with --forget only; a refresh uses the prefix of the import")
	case c.MinAge < 0:
		return usage("--min-age %v: expected 0 or more", c.MinAge)
	}
	return a.with(c.File, !c.DryRun, func(db *ctxpage.DB) error {
		if c.Forget != "" {
			return c.forget(a, db)
		}
		o := ops.RefreshOptions{DryRun: c.DryRun, Delete: c.Delete, FilesOnly: c.Files, Check: max(c.MinAge, 0), Progress: a.progress()}
		v := refreshView{DryRun: c.DryRun}
		var err error
		if c.Scope == "" {
			v.Scopes, err = db.Refresh(a.ctx, o)
		} else {
			if err := a.noteEmptyScope(db, c.Scope); err != nil {
				return err
			}
			var r ops.RefreshReport
			r, err = db.Scope(c.Scope).Refresh(a.ctx, o)
			v.Scopes = []ops.RefreshReport{r}
		}
		if err != nil && !errors.Is(err, store.ErrFileRoot) { // that is among the failures of the report
			n := 0
			for i := range v.Scopes {
				n += v.Scopes[i].Sources
			}
			return fmt.Errorf("refresh stopped after %s: %w", plural(n, "source", "sources"), err)
		}
		v.Scopes = nonNil(v.Scopes)
		failed := slices.ContainsFunc(v.Scopes, func(r ops.RefreshReport) bool { return len(r.Failed) > 0 })
		return unless(!failed, exitFailed, a.emit(v, func(w io.Writer) { c.print(w, &v) }))
	})
}

func (c *refreshCmd) forget(a *app, db *ctxpage.DB) error {
	dir, err := filepath.Abs(c.Forget)
	if err != nil {
		return failed("refresh: %v", err)
	}
	d := ctxpage.Directory{Dir: dir, Prefix: c.Prefix}
	if !c.DryRun {
		if err := db.Scope(c.Scope).RemoveDirectory(a.ctx, d); err != nil {
			return err
		}
	}
	return a.emit(d, func(w io.Writer) { fmt.Fprintf(w, "forgot %s; its artefacts stay\n", line(dir)) })
}

func (c *refreshCmd) print(w io.Writer, v *refreshView) {
	if len(v.Scopes) == 0 {
		fmt.Fprintln(w, "no artefact has a source, and no directory was imported")
	}
	for i := range v.Scopes {
		r := &v.Scopes[i]
		fmt.Fprintf(w, "%s: %s, %d unchanged\n", line(r.Scope), plural(r.Sources, "source", "sources"), r.Unchanged)
		if r.Elsewhere > 0 {
			fmt.Fprintf(w, "  not asked, because the file is on another host: %d\n", r.Elsewhere)
		}
		c.list(w, would(v.DryRun, "fetched anew", "changed"), r.Changed)
		c.list(w, "new", r.New)
		c.list(w, "vanished, left out until the file is back", r.Vanished)
		c.list(w, "still there, but no longer taken", r.NotTaken)
		c.list(w, would(v.DryRun, "deleted", "would be deleted"), r.Deleted)
		var failures []string
		for _, f := range r.Failed {
			failures = append(failures, or(f.ID, f.Dir)+": "+f.Err)
		}
		c.list(w, "could not be read", failures)
	}
}

func (c *refreshCmd) list(w io.Writer, what string, ids []string) {
	if len(ids) == 0 {
		return
	}
	fmt.Fprintf(w, "  %d %s\n", len(ids), what)
	for i, id := range ids {
		if !c.Verbose && i == importNames {
			fmt.Fprintf(w, "    and %d more; --verbose names them all\n", len(ids)-i)
			return
		}
		fmt.Fprintf(w, "    %s\n", line(id))
	}
}
