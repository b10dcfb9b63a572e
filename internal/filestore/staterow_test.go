package filestore_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"time"

	. "github.com/ctxpage/ctxpage"

	"github.com/ctxpage/ctxpage/internal/engine"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
)

func commitState(ctx context.Context, db *DB, rows ...store.StateRow) error {
	id, err := newID()
	if err != nil {
		return err
	}
	_, err = storeOf(db).Commit(ctx, store.Batch{ID: id, Scope: "acme", Actor: "test", Now: time.Now(), State: rows, Leaf: manifest.Record{Type: manifest.TypeCommit}})
	return err
}

// A state row that was edited in the file, put back as it was, taken away, copied to another key, or added,
// is told by the check; and by a read, if the row itself is not one that was committed there. The
// control serves all of them.
func TestAnEditedStateRowIsNotServed(t *testing.T) {
	t.Parallel()
	const key, gone, new = "note/a", "note/gone", "note/new"
	dir := t.TempDir()
	path := filepath.Join(dir, "agent.ctx")
	db := openTest(t, path, Options{})
	set := func(key, value string) {
		t.Helper()
		b := store.StateRow{Key: key, Value: []byte(value)}
		if value == "" {
			b.Value = nil
		}
		require.NoError(t, commitState(ctx, db, b))
	}
	e := &editable{t: t, dir: dir}
	row := func(tx *bbolt.Tx, key string) []byte { return slices.Clone(tx.Bucket(names.State).Get([]byte(key))) }
	set(key, "one")
	set("note/b", "other")
	set(gone, "was here")
	require.NoError(t, db.Close())
	var was, wasGone []byte
	e.edit(false, func(tx *bbolt.Tx) { was, wasGone = row(tx, key), row(tx, gone) })
	db = openTest(t, path, Options{})
	set(key, "two")
	set(gone, "")
	must(db.Scope("acme").Put(ctx, Artefact{ID: "page", Text: "some words"}))(t)
	require.NoError(t, db.Close())

	put := func(tx *bbolt.Tx, key string, row []byte) {
		require.NoError(e.t, tx.Bucket(names.State).Put([]byte(key), row))
	}
	count := func(tx *bbolt.Tx, n int) {
		sys := tx.Bucket(names.Sys)
		require.NoError(e.t, sys.Put(names.SysKey, must(names.Recount(sys.Get(names.SysKey), engine.TableState, n))(e.t)))
	}
	for name, c := range map[string]struct {
		key    string
		read   bool
		change func(tx *bbolt.Tx)
	}{
		"edited": {key, true, func(tx *bbolt.Tx) {
			b := must(editState([]byte(key), row(tx, key), []byte("evil")))(e.t)
			put(tx, key, b)
		}},
		"of another key": {key, true, func(tx *bbolt.Tx) {
			b := must(editState([]byte("note/b"), row(tx, "note/b"), []byte("other")))(e.t)
			b = must(moveState([]byte("note/b"), b, []byte(key)))(e.t)
			put(tx, key, b)
		}},
		"added": {new, true, func(tx *bbolt.Tx) {
			b := must(editState([]byte(key), row(tx, key), []byte("evil")))(e.t)
			b = must(moveState([]byte(key), b, []byte(new)))(e.t)
			put(tx, new, b)
			count(tx, 1)
		}},
		"put back":   {key, false, func(tx *bbolt.Tx) { put(tx, key, was) }},
		"come back":  {gone, false, func(tx *bbolt.Tx) { put(tx, gone, wasGone); count(tx, 1) }},
		"taken away": {key, false, func(tx *bbolt.Tx) { require.NoError(e.t, tx.Bucket(names.State).Delete([]byte(key))); count(tx, -1) }},
	} {
		t.Run(name, func(t *testing.T) {
			e.t = t
			db := e.edit(false, c.change)
			_, err := storeOf(db).State(ctx, c.key)
			require.Equal(t, c.read, errors.Is(err, store.ErrCorrupt), "%v", err)
			other, err := storeOf(db).State(ctx, "note/b")
			require.NoError(t, err, "the others are served")
			require.Equal(t, "other", string(other.Value))
			problems := must(db.Admin().Check(ctx, nil))(t)
			require.True(t, slices.ContainsFunc(problems, func(p store.Problem) bool { return p.Invariant == "I17" }), "%v", problems)
			require.NoError(t, commitState(ctx, db, store.StateRow{Key: c.key, Value: []byte("three")})) // what is written now holds
			require.Equal(t, "three", string(must(storeOf(db).State(ctx, c.key))(t).Value))
			must(db.Admin().Checkpoint(ctx))(t)
			must(storeOf(db).State(ctx, c.key))(t)

			db = e.edit(true, c.change)
			must(db.Scope("acme").Search(ctx, "words", 1))(t)
			require.NoError(t, errOf(storeOf(db).State(ctx, c.key)), "the control")
		})
	}
}
