package ctxpage

import (
	"context"
	"errors"
	"fmt"

	"github.com/ctxpage/ctxpage/engine"
	"github.com/ctxpage/ctxpage/internal/shown"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// keepDrafts stores the drafts that stand in the context, before its manifest is written. A crash in between leaves a row
// that no manifest names.
func (a *assembling) keepDrafts(ctx context.Context, leaf *manifest.Record) error {
	var drafts shown.Drafts
	for _, it := range a.placed {
		if it.own != nil {
			drafts.Add(it.own.put, it.own.page)
		}
	}
	row, ok, err := drafts.Row(leaf, a.s.actor)
	if !ok || err != nil || a.s.db.opts.ReadOnly {
		return err
	}
	id, err := a.s.db.newID()
	if err != nil {
		return err
	}
	_, err = a.s.db.store.Commit(ctx, store.Batch{
		ID: id, Trace: leaf.Trace, Scope: a.s.name, Actor: a.s.actor, Now: a.s.db.opts.Clock(), OnStale: AllowStale, State: []store.StateRow{row},
		Leaf: manifest.Record{Type: manifest.TypeCommit, Action: actionDrafts, Reason: "shown in an assembly"},
	})
	return err
}

// Unchanged says whether the draft of an artefact says what its current version says already, so that committing it now
// would make no version. trust is the provenance it would get, as an operator may give another; 0: the draft's own. It
// writes nothing and leaves no manifest. What a commit now would be refused for before anything is looked at is the error
// here too: a write that failed, a supersession of nothing.
func (tx *Txn) Unchanged(ctx context.Context, id string, trust Provenance) (bool, error) {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if tx.state == txnDone {
		return false, ErrTxnDone
	}
	if err := tx.whole(); err != nil {
		return false, err
	}
	w := tx.writes[id]
	if w == nil {
		return false, fmt.Errorf("%w: the transaction has no draft of %q", ErrNotFound, id)
	}
	scopes := store.Scopes{tx.s.name}
	l, err := tx.s.db.store.Resolve(ctx, scopes, Ref{Scope: tx.s.name, ID: id})
	if errors.Is(err, ErrNotFound) || err == nil && l.By != 0 {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	loaded, err := tx.s.db.store.Load(ctx, scopes, l.Pages[:1], store.WantHead)
	if err == nil {
		err = loaded[0].Err
	}
	if err != nil {
		return false, err
	}
	h := shown.DraftHead(w, tx.s.name, tx.s.actor)
	h.Source = w.Source
	if trust != 0 {
		h.Provenance = trust
	}
	return engine.Repeats(loaded[0].Head, h, w), nil
}
