package filestore_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/engine"
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
)

const theQuestion = "May Ms. Okafor return the blue kettle?"

// askOne asks about a page, and gives the leaf.
func askOne(t *testing.T, db *DB) *manifest.Record {
	t.Helper()
	s := db.Scope("acme")
	must(s.Put(context.Background(), Artefact{ID: "kettle", Text: "A kettle may be returned within 14 days."}))(t)
	return must(s.Assemble(context.Background(), Query{Text: theQuestion, Budget: 2000}))(t).Manifest
}

// asked is the question of a leaf as the log has it.
func asked(t *testing.T, l store.Audit, trace string) (string, error) {
	t.Helper()
	return l.Question(context.Background(), must(l.ByTrace(context.Background(), trace))(t)[0])
}

// TestQuestionIsKept: the text is there in every state of the file, beside the database and in it, and the leaf has a salted
// digest of it alone.
func TestQuestionIsKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.ctx")
	db := openTest(t, path, Options{})
	leaf := askOne(t, db)
	found := must(db.Scope("acme").Search(ctx, "kettle", 5))(t)
	require.NotContains(t, string(must(db.Manifests().Body(ctx, leaf.Index))(t)), "kettle")
	info := must(storeOf(db).Info(ctx))(t)
	keyed := hmac.New(sha256.New, info.Secret)
	keyed.Write([]byte("query\x00" + theQuestion))
	require.NotEqual(t, keyed.Sum(nil), []byte(leaf.Query), "whoever has the secret cannot guess it once it is erased")
	look := func(state string, db *DB) {
		t.Helper()
		for trace, want := range map[string]string{leaf.Trace: theQuestion, found.Trace: "kettle"} {
			text, err := asked(t, db.Manifests(), trace)
			require.NoError(t, err, state)
			require.Equal(t, want, text, state)
		}
		require.Equal(t, theQuestion, must(db.Why(ctx, leaf.Trace, Ref{ID: "kettle"}))(t).Question, state)
		require.True(t, must(db.Replay(ctx, leaf.Trace))(t).Same)
	}
	beside := func(state, path string) error {
		t.Helper()
		l, _, err := filestore.OpenManifests(ctx, path, nil, "")
		require.NoError(t, err)
		defer l.Close()
		text, err := asked(t, l, leaf.Trace)
		if err == nil {
			require.Equal(t, theQuestion, text, state)
		}
		return err
	}
	look("in the log", db)
	require.NoError(t, beside("in the log", path))
	must(db.Admin().Checkpoint(ctx))(t)
	look("in the file", db)
	require.Empty(t, must(db.Admin().Check(ctx, nil))(t))
	backup := filepath.Join(t.TempDir(), "backup.ctx")
	must(db.Admin().Backup(ctx, backup, nil))(t)
	require.NoError(t, db.Close())
	for range 3 { // the log lets go of the record
		db = openTest(t, path, Options{})
		must(db.Scope("acme").Put(ctx, Artefact{ID: "other", Text: string(rune('a' + dbtest.SizeOf(db.Manifests())%26))}))(t)
		look("reopened", db)
		require.NoError(t, db.Close())
	}
	require.NoError(t, beside("in the file", path))
	ro := openTest(t, path, Options{ReadOnly: true})
	look("read-only", ro)
	require.NoError(t, ro.Close())

	restored := filepath.Join(t.TempDir(), "restored.ctx")
	must(filestore.Restore(ctx, backup, restored, filestore.RestoreOptions{}))(t)
	db = openTest(t, restored, Options{})
	look("restored", db)
	saved := filepath.Join(t.TempDir(), "saved.ctx")
	require.NoError(t, db.Close())
	rep := must(Salvage(ctx, restored, saved, filestore.SalvageOptions{}))(t)
	require.Equal(t, 2, rep.Questions, "and it says that they stay behind")
	require.Empty(t, rep.Lost)
}

// TestQuestionDigestOnly: nothing of the text is anywhere in the files, and the same question still has the same digest.
func TestQuestionDigestOnly(t *testing.T) {
	for _, digest := range []bool{true, false} {
		path := filepath.Join(t.TempDir(), "agent.ctx")
		db := openTest(t, path, Options{DigestQuestions: digest})
		a, b := askOne(t, db), askOne(t, db)
		_, err := asked(t, db.Manifests(), a.Trace)
		w, werr := db.Why(context.Background(), a.Trace, Ref{ID: "kettle"})
		require.NoError(t, werr)
		d, derr := db.Diff(context.Background(), a.Trace, b.Trace)
		require.NoError(t, derr)
		for _, f := range d.Fields {
			require.NotEqual(t, "query", f.Name, "the same question")
		}
		require.NoError(t, db.Close())
		if digest {
			require.ErrorIs(t, err, manifest.ErrNoQuestion)
			require.True(t, w.QuestionGone)
			require.Equal(t, a.Query, b.Query)
		} else { // the control
			require.NoError(t, err)
			require.NotEqual(t, a.Query, b.Query)
		}
		require.Equal(t, !digest, filesHave(t, theQuestion, filepath.Dir(path)))
	}
}

// eraseQuestion makes the commit by which an erase takes a question, and nothing of the purge that follows it.
func eraseQuestion(t *testing.T, db *DB, leaf *manifest.Record) {
	t.Helper()
	require.NoError(t, errOf(inside(db).Engine.Submit(context.Background(), engine.Request{Batch: store.Batch{
		ID: ulid.Make(), Scope: store.OperatorScope, Actor: store.OperatorScope, Now: time.Now(),
		State: []store.StateRow{{Key: format.QuestionGonePrefix + string(format.QuestionKey(leaf.Index))}},
		Leaf:  manifest.Record{Type: manifest.TypeErase, By: "ann"},
	}})))
}

// TestQuestionErased: one text goes and the others stay, in every state of log and file, and no redo brings it back.
func TestQuestionErased(t *testing.T) {
	for _, when := range []string{"before the checkpoint", "after the checkpoint", "copied before the checkpoint", "copied between"} {
		t.Run(when, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "agent.ctx")
			db := openTest(t, path, Options{})
			gone, stays := askOne(t, db), askOne(t, db)
			if when == "after the checkpoint" || when == "copied between" {
				must(db.Admin().Checkpoint(ctx))(t)
			}
			eraseQuestion(t, db, gone)
			look := func(db *DB) {
				t.Helper()
				require.ErrorIs(t, errOf(asked(t, db.Manifests(), gone.Trace)), manifest.ErrNoQuestion)
				require.Equal(t, theQuestion, must(asked(t, db.Manifests(), stays.Trace))(t))
				require.Empty(t, must(db.Admin().Check(ctx, nil))(t))
			}
			if when[:6] == "copied" { // as a kill leaves it
				copied := filepath.Join(t.TempDir(), "agent.ctx")
				require.NoError(t, dbtest.Copy(path, copied))
				l, _, err := filestore.OpenManifests(ctx, copied, nil, "")
				require.NoError(t, err)
				require.ErrorIs(t, errOf(asked(t, l, gone.Trace)), manifest.ErrNoQuestion, "beside the database")
				require.NoError(t, l.Close())
				killed := openTest(t, copied, Options{})
				look(killed)
				require.NoError(t, killed.Close())
			}
			look(db)
			require.NoError(t, db.Close())
			for range 2 {
				db = openTest(t, path, Options{})
				look(db)
				require.NoError(t, db.Close())
			}
		})
	}
}

// TestQuestionEdited: who edits the row with the right checksum is found out, by a read and by a check. The control serves
// what was written there.
func TestQuestionEdited(t *testing.T) {
	for _, trust := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "agent.ctx")
		db := openTest(t, path, Options{})
		leaf := askOne(t, db)
		require.NoError(t, db.Close())
		file := must(bbolt.Open(path, 0o600, nil))(t)
		require.NoError(t, file.Update(func(tx *bbolt.Tx) error {
			key := binary.BigEndian.AppendUint64(nil, leaf.Index)
			row, err := codec.Unseal('q', key, tx.Bucket([]byte("question")).Get(key))
			if err != nil {
				return err
			}
			return tx.Bucket([]byte("question")).Put(key, codec.Seal('q', key, bytes.Replace(row, []byte("kettle"), []byte("mirror"), 1)))
		}))
		require.NoError(t, file.Close())
		db = openTest(t, path, Options{}, filestore.Options{Trust: trust})
		text, err := asked(t, db.Manifests(), leaf.Trace)
		problems, cerr := db.Admin().Check(ctx, nil)
		require.NoError(t, cerr)
		require.NotEmpty(t, problems)
		require.Equal(t, "I18", problems[0].Invariant)
		require.NoError(t, db.Close())
		if trust {
			require.NoError(t, err)
			require.Contains(t, text, "mirror")
			continue
		}
		require.ErrorIs(t, err, store.ErrCorrupt)
		require.NoError(t, os.RemoveAll(path+"-wal")) // else the log still has the text as it was
		l, _, err := filestore.OpenManifests(ctx, path, nil, "")
		require.NoError(t, err)
		require.ErrorIs(t, errOf(asked(t, l, leaf.Trace)), store.ErrCorrupt, "beside the database")
		require.NoError(t, l.Close())
	}
}

// TestQuestionRowsCounted: a row that is gone without a trace is a finding of a check.
func TestQuestionRowsCounted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.ctx")
	db := openTest(t, path, Options{})
	leaf := askOne(t, db)
	must(db.Admin().Checkpoint(context.Background()))(t)
	require.NoError(t, inside(db).Bolt.Update(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte("question")).Delete(binary.BigEndian.AppendUint64(nil, leaf.Index))
	}))
	problems := must(db.Admin().Check(context.Background(), nil))(t)
	require.Len(t, problems, 1)
	require.Equal(t, "I13", problems[0].Invariant)
	require.NoError(t, db.Close())
}

// TestQuestionCut kills, as it were, the writer at every step of two checkpoints, around an erasure: what was kept is there, and
// what was erased does not come back.
func TestQuestionCut(t *testing.T) {
	t.Parallel()
	path, dir := filepath.Join(t.TempDir(), "agent.ctx"), t.TempDir()
	type copied struct {
		path   string
		erased bool
	}
	var copies []copied
	erased := false
	made := false
	db := openTest(t, path, Options{}, filestore.Options{Hook: func(step string) error {
		if !made { // there is no question yet
			return nil
		}
		to := filepath.Join(dir, fmt.Sprintf("%d.ctx", len(copies)))
		copies = append(copies, copied{to, erased})
		return dbtest.Copy(path, to)
	}})
	gone, stays := askOne(t, db), askOne(t, db)
	made = true
	for range 2 {
		must(db.Admin().Checkpoint(ctx))(t)
		eraseQuestion(t, db, askOne(t, db))
	}
	eraseQuestion(t, db, gone)
	erased = true
	for range 2 {
		must(db.Admin().Checkpoint(ctx))(t)
		askOne(t, db)
	}
	require.NoError(t, db.Close())
	require.Greater(t, len(copies), 12)
	for _, c := range copies {
		cut := openTest(t, c.path, Options{})
		text := must(asked(t, cut.Manifests(), stays.Trace))(t)
		require.Equal(t, theQuestion, text)
		text, err := asked(t, cut.Manifests(), gone.Trace)
		if c.erased {
			require.ErrorIs(t, err, manifest.ErrNoQuestion)
		} else {
			require.NoError(t, err)
			require.Equal(t, theQuestion, text)
		}
		require.Empty(t, must(cut.Admin().Check(ctx, nil))(t))
		require.NoError(t, cut.Close())
	}
}
