package systest_test

import (
	"context"
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
	"github.com/ctxpage/ctxpage/internal/listing"
	"github.com/ctxpage/ctxpage/internal/seal"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/wal"
	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
)

// boltSpaces are the buckets of a file by what their values are sealed as.
var boltSpaces = map[string]seal.Space{
	"sys": seal.Sys, "meta": seal.Meta, "content": seal.Content, "seg": seal.Index, "held": seal.Held, "txn": seal.Outcome,
	"state": seal.State, "vec": seal.Vector, "question": seal.Question,
}

// readable are the needles in what a keyring opens of a database, by bucket; "log" and "audit" are what is beside the file.
// Keys of rows and of what stays of a destroyed row count, too.
func readable(t testing.TB, path string, key []byte, keyring []byte) map[string]int {
	t.Helper()
	ring, err := seal.Unwrap(key, keyring, rand.Reader)
	require.NoError(t, err)
	out := map[string]int{}
	look := func(where string, plain []byte) {
		if found := len(needle.FindAll(dbtest.Readable(path, plain), -1)); found > 0 {
			out[where] += found
		}
	}
	file, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true})
	require.NoError(t, err)
	require.NoError(t, file.View(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
			space, known := boltSpaces[string(name)]
			require.True(t, known, "bucket %s", name)
			return b.ForEach(func(k, v []byte) error {
				if space == seal.Sys {
					return nil
				}
				plain, err := ring.Open(space, k, v)
				if err != nil && !errors.Is(err, seal.ErrDestroyed) {
					return fmt.Errorf("%s %x: %w", name, k, err)
				}
				look(string(name), plain)
				look("keys of "+string(name), k)
				return nil
			})
		})
	}))
	require.NoError(t, file.Close())
	ctx := context.Background()
	_, err = wal.Scan(ctx, path+"-wal", nil, 0, func(r wal.Record) error {
		if !r.Sealed || r.Kind == wal.KindMark {
			return nil
		}
		plain, err := ring.Open(seal.Record, binary.BigEndian.AppendUint64([]byte{byte(r.Kind)}, r.Seq), r.Body)
		look("log", plain)
		return err
	})
	require.NoError(t, err)
	at := filepath.Join(t.TempDir(), "ring.keys")
	require.NoError(t, os.WriteFile(at, keyring, 0o600))
	audit, _, err := filestore.OpenManifestsKey(ctx, path, key, at)
	require.NoError(t, err)
	size, err := audit.Size(ctx)
	require.NoError(t, err)
	for i := range size {
		body, err := audit.Body(ctx, i)
		require.NoError(t, err)
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
	ctx := context.Background()
	n := &needles{}
	dir := t.TempDir()
	path, backup := filepath.Join(dir, "agent.ctx"), filepath.Join(dir, "backup.ctx")
	opts := Options{Key: testKey(7), Embedder: &needleVectors{n: n}}
	db, err := Open(path, opts)
	require.NoError(t, err)
	trace, _ := plant(t, db, n)
	head, err := db.Head(ctx)
	require.NoError(t, err)
	_, err = db.Admin().Backup(ctx, backup, nil)
	require.NoError(t, err)
	before, err := os.ReadFile(path + ".keys")
	require.NoError(t, err)
	_, err = db.Admin().Erase(ctx, ops.Request{Scope: "acme/ann", By: "operator", Reason: "asked for", Cascade: ops.Erase})
	require.NoError(t, err)
	require.NoError(t, db.Close())
	after, err := os.ReadFile(path + ".keys")
	require.NoError(t, err)
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
			db, err = Open(at, opts)
			require.NoError(t, err)
			whole(t, db, []manifest.Head{head})
			_, err = db.Scope("acme/ann").Get(ctx, "fact-3")
			require.Equal(t, &keyring[0] == &after[0], errors.Is(err, store.ErrErased), "%v", err)
			batches, err := listing.Collect(db.Review().Batches(ctx, "", true, AtMost(100, "", nil)))
			require.NoError(t, err)
			require.Equal(t, &keyring[0] == &after[0], len(batches) == 0)
			leaf, err := db.Manifests().ByTrace(ctx, trace)
			require.NoError(t, err)
			_, err = db.Manifests().Question(ctx, leaf[0])
			require.Equal(t, &keyring[0] == &after[0], errors.Is(err, manifest.ErrNoQuestion), "%v", err)
			if !opts.ReadOnly { // it is erased here as well, and the same names are used again
				_, err = db.Admin().Erase(ctx, ops.Request{Scope: "acme/ann", By: "operator", Reason: "asked for", Cascade: ops.Erase})
				require.NoError(t, err)
				_, err = db.Scope("acme/ann").Put(ctx, Artefact{ID: "fact-3", Text: "kettle anew, not of bob"})
				require.NoError(t, err)
				_, err = db.Scope("acme/ann").Session("talk").Append(ctx, Turn{ID: "turn-1-anew", Role: "user", Text: "kettle anew, not of bob"})
				require.NoError(t, err)
				_, err = db.Scope("acme/ann").Assemble(ctx, Query{Text: "kettle anew", Session: "talk", Budget: 4000})
				require.NoError(t, err)
			}
			require.NoError(t, db.Close())
		}
		opts.ReadOnly = true
		db, err = Open(at, opts)
		require.NoError(t, err)
		whole(t, db, []manifest.Head{head})
		require.NoError(t, db.Close())
		ring, err := os.ReadFile(at + ".keys")
		require.NoError(t, err)
		require.Empty(t, readable(t, at, testKey(7), ring))
	}
}

// TestNamesErasedFromBackups: an erase that takes names, so that no row of what it took stays, destroys the same keys. What
// names are left in a backup is what docs/encryption.md says.
func TestNamesErasedFromBackups(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	n := &needles{}
	path := filepath.Join(t.TempDir(), "agent.ctx")
	backup := filepath.Join(filepath.Dir(path), "backup.ctx")
	db, err := Open(path, Options{Key: testKey(7)})
	require.NoError(t, err)
	scope, _, _, _ := plantNames(t, db, n)
	_, err = db.Admin().Backup(ctx, backup, nil)
	require.NoError(t, err)
	before, err := os.ReadFile(path + ".keys")
	require.NoError(t, err)
	_, err = db.Admin().Erase(ctx, ops.Request{Scope: scope, By: "operator", Reason: "asked for", Cascade: ops.Erase, Names: true})
	require.NoError(t, err)
	require.NoError(t, db.Close())
	after, err := os.ReadFile(path + ".keys")
	require.NoError(t, err)
	was, is := readable(t, backup, testKey(7), before), readable(t, backup, testKey(7), after)
	t.Logf("needles: before %v, after %v", was, is)
	for _, bucket := range []string{"content", "held", "state", "question"} {
		require.NotZero(t, was[bucket], "control: %s", bucket)
		require.Zero(t, is[bucket], bucket)
	}
	at := filepath.Join(t.TempDir(), "b.ctx")
	require.NoError(t, dbtest.Copy(backup, at))
	require.NoError(t, os.WriteFile(at+".keys", after, 0o600))
	db, err = Open(at, Options{Key: testKey(7), ReadOnly: true})
	require.NoError(t, err)
	whole(t, db, nil)
	require.NoError(t, db.Close())
}
