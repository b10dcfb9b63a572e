package filestore_test

import (
	"crypto/rand"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/engine"
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
)

// recount counts n rows more of a table of the file, as who adds or takes away rows would.
func recount(t *testing.T, tx *bbolt.Tx, of engine.Table, n int) {
	t.Helper()
	sys := tx.Bucket(names.Sys)
	require.NoError(t, sys.Put(names.SysKey, must(names.Recount(sys.Get(names.SysKey), of, n))(t)))
}

// TestTheNewestOutcomeTakenAway: the outcome with the greatest id of all is taken out of the file, and its batch is not
// applied once more: an id from before the open is looked for in the audit, also where counts and sums were made right; one
// ahead of the clock where they were not. The control trusts the rows, and applies it twice.
func TestTheNewestOutcomeTakenAway(t *testing.T) {
	t.Parallel()
	for name, at := range map[string]struct {
		ahead time.Duration
		right bool // the sum is made right
	}{"right sums": {0, true}, "wrong sum": {0, false}, "ahead of the clock": {time.Hour, false}} {
		t.Run(name, func(t *testing.T) {
			e := &editable{t: t, dir: t.TempDir()}
			db := openTest(t, filepath.Join(e.dir, "agent.ctx"), Options{})
			id := must(store.NewID(time.Now().Add(at.ahead), rand.Reader))(t)
			commit := func(db *DB) (store.Outcome, error) {
				return storeOf(db).Commit(ctx, store.Batch{ID: id, Scope: "acme", Actor: "test", Now: time.Now(), Bound: []byte("sixteen bytes ..."),
					State: []store.StateRow{{Key: "note/n", Value: []byte("1")}}, Leaf: manifest.Record{Type: manifest.TypeCommit}})
			}
			first := must(commit(db))(t)
			require.NoError(t, db.Close())
			take := func(tx *bbolt.Tx) {
				b := tx.Bucket(names.Txn)
				last, _ := b.Cursor().Last()
				require.Equal(t, id[:], last)
				require.NoError(t, b.Delete(id[:]))
				recount(t, tx, engine.TableTxn, -1)
			}
			edit := func(trust bool) *DB {
				path := e.file(take)
				if at.right {
					require.NoError(t, names.Resum(path))
				}
				db := must(openOver(path, Options{}, filestore.Options{Trust: trust}))(t)
				t.Cleanup(func() { db.Close() })
				return db
			}
			require.Equal(t, first, must(commit(e.edit(false, func(*bbolt.Tx) {})))(t))
			db = edit(false)
			require.ErrorIs(t, errOf(commit(db)), store.ErrTxnExpired)
			require.ErrorIs(t, errOf(storeOf(db).Outcome(ctx, id)), store.ErrTxnExpired)
			twice, err := commit(edit(true))
			require.NoError(t, err, "the control")
			require.Greater(t, twice.LSN, first.LSN, "the control")
		})
	}
}

// TestAnErasedQuestionPutBack: rows of questions of another moment are found by their sum where their count is right: an
// erased one that is back in the place of one that is not.
func TestAnErasedQuestionPutBack(t *testing.T) {
	e := &editable{t: t, dir: t.TempDir()}
	path := filepath.Join(e.dir, "agent.ctx")
	db := openTest(t, path, Options{})
	gone, kept := askOne(t, db), askOne(t, db)
	require.NoError(t, db.Close())
	var key, row []byte
	e.file(func(tx *bbolt.Tx) {
		k, v := tx.Bucket(names.Asked).Cursor().First()
		key, row = slices.Clone(k), slices.Clone(v)
	})
	db = openTest(t, path, Options{})
	eraseQuestion(t, db, gone)
	require.NoError(t, db.Close())
	db = e.edit(false, func(tx *bbolt.Tx) {
		b := tx.Bucket(names.Asked)
		require.Nil(t, b.Get(key))
		k, _ := b.Cursor().Last()
		require.NoError(t, b.Delete(slices.Clone(k)))
		require.NoError(t, b.Put(key, row))
	})
	require.ErrorIs(t, errOf(asked(t, db.Manifests(), kept.Trace)), manifest.ErrNoQuestion)
	problems := must(db.Admin().Check(ctx, nil))(t)
	require.Len(t, problems, 1)
	require.Equal(t, "I13", problems[0].Invariant)
	require.Contains(t, problems[0].What, "question")
}

// TestCheckFindsOutcomes: an outcome that was taken away, edited or made up is found by a check, also where counts and sums
// were made right and the id is ahead of the clock, so that nobody asks the audit for it. The control is the file as it
// was. That outcomes may be dropped TestOutcomesAreBounded checks, whose files are checked at the end.
func TestCheckFindsOutcomes(t *testing.T) {
	e := &editable{t: t, dir: t.TempDir()}
	db := openTest(t, filepath.Join(e.dir, "agent.ctx"), Options{})
	must(db.Scope("acme").Put(ctx, Artefact{ID: "a", Text: "zebra"}))(t)
	id := must(store.NewID(time.Now().Add(time.Hour), rand.Reader))(t)
	must(storeOf(db).Commit(ctx, store.Batch{ID: id, Scope: "acme", Actor: "test", Now: time.Now(), Bound: []byte("sixteen bytes ..."),
		State: []store.StateRow{{Key: "note/n", Value: []byte("1")}}, Leaf: manifest.Record{Type: manifest.TypeCommit}}))(t)
	require.NoError(t, db.Close())
	row := func(tx *bbolt.Tx) []byte {
		return must(codec.Unseal('t', id[:], slices.Clone(tx.Bucket(names.Txn).Get(id[:]))))(t)
	}
	for name, change := range map[string]func(tx *bbolt.Tx){
		"": func(*bbolt.Tx) {},
		"it is missing": func(tx *bbolt.Tx) {
			require.NoError(t, tx.Bucket(names.Txn).Delete(id[:]))
			recount(t, tx, engine.TableTxn, -1)
		},
		"it is not how the batch ended": func(tx *bbolt.Tx) {
			row := must(editOutcome(row(tx), func(o *store.Outcome) { o.Status = store.StatusRejected }))(t)
			require.NoError(t, tx.Bucket(names.Txn).Put(id[:], codec.Seal('t', id[:], row)))
		},
		"no audit leaf tells it": func(tx *bbolt.Tx) {
			other := id
			other[15] ^= 1
			require.NoError(t, tx.Bucket(names.Txn).Put(other[:], codec.Seal('t', other[:], row(tx))))
			recount(t, tx, engine.TableTxn, 1)
		},
	} {
		path := e.file(change)
		require.NoError(t, names.Resum(path))
		db := must(openOver(path, Options{}, filestore.Options{}))(t)
		problems := must(db.Admin().Check(ctx, nil))(t)
		if name == "" {
			require.Empty(t, problems)
		} else {
			require.Len(t, problems, 1, name)
			require.Equal(t, "I19", problems[0].Invariant)
			require.Contains(t, problems[0].What, name)
		}
		require.NoError(t, db.Close())
	}
}

// TestKilledBetweenSteps: of a database whose checkpoint was killed between two steps of its index nothing is lost and
// nothing counted twice.
func TestKilledBetweenSteps(t *testing.T) {
	t.Parallel()
	live := dbtest.MemoryPath(t)
	var copies []string
	db := openTest(t, live, Options{}, filestore.Options{Hook: func(step string) error {
		if step != "after a step" || len(copies) == 3 {
			return nil
		}
		copies = append(copies, dbtest.MemoryPath(t))
		return dbtest.Copy(live, copies[len(copies)-1])
	}})
	var b strings.Builder
	const words = 200_000 // three steps
	for i := range words {
		fmt.Fprintf(&b, "w%x ", i)
	}
	must(db.Scope("acme").Put(ctx, Artefact{ID: "long", Text: b.String()}))(t)
	found := func(db *DB) (all []string) {
		for _, i := range []int{1, words / 3, words / 2, words - 1} {
			f := must(db.Scope("acme").Search(ctx, fmt.Sprintf("w%x", i), 10))(t)
			require.NotEmpty(t, f.Hits)
			for _, h := range f.Hits { // the page and its neighbours
				all = append(all, fmt.Sprint(h.Num, h.Score))
			}
		}
		return all
	}
	want := found(db)
	must(db.Admin().Checkpoint(ctx))(t)
	require.Equal(t, want, found(db))
	require.NoError(t, db.Close())
	require.Len(t, copies, 3)
	if dbtest.Race { // which writes each of them ten times slower: the one in the middle
		copies = copies[1:2]
	}
	for _, path := range copies {
		db := openTest(t, path, Options{})
		require.Equal(t, want, found(db))
		must(db.Admin().Checkpoint(ctx))(t)
		require.Equal(t, want, found(db))
		require.NoError(t, db.Close())
	}
}
