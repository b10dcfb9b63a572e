package ctxpage

import (
	"context"
	"errors"
	"fmt"

	"github.com/ctxpage/ctxpage/manifest"
)

// Put writes one artefact. It is the host's: he vouches for it, and there is no gate. What a model says goes through
// Begin or Resume and Commit; a gated handle returns ErrGated here. Putting an ID again makes its next version;
// putting the same content again is a touch, which writes nothing, unless it supersedes an artefact that stands: one that
// was put again since is replaced anew. The reference names the version that is current now.
func (s *Scope) Put(ctx context.Context, a Artefact) (Ref, error) {
	var last *Txn
	err := s.Update(ctx, func(tx *Txn) error {
		last = tx
		return tx.Put(ctx, a)
	})
	if err != nil {
		return Ref{}, err
	}
	return last.Outcome().Refs[0], nil
}

// Delete is the host's, as Put is. It writes a tombstone: the artefact is not served any more, older versions stay readable by reference,
// until gc.
// ErrNotFound when the scope itself has none; an ancestor's artefact cannot be deleted from below.
func (s *Scope) Delete(ctx context.Context, id string) error {
	var last *Txn
	err := s.Update(ctx, func(tx *Txn) error {
		last = tx
		return tx.Delete(ctx, id)
	})
	if err == nil && len(last.Outcome().Refs) == 0 { // of two who delete at once, one did
		return fmt.Errorf("%w: %s was deleted meanwhile", ErrNotFound, Ref{Scope: s.name, ID: id})
	}
	return err
}

// Update runs fn in a transaction the host vouches for, and commits it: there is no gate. If an artefact that fn read
// and wrote has changed meanwhile, fn runs again on the new state, up to 10 times: it must have no effects elsewhere. An
// error of fn, or a panic, rolls back.
func (s *Scope) Update(ctx context.Context, fn func(tx *Txn) error, opts ...TxnOption) error {
	if err := s.hostOnly("a write without a verdict"); err != nil {
		return err
	}
	for try := 1; ; try++ {
		tx, err := s.newTxn(opts)
		if err != nil {
			return err
		}
		tx.managed = true
		err = tx.run(ctx, fn)
		if !errors.Is(err, ErrConflict) || try == updateTries || ctx.Err() != nil {
			return err
		}
	}
}

// updateTries is how often Update runs its function when others keep winning.
const updateTries = 10

func (tx *Txn) run(ctx context.Context, fn func(tx *Txn) error) error {
	held, err := tx.s.db.hold(ctx)
	if err != nil {
		return err
	}
	tx.reader = held
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
	b.OnStale = AllowStale
	b.Leaf = manifest.Record{Type: manifest.TypeCommit, Reason: "vouched by the host"}
	return tx.finish(ctx, b)
}
