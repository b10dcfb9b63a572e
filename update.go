package ctxpage

import (
	"context"
	"errors"
	"fmt"

	"github.com/ctxpage/ctxpage/internal/conversation"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// Writes that the host vouches for. They pass no gate, and their leaf says "vouched by the host". Update runs a managed
// transaction: it commits when its function returns nil, and runs the function again after a conflict. Put and Delete
// are updates of one artefact.

// Put writes one artefact. It is the trusted path: the host vouches for the artefact, and the commit gate does not
// apply. A gated handle returns ErrGated. For what a model says use Begin or Resume, and Commit.
//
// Putting an ID again makes its next version, with the fields of this put alone: an expiry, subject, tags, metadata or pin
// of the version before are kept only if they are given again. Putting the same content again is a touch and writes nothing, unless it
// supersedes an artefact that was put again since: that artefact is then superseded again. The returned reference names
// the current version.
func (s *Scope) Put(ctx context.Context, a Artefact) (Ref, error) {
	var last *Txn
	reads := a.Source != "" || len(a.DerivedFrom)+len(a.Supersedes) > 0
	err := s.update(ctx, reads, func(tx *Txn) error {
		last = tx
		return tx.Put(ctx, a)
	})
	if err != nil {
		return Ref{}, err
	}
	return last.Outcome().Refs[0], nil
}

// Delete writes a tombstone. It is the host's, like Put. The artefact is not served any more; its older versions stay
// readable by reference until gc drops them.
//
// ErrNotFound when the scope itself has no such artefact: an ancestor's artefact cannot be deleted from below.
func (s *Scope) Delete(ctx context.Context, id string) error {
	var last *Txn
	err := s.Update(ctx, func(tx *Txn) error {
		last = tx
		return tx.Delete(ctx, id)
	})
	if err == nil && len(last.Outcome().Refs) == 0 { // another caller deleted it first
		return fmt.Errorf("%w: %s was deleted meanwhile", store.ErrNotFound, Ref{Scope: s.name, ID: id})
	}
	return err
}

// Update runs fn in a transaction that the host vouches for, and commits it without a gate. If an artefact that fn read
// and wrote has changed meanwhile, Update runs fn again on the new state, up to 10 times, so fn must have no effects
// elsewhere. An error or a panic of fn rolls back.
func (s *Scope) Update(ctx context.Context, fn func(tx *Txn) error, opts ...TxnOption) error {
	return s.update(ctx, true, fn, opts...)
}

// update is Update. What reads nothing of the store needs no ticket of it, which a client would have to ask for.
func (s *Scope) update(ctx context.Context, reads bool, fn func(tx *Txn) error, opts ...TxnOption) error {
	if err := s.hostOnly("a write without a verdict"); err != nil {
		return err
	}
	for try := 1; ; try++ {
		tx, err := s.vouched(opts...)
		if err != nil {
			return err
		}
		err = tx.run(ctx, reads, fn)
		if !errors.Is(err, store.ErrConflict) || try == updateTries || ctx.Err() != nil {
			return err
		}
	}
}

// updateTries bounds how often Update runs its function while other writers win.
const updateTries = 10

// run calls fn and commits. The ticket is released also when fn panics.
func (tx *Txn) run(ctx context.Context, reads bool, fn func(tx *Txn) error) (err error) {
	if reads {
		if tx.reader, err = tx.s.db.hold(ctx); err != nil {
			return err
		}
	}
	defer tx.end() // also when fn panics
	if err := fn(tx); err != nil {
		return err
	}
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if err := tx.whole(); err != nil {
		return err
	}
	b := tx.batch()
	b.OnStale = store.AllowStale
	b.Leaf = manifest.Record{Type: manifest.TypeCommit, By: tx.by, Note: tx.why, Reason: "vouched by the host"}
	if err := tx.beginSessions(ctx, &b); err != nil {
		return err
	}
	return tx.finish(ctx, b)
}

// beginSessions lists the sessions that begin with turns of this transaction: a message in a group is a turn of the session of that
// name. Whoever lists the session first wins; the other writer's commit conflicts, and Update runs it again.
func (tx *Txn) beginSessions(ctx context.Context, b *store.Batch) error {
	begun := map[string]bool{}
	for i := range b.Puts {
		a := &b.Puts[i].Artefact
		if a.Kind != store.KindMessage || a.Role == "" || a.Group == "" || begun[a.Group] {
			continue
		}
		begun[a.Group] = true
		row := conversation.NewSession(tx.s.name, a.Group, tx.s.db.opts.Clock())
		have, err := tx.s.db.store.State(ctx, row.Key)
		if err != nil {
			return err
		}
		if have.Value == nil {
			b.State = append(b.State, row)
			b.ExpectState = append(b.ExpectState, store.StatePre{Key: row.Key, LSN: have.LSN})
		}
	}
	return nil
}
