package eraseplan_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/wal"
)

// keyOf is the key of a database in a mode; nil: it is not encrypted.
func keyOf(mode string) []byte {
	if mode == seals || mode == unnames || mode == turns {
		return bytes.Repeat([]byte{9}, filestore.KeySize)
	}
	return nil
}

// keyringSteps makes steps of what is done to the file of a keyring.
type keyringSteps struct {
	wal.FS
	hook func(step string) error
	last bool // the keyring was renamed, and its directory is not synced
}

func (k *keyringSteps) Rename(from, to string) error {
	if k.last = strings.HasSuffix(to, ".keys"); !k.last {
		return k.FS.Rename(from, to)
	}
	if err := errors.Join(k.hook("keyring written"), k.FS.Rename(from, to)); err != nil {
		return err
	}
	return k.hook("keyring renamed")
}

func (k *keyringSteps) SyncDir(dir string) error {
	err := k.FS.SyncDir(dir)
	if k.last && err == nil {
		err = k.hook("keyring synced") // the old one has no name and is to be overwritten
	}
	k.last = false
	return err
}

var sealedSpaces = map[string]filestore.Space{
	"meta": filestore.SpaceMeta, "content": filestore.SpaceContent, "seg": filestore.SpaceIndex, "held": filestore.SpaceHeld, "txn": filestore.SpaceOutcome, "state": filestore.SpaceState, "vec": filestore.SpaceVector, "question": filestore.SpaceQuestion,
}

// opened counts, by bucket, the needles in the values of a file that a keyring opens.
func opened(path, keyring string) (n map[string]int, err error) {
	n = map[string]int{}
	err = eachOpened(path, keyring, func(bucket string, words []string) error {
		if len(words) > 0 {
			n[bucket] += len(words)
		}
		return nil
	})
	return n, err
}

// eachOpened calls fn with the words that are planted in a value, for all of them.
func eachOpened(path, keyring string, fn func(bucket string, words []string) error) error {
	b, err := os.ReadFile(keyring)
	if err != nil {
		return err
	}
	ring, err := filestore.Unwrap(keyOf(seals), b, rand.Reader)
	if err != nil {
		return err
	}
	file, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true})
	if err != nil {
		return err
	}
	err = file.View(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(name []byte, bucket *bbolt.Bucket) error {
			space, ok := sealedSpaces[string(name)]
			if !ok {
				return nil
			}
			return bucket.ForEach(func(k, v []byte) error {
				plain, err := ring.Open(space, k, v)
				if err != nil && !errors.Is(err, filestore.ErrDestroyed) {
					return fmt.Errorf("%s %x: %w", name, k, err)
				}
				return fn(string(name), plantedIn(plain))
			})
		})
	})
	return errors.Join(err, file.Close())
}

func copySealed(t *testing.T, path string) string {
	t.Helper()
	to := filepath.Join(filepath.Dir(dbtest.MemoryPath(t)), "copy", "agent.ctx")
	require.NoError(t, os.Mkdir(filepath.Dir(to), 0o700))
	require.NoError(t, dbtest.Copy(path, to))
	return to
}

// TestKilledSealedErase kills a process that erases from an encrypted database at each of its steps, those on the file of the
// keyring included, and at each third the process that goes on with it as well. After the next open, what was erased opens in no
// row of a backup from before: heads, pages, vectors, state rows, held batches, questions. What is bob's does. The control: at
// a kill before the keyring changes, the keyring that lies there opens all of it, and the keyring of before does so forever.
func TestKilledSealedErase(t *testing.T) {
	t.Parallel()
	g := &garden{needles: &needles{}}
	base, backup, heads := g.sealed(t)
	path := copySealed(t, base)
	steps := must(life(path, "", g.scope, seals, 0))(t)
	left := map[string]int{}
	for i, step := range steps[:len(steps)-1] {
		if strings.HasPrefix(step, "opened") || !dbtest.Long && !strings.HasSuffix(step, " 1") {
			continue
		}
		path := copySealed(t, base)
		_, err := life(path, step, g.scope, seals, 0)
		require.NoError(t, err)
		was := must(opened(backup, path+".keys"))(t)
		left[step] = was["state"]
		if dbtest.Long || i%3 == 0 {
			if _, err = life(path, "keyring renamed 1", "", seals, wait/10); err != nil {
				require.ErrorContains(t, err, "it never came to", step)
			}
		}
		db, err := openFiles(path, nil, keyOf(seals), nil)
		require.NoError(t, err, step)
		require.NoError(t, g.whole(db, heads), step)
		require.NoError(t, db.Close())
		is := must(opened(backup, path+".keys"))(t)
		require.Empty(t, is, step)
		g.bobsIn(t, backup, path+".keys")
		require.ErrorIs(t, errOf(os.Stat(path+".keys.tmp")), os.ErrNotExist, step)
		require.NoError(t, os.RemoveAll(filepath.Dir(path)))
	}
	t.Logf("needles of state rows that the keyring opens after a kill: %v", left)
	for _, step := range []string{"erase committed 1", "erase cut 1", "keys planned 1", "keyring written 1"} {
		require.NotZero(t, left[step], "control: %s", step)
	}
	for _, step := range []string{"keyring renamed 1", "keyring synced 1", "keys destroyed 1", "erase purged 1"} {
		require.Contains(t, left, step)
		require.Zero(t, left[step], step)
	}
	was := must(opened(backup, base+".keys"))(t)
	for _, bucket := range []string{"meta", "content", "state", "held", "question", "vec"} {
		require.NotZero(t, was[bucket], "control: %s", bucket)
	}
}

// sealed makes an encrypted database to be erased, and a backup of it.
func (g *garden) sealed(t *testing.T) (path, backup string, heads []manifest.Head) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "agent.ctx")
	backup = filepath.Join(t.TempDir(), "backup.ctx")
	db := must(openFiles(path, g, keyOf(seals), nil))(t)
	require.NoError(t, g.plant(db))
	h := must(db.Head(ctx))(t)
	must(db.Admin().Backup(ctx, backup, nil))(t)
	require.NoError(t, db.Close())
	return path, backup, []manifest.Head{h}
}

// bobsIn reads bob's pages in a backup.
func (g *garden) bobsIn(t *testing.T, backup, keyring string) {
	t.Helper()
	at := copySealed(t, backup)
	b := must(os.ReadFile(keyring))(t)
	require.NoError(t, os.WriteFile(at+".keys", b, 0o600))
	db := must(ctxpage.Open(at, ctxpage.Options{Key: keyOf(seals), ReadOnly: true}))(t)
	for i := range pans {
		v := must(db.Scope("acme/bob").Get(ctx, fmt.Sprint("pan-", i)))(t)
		require.Equal(t, fmt.Sprintf("kettle and pan %d", i), v.Text)
	}
	require.NoError(t, db.Close())
	require.NoError(t, os.RemoveAll(filepath.Dir(at)))
}

// TestKilledCompaction kills a process that compacts, at each of its steps. Every page of both scopes is there afterwards, and
// no temporary file. The control: a kill before the rename leaves one, and the old file.
func TestKilledCompaction(t *testing.T) {
	t.Parallel()
	g := &garden{needles: &needles{}}
	base, heads := g.database(t)
	st := must(os.Stat(base))(t)
	path := copyOf(t, base)
	steps := must(life(path, "", g.scope, compacts, 0))(t)
	left, killed := map[string]bool{}, 0
	for _, step := range steps[:len(steps)-1] {
		if strings.HasPrefix(step, "opened") {
			continue
		}
		path := copyOf(t, base)
		must(life(path, step, g.scope, compacts, 0))(t)
		killed++
		_, err := os.Stat(path + ".compact")
		left[step] = err == nil
		now := must(os.Stat(path))(t)
		if left[step] {
			require.Equal(t, st.Size(), now.Size(), step)
		}
		db := must(openFiles(path, nil, nil, nil))(t)
		require.ErrorIs(t, errOf(os.Stat(path+".compact")), os.ErrNotExist, step)
		for _, id := range g.ids {
			v, err := db.Scope(g.scope).Get(ctx, id)
			if !errors.Is(err, store.ErrNotFound) { // a draft, or one that was deleted
				require.NoError(t, err, "%s: %s", step, id)
				require.NotEmpty(t, plantedIn([]byte(v.Text)), "%s: %s", step, id)
			}
		}
		s := &state{heads: heads}
		require.NoError(t, s.proved(db))
		problems := must(db.Admin().Check(ctx, nil))(t)
		require.Empty(t, problems)
		require.NoError(t, db.Close())
		require.NoError(t, os.RemoveAll(filepath.Dir(path)))
	}
	t.Logf("%d kills; a temporary file is left by: %v", killed, left)
	require.True(t, left["compact copied 1"] && left["compact synced 1"], "control")
	require.False(t, left["compact renamed 1"])
	require.False(t, left["compact changed 1"])
}
