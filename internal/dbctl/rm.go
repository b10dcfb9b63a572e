package dbctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/loop"
	"github.com/ctxpage/ctxpage/store"
)

type rmCmd struct {
	File   string   `arg:"" help:"Database."`
	Scope  string   `arg:"" help:"Scope of the artefacts. Artefacts of its ancestors cannot be deleted through it."`
	IDs    []string `arg:"" optional:"" name:"id" help:"Ids of or references to artefacts of the scope."`
	Prefix string   `help:"Delete every artefact whose id has this prefix."`
	By     string   `help:"Name of who deletes, for the manifest. Default: the scope."`
	DryRun bool     `help:"Show what would be deleted."`
}

type rmView struct {
	Deleted []string `json:"deleted"`
	DryRun  bool     `json:"dry_run,omitempty"`
}

func (c *rmCmd) Run(a *app) error {
	if (len(c.IDs) == 0) == (c.Prefix == "") {
		return usage("rm: name what to delete: ids, or --prefix, not both")
	}
	return show(a, c.File, !c.DryRun, func(db *ctxpage.DB) (rmView, error) {
		s := db.Scope(c.Scope, ctxpage.WithActor(or(c.By, c.Scope)))
		ids, err := c.chosen(a, db, s)
		if err == nil && !c.DryRun {
			err = deleteAll(a.ctx, s, ids)
		}
		return rmView{nonNil(ids), c.DryRun}, err
	}, rmView.print)
}

func (v rmView) print(w io.Writer) {
	printEach(w, would(v.DryRun, "deleted", "would delete")+" %s\n", v.Deleted)
	if len(v.Deleted) == 0 {
		fmt.Fprintln(w, "nothing matches")
	}
}

// chosen finds what to delete: every id named must be there.
func (c *rmCmd) chosen(a *app, db *ctxpage.DB, s *ctxpage.Scope) (ids []string, err error) {
	if c.Prefix != "" {
		return idsOf(a.ctx, s, c.Prefix)
	}
	n := &namer{a: a, db: db, scope: c.Scope, writes: true}
	for _, given := range c.IDs {
		ref, err := n.own(a.ctx, given)
		if err != nil {
			return nil, err
		}
		id := ref.ID
		vs, err := loop.Collect(s.Artefacts(a.ctx, id, ctxpage.AtMost(1, "", nil)))
		if err != nil {
			return nil, err
		}
		if len(vs) == 0 || vs[0].ID != id {
			return nil, n.hinted(fmt.Errorf("%w: scope %s has no artefact %q; nothing was deleted", store.ErrNotFound, c.Scope, id), ref, given)
		}
		ids = append(ids, id)
	}
	return ids, nil
}

func idsOf(ctx context.Context, s *ctxpage.Scope, prefix string) (ids []string, err error) {
	err = eachArtefact(ctx, s, prefix, func(v *ctxpage.Version) {
		if !strings.HasPrefix(v.ID, store.ReservedPrefix) { // those are not the caller's to delete
			ids = append(ids, v.ID)
		}
	})
	return ids, err
}

// eachArtefact walks the listing of a scope to its end.
func eachArtefact(ctx context.Context, s *ctxpage.Scope, prefix string, fn func(v *ctxpage.Version)) error {
	for v, err := range s.Artefacts(ctx, prefix) {
		if err != nil {
			return err
		}
		fn(v)
	}
	return nil
}

// deleteAll deletes in one transaction. What somebody else deleted meanwhile is gone all the same.
func deleteAll(ctx context.Context, s *ctxpage.Scope, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	if len(ids) > store.MaxTxnWrites {
		return failed("%d artefacts are more than the %d of one transaction; narrow --prefix", len(ids), store.MaxTxnWrites)
	}
	return s.Update(ctx, func(tx *ctxpage.Txn) error {
		for _, id := range ids {
			if err := tx.Delete(ctx, id); err != nil && !errors.Is(err, store.ErrNotFound) {
				return err
			}
		}
		return nil
	})
}
