package dbctl

import (
	"errors"
	"fmt"
	"io"
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

// all approves what the filters select.
func (c *reviewApproveCmd) all(a *app) error {
	return a.with(c.File, !c.DryRun, func(db *ctxpage.DB) error {
		bulk := view.BulkApproval{
			Scope: c.Scope, Actor: c.Actor, Kind: c.Kind, Tag: c.Tag, Reason: c.Reason, Older: c.Older, Replacing: c.Replacing, DryRun: c.DryRun,
			Approval: ctxpage.Approval{By: c.By, Note: c.Note, HumanVerified: c.HumanVerified, Stale: c.Stale},
		}
		list, damage := bulk.Approve(a.ctx, db, a.now())
		if damage != nil && !errors.Is(damage, store.ErrCorrupt) {
			return damage
		}
		out := approvedList(list)
		return errors.Join(damage, unless(out.Left == 0, exitFailed, a.emit(out, out.print)))
	})
}

type approvedList view.ApprovedList

func (v *approvedList) print(w io.Writer) {
	if len(v.Batches) == 0 {
		fmt.Fprintln(w, "no held batch matches")
		return
	}
	rows(w, "BATCH HELD SCOPE ACTOR REASON IDS REPLACES STATUS", v.Batches, func(b *view.Approved) []any {
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
