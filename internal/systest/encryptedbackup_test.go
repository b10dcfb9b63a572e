package systest_test

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	. "github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/internal/loop"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/wal"
	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
)

// boltSpaces are the buckets of a file by what their values are sealed as.
var boltSpaces = map[string]filestore.Space{
	"sys": filestore.SpaceSys, "meta": filestore.SpaceMeta, "content": filestore.SpaceContent, "seg": filestore.SpaceIndex, "held": filestore.SpaceHeld, "txn": filestore.SpaceOutcome,
	"state": filestore.SpaceState, "vec": filestore.SpaceVector, "question": filestore.SpaceQuestion,
}

// readable are the needles in what a keyring opens of a database, by bucket; "log" and "audit" are what is beside the file.
// Keys of rows and of what stays of a destroyed row count, too.
func readable(t testing.TB, path string, key []byte, keyring []byte) map[string]int {
	t.Helper()
	ring := must(filestore.Unwrap(key, keyring, rand.Reader))(t)
	out := map[string]int{}
	look := func(where string, plain []byte) {
		if found := len(needle.FindAll(dbtest.Readable(path, plain), -1)); found > 0 {
			out[where] += found
		}
	}
	file := must(bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true}))(t)
	require.NoError(t, file.View(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
			space, known := boltSpaces[string(name)]
			require.True(t, known, "bucket %s", name)
			return b.ForEach(func(k, v []byte) error {
				if space == filestore.SpaceSys {
					return nil
				}
				plain, err := ring.Open(space, k, v)
				if err != nil && !errors.Is(err, filestore.ErrDestroyed) {
					return fmt.Errorf("%s %x: %w", name, k, err)
				}
				look(string(name), plain)
				look("keys of "+string(name), k)
				return nil
			})
		})
	}))
	require.NoError(t, file.Close())
	require.NoError(t, errOf(wal.Scan(ctx, path+"-wal", nil, func(r wal.Record) error {
		if !r.Sealed || r.Kind == wal.KindMark {
			return nil
		}
		plain, err := ring.Open(filestore.SpaceRecord, binary.BigEndian.AppendUint64([]byte{byte(r.Kind)}, r.Seq), r.Body)
		look("log", plain)
		return err
	})))
	at := filepath.Join(t.TempDir(), "ring.keys")
	require.NoError(t, os.WriteFile(at, keyring, 0o600))
	audit, _, err := filestore.OpenManifests(ctx, path, key, at)
	require.NoError(t, err)
	for i := range must(audit.Size(ctx))(t) {
		body := must(audit.Body(ctx, i))(t)
		look("audit", body)
	}
	require.NoError(t, audit.Close())
	return out
}

// TestErasedFromBackups: what was held about a scope is in no row of an encrypted backup that was made before the erase,
// whoever has the key and the keyring; what is another's is, and the backup is sound. The controls: the keyring of before the
// erase opens all of it, and a backup of a database without a key shows it.
func TestErasedFromBackups(t *testing.T) {
	t.Parallel()
	n := &needles{}
	dir := t.TempDir()
	path, backup := filepath.Join(dir, "agent.ctx"), filepath.Join(dir, "backup.ctx")
	opts := Options{Key: testKey(7), Embedder: &needleVectors{n: n}}
	db, err := Open(path, opts)
	require.NoError(t, err)
	trace, _ := plant(t, db, n)
	head := must(db.Head(ctx))(t)
	must(db.Admin().Backup(ctx, backup, nil))(t)
	before := must(os.ReadFile(path + ".keys"))(t)
	must(db.Admin().Erase(ctx, ops.Request{Scope: "acme/ann", By: "operator", Reason: "asked for", Cascade: ops.Erase}))(t)
	require.NoError(t, db.Close())
	after := must(os.ReadFile(path + ".keys"))(t)
	t.Logf("keyring: %d bytes before, %d after", len(before), len(after))
	was, is := readable(t, backup, testKey(7), before), readable(t, backup, testKey(7), after)
	t.Logf("needles: before %v, after %v", was, is)
	for _, bucket := range []string{"meta", "content", "held", "state", "vec", "question"} {
		require.NotZero(t, was[bucket], "control: %s", bucket)
		require.Zero(t, is[bucket], bucket)
	}
	require.Empty(t, is)

	for _, keyring := range [][]byte{before, after} {
		at := filepath.Join(t.TempDir(), "b.ctx")
		require.NoError(t, dbtest.Copy(backup, at))
		require.NoError(t, os.WriteFile(at+".keys", keyring, 0o600))
		for _, opts.ReadOnly = range []bool{true, false} {
			db = must(Open(at, opts))(t)
			whole(t, db, []manifest.Head{head})
			_, err = db.Scope("acme/ann").Get(ctx, "fact-3")
			require.Equal(t, &keyring[0] == &after[0], errors.Is(err, store.ErrErased), "%v", err)
			batches := must(loop.Collect(db.Review().Batches(ctx, "", true, AtMost(100, "", nil))))(t)
			require.Equal(t, &keyring[0] == &after[0], len(batches) == 0)
			leaf := must(db.Manifests().ByTrace(ctx, trace))(t)
			_, err := db.Manifests().Question(ctx, leaf[0])
			require.Equal(t, &keyring[0] == &after[0], errors.Is(err, manifest.ErrNoQuestion), "%v", err)
			if !opts.ReadOnly { // it is erased here as well, and the same names are used again
				must(db.Admin().Erase(ctx, ops.Request{Scope: "acme/ann", By: "operator", Reason: "asked for", Cascade: ops.Erase}))(t)
				must(db.Scope("acme/ann").Put(ctx, Artefact{ID: "fact-3", Text: "kettle anew, not of bob"}))(t)
				must(db.Scope("acme/ann").Session("talk").Append(ctx, Turn{ID: "turn-1-anew", Role: "user", Text: "kettle anew, not of bob"}))(t)
				must(db.Scope("acme/ann").Assemble(ctx, Query{Text: "kettle anew", Session: "talk", Budget: 4000}))(t)
			}
			require.NoError(t, db.Close())
		}
		opts.ReadOnly = true
		db = must(Open(at, opts))(t)
		whole(t, db, []manifest.Head{head})
		require.NoError(t, db.Close())
		require.Empty(t, readable(t, at, testKey(7), must(os.ReadFile(at+".keys"))(t)))
	}
}

// TestNamesErasedFromBackups: an erase that takes names, so that no row of what it took stays, destroys the same keys. What
// names are left in a backup is what docs/encryption.md says.
func TestNamesErasedFromBackups(t *testing.T) {
	t.Parallel()
	n := &needles{}
	path := filepath.Join(t.TempDir(), "agent.ctx")
	backup := filepath.Join(filepath.Dir(path), "backup.ctx")
	db := must(Open(path, Options{Key: testKey(7)}))(t)
	scope, _, _, _ := plantNames(t, db, n)
	must(db.Admin().Backup(ctx, backup, nil))(t)
	before := must(os.ReadFile(path + ".keys"))(t)
	must(db.Admin().Erase(ctx, ops.Request{Scope: scope, By: "operator", Reason: "asked for", Cascade: ops.Erase, Names: true}))(t)
	require.NoError(t, db.Close())
	after := must(os.ReadFile(path + ".keys"))(t)
	was, is := readable(t, backup, testKey(7), before), readable(t, backup, testKey(7), after)
	t.Logf("needles: before %v, after %v", was, is)
	for _, bucket := range []string{"content", "held", "state", "question"} {
		require.NotZero(t, was[bucket], "control: %s", bucket)
		require.Zero(t, is[bucket], bucket)
	}
	at := filepath.Join(t.TempDir(), "b.ctx")
	require.NoError(t, dbtest.Copy(backup, at))
	require.NoError(t, os.WriteFile(at+".keys", after, 0o600))
	db = must(Open(at, Options{Key: testKey(7), ReadOnly: true}))(t)
	whole(t, db, nil)
	require.NoError(t, db.Close())
}
