package dbctl

import (
	"errors"
	"fmt"
	"io"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/loop"
	"github.com/ctxpage/ctxpage/internal/view"
	"github.com/ctxpage/ctxpage/store"
)

// pageFlags are the flags of listings.
type pageFlags struct {
	Limit  int    `help:"Maximum number of rows." default:"100"`
	Cursor string `help:"Continue after this cursor, as printed by the previous listing."`
}

// raw reads the cursor of a listing and checks the limit.
func (p *pageFlags) raw(listing string) (string, error) {
	if p.Limit < 1 || p.Limit > 10_000 {
		return "", usage("--limit %d: expected 1 to 10000", p.Limit)
	}
	return cursorIn(listing, p.Cursor)
}

type lsCmd struct {
	File   string `arg:"" help:"Database."`
	Scope  string `arg:"" optional:"" help:"Scope. Without it, scopes are listed."`
	Prefix string `help:"Only names or ids with this prefix."`
	Newest bool   `help:"Order by the commits of the newest versions, latest first. A cursor is valid only in the same order."`
	pageFlags
	filterFlags
}

type scopesView struct {
	Scopes []store.ScopeInfo `json:"scopes"`
	Next   string            `json:"next,omitempty"`
}

type listView struct {
	Items []view.Page `json:"items"`
	Next  string      `json:"next,omitempty"`
}

func (c *lsCmd) Run(a *app) error {
	if c.Scope == "" {
		return c.scopes(a)
	}
	list := "ls"
	if c.Newest {
		list = "ls newest"
	}
	cursor, err := c.raw(list)
	where, bad := c.where()
	if err := errors.Join(err, bad); err != nil {
		return err
	}
	var next string
	opts := []ctxpage.ReadOption{where, ctxpage.AtMost(c.Limit, cursor, &next)}
	if c.Newest {
		opts = append(opts, ctxpage.NewestFirst())
	}
	return a.with(c.File, false, func(db *ctxpage.DB) error {
		vs, err := loop.Collect(db.Scope(c.Scope).Artefacts(a.ctx, c.Prefix, opts...))
		if err != nil {
			return err
		}
		if len(vs) == 0 && cursor == "" {
			a.noteUnknownKeys(db, c.Scope, &c.filterFlags)
		}
		return a.emitVersions(list, vs, next, "ID VERSION KIND PROVENANCE TOKENS PAGES PUT EXPIRES SOURCE STATE", func(v *view.Page) []any {
			return []any{v.ID, v.Version, v.Kind, v.Provenance, v.Tokens, len(v.Pages), when(v.PutAt), when(v.ExpiresAt), or(v.Source, "-"), v.State()}
		})
	})
}

func (c *lsCmd) scopes(a *app) error {
	if f, err := c.filter(); err != nil || c.Newest || !f.IsZero() {
		return errors.Join(err, usage("a filter or --newest needs a scope: dbctl ls FILE SCOPE"))
	}
	cursor, err := c.raw("scopes")
	if err != nil {
		return err
	}
	return show(a, c.File, false, func(db *ctxpage.DB) (scopesView, error) {
		var next string
		scopes, err := loop.Collect(db.Scopes(a.ctx, c.Prefix, ctxpage.AtMost(c.Limit, cursor, &next)))
		return scopesView{nonNil(scopes), cursorOut("scopes", next)}, err
	}, func(v scopesView, w io.Writer) {
		if len(v.Scopes) == 0 {
			fmt.Fprintln(w, "no scopes: nothing was written yet")
			return
		}
		rows(w, "SCOPE ARTEFACTS", v.Scopes, func(s *store.ScopeInfo) []any { return []any{s.Name, s.Artefacts} })
		more(w, v.Next)
	})
}

func (a *app) emitVersions(list string, vs []*ctxpage.Version, next, head string, cells func(v *view.Page) []any) error {
	out := listView{Items: []view.Page{}, Next: cursorOut(list, next)}
	for _, v := range vs {
		out.Items = append(out.Items, view.Whole(v))
	}
	return a.emit(out, func(w io.Writer) {
		if len(vs) == 0 {
			fmt.Fprintln(w, "none")
			return
		}
		rows(w, head, out.Items, cells)
		more(w, out.Next)
	})
}

// noteEmptyScope says on standard error that a scope and its ancestors hold nothing: an empty answer may mean a mistyped
// name. With --json it is silent, for the answer is there to be counted.
func (a *app) noteEmptyScope(db *ctxpage.DB, scope string) error {
	if a.JSON {
		return nil
	}
	for _, name := range store.ScopeChain(scope) {
		found, err := loop.Collect(db.Scopes(a.ctx, name, ctxpage.AtMost(1, "", nil)))
		if err != nil || len(found) > 0 && found[0].Name == name && found[0].Artefacts > 0 {
			return err
		}
	}
	fmt.Fprintf(a.err, "nothing is stored in scope %s or above it (dbctl ls shows the scopes there are)\n", line(scope))
	return nil
}
