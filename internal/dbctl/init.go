package dbctl

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/store"
)

type initCmd struct {
	File   string `arg:"" help:"Path of the new database."`
	DryRun bool   `help:"Show whether the database could be created."`
}

type initView struct {
	File   string `json:"file"`
	ID     string `json:"id,omitempty"`
	Format int    `json:"format"`
	DryRun bool   `json:"dry_run,omitempty"`
}

func (c *initCmd) Run(a *app) error {
	if err := c.may(a); err != nil {
		return err
	}
	v := initView{File: c.File, Format: filestore.FormatVersion, DryRun: c.DryRun}
	if !c.DryRun {
		db, err := a.database(c.File, a.options(), false)
		if err != nil {
			return err
		}
		st, err := db.Stats(a.ctx)
		if err = errors.Join(err, db.Close()); err != nil {
			return err
		}
		v.File, v.ID = st.Path, st.ID
	}
	return a.emit(v, func(w io.Writer) {
		if c.DryRun {
			fmt.Fprintf(w, "would make %s\n", a.label(c.File))
			return
		}
		fmt.Fprintf(w, "made %s, database %s, format %d\n", v.File, v.ID, v.Format)
		if !onServer(c.File) { // it cannot prune
			fmt.Fprintf(w, "its audit and questions are kept forever; to keep them for a year: %s\n", presetCommand(v.File))
		}
	})
}

// presetCommand bounds the audit, which otherwise grows with every read.
func presetCommand(file string) string { return command("dbctl", "retention", "preset", file, "year") }

// may refuses what is there, and what the library would refuse.
func (c *initCmd) may(a *app) error {
	if !fileless(c.File) {
		begun, instead := c.there(a)
		if begun {
			return nil
		}
		return mayMake("init", c.File, instead)
	}
	if _, is := atSocket(c.File); is {
		return usage("init: %s is a socket; expected the path of a new database", c.File)
	}
	db, err := a.open(c.File, false)
	switch {
	case errors.Is(err, store.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	return errors.Join(failed("init: %s exists already; name a database that does not, or use the one that is there", a.label(c.File)), db.Close())
}

// there looks at what is at the path. begun: an init that was ended half-way left it, a file that the library calls no
// database yet, and opening it for writing makes it whole. Else instead says what to do about it.
func (c *initCmd) there(a *app) (begun bool, instead string) {
	instead = "name a path that does not"
	if _, err := os.Lstat(c.File); err != nil {
		return false, instead
	}
	db, err := ctxpage.Open(c.File, ctxpage.Options{Counter: a.counter, Key: a.key, Keyring: a.Keyring, ReadOnly: true, LockTimeout: a.Wait})
	if err != nil {
		return errors.Is(err, store.ErrNotExist), instead
	}
	_ = db.Close() // it was only looked at
	return false, instead + ", or use the database that is there"
}

// mayMake says before a verb begins, and to a dry run, what the library would refuse, and what to do instead; "": what is
// there may be replaced.
func mayMake(verb, file, instead string) error {
	dir := filepath.Dir(file)
	switch st, err := os.Stat(dir); {
	case errors.Is(err, os.ErrNotExist):
		return failed("%s: there is no directory %s; make it first", verb, dir)
	case err != nil:
		return failed("%s: %v", verb, err)
	case !st.IsDir():
		return failed("%s: %s is not a directory", verb, dir)
	}
	for _, suffix := range []string{"", "-wal", "-manifest"} {
		if _, err := os.Lstat(file + suffix); err == nil && instead != "" {
			return failed("%s: %s exists; %s", verb, file+suffix, instead)
		}
	}
	return nil
}
