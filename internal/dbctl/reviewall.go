package dbctl

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/view"
	"github.com/ctxpage/ctxpage/store"
)

// batchFilter selects held batches. A batch is decided as a whole, so all its writes must match.
type batchFilter struct {
	Scope     string        `help:"With --all: only batches of this scope."`
	Actor     string        `help:"With --all: only batches that this actor wrote."`
	Kind      string        `help:"With --all: only batches whose writes are all of this kind."`
	Tag       string        `help:"With --all: only batches whose writes all have this tag."`
	Reason    string        `help:"With --all: only batches held for this reason, such as 'no verdict', or a part of it."`
	Older     time.Duration `help:"With --all: only batches held for at least this time, such as 7d." placeholder:"DURATION"`
	Replacing bool          `help:"With --all: also batches that replace, supersede or delete pages."`
}

func (f *batchFilter) matches(h *ctxpage.Held, kind store.Kind, now time.Time) bool {
	if f.Actor != "" && h.Actor != f.Actor || f.Reason != "" && !strings.Contains(h.Reason, f.Reason) || now.Sub(h.At) < f.Older {
		return false
	}
	if (f.Kind != "" || f.Tag != "") && len(h.Writes) == 0 {
		return false
	}
	return !slices.ContainsFunc(h.Writes, func(v ctxpage.Version) bool {
		return f.Kind != "" && v.Kind != kind || f.Tag != "" && !slices.Contains(v.Tags, f.Tag)
	})
}

// approvedView is a batch that --all selected.
type approvedView struct {
	Batch    string    `json:"batch"`
	Scope    string    `json:"scope"`
	Actor    string    `json:"actor"`
	Reason   string    `json:"reason"`
	At       time.Time `json:"at"`
	IDs      []string  `json:"ids"`
	Replaces int       `json:"replaces"` // pages that an approval takes out of use
	Status   string    `json:"status"`   // applied, held; of a dry run: would be applied
	Refs     []string  `json:"refs"`
	Error    string    `json:"error,omitempty"` // why it is still held
}

type approvedList struct {
	Batches  []approvedView `json:"batches"`
	Approved int            `json:"approved"`
	Left     int            `json:"left"`
	DryRun   bool           `json:"dry_run"`
}

// all approves what the filters select. The list is complete before the first decision.
func (c *reviewApproveCmd) all(a *app) error {
	var kind store.Kind
	if c.Kind != "" {
		var err error
		if kind, err = store.ParseKind(c.Kind); err != nil {
			return err
		}
	}
	return a.with(c.File, !c.DryRun, func(db *ctxpage.DB) error {
		out := approvedList{Batches: []approvedView{}, DryRun: c.DryRun}
		var damage error
		for h, err := range db.Review().Batches(a.ctx, c.Scope, false) {
			if err != nil && !errors.Is(err, store.ErrCorrupt) {
				return err
			}
			damage = err // the others are decided all the same
			if err != nil || !c.matches(&h, kind, a.now()) {
				continue
			}
			full := heldOf(&h)
			v := approvedView{Replaces: full.replaced(), Batch: h.ID, Scope: h.Scope, Actor: h.Actor, Reason: h.Reason, At: h.At, Status: "held", IDs: slices.Clone(nonNil(h.Deletes)), Refs: []string{}}
			for j := range h.Writes {
				v.IDs = append(v.IDs, h.Writes[j].ID)
			}
			out.Batches = append(out.Batches, v)
		}
		for i := range out.Batches {
			v := &out.Batches[i]
			if err := c.one(a, db, v); err != nil {
				if a.ctx.Err() != nil {
					return fmt.Errorf("approved %d of %d batches; the others are still held: %w", out.Approved, len(out.Batches), err)
				}
				v.Error = err.Error()
			}
			if v.Status == "held" {
				out.Left++
			} else {
				out.Approved++
			}
		}
		return errors.Join(damage, unless(out.Left == 0, exitFailed, a.emit(out, out.print)))
	})
}

// one decides about a batch, or says in a dry run what would be decided.
func (c *reviewApproveCmd) one(a *app, db *ctxpage.DB, v *approvedView) error {
	if v.Replaces > 0 && !c.Replacing {
		return errors.New("it takes pages out of use; review it, or give --replacing")
	}
	if c.DryRun {
		h, err := db.Review().Show(a.ctx, v.Batch)
		switch {
		case err != nil:
			return err
		case h.Actor == c.By:
			return store.ErrSelfCertified
		case len(h.Conflicts) > 0:
			return store.ErrConflict
		case len(h.StaleNow) > 0 && !c.Stale:
			return store.ErrStaleContext
		}
		v.Status = "would be applied"
		return nil
	}
	out, err := db.Review().Approve(a.ctx, v.Batch, ctxpage.Approval{By: c.By, Note: c.Note, HumanVerified: c.HumanVerified, Stale: c.Stale})
	if err != nil {
		return err
	}
	v.Status, v.Refs = out.Status.String(), view.Refs(out.Refs)
	return nil
}

func (v *approvedList) print(w io.Writer) {
	if len(v.Batches) == 0 {
		fmt.Fprintln(w, "no held batch matches")
		return
	}
	rows(w, "BATCH HELD SCOPE ACTOR REASON IDS REPLACES STATUS", v.Batches, func(b *approvedView) []any {
		return []any{b.Batch, when(b.At), name(b.Scope), name(b.Actor), b.Reason, cut(strings.Join(b.IDs, " "), 60), b.Replaces, b.Status}
	})
	for _, b := range v.Batches {
		if b.Error != "" {
			fmt.Fprintf(w, "%s is still held: %s\n", b.Batch, line(b.Error))
		}
	}
	if v.DryRun {
		fmt.Fprintf(w, "dry run: would approve %d, leave %d\n", v.Approved, v.Left)
		return
	}
	fmt.Fprintf(w, "approved %d, left %d\n", v.Approved, v.Left)
}
