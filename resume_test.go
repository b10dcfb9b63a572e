package ctxpage_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	. "github.com/ctxpage/ctxpage"
)

// A text written from an old version of a page stays one, whatever is read under its trace afterwards.
func TestStaleContextIsNotLaundered(t *testing.T) {
	resume := func(t *testing.T, s *Scope, trace string) *Txn {
		t.Helper()
		tx, err := s.Resume(ctx, trace)
		require.NoError(t, err)
		return tx
	}
	reads := map[string]func(t *testing.T, tx *Txn){
		"nothing": func(*testing.T, *Txn) {},
		"get": func(t *testing.T, tx *Txn) {
			v, err := tx.Get(ctx, "policy")
			require.NoError(t, err)
			require.Contains(t, v.Text, "500")
		},
		"search": func(t *testing.T, tx *Txn) {
			hits, err := tx.Search(ctx, "refunds", 5)
			require.NoError(t, err)
			require.NotEmpty(t, hits)
		},
		"assemble": func(t *testing.T, tx *Txn) {
			a, err := tx.Assemble(ctx, Query{Text: "refunds", Budget: 1000})
			require.NoError(t, err)
			require.Contains(t, a.Text(), "500")
		},
		"the past, then now": func(t *testing.T, tx *Txn) {
			_, err := tx.Assemble(ctx, Query{Text: "refunds", Budget: 1000, AsOf: 1})
			require.NoError(t, err)
			_, err = tx.Get(ctx, "policy")
			require.NoError(t, err)
		},
	}
	for name, read := range reads {
		for _, where := range []string{"acme", "acme/support"} { // the page is the scope's own, or an ancestor's
			t.Run(name+" in "+where, func(t *testing.T) {
				db := open(t, Options{})
				s := db.Scope(where, WithActor("agent"))
				put(t, db.Scope("acme"), Artefact{ID: "policy", Text: "refunds up to 400"})
				a := assemble(t, s, Query{Text: "refunds"})
				put(t, db.Scope("acme"), Artefact{ID: "policy", Text: "refunds up to 500"})

				tx := resume(t, s, a.Trace)
				read(t, tx)
				require.NoError(t, tx.Rollback())
				child := resume(t, s, a.Trace)
				read(t, child)
				require.NoError(t, child.Put(ctx, Artefact{ID: "in-the-child", Text: "up to 400 it is"}))
				heldAs(t, child.Commit(ctx, good), ReasonStaleContext)
				second := resume(t, db.Scope(where, WithActor("another")), tx.Trace())
				read(t, second)
				require.NoError(t, second.Rollback())

				db = reopen(t, db, Options{})
				last := resume(t, db.Scope(where, WithActor("agent")), a.Trace)
				require.NoError(t, last.Put(ctx, Artefact{ID: "answer", Text: "up to 400, I say"}))
				heldAs(t, last.Commit(ctx, good), ReasonStaleContext)
			})
		}
	}
}

// The scope's own page that was seen is not written over either, not even when it is gone when it is read again.
func TestOldestVersionIsTheOneReplaced(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, s *Scope){
		"put again": func(t *testing.T, s *Scope) { put(t, s, Artefact{ID: "note", Text: "refunds of another"}) },
		"deleted":   func(t *testing.T, s *Scope) { require.NoError(t, s.Delete(ctx, "note")) },
	} {
		t.Run(name, func(t *testing.T) {
			db := open(t, Options{})
			s := db.Scope("acme", WithActor("agent"))
			put(t, s, Artefact{ID: "note", Text: "refunds of mine"})
			tx := begin(t, s)
			_, err := tx.Get(ctx, "note")
			require.NoError(t, err)
			change(t, s)
			_, _ = tx.Get(ctx, "note")
			require.NoError(t, tx.Put(ctx, Artefact{ID: "note", Text: "refunds of mine, and more"}))
			require.ErrorIs(t, tx.Commit(ctx, good), ErrConflict)
		})
	}
}

// Only what the assembly served is its context: what somebody read under its trace later does not hold an answer up.
func TestReadsUnderATraceAreNotItsContext(t *testing.T) {
	db := open(t, Options{})
	s := db.Scope("acme", WithActor("agent"))
	put(t, s, Artefact{ID: "policy", Text: "refunds up to 400"})
	put(t, s, Artefact{ID: "weather", Text: "it rains"})
	a := assemble(t, s, Query{Text: "refunds", TopK: 1, Kinds: []Kind{KindFact}})
	tx, err := s.Resume(ctx, a.Trace)
	require.NoError(t, err)
	put(t, s, Artefact{ID: "later", Text: "parcels"})
	_, err = tx.Get(ctx, "later")
	require.NoError(t, err)
	require.NoError(t, tx.Rollback())
	put(t, s, Artefact{ID: "later", Text: "parcels of another sort"})
	tx, err = s.Resume(ctx, a.Trace)
	require.NoError(t, err)
	require.NoError(t, tx.Put(ctx, Artefact{ID: "answer", Text: "up to 400"}))
	require.NoError(t, tx.Commit(ctx, good))
}

// A draft in a context brings the context it was written from: an answer to it is as old as that.
func TestDraftsBringTheirContext(t *testing.T) {
	db := open(t, Options{})
	s := db.Scope("acme", WithActor("agent"))
	put(t, s, Artefact{ID: "policy", Text: "refunds up to 400"})
	a := assemble(t, s, Query{Text: "refunds"})
	tx, err := s.Resume(ctx, a.Trace)
	require.NoError(t, err)
	require.NoError(t, tx.Put(ctx, Artefact{ID: "draft", Text: "refunds end at 400"}))
	put(t, s, Artefact{ID: "policy", Text: "refunds up to 500"})
	b, err := tx.Assemble(ctx, Query{Text: "refunds", Budget: 1000})
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"policy", "draft"}, ids(b))
	require.NoError(t, tx.Rollback())
	tx, err = s.Resume(ctx, b.Trace)
	require.NoError(t, err)
	require.NoError(t, tx.Put(ctx, Artefact{ID: "answer", Text: "they end at 400"}))
	heldAs(t, tx.Commit(ctx, good), ReasonStaleContext)

	c := assemble(t, s, Query{Text: "refunds"}) // without the draft: fresh
	tx, err = s.Resume(ctx, c.Trace)
	require.NoError(t, err)
	require.NoError(t, tx.Put(ctx, Artefact{ID: "answer", Text: "they end at 500"}))
	require.NoError(t, tx.Commit(ctx, good))
}

// A transaction that read without an assembly is resumed with what it read.
func TestResumeOfReads(t *testing.T) {
	db := open(t, Options{})
	s := db.Scope("acme", WithActor("agent"))
	put(t, s, Artefact{ID: "policy", Text: "refunds up to 400"})
	tx := begin(t, s)
	_, err := tx.Get(ctx, "policy")
	require.NoError(t, err)
	put(t, s, Artefact{ID: "policy", Text: "refunds up to 500"})
	again, err := s.Resume(ctx, tx.Trace())
	require.NoError(t, err)
	_, err = again.Get(ctx, "policy")
	require.NoError(t, err)
	again, err = s.Resume(ctx, tx.Trace())
	require.NoError(t, err)
	require.NoError(t, again.Put(ctx, Artefact{ID: "answer", Text: "up to 400"}))
	heldAs(t, again.Commit(ctx, good), ReasonStaleContext)
}
