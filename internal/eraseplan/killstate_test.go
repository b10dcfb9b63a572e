package eraseplan_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/internal/loop"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
)

// talks is an encrypted database with a conversation in each of two scopes. One turn of ann's is to be erased: its rows and the
// notes go, the row of the pass is written anew without its keyword. All other rows stay.
type talks struct {
	gone, stay []string // words
}

func turnRequest(scope string) ops.Request {
	return ops.Request{Refs: []store.Ref{{Scope: scope, ID: "turn-1"}}, By: "desk", Reason: "asked for"}
}

func (w *talks) plant(t *testing.T) (path, backup string) {
	t.Helper()
	n := &needles{}
	path, backup = filepath.Join(t.TempDir(), "agent.ctx"), filepath.Join(t.TempDir(), "backup.ctx")
	db := must(openFiles(path, nil, keyOf(turns), nil))(t)
	for _, scope := range []string{"acme/ann", "acme/bob"} {
		own := func(goes bool) string {
			word := n.next()
			if goes && scope == "acme/ann" {
				w.gone = append(w.gone, word)
			} else {
				w.stay = append(w.stay, word)
			}
			return word
		}
		talk := db.Scope(scope).Session("talk")
		for i := range 4 {
			must(talk.Append(ctx, ctxpage.Turn{ID: fmt.Sprint("turn-", i), Role: "user", Text: "kettle " + own(i == 1)}))(t)
		}
		require.NoError(t, talk.Record(ctx, session.Notes{Text: own(true)}))
		must(talk.Pass(ctx, session.PassQuery{Keywords: []string{own(true)}}))(t)
	}
	must(db.Admin().Backup(ctx, backup, nil))(t)
	require.NoError(t, db.Close())
	return path, backup
}

// opens says which words the rows of a file have that a keyring opens.
func opens(t *testing.T, path, keyring string) (words []string) {
	t.Helper()
	require.NoError(t, eachOpened(path, keyring, func(_ string, in []string) error {
		words = append(words, in...)
		return nil
	}))
	slices.Sort(words)
	return slices.Compact(words)
}

// whole looks at what must be there after the erase.
func (w *talks) whole(t *testing.T, db *ctxpage.DB, step string) {
	t.Helper()
	for scope, want := range map[string][]string{"acme/ann": {"turn-0", "turn-2", "turn-3"}, "acme/bob": {"turn-0", "turn-1", "turn-2", "turn-3"}} {
		talk, ids := db.Scope(scope).Session("talk"), []string{}
		list, err := loop.Collect(talk.Turns(ctx, 0, ctxpage.AtMost(10, "", nil)))
		require.NoError(t, err, "%s %s", step, scope)
		for _, v := range list {
			ids = append(ids, v.ID)
		}
		require.Equal(t, want, ids, "%s %s", step, scope)
		passes, err := talk.Passes(ctx)
		require.NoError(t, err, "%s %s", step, scope)
		require.Len(t, passes, 1, "%s %s", step, scope)
		in, err := talk.Inspect(ctx)
		require.NoError(t, err, "%s %s", step, scope)
		require.Equal(t, scope == "acme/bob", in.Notes.Text != "", "%s %s", step, scope)
	}
	problems, err := db.Admin().Check(ctx, nil)
	require.NoError(t, err, step)
	require.Empty(t, problems, step)
}

// TestKilledWhileStateKeysGo kills a process at each step of an erase that deletes state rows and writes one anew, in a database
// and in a restored backup, whose rows are under keys of their own already. After the next open the keyring opens nothing of
// what went, neither in the files nor in the backup, and everything else in both; a new backup has the row that was written anew.
// The control: before its keyring changes, a killed process leaves rows of the backup that open.
func TestKilledWhileStateKeysGo(t *testing.T) {
	t.Parallel()
	w := &talks{}
	first, backup := w.plant(t)
	restored := filepath.Join(t.TempDir(), "agent.ctx")
	require.NoError(t, dbtest.Copy(first, filepath.Join(filepath.Dir(backup), "ring.ctx")))
	require.NoError(t, os.Rename(filepath.Join(filepath.Dir(backup), "ring.ctx.keys"), backup+".keys"))
	must(filestore.Restore(ctx, backup, restored, filestore.RestoreOptions{Key: keyOf(turns)}))(t)
	for name, base := range map[string]string{"made": first, "restored": restored} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			steps := must(life(copySealed(t, base), "", "acme/ann", turns, 0))(t)
			was := map[string]int{}
			for i, step := range steps[:len(steps)-1] {
				if strings.HasPrefix(step, "opened") || !dbtest.Long && !strings.HasSuffix(step, " 1") {
					continue
				}
				path := copySealed(t, base)
				_, err := life(path, step, "acme/ann", turns, 0)
				require.NoError(t, err)
				for _, word := range opens(t, backup, path+".keys") {
					if slices.Contains(w.gone, word) {
						was[step]++
					}
				}
				if dbtest.Long || i%3 == 0 {
					if _, err = life(path, "keyring renamed 1", "", turns, wait/10); err != nil {
						require.ErrorContains(t, err, "it never came to", step)
					}
				}
				w.after(t, path, backup, step)
				require.NoError(t, os.RemoveAll(filepath.Dir(path)))
			}
			t.Logf("words of the backup that the keyring opens after a kill: %v", was)
			require.Equal(t, len(w.gone), was["keys planned 1"], "control")
			require.Contains(t, was, "keyring written 1")
			require.Zero(t, was["keys destroyed 1"])
		})
	}
}

// after opens a database as the next process would.
func (w *talks) after(t *testing.T, path, backup, step string) {
	t.Helper()
	db, err := openFiles(path, nil, keyOf(turns), nil)
	require.NoError(t, err, step)
	w.whole(t, db, step)
	later := filepath.Join(filepath.Dir(path), "later.ctx")
	require.NoError(t, errOf(db.Admin().Backup(ctx, later, nil)), step)
	require.NoError(t, db.Close())
	for _, file := range []string{path, backup, later} {
		require.Equal(t, w.stay, opens(t, file, path+".keys"), "%s: %s", step, file)
	}
	to := filepath.Join(filepath.Dir(path), "again.ctx")
	ring := must(os.ReadFile(path + ".keys"))(t)
	require.NoError(t, os.WriteFile(later+".keys", ring, 0o600))
	require.NoError(t, errOf(filestore.Restore(ctx, later, to, filestore.RestoreOptions{Key: keyOf(turns)})), step)
	if db, err = openFiles(to, nil, keyOf(turns), nil); err == nil {
		w.whole(t, db, step)
		err = db.Close()
	}
	require.NoError(t, err, step)
}
