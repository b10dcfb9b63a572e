package systest_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/internal/portable"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
)

func testKey(b byte) []byte { return bytes.Repeat([]byte{b}, 32) }

// TestEncryptedFiles plants needles in every place that holds content, and looks at every byte of every file at each stage of
// the life of a database. The control: the same without a key is found in each kind of file.
func TestEncryptedFiles(t *testing.T) {
	t.Parallel()
	for _, key := range [][]byte{testKey(7), nil} {
		t.Run(fmt.Sprintf("key=%v", key != nil), func(t *testing.T) {
			t.Parallel()
			n := &needles{}
			dir := t.TempDir()
			path := filepath.Join(dir, "agent.ctx")
			looked := func(stage string) map[string]int {
				hits := n.hits(t, dir)
				if key != nil {
					require.Empty(t, hits, stage)
				}
				return hits
			}
			opts := Options{Key: key, Embedder: &needleVectors{n: n}}
			db := must(Open(path, opts))(t)
			trace, shown := plant(t, db, n)
			looked("open")
			killed := filepath.Join(dir, "killed.ctx")
			require.NoError(t, dbtest.Copy(path, killed))
			for range 2 {
				must(db.Admin().Checkpoint(ctx))(t)
			}
			inFile := looked("checkpoint")
			must(db.Admin().Compact(ctx, false, nil))(t)
			backup := filepath.Join(dir, "backup.ctx")
			must(db.Admin().Backup(ctx, backup, nil))(t)
			must(db.Admin().GC(ctx, GCOptions{}))(t)
			looked("backup, gc")
			heads := []manifest.Head{}
			h := must(db.Head(ctx))(t)
			heads = append(heads, h)
			must(db.Replay(ctx, trace))(t)
			require.True(t, must(db.Why(ctx, trace, Ref{Scope: shown.Scope, ID: shown.ID}))(t).In)
			whole(t, db, heads)
			require.NoError(t, db.Close())
			looked("close")

			for _, at := range []string{killed, path} {
				db = must(Open(at, opts))(t)
				v := must(db.Scope("acme/ann").Get(ctx, "child"))(t)
				require.Contains(t, v.Text, "kettle derived")
				found := must(hitsOf(db.Scope("acme/ann").Search(ctx, needle.FindString(v.Text), 10)))(t)
				require.NotEmpty(t, found, "the words of the index are found again")
				require.NoError(t, db.Close())
			}
			saved := filepath.Join(dir, "saved.ctx")
			require.NotZero(t, must(Salvage(ctx, path, saved, filestore.SalvageOptions{Key: key}))(t).Artefacts)
			looked("salvage")
			restored := filepath.Join(dir, "restored.ctx")
			if key != nil {
				require.ErrorIs(t, errOf(filestore.Restore(ctx, backup, restored, filestore.RestoreOptions{Key: key})), store.ErrKey, "a backup has no keyring")
				require.NoError(t, os.WriteFile(restored+".keys", must(os.ReadFile(path+".keys"))(t), 0o600))
			}
			must(filestore.Restore(ctx, backup, restored, filestore.RestoreOptions{Key: key}))(t)
			looked("restore")
			db = must(Open(restored, opts))(t)
			whole(t, db, nil)
			require.NoError(t, db.Close())
			if key == nil {
				require.NotEmpty(t, n.hits(t, dir)["backup.ctx"])
				require.NotEmpty(t, inFile["agent.ctx"], "control")
				require.Contains(t, fmt.Sprint(inFile), "agent.ctx-wal", "control")
				require.NotEmpty(t, n.hits(t, dir)["saved.ctx"], "control")
			}
		})
	}
}

// TestEncryptedEraseReachesBackups: what an erase took is not in a backup that was made before, whoever has the key and the
// keyring; the rest of that backup is. The control: with the keyring of before the erase it is all there.
func TestEncryptedEraseReachesBackups(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, backup := filepath.Join(dir, "agent.ctx"), filepath.Join(dir, "backup.ctx")
	opts := Options{Key: testKey(7)}
	db := must(Open(path, opts))(t)
	s := db.Scope("acme")
	for i := range 30 {
		must(s.Put(ctx, Artefact{ID: fmt.Sprint("ann-", i), Subject: "ann", Text: fmt.Sprint("kettle of ann ", i)}))(t)
		must(s.Put(ctx, Artefact{ID: fmt.Sprint("bob-", i), Subject: "bob", Text: fmt.Sprint("kettle of bob ", i)}))(t)
	}
	a := must(s.Assemble(ctx, Query{Text: "what of ann", Budget: 2000}))(t)
	must(db.Admin().Backup(ctx, backup, nil))(t)
	before := must(os.ReadFile(path + ".keys"))(t)
	must(db.Admin().Erase(ctx, ops.Request{Subject: "ann", By: "operator", Reason: "asked for"}))(t)
	must(s.Put(ctx, Artefact{ID: "ann-1", Subject: "ann", Text: "kettle of ann again"}))(t)
	require.NoError(t, db.Close())
	after := must(os.ReadFile(path + ".keys"))(t)
	require.NotEqual(t, before, after)

	db = must(Open(path, opts))(t)
	v := must(db.Scope("acme").Get(ctx, "ann-1"))(t)
	require.Equal(t, "kettle of ann again", v.Text, "what is put after an erase is kept")
	require.Empty(t, must(db.Admin().Check(ctx, nil))(t))
	require.NoError(t, db.Close())

	read := func(keyring []byte) (question string, ann error) {
		at := filepath.Join(t.TempDir(), "b.ctx")
		require.NoError(t, dbtest.Copy(backup, at))
		require.NoError(t, os.WriteFile(at+".keys", keyring, 0o600))
		db := must(Open(at, Options{Key: testKey(7), ReadOnly: true}))(t)
		defer db.Close()
		for i := range 30 {
			_, aerr := db.Scope("acme").Get(ctx, fmt.Sprint("ann-", i))
			_, berr := db.Scope("acme").Get(ctx, fmt.Sprint("bob-", i))
			require.True(t, i == 0 || (aerr == nil) == (ann == nil), "all of her or nothing")
			ann = aerr
			require.NoError(t, berr)
		}
		leaf := must(db.Manifests().ByTrace(ctx, a.Manifest.Trace))(t)
		question, err := db.Manifests().Question(ctx, leaf[0])
		require.True(t, err == nil || errors.Is(err, manifest.ErrNoQuestion), "%v", err)
		return question, ann
	}
	question, ann := read(after)
	require.ErrorIs(t, ann, store.ErrErased)
	require.Empty(t, question, "it was asked of her")
	question, ann = read(before)
	require.NoError(t, ann, "control")
	require.Equal(t, "what of ann", question, "control")
}

// TestEncryptedEraseCrash: an erase that is cut at any step destroys the keys at the next open.
func TestEncryptedEraseCrash(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, backup := filepath.Join(dir, "agent.ctx"), filepath.Join(dir, "backup.ctx")
	hook, steps := func(string) error { return nil }, []string{}
	db := must(openOver(path, Options{Key: testKey(7)}, filestore.Options{Hook: func(step string) error { return hook(step) }}))(t)
	for _, who := range []string{"ann", "bob"} {
		must(db.Scope("acme").Put(ctx, Artefact{ID: who, Subject: who, Text: "kettle of " + who}))(t)
	}
	must(db.Admin().Backup(ctx, backup, nil))(t)
	hook = func(step string) error {
		if len(steps) > 0 && steps[len(steps)-1] == step {
			return nil
		}
		require.NoError(t, dbtest.Copy(path, filepath.Join(dir, fmt.Sprintf("%02d.ctx", len(steps)))))
		steps = append(steps, step)
		return nil
	}
	must(db.Admin().Erase(ctx, ops.Request{Subject: "ann", By: "operator", Reason: "asked for"}))(t)
	hook = func(string) error { return nil }
	require.NoError(t, db.Close())
	require.Contains(t, steps, "keys planned")
	require.Contains(t, steps, "keys destroyed")
	begun := false
	for i, step := range steps {
		at := filepath.Join(dir, fmt.Sprintf("%02d.ctx", i))
		db, err := Open(at, Options{Key: testKey(7)})
		require.NoError(t, err, step)
		v, err := db.Scope("acme").Get(ctx, "bob")
		require.NoError(t, err, step)
		require.Equal(t, "kettle of bob", v.Text)
		_, err = db.Scope("acme").Recall(ctx, Ref{Scope: "acme", ID: "ann", Version: 1})
		begun = begun || step == "erase commit"
		require.Equal(t, begun, err != nil, "step %s: %v", step, err)
		require.NoError(t, db.Close())
		old := filepath.Join(dir, fmt.Sprintf("old-%02d.ctx", i))
		require.NoError(t, dbtest.Copy(backup, old))
		require.NoError(t, os.WriteFile(old+".keys", must(os.ReadFile(at+".keys"))(t), 0o600))
		db = must(Open(old, Options{Key: testKey(7), ReadOnly: true}))(t)
		_, err = db.Scope("acme").Get(ctx, "ann")
		if begun {
			require.ErrorIs(t, err, store.ErrErased, step)
		} else {
			require.NoError(t, err, step)
		}
		require.NoError(t, errOf(db.Scope("acme").Get(ctx, "bob")), step)
		require.NoError(t, db.Close())
	}
}

// smallEncrypted makes an encrypted database: some pages in the file, some in the log alone, as a kill leaves it.
func smallEncrypted(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "agent.ctx")
	db := must(Open(path, Options{Key: testKey(1)}))(t)
	for i := range 8 {
		must(db.Scope("acme").Put(ctx, Artefact{ID: fmt.Sprint("page-", i), Text: fmt.Sprint("kettle number ", i)}))(t)
		if i == 3 {
			must(db.Scope("acme").Assemble(ctx, Query{Text: "kettle", Budget: 500}))(t)
			must(db.Admin().Checkpoint(ctx))(t)
		}
	}
	killed := filepath.Join(t.TempDir(), "agent.ctx")
	require.NoError(t, dbtest.Copy(path, killed))
	require.NoError(t, db.Close())
	return killed
}

// allFiles are the files beside a path, without the lock.
func allFiles(t *testing.T, path string) map[string][]byte {
	t.Helper()
	all := must(dbtest.Files(filepath.Dir(path)))(t)
	delete(all, path+".lock")
	return all
}

// TestKeyFits: no key, a wrong key, a keyring that is missing or another's, a key for what is not encrypted: each is ErrKey, says
// what to do, and changes nothing.
func TestKeyFits(t *testing.T) {
	t.Parallel()
	path := smallEncrypted(t)
	other := smallEncrypted(t)
	before := allFiles(t, path)
	refused := func(opts Options, says string) {
		t.Helper()
		for _, opts.ReadOnly = range []bool{true, false} {
			if opts.Keyring != "" && !opts.ReadOnly {
				require.ErrorIs(t, errOf(Open(path, opts)), store.ErrInvalid, "an erase in a copy must not change the keyring of the original")
				continue
			}
			_, err := Open(path, opts)
			require.ErrorIs(t, err, store.ErrKey)
			require.ErrorContains(t, err, says)
		}
	}
	refused(Options{}, "Options.Key, dbctl --key-file")
	refused(Options{Key: testKey(2)}, "is wrapped by another key")
	refused(Options{Key: testKey(1), Keyring: other + ".keys"}, "is not the keyring of")
	refused(Options{Key: testKey(1), Keyring: path + ".gone"}, "put the keyring there")
	require.Equal(t, before, allFiles(t, path), "nothing was changed")
	for _, bad := range [][]byte{{}, testKey(1)[:31], make([]byte, 32)} {
		require.ErrorIs(t, errOf(Open(path, Options{Key: bad})), store.ErrInvalid)
	}
	_, _, err := filestore.OpenManifests(ctx, path, nil, "")
	require.ErrorIs(t, err, store.ErrKey)
	_, _, err = filestore.OpenManifests(ctx, path, testKey(2), "")
	require.ErrorIs(t, err, store.ErrKey)
	l, _, err := filestore.OpenManifests(ctx, path, testKey(1), "")
	require.NoError(t, err)
	size := must(l.Size(ctx))(t)
	require.Len(t, must(l.Records(ctx, 0, size, false, 100))(t), int(size))
	require.NoError(t, l.Close())
	require.ErrorIs(t, errOf(Salvage(ctx, path, filepath.Join(t.TempDir(), "to.ctx"), filestore.SalvageOptions{})), store.ErrKey)

	plain := filepath.Join(t.TempDir(), "plain.ctx")
	db := must(Open(plain, Options{}))(t)
	require.NoError(t, db.Close())
	_, err = Open(plain, Options{Key: testKey(1)})
	require.ErrorIs(t, err, store.ErrKey)
	require.ErrorContains(t, err, "is not encrypted; open it without a key, or encrypt it first")
	require.NoFileExists(t, plain+".keys")

	require.NoError(t, filestore.Rotate(filestore.Options{Path: path, Key: testKey(1)}, testKey(3)))
	refused(Options{Key: testKey(1)}, "is wrapped by another key")
	db = must(Open(path, Options{Key: testKey(3)}))(t)
	require.Equal(t, "kettle number 7", must(db.Scope("acme").Get(ctx, "page-7"))(t).Text)
	require.ErrorIs(t, filestore.Rotate(filestore.Options{Path: path, Key: testKey(3)}, testKey(4)), store.ErrLocked)
	require.NoError(t, db.Close())
}

// TestEncryptedMoved: a sealed value that is put in the place of another one is damage, although both are sound where they were.
func TestEncryptedMoved(t *testing.T) {
	t.Parallel()
	path := smallEncrypted(t)
	file, err := bbolt.Open(path, 0o600, nil)
	require.NoError(t, err)
	require.NoError(t, file.Update(func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte("content"))
		one, two := format.TextRowKey(1), format.TextRowKey(2)
		v, w := bytes.Clone(b.Get(one)), bytes.Clone(b.Get(two))
		require.NotEmpty(t, v)
		require.NotEmpty(t, w)
		return errors.Join(b.Put(one, w), b.Put(two, v))
	}))
	require.NoError(t, file.Close())
	db := must(Open(path, Options{Key: testKey(1)}))(t)
	for id, moved := range map[string]bool{"page-0": true, "page-1": true, "page-2": false, "page-6": false} {
		_, err = db.Scope("acme").Get(ctx, id)
		require.Equal(t, moved, errors.Is(err, store.ErrCorrupt), "%s: %v", id, err)
	}
	require.Len(t, must(db.Admin().Check(ctx, nil))(t), 2)
	require.NoError(t, db.Close())
}

// TestEncryptedFlips turns bits all over the files of an encrypted database: it opens or is damaged, and what it says is what was
// put, or an error. Never a panic, never another text.
func TestEncryptedFlips(t *testing.T) {
	t.Parallel()
	path := smallEncrypted(t)
	at := filepath.Join(t.TempDir(), "agent.ctx")
	damaged, tried := 0, 0
	for name, b := range allFiles(t, path) {
		step := max(1, len(b)/dbtest.Times(4, 12, 400))
		for i := step / 2; i < len(b); i += step {
			if b[i] == 0 { // most of it is space that nobody reads
				continue
			}
			tried++
			require.NoError(t, dbtest.Copy(path, at))
			turned := bytes.Clone(b)
			turned[i] ^= 0x10
			require.NoError(t, os.WriteFile(at+name[len(path):], turned, 0o600))
			db, err := Open(at, Options{Key: testKey(1)})
			if err != nil {
				damaged++
				require.True(t, errors.Is(err, store.ErrCorrupt) || errors.Is(err, store.ErrKey) || errors.Is(err, store.ErrNewerFormat) || errors.Is(err, store.ErrNotDatabase), "%s, byte %d: %v", name, i, err)
				require.NoError(t, os.RemoveAll(filepath.Dir(at)))
				require.NoError(t, os.Mkdir(filepath.Dir(at), 0o700))
				continue
			}
			for n := range 8 {
				v, err := db.Scope("acme").Get(ctx, fmt.Sprint("page-", n))
				if err == nil {
					require.Equal(t, fmt.Sprint("kettle number ", n), v.Text)
				} else {
					damaged++
				}
			}
			_ = db.Close() // a checkpoint may find it
			require.NoError(t, os.RemoveAll(filepath.Dir(at)))
			require.NoError(t, os.Mkdir(filepath.Dir(at), 0o700))
		}
	}
	require.NotZero(t, damaged, "control: of %d bits some are noticed", tried)
}

// An erase takes names out of an encrypted database, too: its archive is written anew with stubs in sealed bodies. A snapshot
// of the columns is kept beside a plain database only; the control has one.
func TestEncryptedEraseNames(t *testing.T) {
	t.Parallel()
	n := &needles{}
	for _, key := range [][]byte{testKey(7), nil} {
		path := filepath.Join(t.TempDir(), "agent.ctx")
		opts, files := Options{Key: key}, filestore.Options{Columns: 1}
		db := must(openOver(path, opts, files))(t)
		scope, _, _, bob := plantNames(t, db, n)
		head := must(db.Head(ctx))(t)
		for range 2 {
			must(db.Admin().Checkpoint(ctx))(t)
		}
		rep := must(db.Admin().Erase(ctx, ops.Request{Scope: scope, By: "operator", Reason: "asked for", Cascade: ops.Erase, Names: true}))(t)
		require.NotZero(t, rep.Done.Bodies)
		require.NoError(t, db.Close())
		require.Empty(t, n.hits(t, filepath.Dir(path)))
		_, err := os.Stat(path + ".columns")
		require.Equal(t, key != nil, errors.Is(err, os.ErrNotExist), "a snapshot has ids, tags and metadata")
		db = must(openOver(path, opts, files))(t)
		whole(t, db, []manifest.Head{head})
		require.True(t, must(db.Replay(ctx, bob))(t).Same)
		require.NoError(t, db.Close())
	}
}

// TestSalvageAsksForTheRightKey: a database that was decrypted is salvaged without its key, although its keyring stays beside
// it. An encrypted one asks for its key, with its keyring and without, and also where its system row is lost.
func TestSalvageAsksForTheRightKey(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, key := filepath.Join(dir, "agent.ctx"), testKey(9)
	db := must(Open(path, Options{Key: key}))(t)
	must(db.Scope("acme").Put(ctx, Artefact{ID: "tea", Text: "the kettle is warm"}))(t)
	require.NoError(t, db.Close())
	salvage := func(name string, key []byte) (filestore.Salvaged, error) {
		return Salvage(ctx, path, filepath.Join(dir, name), filestore.SalvageOptions{Key: key})
	}
	_, err := salvage("a", nil)
	require.ErrorIs(t, err, store.ErrKey)
	require.ErrorContains(t, err, "give its key")
	ring := must(os.ReadFile(path + ".keys"))(t)
	require.NoError(t, os.Remove(path+".keys"))
	require.ErrorIs(t, errOf(salvage("b", nil)), store.ErrKey)
	file := must(os.ReadFile(path))(t)
	require.NoError(t, os.WriteFile(path, make([]byte, len(file)), 0o600))
	require.ErrorIs(t, errOf(salvage("c", nil)), store.ErrKey, "the log tells")
	require.NoError(t, os.WriteFile(path, file, 0o600))
	require.NoError(t, os.WriteFile(path+".keys", ring, 0o600))

	must(filestore.RemoveKey(ctx, filestore.Options{Path: path, Key: key, State: StateKinds()}, filestore.RekeyOptions{By: "ops"}))(t)
	_, err = salvage("d", key)
	require.ErrorIs(t, err, store.ErrKey)
	require.ErrorContains(t, err, "is not encrypted")
	rep, err := salvage("e", nil)
	require.NoError(t, err, "it is plain")
	require.Equal(t, 1, rep.Artefacts)
}

// Options.Rand repeats ids, never keys or nonces: two encrypted databases of the same randomness have different keyrings and
// different rows. The control: without a key their rows are the same.
func TestRandMakesNoKeys(t *testing.T) {
	t.Parallel()
	made := func(key []byte) (keyring, row []byte) {
		path := filepath.Join(t.TempDir(), "agent.ctx")
		now := time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)
		db := must(Open(path, Options{Key: key, Rand: rand.NewChaCha8([32]byte{1}), Clock: func() time.Time { return now }}))(t)
		require.EqualValues(t, 1, must(db.Scope("acme").Put(t.Context(), Artefact{ID: "a", Text: "one"}))(t).Version)
		require.NoError(t, db.Close())
		keyring, _ = os.ReadFile(path + ".keys")
		file := must(bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true}))(t)
		defer file.Close()
		require.NoError(t, file.View(func(tx *bbolt.Tx) error {
			_, v := tx.Bucket([]byte("content")).Cursor().First()
			row = bytes.Clone(v)
			return nil
		}))
		require.NotEmpty(t, row)
		return keyring, row
	}
	ring1, row1 := made(testKey(7))
	ring2, row2 := made(testKey(7))
	require.NotEmpty(t, ring1)
	require.NotEqual(t, ring1, ring2)
	require.NotEqual(t, row1, row2)
	_, plain1 := made(nil)
	_, plain2 := made(nil)
	require.Equal(t, plain1, plain2, "control")
}

// TestAddKey: a plain database that has everything is encrypted in place. No file has a needle then, every older head verifies,
// contexts are replayed, and the content is the same; the key is removed again, and it is the same once more.
func TestAddKey(t *testing.T) {
	t.Parallel()
	n := &needles{}
	dir := t.TempDir()
	path := filepath.Join(dir, "agent.ctx")
	vectors := &needleVectors{n: n}
	db := must(Open(path, Options{Embedder: vectors}))(t)
	trace, shown := plant(t, db, n)
	must(db.Scope("acme/cem").Put(ctx, Artefact{ID: "cem", Text: "gnu"}))(t)
	erased := must(db.Admin().Erase(ctx, ops.Request{Scope: "acme/cem", By: "ann", Reason: "asked", Names: true}))(t)
	require.NotZero(t, erased.Done.Bodies, "the archive has stubs")
	h := must(db.Head(ctx))(t)
	heads := []manifest.Head{h}
	lines := func(db *DB) string {
		var b bytes.Buffer
		must(db.Admin().Export(ctx, &b, portable.ExportOptions{}))(t)
		_, rest, _ := bytes.Cut(b.Bytes(), []byte("\n")) // the header has the time
		return string(rest[:bytes.LastIndexByte(rest[:len(rest)-1], '\n')])
	}
	before := lines(db)
	require.NoError(t, db.Close())
	require.NotEmpty(t, n.hits(t, dir), "control: before")
	key := filestore.Options{Path: path, Key: testKey(7)}

	require.Positive(t, must(filestore.AddKey(ctx, key, filestore.RekeyOptions{By: "ann", DryRun: true}))(t).Before)
	require.NoFileExists(t, path+".keys", "a dry run writes nothing")
	steps := 0
	rep := must(filestore.AddKey(ctx, key, filestore.RekeyOptions{By: "ann", Progress: func(string, uint64, uint64) { steps++ }}))(t)
	require.Positive(t, rep.After)
	require.Positive(t, steps)
	require.Empty(t, n.hits(t, dir), "after")
	for _, name := range must(os.ReadDir(dir))(t) {
		require.NotContains(t, name.Name(), ".re", "nothing is left beside it")
	}
	require.ErrorIs(t, errOf(filestore.AddKey(ctx, key, filestore.RekeyOptions{By: "ann"})), store.ErrKey, "it is encrypted")
	require.ErrorIs(t, errOf(Open(path, Options{})), store.ErrKey)

	same := func(opts Options) {
		t.Helper()
		opts.Embedder = vectors
		db := must(Open(path, opts))(t)
		must(db.Replay(ctx, trace))(t)
		require.True(t, must(db.Why(ctx, trace, Ref{Scope: shown.Scope, ID: shown.ID}))(t).In)
		require.Equal(t, before, lines(db))
		v := must(db.Scope("acme/ann").Get(ctx, "child"))(t)
		require.NotEmpty(t, must(hitsOf(db.Scope("acme/ann").Search(ctx, needle.FindString(v.Text), 10)))(t))
		whole(t, db, heads)
		h := must(db.Head(ctx))(t)
		heads = append(heads, h)
		require.NoError(t, db.Close())
	}
	same(Options{Key: testKey(7)})
	require.Empty(t, n.hits(t, dir), "after a reopen")
	require.ErrorIs(t, errOf(filestore.RemoveKey(ctx, filestore.Options{Path: path, Key: testKey(8)}, filestore.RekeyOptions{By: "ann"})), store.ErrKey, "another key")
	must(filestore.RemoveKey(ctx, key, filestore.RekeyOptions{By: "ann"}))(t)
	require.NotEmpty(t, n.hits(t, dir), "plain again")
	same(Options{})
	require.NoError(t, errOf(filestore.AddKey(ctx, key, filestore.RekeyOptions{By: "ann"})), "with the keyring that is there")
	same(Options{Key: testKey(7)})
}
