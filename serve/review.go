package serve

import (
	"context"
	"time"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/loop"
	"github.com/ctxpage/ctxpage/internal/view"
)

// Review of what the gate held. All of it is the operator's: the one who wrote a batch must not
// decide about it, and the store refuses an approval by its writer (ErrSelfCertified).
//
//	held ──approve──▶ approved (a commit of its own, judged for conflicts as of now)
//	  └────reject───▶ rejected
//
// A decision is durable. The same one again returns the first outcome, the opposite one fails with
// reviewed.

var reviewCalls = []call{
	unary("review/list", Operator, "Batches that the gate held, oldest first, without texts.", listHeld),
	unary("review/show", Operator, "One held batch, with the changes since that affect it.", showHeld),
	unary("review/approve", Operator, "Commit a held batch. The caller approves as its actor, which must not be the writer of the batch.", approve),
	unary("review/approve_all", Operator, "Commit all held batches that the fields select. Each is decided by itself; those that cannot be approved stay held.", approveAll),
	unary("review/reject", Operator, "Record that a held batch will not be committed.", reject),
}

type heldOut struct {
	Batch      string      `json:"batch"`
	Scope      string      `json:"scope"`
	Actor      string      `json:"actor"`
	Trace      string      `json:"trace,omitempty"`
	Reason     string      `json:"reason"`
	Confidence float64     `json:"confidence"`
	By         string      `json:"by,omitempty" jsonschema:"who gave the verdict"`
	Note       string      `json:"note,omitempty"`
	At         time.Time   `json:"at"`
	Decided    string      `json:"decided,omitempty" jsonschema:"approved or rejected"`
	DecidedBy  string      `json:"decided_by,omitempty" jsonschema:"name of the reviewer"`
	Writes     []view.Page `json:"writes"`
	Deletes    []string    `json:"deletes,omitempty"`
	Replaces   []string    `json:"replaces,omitempty" jsonschema:"current versions that an approval would overwrite"`
	Drops      []string    `json:"drops,omitempty" jsonschema:"of them: what the new version would no longer have, such as expiry, tags or pin"`
	Stale      []string    `json:"stale,omitempty" jsonschema:"pages it was written from that had changed when it was held"`
	StaleNow   []string    `json:"stale_now,omitempty"`
	Conflicts  []string    `json:"conflicts,omitempty"`
	LookAlikes []string    `json:"look_alikes,omitempty" jsonschema:"names above that look the same and are not"`
}

func heldOf(h *ctxpage.Held) heldOut {
	out := heldOut{
		Batch: h.ID, Scope: h.Scope, Actor: h.Actor, Trace: h.Trace, Reason: h.Reason, Confidence: h.Confidence, By: h.By, Note: h.Note, At: h.At.UTC(),
		Decided: h.Decided, DecidedBy: h.DecidedBy, Writes: []view.Page{}, Deletes: h.Deletes, Replaces: view.Refs(h.Replaces), Drops: h.Drops, Stale: view.Refs(h.Stale), StaleNow: view.Refs(h.StaleNow),
		Conflicts: view.Refs(h.Conflicts), LookAlikes: h.LookAlikes,
	}
	for i := range h.Writes {
		out.Writes = append(out.Writes, view.Of(&h.Writes[i]))
	}
	return out
}

type heldIn struct {
	All        bool   `json:"all,omitempty" jsonschema:"also those that were decided"`
	EveryScope bool   `json:"every_scope,omitempty" jsonschema:"of all scopes, not only of this one"`
	Cursor     string `json:"cursor,omitempty"`
	Limit      int    `json:"limit,omitempty" jsonschema:"at most 1000; default 100"`
}

type heldList struct {
	Batches []heldOut `json:"batches"`
	Next    string    `json:"next,omitempty"`
}

func listHeld(ctx context.Context, r *request, in heldIn) (heldList, error) {
	limit, err := within(in.Limit, defaultList, maxList)
	if err != nil {
		return heldList{}, err
	}
	scope := r.scope
	if in.EveryScope {
		if scope, err = r.everyScope(); err != nil {
			return heldList{}, err
		}
	}
	var next string
	all, err := loop.Collect(r.srv.db.Review().Batches(ctx, scope, in.All, ctxpage.AtMost(limit, in.Cursor, &next)))
	if err != nil {
		return heldList{}, err
	}
	out := heldList{Batches: []heldOut{}, Next: next}
	for i := range all {
		out.Batches = append(out.Batches, heldOf(&all[i]))
	}
	return out, nil
}

// everyScope stands for all scopes. The library lists one scope or all, so a restricted server cannot.
func (r *request) everyScope() (string, error) {
	if r.srv.opts.Within != "" {
		return "", refuse("scope", "this server is restricted to "+r.srv.opts.Within, "ask for one scope at a time")
	}
	return "", nil
}

type batchIn struct {
	Batch string `json:"batch"`
}

// reviewable finds a held batch that the caller may see.
func (r *request) reviewable(ctx context.Context, batch string) (*ctxpage.Held, error) {
	h, err := r.srv.db.Review().Show(ctx, batch)
	if err == nil && !r.srv.serves(h.Scope) {
		return nil, refuse("scope", "the batch is of a scope that is not served", "review it elsewhere")
	}
	return h, err
}

func showHeld(ctx context.Context, r *request, in batchIn) (heldOut, error) {
	h, err := r.reviewable(ctx, in.Batch)
	if err != nil {
		return heldOut{}, err
	}
	return heldOf(h), nil
}

type approveIn struct {
	Batch         string `json:"batch"`
	Note          string `json:"note,omitempty"`
	HumanVerified bool   `json:"human_verified,omitempty" jsonschema:"raise what is written to the highest provenance"`
	Stale         bool   `json:"stale,omitempty" jsonschema:"approve although pages that it was written from have changed"`
}

// approve commits a held batch. The reviewer in the audit is the actor of the caller, never an argument.
func approve(ctx context.Context, r *request, in approveIn) (writtenOut, error) {
	if _, err := r.reviewable(ctx, in.Batch); err != nil {
		return writtenOut{}, err
	}
	out, err := r.srv.db.Review().Approve(ctx, in.Batch, ctxpage.Approval{By: r.actor, Note: in.Note, HumanVerified: in.HumanVerified, Stale: in.Stale})
	if err != nil {
		return writtenOut{}, err
	}
	return writtenOut{Status: "committed", Refs: view.Refs(out.Refs), Batch: in.Batch, LSN: out.LSN}, nil
}

type rejectIn struct {
	Batch string `json:"batch"`
	Note  string `json:"note,omitempty"`
}

type rejectOut struct {
	Batch  string `json:"batch"`
	Status string `json:"status"`
}

func reject(ctx context.Context, r *request, in rejectIn) (rejectOut, error) {
	if _, err := r.reviewable(ctx, in.Batch); err != nil {
		return rejectOut{}, err
	}
	_, err := r.srv.db.Review().Reject(ctx, in.Batch, r.actor, in.Note)
	return rejectOut{in.Batch, "rejected"}, err
}
