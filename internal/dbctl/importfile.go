package dbctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/foreign"
	"github.com/ctxpage/ctxpage/internal/portable"
	"github.com/ctxpage/ctxpage/internal/triage"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/store"
)

// target says what the arguments mean: a directory into a scope, files of another system into a scope, or an export.
func (c *importCmd) target() (scope string, paths []string, err error) {
	if len(c.Path) > 0 {
		return c.Scope, c.Path, nil
	}
	if info, err := os.Stat(c.Scope); err != nil || info.IsDir() {
		return "", nil, usage("import %s: expected an export that dbctl export wrote, or SCOPE and then a directory or the files of another system", c.Scope)
	}
	return "", []string{c.Scope}, nil
}

// exported brings an export into a database, which is made if there is none.
func (c *importCmd) exported(a *app, path string) error {
	receipts, err := readReceipts("import", c.Erased)
	if err != nil {
		return err
	}
	var roots []string
	for _, dir := range c.Roots {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return usage("--roots %s: %v", dir, err)
		}
		roots = append(roots, abs)
	}
	f, err := openInput(path)
	if err != nil {
		return failed("import: %v", err)
	}
	defer f.Close()
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return usage("import %s: got a pipe, expected a file: an export is read twice", path)
	}
	head, err := portable.ReadHeader(f)
	if err != nil {
		if format, why, derr := foreign.Detect(a.ctx, rewound(f)); derr == nil {
			return usage("import %s: it is a file of %s (%s); expected SCOPE before it", path, format, why)
		}
		return fmt.Errorf("import %s: %w", path, err)
	}
	if _, _, err := portable.Verify(a.ctx, rewound(f), a.progress()); err != nil { // before there is a database
		return fmt.Errorf("import %s: %w", path, err)
	}
	for i, r := range receipts {
		if r.DB != head.Database {
			return fmt.Errorf("import: --erased %s: %w: it is of database %s, the export of %s", c.Erased[i], ops.ErrReceipt, r.DB, head.Database)
		}
	}
	db, made, err := c.make(a, head)
	if err != nil {
		return err
	}
	rep, err := db.Admin().Import(a.ctx, rewound(f), portable.ImportOptions{By: c.By, Roots: roots, Policies: c.Policies, Receipts: receipts, DryRun: c.DryRun, Progress: a.progress()})
	if err = errors.Join(err, db.Close()); err != nil {
		if errors.Is(err, store.ErrInvalid) || errors.Is(err, store.ErrNewerFormat) { // the file stays as it is
			return fmt.Errorf("import %s: %w", path, err)
		}
		return fmt.Errorf("import %s: %w; run it again to finish it", path, err)
	}
	v := importedView{*rep, c.File, made, head.Identity().ID != "" && !c.NoSecret}
	return unless(rep.Versions.Other+rep.State.Other+rep.Held.Other == 0, exitFailed, a.emit(v, v.print))
}

// rewound is a file from its beginning.
func rewound(f *os.File) *os.File {
	_, _ = f.Seek(0, io.SeekStart)
	return f
}

// make opens the database, or makes it as the one that was exported. A dry run makes it elsewhere and removes it.
func (c *importCmd) make(a *app, head *portable.Header) (db *ctxpage.DB, made bool, err error) {
	// An import that was killed at once has left an empty file; the next one makes the same database of it.
	if db, err = a.open(c.File, !c.DryRun); fileless(c.File) || !errors.Is(err, store.ErrNotExist) {
		return db, false, err
	}
	if c.DryRun {
		return nil, false, usage("--dry-run: %s does not exist, so all of the export would be new; dbctl export --dry-run counts it", c.File)
	}
	is := head.Identity()
	if c.NoSecret {
		is = store.Info{}
	}
	db, err = ctxpage.Open(c.File, ctxpage.Options{Counter: a.counter, Key: a.key, Keyring: a.Keyring, Identity: is, RecordedRoots: false, Clock: a.now})
	return db, true, err
}

type importedView struct {
	portable.Imported
	File string `json:"file"`
	Made bool   `json:"made"` // the database is new
	same bool
}

func (v importedView) print(w io.Writer) {
	fmt.Fprintf(w, "%s %s, %s and %s of database %s as of lsn %d\n", would(v.DryRun, "wrote", "would write"), plural(int(v.Versions.New), "version", "versions"), plural(int(v.State.New), "row of state", "rows of state"),
		plural(int(v.Held.New), "held batch", "held batches"), v.Database, v.Imported.LSN)
	if n := v.Versions.Same + v.State.Same + v.Held.Same; n > 0 {
		fmt.Fprintf(w, "%d were there already\n", n)
	}
	if v.Erased > 0 {
		fmt.Fprintf(w, "%d left out: they were erased\n", v.Erased)
	}
	if n := v.Versions.Other + v.State.Other + v.Held.Other; n > 0 {
		fmt.Fprintf(w, "%d left out: something else is here under the same name\n", n)
		printEach(w, "  %s\n", v.Others)
	}
	if n := len(v.Withheld); n > 0 {
		fmt.Fprintf(w, "%s left out: --roots DIR imports file roots and directories, --policies retention policies and quotas\n", plural(n, "setting", "settings"))
		printEach(w, "  %s\n", v.Withheld)
	}
	if v.Made && !v.same {
		fmt.Fprintln(w, "the export has no secret: contexts have other fences than those of the database it is of")
	}
}

type foreignView struct {
	Scope string        `json:"scope"`
	Files []foreignFile `json:"files"`
}

type foreignFile struct {
	Path string `json:"path"`
	foreign.Report
}

// foreign brings files of another system into a scope.
func (c *importCmd) foreign(a *app, scope string, paths []string) error {
	opts, err := c.foreignOptions(a)
	if err != nil {
		return err
	}
	if c.Follow && (len(paths) > 1 || c.DryRun) {
		return usage("--follow is for one file, without --dry-run")
	}
	v := foreignView{Scope: scope, Files: []foreignFile{}}
	err = a.with(c.File, !c.DryRun, func(db *ctxpage.DB) error {
		for _, path := range paths {
			each := opts
			each.Name = strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
			if c.Follow {
				return c.follow(a, db.Scope(scope), path, each)
			}
			rep, err := c.foreignFile(a, db.Scope(scope), path, each)
			if err != nil {
				return fmt.Errorf("import %s: %w", path, err)
			}
			v.Files = append(v.Files, foreignFile{path, *rep})
		}
		return nil
	})
	if err != nil || c.Follow {
		return err
	}
	live := slices.ContainsFunc(v.Files, func(f foreignFile) bool { return f.Live > 0 })
	return unless(!live, exitFailed, a.emit(v, v.print))
}

// foreignOptions reads the flags that say how files of another system are read.
func (c *importCmd) foreignOptions(a *app) (opts foreign.Options, err error) {
	opts = foreign.Options{Session: c.Session, Branches: c.Branches, SkipUnknown: c.SkipUnknown, Map: c.Map, DryRun: c.DryRun, Progress: a.progress()}
	if c.From != "" {
		if opts.Format, err = foreign.ParseFormat(c.From); err != nil {
			return opts, err
		}
	}
	if opts.Trust, err = triage.ParseProvenance(c.Trust); err != nil {
		return opts, usage("--trust: %v", err)
	}
	if opts.Trust > store.Scratch {
		opts.By, opts.Why = c.By, c.Why
	}
	switch {
	case c.Delete || c.Prefix != "":
		return opts, usage("--delete and --prefix are for directories")
	case len(c.Erased) > 0:
		return opts, usage("--erased is for an export that dbctl export wrote")
	case len(c.Roots) > 0 || c.Policies:
		return opts, usage("--roots and --policies are for an export that dbctl export wrote")
	case len(c.Map) > 0 && opts.Format != foreign.JSONL:
		return opts, usage("--map is for --from jsonl")
	}
	return opts, nil
}

// foreignFile imports a file. Nothing is written before all of it was read.
func (c *importCmd) foreignFile(a *app, s *ctxpage.Scope, path string, opts foreign.Options) (*foreign.Report, error) {
	f, err := openInput(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return foreign.Import(a.ctx, s, f, opts)
}

func (v foreignView) print(w io.Writer) {
	for _, f := range v.Files {
		f.print(w, v.Scope)
	}
}

func (f foreignFile) print(w io.Writer, scope string) {
	how := ""
	if f.Why != "" {
		how = " (detected by " + f.Why + ")"
	}
	fmt.Fprintf(w, "%s: format %s%s\n%s %d new and %d changed of %s into %s as %s, %d unchanged\n", line(f.Path), f.Format, line(how), would(f.DryRun, "wrote", "would write"), f.New, f.Changed,
		plural(f.Items, "item", "items"), scope, f.Trust, f.Same)
	if f.SessionCount > 0 {
		fmt.Fprintf(w, "%s:", plural(f.SessionCount, "session", "sessions"))
		printEach(w, " %s", f.Sessions[:min(len(f.Sessions), importNames)])
		if f.SessionCount > importNames {
			fmt.Fprintf(w, " and %d more; dbctl session ls lists them", f.SessionCount-importNames)
		}
		fmt.Fprintln(w)
	}
	if f.Live > 0 {
		fmt.Fprintf(w, "%d left out: their session has turns from elsewhere; --session NAME imports them into another one\n", f.Live)
	}
	if f.Kept > 0 {
		fmt.Fprintf(w, "%d left alone: deleted or erased here, or raised here and changed in the file\n", f.Kept)
		printEach(w, "  %s\n", f.Kepts)
	}
	for _, left := range []struct {
		n   int
		why string
	}{{f.Repeated, "their id comes again later in the file, or another line says the same"}, {f.Empty, "no words"}} {
		if left.n > 0 {
			fmt.Fprintf(w, "%d left out: %s\n", left.n, left.why)
		}
	}
	if f.Undated > 0 {
		fmt.Fprintf(w, "%s without a time: what the file says cannot be read\n", plural(f.Undated, "item", "items"))
	}
	printTypes(w, "no turns and no memories in use", f.Types)
	printTypes(w, "unknown types", f.Unknown)
}

func printTypes(w io.Writer, what string, types map[string]int) {
	n, each := 0, []string{}
	for _, kind := range slices.Sorted(maps.Keys(types)) {
		n += types[kind]
		each = append(each, fmt.Sprintf("%d %s", types[kind], kind))
	}
	if n > 0 {
		fmt.Fprintf(w, "%s left out, %s: %s\n", plural(n, "line", "lines"), what, line(strings.Join(each, ", ")))
	}
}

// follow imports what comes into a file, until the context ends. The file may be cut, or replaced by another one of its name.
func (c *importCmd) follow(a *app, s *ctxpage.Scope, path string, opts foreign.Options) error {
	var seen os.FileInfo
	said := ""
	f := &foreign.Follower{Scope: s, Options: opts}
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	for {
		info, err := os.Stat(path)
		if err == nil && !sameFile(seen, info) {
			var rep *foreign.Report
			if rep, err = followed(a.ctx, f, path); err == nil && rep.New+rep.Changed+rep.Live > 0 {
				err = a.followedLine(foreignFile{path, *rep}, s.Name())
			}
			seen = info
		}
		var bad *portable.LineError
		switch {
		case a.ctx.Err() != nil:
			return nil
		case err == nil:
			said = ""
		case !errors.As(err, &bad) && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, store.ErrInvalid):
			return fmt.Errorf("import %s: %w", path, err)
		case err.Error() != said: // the file may be complete with its next change
			said = err.Error()
			fmt.Fprintf(a.err, "dbctl: import %s: waiting: %s\n", line(path), line(said))
		}
		select {
		case <-tick.C:
		case <-a.ctx.Done():
			return nil
		}
	}
}

func sameFile(a, b os.FileInfo) bool {
	return a != nil && os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// followed opens a file again, which may be another one now, and imports what is new in it.
func followed(ctx context.Context, f *foreign.Follower, path string) (*foreign.Report, error) {
	in, err := openInput(path)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	return f.Next(ctx, in)
}

// followedLine prints what one change of the file brought: with --json, an object a line.
func (a *app) followedLine(f foreignFile, scope string) error {
	if a.JSON {
		return oneLine(a.out, f)
	}
	_, err := fmt.Fprintf(a.out, "%s: %d new and %d changed of %s into %s\n", line(f.Path), f.New, f.Changed, plural(f.Items, "item", "items"), scope)
	if f.Live > 0 && err == nil {
		_, err = fmt.Fprintf(a.err, "%d left out: their session has turns from elsewhere\n", f.Live)
	}
	return err
}
