package ops

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/ctxpage/ctxpage/internal/conversation"
	"github.com/ctxpage/ctxpage/internal/directivelog"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// Removed counts what was removed with a session.
type Removed struct {
	DryRun bool `json:"dry_run,omitempty"`
	Turns  int  `json:"turns"`
	Forms  int  `json:"forms"` // shorter forms of its turns
	Rows   int  `json:"rows"`  // of state: what was decided and noted about it
}

// RemoveSession deletes a conversation: its turns with their shorter forms, and the decisions and notes about them. Old
// versions of the turns can be read by reference until gc; to remove them from the files, erase. ErrNotFound: there is no
// such session. ErrConflict: it is being written to.
func (k *Retention) RemoveSession(ctx context.Context, scope, id, by string, dryRun bool) (Removed, error) {
	if err := store.CheckID("by", by); err != nil {
		return Removed{}, err
	}
	rep, err := k.removeSession(ctx, scope, id, dryRun, func(b store.Batch) error {
		whole, err := operator{k.Store, k.Now, k.NewID}.batch(scope, manifest.Record{Type: manifest.TypeCommit, Action: "remove session", Session: id, By: by})
		if err != nil {
			return err
		}
		whole.Deletes, whole.Expect, whole.State, whole.ExpectState = b.Deletes, b.Expect, b.State, b.ExpectState
		_, err = k.Store.Commit(context.WithoutCancel(ctx), whole)
		return err
	})
	if err == nil && rep.Turns+rep.Rows == 0 {
		err = fmt.Errorf("%w: scope %s has no session %q", store.ErrNotFound, scope, id)
	}
	if err == nil && !dryRun && k.Swept != nil {
		k.Swept(ctx)
	}
	return rep, err
}

// removeSession commits the removal of a session in parts: turns first, their state rows last, so that a crash between
// two parts leaves a session that can be removed.
func (k *Retention) removeSession(ctx context.Context, scope, id string, dryRun bool, commit func(store.Batch) error) (rep Removed, err error) {
	rep.DryRun = dryRun
	changed, err := k.Store.State(ctx, conversation.ChangeRowKey+scope+"\x00"+id)
	if err != nil {
		return rep, err
	}
	turns, forms, err := k.turns(ctx, scope, id)
	if err != nil {
		return rep, err
	}
	rows, err := k.sessionRows(ctx, scope, id)
	if err != nil {
		return rep, err
	}
	rep.Turns, rep.Forms, rep.Rows = len(turns), len(forms), len(rows)
	if dryRun {
		return rep, nil
	}
	still := []store.StatePre{{Key: changed.Key, LSN: changed.LSN}}
	for part := range slices.Chunk(append(turns, forms...), partWrites) {
		b := store.Batch{Scope: scope, ExpectState: still}
		for _, h := range part {
			b.Deletes = append(b.Deletes, h.ID)
			b.Expect = append(b.Expect, store.Precondition{Ref: store.Ref{Scope: scope, ID: h.ID}, LSN: h.LSN})
		}
		if err := commit(b); err != nil {
			return rep, err
		}
	}
	for part := range slices.Chunk(rows, 16*partWrites) {
		b := store.Batch{Scope: scope, State: part}
		if slices.ContainsFunc(part, func(r store.StateRow) bool { return r.Key == changed.Key }) || changed.LSN == 0 {
			b.ExpectState = still
		}
		if err := commit(b); err != nil {
			return rep, err
		}
	}
	return rep, nil
}

// turns are the live turns of a session, and the shorter forms that were made of nothing else.
func (k *Retention) turns(ctx context.Context, scope, id string) (turns, forms []*store.Head, err error) {
	known := map[string]bool{}
	err = k.heads(ctx, store.ScanQuery{What: store.ScanGroup, Scopes: store.Scopes{scope}, Group: id}, func(h *store.Head) {
		if h.Kind == store.KindMessage && h.Scope == scope && !known[h.ID] {
			known[h.ID] = true
			turns = append(turns, h)
		}
	})
	if err != nil {
		return nil, nil, err
	}
	err = k.heads(ctx, store.ScanQuery{What: store.ScanArtefacts, Scopes: store.Scopes{scope}, Prefix: directivelog.Reserved + "form/"}, func(h *store.Head) {
		others := slices.ContainsFunc(h.DerivedFrom, func(r store.Ref) bool { return r.Scope != scope || !known[r.ID] })
		if strings.HasPrefix(h.ID, directivelog.Reserved+"form/") && len(h.DerivedFrom) > 0 && !others {
			forms = append(forms, h)
		}
	})
	return turns, forms, err
}

func (k *Retention) heads(ctx context.Context, q store.ScanQuery, fn func(*store.Head)) error {
	q.Limit = scanRows
	for page, err := range format.Pages(ctx, k.Store, q) {
		if err != nil {
			return err
		}
		for _, h := range page.Heads {
			fn(h)
		}
	}
	return nil
}

// noteRow begins the keys of what was recorded of a session.
const noteRow = "session/note/"

// sessionRows are the keys of the rows of a session; the row that guards it is the last.
func (k *Retention) sessionRows(ctx context.Context, scope, id string) (rows []store.StateRow, err error) {
	of := scope + "\x00" + id
	for _, kind := range []string{conversation.TurnRowKey, conversation.PlaceRowKey, conversation.PassRowKey, noteRow, conversation.WatchRowKey, conversation.SessionRowKey, conversation.ChangeRowKey} {
		err := format.Walk(ctx, k.Store, kind+of, func(r store.StateRow) error {
			if rest := strings.TrimPrefix(r.Key, kind+of); rest == "" || rest[0] == 0 { // else another session begins like this one
				rows = append(rows, store.StateRow{Key: r.Key})
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// Purge selects held batches to drop.
type Purge struct {
	Scope string // this one and those below it; "": all
	Older Age    // only those held longer ago; 0: all
	// Waiting also rejects and drops batches that await review.
	Waiting bool
	By      string
	DryRun  bool
}

// PurgeReviews drops decided held batches, or with Waiting all held batches. The audit keeps their leaves.
func (k *Retention) PurgeReviews(ctx context.Context, p Purge) (*RunReport, error) {
	r := &run{k: k, ctx: ctx, o: RunOptions{Scope: p.Scope, By: p.By, DryRun: p.DryRun, Progress: func(string, uint64, uint64) {}}, now: k.Now(), at: map[[2]string]int{}}
	r.report = RunReport{DryRun: p.DryRun, Items: []RunItem{}}
	err := store.CheckID("by", p.By)
	if err == nil {
		r.id, err = k.NewID()
	}
	if err == nil {
		r.report.Trace = r.id.String()
		err = r.purge(p)
	}
	return &r.report, err
}

func (r *run) purge(p Purge) error {
	job := store.GCJob{By: p.By, Why: "review purge", Reviews: []ulid.ULID{}}
	end := r.now.Add(-time.Duration(max(p.Older, 0)))
	for page, err := range format.Pages(r.ctx, r.k.Store, store.ScanQuery{What: store.ScanHeld, All: true, Limit: scanRows}) {
		if err != nil {
			return err
		}
		for i := range page.Held {
			h := &page.Held[i]
			if !below(h.Batch.Scope, p.Scope) || h.At.After(end) || h.Decided == "" && !p.Waiting {
				continue
			}
			what := "decided"
			if h.Decided == "" {
				what = "held"
				if err := r.rejectUnless(p.DryRun, h); errors.Is(err, store.ErrReviewed) {
					r.report.Changed++
					continue
				} else if err != nil {
					return err
				}
			}
			job.Reviews = append(job.Reviews, h.Batch.ID)
			r.took(h.Batch.Scope, what, Rule{Age: p.Older, From: p.Scope}, []string{h.Batch.ID.String()})
		}
	}
	if p.DryRun || len(job.Reviews) == 0 {
		return nil
	}
	_, err := r.k.Store.Maintain(r.ctx, store.Job{Kind: store.JobGC, GC: &job}, nil)
	return err
}

func (r *run) rejectUnless(dry bool, h *store.HeldBatch) error {
	if dry {
		return nil
	}
	return r.reject(h, "review purge")
}
