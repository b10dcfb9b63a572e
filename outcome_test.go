package ctxpage_test

import (
	"testing"
	"time"

	. "github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
)

// The id of a batch answers to the batch it was made for, and to nobody else: not to another scope, and not to another
// content, which get one and the same error. It holds for what was applied and for what was held, and after a reopen.
func TestBatchIDsAnswerToTheirBatch(t *testing.T) {
	clk := newClock()
	opts := Options{Clock: clk.now}
	db := open(t, opts)
	commit := func(scope, id, text string, v Verdict) (store.Outcome, error) {
		tx := begin(t, db.Scope(scope), WithID(id))
		require.NoError(t, tx.Put(ctx, Artefact{ID: "note", Text: text, TTL: time.Hour}))
		err := tx.Commit(ctx, v)
		return tx.Outcome(), err
	}
	applied, held := begin(t, db.Scope("acme/a")).ID(), begin(t, db.Scope("acme/a")).ID()
	first, err := commit("acme/a", applied, "the secret", good)
	require.NoError(t, err)
	_, err = commit("acme/a", held, "the draft", Verdict{})
	heldAs(t, err, ReasonNoVerdict)
	for range 2 {
		for _, id := range []string{applied, held} {
			_, other := commit("acme/b", id, "the secret", good)
			_, same := commit("acme/b", id, "the draft", good)
			_, content := commit("acme/a", id, "something else", good)
			var e *store.InvalidError
			for _, err := range []error{other, same, content} {
				require.ErrorAs(t, err, &e)
				require.Equal(t, other.Error(), err.Error(), "the error tells whose the id is")
			}
		}
		_, err = db.Scope("acme/b").Get(ctx, "note")
		require.ErrorIs(t, err, ErrNotFound)
		again, err := commit("acme/a", applied, "the secret", good)
		require.NoError(t, err, "the batch itself is not answered")
		require.Equal(t, first, again)
		clk.add(time.Minute) // a TTL counts from another moment then
		db = reopen(t, db, opts)
	}
}

// A trace that names something already names no assembly again, in no scope, and says nothing of what it names.
func TestATraceNamesOneAssembly(t *testing.T) {
	db := open(t, Options{})
	a, b := db.Scope("acme/a"), db.Scope("acme/b")
	put(t, a, Artefact{ID: "policy", Text: "refunds take fourteen days"})
	put(t, b, Artefact{ID: "policy", Text: "refunds take thirty days"})
	mine := begin(t, a).ID()
	q := Query{Text: "refunds", Budget: 500, Trace: mine}
	_, err := a.Assemble(ctx, q)
	require.NoError(t, err)

	_, own := a.Assemble(ctx, q)
	require.ErrorIs(t, own, ErrInvalid)
	_, theirs := b.Assemble(ctx, q)
	require.ErrorIs(t, theirs, ErrInvalid)
	require.Equal(t, own.Error(), theirs.Error())
	tx := begin(t, b)
	_, err = tx.Assemble(ctx, q)
	require.ErrorIs(t, err, ErrInvalid)
	_, err = tx.Assemble(ctx, Query{Text: "refunds", Budget: 500, Trace: tx.Trace()})
	require.NoError(t, err, "a transaction's own trace is free until its first assembly")

	db = reopen(t, db, Options{})
	_, err = db.Admin().Checkpoint(ctx)
	require.NoError(t, err)
	_, err = db.Scope("acme/b").Assemble(ctx, q)
	require.ErrorIs(t, err, ErrInvalid)
	leaves, err := db.Manifests().ByTrace(ctx, mine)
	require.NoError(t, err)
	require.Len(t, leaves, 1)
}
