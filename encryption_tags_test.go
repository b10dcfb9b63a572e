package ctxpage

import (
	"archive/zip"
	"context"
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ctxpage/ctxpage/erase"
	"github.com/ctxpage/ctxpage/internal/seal"
	"github.com/stretchr/testify/require"
)

// oldSealed is an encrypted database whose keyring is of version 1, and a backup of it. acme/ann has needle 1, acme/bob needle 2:
// each a fact, a turn, and a held batch.
func oldSealed(t *testing.T) (dir string) {
	t.Helper()
	z, err := zip.OpenReader("testdata/golden/sealed1.zip")
	require.NoError(t, err)
	defer z.Close()
	dir = t.TempDir()
	require.NoError(t, os.CopyFS(dir, z))
	return dir
}

// short says whether a keyring is of version 1.
func short(t *testing.T, keyring []byte) bool {
	t.Helper()
	ring, err := seal.Unwrap(testKey(7), keyring, rand.Reader)
	require.NoError(t, err)
	return ring.Short()
}

// TestOldKeyring: an erase reaches backups from before numbers of tags were widened, and those made since, of the same database.
// The keyring becomes one of version 2 before the first of them; another's rows stay in both.
func TestOldKeyring(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, again := range []bool{false, true} { // whether there is a backup since
		dir := oldSealed(t)
		path, old := filepath.Join(dir, "agent.ctx"), filepath.Join(dir, "backup.ctx")
		backups := []string{old}
		opts := Options{Key: testKey(7)}
		db, err := Open(path, opts)
		require.NoError(t, err)
		head, err := db.Head(ctx)
		require.NoError(t, err)
		if again {
			backups = append(backups, filepath.Join(dir, "since.ctx"))
			_, err = db.Backup(ctx, backups[1], nil)
			require.NoError(t, err)
		}
		before, err := os.ReadFile(path + ".keys")
		require.NoError(t, err)
		require.Equal(t, !again, short(t, before))
		_, err = db.Erase(ctx, erase.Request{Scope: "acme/ann", By: "operator", Reason: "asked for", Cascade: erase.Erase})
		require.NoError(t, err)
		require.NoError(t, db.Close())
		after, err := os.ReadFile(path + ".keys")
		require.NoError(t, err)
		for _, backup := range backups {
			was, is := readable(t, backup, testKey(7), before), readable(t, backup, testKey(7), after)
			t.Logf("%s: needles before %v, after %v", filepath.Base(backup), was, is)
			for _, bucket := range []string{"content", "state", "held"} {
				require.Positive(t, was[bucket], "control: %s", bucket)
				require.Equal(t, was[bucket], 2*is[bucket], "ann's went, bob's did not: %s", bucket)
			}
			require.NoError(t, os.WriteFile(backup+".keys", after, 0o600))
			db, err = Open(backup, Options{Key: testKey(7), ReadOnly: true})
			require.NoError(t, err)
			sound(t, db)
			require.NoError(t, db.Close())
		}
		db, err = Open(path, opts)
		require.NoError(t, err)
		sound(t, db)
		now, err := db.Head(ctx)
		require.NoError(t, err)
		p, err := db.Manifests().ProveConsistency(ctx, head.Size, now.Size)
		require.NoError(t, err)
		require.NoError(t, p.Verify(head, now))
		turns := 0
		for v, err := range db.Scope("acme/bob").Session("talk").Turns(ctx, 0) {
			require.NoError(t, err)
			require.True(t, strings.HasSuffix(v.Text, "zq000002x"), v.Text)
			turns++
		}
		require.Equal(t, 1, turns)
		require.NoError(t, db.Close())
	}
}
