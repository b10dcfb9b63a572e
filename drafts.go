package ctxpage

import (
	"context"
	"errors"
	"fmt"

	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/internal/rendering"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// A context may show drafts of its transaction, which have no page number and are not in the store. A replay, a review
// and a Resume need their texts, so the drafts that a context shows are stored as one state row before the leaf that
// names them is written. The row belongs to the assembly: it shares its trace, and gc drops it with the manifests that
// are old enough. Storing a draft here does not commit it: no read finds it.

// keepDrafts stores the drafts of a context before its manifest. A crash in between leaves a row that no manifest
// names.
func (a *assembling) keepDrafts(ctx context.Context, leaf *manifest.Record) error {
	var drafts rendering.Drafts
	for _, it := range a.placed {
		if it.own != nil {
			drafts.Add(it.own.put, it.own.page)
		}
	}
	row, ok := drafts.Row(leaf, a.s.actor)
	if !ok || a.s.db.opts.ReadOnly {
		return nil
	}
	_, err := a.s.db.commit(ctx, store.Batch{
		Trace: leaf.Trace, Scope: a.s.name, Actor: a.s.actor, OnStale: store.AllowStale, State: []store.StateRow{row},
		Leaf: manifest.Record{Type: manifest.TypeCommit, Action: actionDrafts, Reason: "shown in an assembly"},
	})
	return err
}

// Unchanged reports whether the draft of an artefact equals its current version, so that committing it now would make
// no new version. trust is the provenance that the commit would set, as an operator may; 0: the draft's own. Unchanged
// writes nothing and leaves no manifest. It returns the errors for which Commit would refuse the transaction at once: a
// failed write, or a Supersedes of an unknown artefact.
func (tx *Txn) Unchanged(ctx context.Context, id string, trust store.Provenance) (bool, error) {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if tx.done {
		return false, store.ErrTxnDone
	}
	if err := tx.whole(); err != nil {
		return false, err
	}
	w := tx.writes[id]
	if w == nil {
		return false, fmt.Errorf("%w: the transaction has no draft of %q", store.ErrNotFound, id)
	}
	scopes := store.Scopes{tx.s.name}
	now, l, err := tx.s.db.headOf(ctx, scopes, Ref{Scope: tx.s.name, ID: id})
	if errors.Is(err, store.ErrNotFound) || err == nil && l.By != 0 {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	h := rendering.DraftHead(w, tx.s.name, tx.s.actor)
	h.Source = w.Source
	if trust != 0 {
		h.Provenance = trust
	}
	return format.Repeats(now, h, w), nil
}
