package eraseplan_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/eraseplan"
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/store"
)

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
