package view

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/store"
)

// BulkApproval approves all held batches that its fields select. A batch is decided as a whole, so all its writes must match.
type BulkApproval struct {
	Scope  string // "": all scopes
	Actor  string
	Kind   string
	Tag    string
	Reason string        // or a part of it
	Older  time.Duration // held for at least this time
	// Replacing also approves batches that replace, supersede or delete pages.
	Replacing bool
	DryRun    bool
	ctxpage.Approval
}

// Approved is a batch that a BulkApproval selected.
type Approved struct {
	Batch    string    `json:"batch"`
	Scope    string    `json:"scope"`
	Actor    string    `json:"actor"`
	Reason   string    `json:"reason"`
	At       time.Time `json:"at"`
	IDs      []string  `json:"ids"`
	Replaces int       `json:"replaces" jsonschema:"pages that an approval takes out of use"`
	Status   string    `json:"status" jsonschema:"applied, held; of a dry run: would be applied"`
	Refs     []string  `json:"refs"`
	Error    string    `json:"error,omitempty" jsonschema:"why it is still held"`
}

// ApprovedList says what became of each batch.
type ApprovedList struct {
	Batches  []Approved `json:"batches"`
	Approved int        `json:"approved"`
	Left     int        `json:"left"`
	DryRun   bool       `json:"dry_run"`
}

// Approve carries out the approval. The list is complete before the first decision. Damaged batches are passed over; the error, an
// ErrCorrupt, comes with the list of the others. The end of ctx ends it between two batches.
func (b *BulkApproval) Approve(ctx context.Context, db *ctxpage.DB, now time.Time) (out ApprovedList, damage error) {
	out = ApprovedList{Batches: []Approved{}, DryRun: b.DryRun}
	var kind store.Kind
	if b.Kind != "" {
		var err error
		if kind, err = store.ParseKind(b.Kind); err != nil {
			return out, err
		}
	}
	for h, err := range db.Review().Batches(ctx, b.Scope, false) {
		if err != nil && !errors.Is(err, store.ErrCorrupt) {
			return out, err
		}
		damage = err // the others are decided all the same
		if err != nil || !b.matches(&h, kind, now) {
			continue
		}
		v := Approved{Replaces: Replaced(&h), Batch: h.ID, Scope: h.Scope, Actor: h.Actor, Reason: h.Reason, At: h.At.UTC(), Status: "held", IDs: append([]string{}, h.Deletes...), Refs: []string{}}
		for j := range h.Writes {
			v.IDs = append(v.IDs, h.Writes[j].ID)
		}
		out.Batches = append(out.Batches, v)
	}
	for i := range out.Batches {
		v := &out.Batches[i]
		if err := b.one(ctx, db, v); err != nil {
			if ctx.Err() != nil {
				return out, fmt.Errorf("approved %d of %d batches; the others are still held: %w", out.Approved, len(out.Batches), err)
			}
			v.Error = err.Error()
		}
		if v.Status == "held" {
			out.Left++
		} else {
			out.Approved++
		}
	}
	return out, damage
}

// Replaced counts the pages that an approval takes out of use.
func Replaced(h *ctxpage.Held) int {
	n := len(h.Replaces) + len(h.Deletes)
	for i := range h.Writes {
		n += len(h.Writes[i].Supersedes)
	}
	return n
}

func (b *BulkApproval) matches(h *ctxpage.Held, kind store.Kind, now time.Time) bool {
	if b.Actor != "" && h.Actor != b.Actor || b.Reason != "" && !strings.Contains(h.Reason, b.Reason) || now.Sub(h.At) < b.Older {
		return false
	}
	if (b.Kind != "" || b.Tag != "") && len(h.Writes) == 0 {
		return false
	}
	return !slices.ContainsFunc(h.Writes, func(v ctxpage.Version) bool {
		return b.Kind != "" && v.Kind != kind || b.Tag != "" && !slices.Contains(v.Tags, b.Tag)
	})
}

// one decides about a batch, or says in a dry run what would be decided.
func (b *BulkApproval) one(ctx context.Context, db *ctxpage.DB, v *Approved) error {
	if v.Replaces > 0 && !b.Replacing {
		return errors.New("it takes pages out of use; review it, or approve with replacing")
	}
	if b.DryRun {
		h, err := db.Review().Show(ctx, v.Batch)
		switch {
		case err != nil:
			return err
		case h.Actor == b.By:
			return store.ErrSelfCertified
		case len(h.Conflicts) > 0:
			return store.ErrConflict
		case len(h.StaleNow) > 0 && !b.Stale:
			return store.ErrStaleContext
		}
		v.Status = "would be applied"
		return nil
	}
	out, err := db.Review().Approve(ctx, v.Batch, b.Approval)
	if err != nil {
		return err
	}
	v.Status, v.Refs = out.Status.String(), Refs(out.Refs)
	return nil
}
