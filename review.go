package ctxpage

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/rendering"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// A held batch waits as a row until a person decides:
//
//	Commit ─held─▶ held ──Approve──▶ approved: committed now, in its own batch (From names the held one)
//	                │ └────Reject──▶ rejected: nothing is committed
//	                │                    │
//	                └ waits, however long └──── both are dropped by gc after KeepFor; the manifest keeps the decision
//
// The decision is one commit, judged like any other: a conflict or a stale context is found again at approval, because
// the world may have changed since the batch was held. Nobody approves their own draft, in any spelling of their name.
// Deciding twice returns the first decision.

// Review is the operator's view of the batches that the gate held.
type Review struct {
	db    *DB
	actor string // in the manifests of Show
}

// Review returns access to held batches. WithActor names who looks at them, for the manifest; without it that is the
// operator. Other options do not apply.
func (db *DB) Review(opts ...ScopeOption) *Review {
	o := scopeOptions{actor: store.OperatorScope}
	for _, opt := range opts {
		opt(&o)
	}
	return &Review{db, o.actor}
}

// Held is a batch that waits for review, or was reviewed.
type Held struct {
	ID          string    `json:"id"`
	Scope       string    `json:"scope"`
	Actor       string    `json:"actor"`
	Trace       string    `json:"trace,omitempty"` // of the assembly it came from
	Reason      string    `json:"reason"`
	Confidence  float64   `json:"confidence"`
	By          string    `json:"by,omitempty"` // who gave the verdict
	Note        string    `json:"note,omitempty"`
	At          time.Time `json:"at"`
	Decided     string    `json:"decided,omitempty"` // approved or rejected
	DecidedBy   string    `json:"decided_by,omitempty"`
	DecidedNote string    `json:"decided_note,omitempty"` // from DecidedBy
	Writes      []Version `json:"writes"`
	Deletes     []string  `json:"deletes,omitempty"`
	// Replaces names the current version of each artefact that an approval would overwrite. A decided batch has none.
	Replaces []Ref `json:"replaces,omitempty"`
	// Drops says for each what the new version would no longer have: its expiry, subject, tags, pin, metadata,
	// source, group or lineage. Only Show fills it.
	Drops []string `json:"drops,omitempty"`
	// Stale names pages that the draft was written from, or supersedes, and that had changed when it was held. StaleNow
	// names those that have changed by now, and Conflicts the artefacts it would overwrite that have. Only Show fills the
	// last two.
	Stale     []Ref `json:"stale,omitempty"`
	StaleNow  []Ref `json:"stale_now,omitempty"`
	Conflicts []Ref `json:"conflicts,omitempty"`
	// LookAlikes says which of the names above (scope, actor, by, decided by) are spelt differently and look the same.
	LookAlikes []string `json:"look_alikes,omitempty"`
}

// Batches ranges over held batches, oldest first; AtMost applies. Decided ones are listed only with all. Scope "" stands for
// all scopes. Damaged batches are left out; the error, an ErrCorrupt, names them after all the others. The writes have no
// text. The loop may approve and reject the batches that it gets.
func (r *Review) Batches(ctx context.Context, scope string, all bool, opts ...ReadOption) iter.Seq2[Held, error] {
	return ranged(ctx, readOpts(opts).part, listedAtOnce, func(cursor string, limit int) ([]Held, string, error) {
		return r.list(ctx, scope, all, cursor, limit)
	})
}

// list reads a part of Batches. A part with an ErrCorrupt has the batches that are not damaged.
func (r *Review) list(ctx context.Context, scope string, all bool, cursor string, limit int) ([]Held, string, error) {
	q := store.ScanQuery{What: store.ScanHeld, All: all, Cursor: cursor, Limit: limit}
	if scope != "" {
		q.Scopes = store.Scopes{scope}
	}
	page, err := r.db.store.Scan(ctx, q)
	if err != nil && !errors.Is(err, store.ErrCorrupt) {
		return nil, "", err
	}
	out := make([]Held, len(page.Held))
	for i := range page.Held {
		out[i] = heldOf(&page.Held[i], false)
		if failed := r.replaces(ctx, &out[i]); failed != nil {
			return nil, "", failed
		}
	}
	return out, page.Next, err
}

// replaces fills in what an approval would overwrite.
func (r *Review) replaces(ctx context.Context, h *Held) error {
	if h.Decided != "" {
		return nil
	}
	for i := range h.Writes {
		l, err := r.db.store.Resolve(ctx, store.Scopes{h.Scope}, Ref{ID: h.Writes[i].ID})
		switch {
		case errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrGone):
		case err != nil:
			return err
		default:
			h.Replaces = append(h.Replaces, Ref{Scope: h.Scope, ID: h.Writes[i].ID, Version: l.Version})
		}
	}
	return nil
}

// drops says what an approval takes from the artefacts that it overwrites. A new version has the fields of its put alone.
func (r *Review) drops(ctx context.Context, h *Held) error {
	for i := range h.Writes {
		at := slices.IndexFunc(h.Replaces, func(ref Ref) bool { return ref.ID == h.Writes[i].ID })
		if at < 0 {
			continue
		}
		was, _, err := r.db.headOf(ctx, store.Scopes{h.Scope}, h.Replaces[at])
		if err != nil {
			return err
		}
		if lost := dropped(&was.Artefact, &h.Writes[i].Artefact); len(lost) > 0 {
			h.Drops = append(h.Drops, h.Replaces[at].String()+": "+strings.Join(lost, ", "))
		}
	}
	return nil
}

// dropped lists the fields that an artefact has and its next version has not.
func dropped(was, next *Artefact) (out []string) {
	note := func(had, has bool, what string) {
		if had && !has {
			out = append(out, what)
		}
	}
	note(!was.ExpiresAt.IsZero(), !next.ExpiresAt.IsZero(), "expires "+was.ExpiresAt.UTC().Format(time.RFC3339))
	note(was.Subject != "", next.Subject != "", "subject "+was.Subject)
	note(was.Pinned, next.Pinned, "pinned")
	note(was.Source != "", next.Source != "", "source "+was.Source)
	note(was.Group != "", next.Group != "", "group "+was.Group)
	note(len(was.DerivedFrom) > 0, len(next.DerivedFrom) > 0, "its lineage")
	for _, tag := range was.Tags {
		note(true, slices.Contains(next.Tags, tag), "tag "+tag)
	}
	for _, key := range slices.Sorted(maps.Keys(was.Meta)) {
		_, has := next.Meta[key]
		note(true, has, "meta "+key+"="+was.Meta[key])
	}
	return out
}

// heldOf is a held batch as the operator sees it, with or without the texts of its drafts.
func heldOf(h *store.HeldBatch, texts bool) Held {
	out := Held{
		ID: h.Batch.ID.String(), Scope: h.Batch.Scope, Actor: h.Batch.Actor, Trace: h.Batch.Trace, Reason: h.Reason,
		Confidence: h.Batch.Leaf.Confidence, By: h.Batch.Leaf.By, Note: h.Batch.Leaf.Note, At: h.At.UTC(), Decided: h.Decided,
		DecidedBy: h.By, DecidedNote: h.Note, Deletes: h.Batch.Deletes, Stale: h.Stale,
	}
	out.LookAlikes = rendering.LookAlikes([2]string{"scope", out.Scope}, [2]string{"actor", out.Actor}, [2]string{"judge", out.By}, [2]string{"reviewer", out.DecidedBy})
	for i := range h.Batch.Puts {
		v := draftOf(&h.Batch.Puts[i], h.Batch.Scope, h.Batch.Actor)
		for j := range v.Pages {
			if !texts {
				v.Text, v.Pages[j].Text = "", ""
			}
		}
		out.Writes = append(out.Writes, *v)
	}
	return out
}

// Show returns one held batch, with the texts of its drafts and what has changed around it since. It judges nothing:
// Approve finds conflicts and staleness again, in the same step that commits. It leaves a manifest: a recall by the
// operator, or by WithActor, in the scope of the batch, whose Parent is the batch.
func (r *Review) Show(ctx context.Context, id string) (*Held, error) {
	h, err := r.load(ctx, id)
	if err != nil {
		return nil, err
	}
	out := heldOf(h, true)
	leaf := &manifest.Record{Type: manifest.TypeRecall, Parent: out.ID, Action: "review", LSN: r.db.store.Mark().LSN}
	for i := range out.Writes {
		leaf.Tokens += out.Writes[i].Tokens
	}
	if err := r.db.Scope(out.Scope, WithActor(r.actor)).emit(ctx, leaf); err != nil {
		return nil, err
	}
	if h.Decided != "" {
		return &out, nil
	}
	if err := errors.Join(r.replaces(ctx, &out), r.drops(ctx, &out)); err != nil {
		return nil, err
	}
	for _, e := range h.Batch.Expect {
		l, err := r.db.store.Resolve(ctx, store.Scopes{e.Ref.Scope}, Ref{ID: e.Ref.ID})
		if now := l.LSN; err == nil && now != e.LSN || err != nil && e.LSN != 0 {
			out.Conflicts = append(out.Conflicts, e.Ref)
		}
	}
	for _, c := range h.Batch.Context {
		if !r.current(ctx, c) {
			out.StaleNow = append(out.StaleNow, Ref{Scope: c.Scope, ID: c.ID, Page: c.Page})
		}
	}
	return &out, nil
}

// current reports whether a page that the draft was written from is still what its artefact says.
func (r *Review) current(ctx context.Context, c store.Seen) bool {
	l, err := r.db.store.Resolve(ctx, store.Scopes{c.Scope}, Ref{ID: c.ID})
	if err != nil || l.By != 0 || l.Expires != 0 && l.Expires <= codec.Micros(r.db.opts.Clock()) {
		return false
	}
	for _, k := range l.Pages {
		if k.Num == c.Num {
			return true
		}
	}
	return false
}

// load reads a held batch. If gc dropped it, the manifest still tells that it existed, which makes the error ErrGone
// instead of ErrNotFound.
func (r *Review) load(ctx context.Context, id string) (*store.HeldBatch, error) {
	bid, err := parseBatchID(id)
	if err != nil {
		return nil, err
	}
	h, err := r.db.store.Held(ctx, bid)
	if errors.Is(err, store.ErrNotFound) && !errors.Is(err, store.ErrErased) { // that says it
		leaves, _ := r.db.Manifests().ByTrace(ctx, bid.String())
		if slices.ContainsFunc(leaves, func(l *manifest.Record) bool { return l.Type == manifest.TypeHeld && l.Trace == bid.String() }) {
			err = fmt.Errorf("%w: held batch %s was approved or rejected, and dropped by gc; the manifest has its trace", store.ErrGone, bid)
		}
	}
	return &h, err
}

// Approval is a person's decision to commit a held batch.
type Approval struct {
	By   string // who approves; not the actor who wrote it nor its scope, in any spelling
	Note string
	// HumanVerified raises the provenance of what is written to the highest.
	HumanVerified bool
	// Stale approves although pages that the draft was written from have changed since. Show names them.
	Stale bool
}

// Approve commits a held batch. Conflicts and staleness are judged again, now: ErrConflict, ErrStaleContext. Approving
// twice returns the first outcome. Approving a rejected batch is ErrReviewed.
func (r *Review) Approve(ctx context.Context, id string, a Approval) (store.Outcome, error) {
	return r.decide(ctx, id, store.ActApprove, a)
}

// Reject records that a held batch will not be committed. The batch keeps its content until gc.
func (r *Review) Reject(ctx context.Context, id, by, note string) (store.Outcome, error) {
	return r.decide(ctx, id, store.ActReject, Approval{By: by, Note: note})
}

// decide commits a decision as a batch of its own. Its id is new each time; the store recognises a repeated decision by
// the held batch that it names.
func (r *Review) decide(ctx context.Context, id string, action store.Action, a Approval) (store.Outcome, error) {
	if err := rendering.CheckName("by", a.By); err != nil {
		return store.Outcome{}, err
	}
	if err := checkVerdict(a.By, a.Note); err != nil {
		return store.Outcome{}, err
	}
	h, err := r.load(ctx, id)
	if err != nil {
		return store.Outcome{}, err
	}
	if action == store.ActApprove && rendering.IsWriter(a.By, h.Batch.Actor, h.Batch.Scope) {
		return store.Outcome{}, fmt.Errorf("%w: %s wrote %s", store.ErrSelfCertified, a.By, id)
	}
	out, err := r.db.commit(ctx, store.Batch{
		From: h.Batch.ID, Scope: h.Batch.Scope, Action: action, OnStale: store.FailStale, Raise: a.HumanVerified,
		Force: a.Stale, Leaf: manifest.Record{By: a.By, Note: a.Note},
	})
	var c *store.ConflictError
	if errors.As(err, &c) {
		return out, &store.ConflictError{Ref: c.Ref, Have: c.Have, Now: c.Now, Held: true}
	}
	return out, err
}
