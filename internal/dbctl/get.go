package dbctl

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/view"
	"github.com/ctxpage/ctxpage/store"
)

// readFlags are the flags of verbs that serve contents.
type readFlags struct {
	ReadOnly   bool   `help:"Write no manifest and refetch nothing. Pages whose source changed are left out."`
	Check      string `help:"When to check sources: always, never, or at most once per duration, like 10m or 1d." default:"always"`
	ServeStale bool   `help:"Serve pages whose source changed but cannot be fetched, marked as stale."`
	Actor      string `help:"Name of the reader, for the manifest. Default: the scope."`
	rootFlags
}

func (f *readFlags) policy() (time.Duration, error) {
	switch f.Check {
	case "always":
		return 0, nil
	case "never":
		return ctxpage.CheckNever, nil
	}
	d, err := parseDuration(f.Check)
	if err != nil || d <= 0 {
		return 0, usage("--check %q: expected always, never or a duration like 10m", f.Check)
	}
	return d, nil
}

func (f *readFlags) options() ([]ctxpage.ReadOption, error) {
	p, err := f.policy()
	opts := []ctxpage.ReadOption{ctxpage.WithCheck(p)}
	if f.ServeStale {
		opts = append(opts, ctxpage.ServeStale())
	}
	return opts, err
}

func (f *readFlags) scope(db *ctxpage.DB, name string, opts ...ctxpage.ScopeOption) *ctxpage.Scope {
	return db.Scope(name, append(opts, ctxpage.WithActor(or(f.Actor, name)))...)
}

type getCmd struct {
	File    string `arg:"" help:"Database."`
	Scope   string `arg:"" help:"Scope to read as. It sees its own pages and those of its ancestors."`
	ID      string `arg:"" name:"id" help:"Id, or a reference like policy#2@3 or acme:policy#2@3."`
	Version uint32 `help:"Version to read. For an old version, source and expiry are not checked."`
	readFlags
}

func (c *getCmd) Run(a *app) error {
	opts, err := c.options()
	if err := errors.Join(err, c.allow(a)); err != nil {
		return err
	}
	return a.with(c.File, !c.ReadOnly, func(db *ctxpage.DB) error {
		v, err := c.get(a, db, opts)
		if errors.Is(err, store.ErrNotFound) {
			return fmt.Errorf("%w; searched in scope %s and the scopes above it", err, c.Scope)
		}
		if err != nil {
			return err
		}
		if v.SupersededBy != "" && !a.JSON {
			a.warn(fmt.Sprintf("%s is superseded by %s", v.Ref, v.SupersededBy))
		}
		if v.Elsewhere != "" && !a.JSON {
			a.warn(fmt.Sprintf("%s comes from a file on host %s, which cannot be checked here", v.Ref, v.Elsewhere))
		}
		return a.emit(view.Whole(v), func(w io.Writer) {
			text := printable(w, view.Text(v))
			fmt.Fprint(w, text)
			if isTerminal(w) && len(text) > 0 && text[len(text)-1] != '\n' {
				fmt.Fprintln(w)
			}
		})
	})
}

func (c *getCmd) get(a *app, db *ctxpage.DB, opts []ctxpage.ReadOption) (*ctxpage.Version, error) {
	n := &namer{a: a, db: db, scope: c.Scope}
	ref, err := n.find(a.ctx, c.ID)
	if err != nil {
		return nil, err
	}
	if c.Version > 0 {
		if ref.Version != 0 && ref.Version != c.Version {
			return nil, usage("--version %d: the reference %s names version %d", c.Version, ref, ref.Version)
		}
		ref.Version = c.Version
	}
	s := c.scope(db, c.Scope)
	var v *ctxpage.Version
	if ref.ID == c.ID && ref.Version == 0 {
		v, err = s.Get(a.ctx, c.ID, opts...)
	} else {
		v, err = s.Recall(a.ctx, ref, opts...)
	}
	return v, n.hinted(err, ref, c.ID)
}
