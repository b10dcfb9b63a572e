package eraseplan_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/eraseplan"
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
)

// TestReceiptOfInterruptedErase: an erase that a later open finished is listed then, and gets its receipt.
func TestReceiptOfInterruptedErase(t *testing.T) {
	ctx := t.Context()
	path := filepath.Join(t.TempDir(), "agent.ctx")
	var broken error
	db := must(openFiles(path, nil, nil, func(string) error { return broken }))(t)
	must(db.Scope("acme").Put(ctx, ctxpage.Artefact{ID: "a", Text: "kettle", Subject: "ann"}))(t)
	broken = errors.New("interrupted")
	require.ErrorIs(t, errOf(db.Admin().Erase(ctx, ops.Request{Subject: "ann", By: "desk", Reason: "asked"})), broken)
	list := must(db.Admin().Erasures(ctx))(t)
	require.Empty(t, list, "the files may still have it")
	broken = nil
	require.NoError(t, db.Close())

	db = must(openFiles(path, nil, nil, nil))(t)
	defer db.Close()
	list = must(db.Admin().Erasures(ctx))(t)
	require.Len(t, list, 1)
	head := must(db.Head(ctx))(t)
	r := must(ops.NewReceipt(ctx, db.Manifests(), list[0], head))(t)
	require.NoError(t, r.Verify(&head))
	require.Equal(t, 1, r.Done.Artefacts)
}

// An erase that has begun to commit is not stopped by the end of its context before all of it is committed: the rest would be left
// to the next open, which would take what was put under the same names until then.
func TestCancelledEraseTakesNothingLater(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.ctx")
	db := must(openFiles(path, nil, nil, nil))(t)
	s := db.Scope("acme")
	require.NoError(t, s.Update(t.Context(), func(tx *ctxpage.Txn) error {
		for i := range 300 { // more than one commit takes
			if err := tx.Put(t.Context(), ctxpage.Artefact{ID: fmt.Sprint("a", i), Text: "kettle", Subject: "ann"}); err != nil {
				return err
			}
		}
		return nil
	}))
	ctx, cancel := context.WithCancel(t.Context())
	commits := uint64(0)
	req := ops.Request{Subject: "ann", By: "desk", Reason: "asked", Progress: func(what string, done, total uint64) {
		if what == "erase" {
			commits = total
			cancel()
		}
	}}
	require.ErrorIs(t, errOf(db.Admin().Erase(ctx, req)), context.Canceled)
	require.Greater(t, commits, uint64(1))
	must(s.Put(t.Context(), ctxpage.Artefact{ID: "a299", Text: "teapot"}))(t)
	require.NoError(t, db.Close())

	db = must(openFiles(path, nil, nil, nil))(t)
	defer db.Close()
	v := must(db.Scope("acme").Get(t.Context(), "a299"))(t)
	require.Equal(t, "teapot", v.Text)
	require.ErrorIs(t, errOf(db.Scope("acme").Get(t.Context(), "a298")), store.ErrNotFound)
}

// An erase whose context ended after its commits is finished when it is asked for again, by the next erase of something else, and
// by a compaction: nobody has to close the database for it.
func TestInterruptedEraseAgain(t *testing.T) {
	for name, again := range map[string]func(db *ctxpage.DB) error{
		"the same": func(db *ctxpage.DB) error {
			rep, err := db.Admin().Erase(t.Context(), ops.Request{Subject: "ann", By: "desk", Reason: "ann asked"})
			if err == nil && (rep.Done == nil || rep.Done.Artefacts != 1) {
				err = errors.New("no report of what was erased")
			}
			return err
		},
		"another": func(db *ctxpage.DB) error {
			_, err := db.Admin().Erase(t.Context(), ops.Request{Subject: "bob", By: "desk", Reason: "asked"})
			return err
		},
		"a compaction": func(db *ctxpage.DB) error {
			_, err := db.Admin().Compact(t.Context(), false, nil)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "agent.ctx")
			var broken error
			db := must(openFiles(path, nil, nil, func(string) error { return broken }))(t)
			defer db.Close()
			for _, who := range []string{"ann", "bob"} {
				must(db.Scope("acme").Put(t.Context(), ctxpage.Artefact{ID: who, Text: "kettle of " + who, Subject: who}))(t)
			}
			broken = context.Canceled
			require.ErrorIs(t, errOf(db.Admin().Erase(t.Context(), ops.Request{Subject: "ann", By: "desk", Reason: "ann asked"})), broken)
			broken = nil
			require.NoError(t, again(db))
			list := must(db.Admin().Erasures(t.Context()))(t)
			require.True(t, slices.ContainsFunc(list, func(r store.EraseReport) bool { return r.Artefacts == 1 && r.Reason == "ann asked" }))
			b := must(os.ReadFile(path))(t)
			require.NotContains(t, string(b), "kettle of ann")
			require.ErrorIs(t, errOf(db.Admin().Erase(t.Context(), ops.Request{Subject: "ann", By: "desk", Reason: "asked"})), store.ErrNotFound)
		})
	}
}

// What was put since the first commit of an erase stays, whoever finishes the erase: the same erase again, a compaction, or the
// next open, after a failed commit and after a crash. The control: what nobody put again is erased.
func TestUnfinishedEraseTakesNothingLater(t *testing.T) {
	texts := map[string]string{"a0": "teapot", "a299": "lamp", "a298": "kettle"}
	req := ops.Request{Subject: "ann", By: "desk", Reason: "asked"}
	putAgain := func(db *ctxpage.DB) error {
		for id, text := range texts {
			if _, err := db.Scope("acme").Put(t.Context(), ctxpage.Artefact{ID: id, Text: text}); err != nil {
				return err
			}
		}
		return nil
	}
	for name, c := range map[string]struct {
		first, then func(db *ctxpage.DB) error // before and after the names are put again
	}{
		"open":       {},
		"repeated":   {first: func(db *ctxpage.DB) error { _, err := db.Admin().Erase(t.Context(), req); return err }},
		"compaction": {then: func(db *ctxpage.DB) error { _, err := db.Admin().Compact(t.Context(), false, nil); return err }},
		"killed":     {},
	} {
		t.Run(name, func(t *testing.T) {
			path, crash := filepath.Join(t.TempDir(), "agent.ctx"), filepath.Join(t.TempDir(), "agent.ctx")
			var db *ctxpage.DB
			cut := errors.New("no space")
			db = must(openFiles(path, nil, nil, func(step string) error {
				switch {
				case step != "erase commit" || cut == nil:
					return nil
				case name == "killed":
					return errors.Join(putAgain(db), dbtest.Copy(path, crash), cut)
				}
				return cut
			}))(t)
			require.NoError(t, db.Scope("acme").Update(t.Context(), func(tx *ctxpage.Txn) error {
				for i := range 300 { // more than one commit takes
					if err := tx.Put(t.Context(), ctxpage.Artefact{ID: fmt.Sprint("a", i), Text: "kettle", Subject: "ann"}); err != nil {
						return err
					}
				}
				return nil
			}))
			require.ErrorIs(t, errOf(db.Admin().Erase(t.Context(), req)), cut)
			require.NoError(t, errOf(db.Scope("acme").Get(t.Context(), "a297")), "control: its part is missing")
			cut = nil
			if c.first != nil {
				require.NoError(t, c.first(db))
			}
			if name == "killed" {
				path = crash
			} else {
				require.NoError(t, putAgain(db))
			}
			if c.then != nil {
				require.NoError(t, c.then(db))
			}
			require.NoError(t, db.Close())

			db = must(openFiles(path, nil, nil, nil))(t)
			defer db.Close()
			for id, text := range texts {
				v, err := db.Scope("acme").Get(t.Context(), id)
				require.NoError(t, err, id)
				require.Equal(t, text, v.Text)
			}
			for _, id := range []string{"a1", "a297"} {
				require.ErrorIs(t, errOf(db.Scope("acme").Get(t.Context(), id)), store.ErrNotFound, id)
			}
			list := must(db.Admin().Erasures(t.Context()))(t)
			require.NotEmpty(t, list)
			problems := must(db.Admin().Check(t.Context(), nil))(t)
			require.Empty(t, problems)
			require.NoError(t, db.Close())
		})
	}
}

// A gc that holds up an erase with names may list ids that go in its leaf, after the erase has searched the audit. They go, too.
func TestNamesInLeafOfGC(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.ctx")
	db := must(openFiles(path, nil, nil, nil))(t)
	defer db.Close()
	s := db.Scope("acme")
	for i := range 3 {
		must(s.Put(t.Context(), ctxpage.Artefact{ID: "zq-person", Text: fmt.Sprint("kettle ", i), Subject: "ann"}))(t)
	}
	searched := false
	rep := must(db.Admin().Erase(t.Context(), ops.Request{Subject: "ann", By: "desk", Reason: "asked", Names: true, Progress: func(what string, done, total uint64) {
		if what == "audit" && !searched { // the number of leaves to search is known by now
			searched = true
			gc := must(db.Admin().GC(t.Context(), ctxpage.GCOptions{KeepFor: -1, KeepRecords: -1, KeepNames: -1}))(t)
			require.NotZero(t, gc.Dropped.Versions, "control: its leaf has names")
		}
	}}))(t)
	require.True(t, searched)
	require.NotNil(t, rep.Done)
	require.NoError(t, db.Close())
	for _, pattern := range []string{path, path + "-wal/*", path + "-manifest/*"} {
		names := must(filepath.Glob(pattern))(t)
		for _, name := range names {
			b := must(os.ReadFile(name))(t)
			require.NotContains(t, string(b), "zq-person", name)
		}
	}
}

// TestLostAreErasedAgain: a receipt takes from an encrypted backup what its erase destroyed, also where the backup never said
// that it was to go: the subject came with a later version. The control: in a copy from before the artefact, another one has
// the number of its page, and stays.
func TestLostAreErasedAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, empty, backup := filepath.Join(dir, "agent.ctx"), filepath.Join(dir, "empty.ctx"), filepath.Join(dir, "backup.ctx")
	db := must(openFiles(path, nil, keyOf(seals), nil))(t)
	s := db.Scope("acme")
	put := func(s *ctxpage.Scope, id, subject, text string) {
		t.Helper()
		must(s.Put(ctx, ctxpage.Artefact{ID: id, Subject: subject, Text: text}))(t)
	}
	put(s, "bob", "", "pan")
	must(db.Admin().Backup(ctx, empty, nil))(t)
	put(s, "ann", "", "kettle")
	must(db.Admin().Backup(ctx, backup, nil))(t)
	put(s, "ann", "person", "another kettle")
	rep := must(db.Admin().Erase(ctx, ops.Request{Subject: "person", By: "desk", Reason: "asked"}))(t)
	require.NotEmpty(t, rep.Done.Numbers)
	head := must(db.Head(ctx))(t)
	r := must(ops.NewReceipt(ctx, db.Manifests(), *rep.Done, head))(t)
	require.NoError(t, db.Close())

	restored := func(backup string, receipts ...*ops.Receipt) (db *ctxpage.DB, again []*ops.Report) {
		t.Helper()
		to := filepath.Join(t.TempDir(), "agent.ctx")
		ring := must(os.ReadFile(path + ".keys"))(t)
		require.NoError(t, os.WriteFile(to+".keys", ring, 0o600))
		must(filestore.Restore(ctx, backup, to, filestore.RestoreOptions{Key: keyOf(seals), Prepare: func(ctx context.Context, st store.Store) (err error) {
			again, err = eraseplan.Repeat(ctx, st, receipts, false, nil)
			return err
		}}))(t)
		db = must(openFiles(to, nil, keyOf(seals), nil))(t)
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		return db, again
	}
	ids := func(db *ctxpage.DB) (ids []string) {
		for v, err := range db.Scope("acme").Artefacts(ctx, "") {
			require.NoError(t, err)
			ids = append(ids, v.ID)
		}
		return ids
	}
	db, _ = restored(backup)
	require.ElementsMatch(t, []string{"ann", "bob"}, ids(db), "control: without the receipt it is listed")
	db, again := restored(backup, r)
	require.Len(t, again, 1)
	require.Equal(t, r.Done.Asked, again[0].Done.Asked)
	require.Equal(t, []string{"bob"}, ids(db))
	require.ErrorContains(t, errOf(db.Scope("acme").Recall(ctx, store.Ref{Scope: "acme", ID: "ann", Version: 1})), "by desk")

	db, _ = restored(empty)
	put(db.Scope("acme"), "mine", "", "lamp")
	list := must(db.Scope("acme").Get(ctx, "mine"))(t)
	require.Equal(t, "lamp", list.Text)
	again = must(db.Admin().RepeatErase(ctx, []*ops.Receipt{r}, false, nil))(t)
	require.Empty(t, again)
	require.ElementsMatch(t, []string{"bob", "mine"}, ids(db))
}
