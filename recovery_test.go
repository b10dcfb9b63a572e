package ctxpage

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/manifest"
)

// brokenReader is a source of randomness that fails.
type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errors.New("no randomness") }

// TestRecoveredIsToldLater: an open that recovered and could not say so is no clean end; the next open says it.
func TestRecoveredIsToldLater(t *testing.T) {
	ctx := context.Background()
	told := func(db *DB) (n int) {
		require.NoError(t, db.Manifests().Each(ctx, 0, db.Manifests().Size(), false, func(r *manifest.Record) error {
			if r.Type == manifest.TypeRecovered {
				n++
			}
			return nil
		}))
		return n
	}
	r := newRig(t, Options{})
	db, err := r.open()
	require.NoError(t, err)
	_, err = db.Scope("acme").Put(ctx, Artefact{ID: "page", Text: "text"})
	require.NoError(t, err)
	require.NoError(t, r.restart(db, r.cut(1, 0)))

	r.opts.Rand = brokenReader{}
	_, err = r.open()
	require.ErrorContains(t, err, "no randomness")
	r.opts.Rand = nil
	db, err = r.open()
	require.NoError(t, err)
	require.Equal(t, 1, told(db))
	require.NoError(t, db.Close())
	db, err = r.open()
	require.NoError(t, err)
	require.Equal(t, 1, told(db), "the end was clean: there is nothing to tell")
	require.NoError(t, db.Close())
}

// TestCreationCut: whatever a power cut leaves of bbolt's first write into a new file, the database is made anew; of any
// other small file not a byte is touched.
func TestCreationCut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.ctx")
	raw, err := bbolt.Open(path, 0o600, nil)
	require.NoError(t, err)
	require.NoError(t, raw.Close())
	first, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, first, firstPages(os.Getpagesize()), "what bbolt writes")
	rng := rand.New(rand.NewPCG(1, 2))
	for n := range 40 {
		left := bytes.Clone(first)
		for at := 0; at < len(left); at += sectorBytes {
			if n < 2 || rng.IntN(2) == 0 {
				clear(left[at : at+sectorBytes])
			}
		}
		if n%2 == 1 {
			left = left[:rng.IntN(len(left))]
		}
		require.NoError(t, os.WriteFile(path, left, 0o600))
		db := openTest(t, path, Options{})
		require.NoError(t, db.Close())
		for _, suffix := range databaseFiles {
			require.NoError(t, os.RemoveAll(path+suffix))
		}
	}
	left := make([]byte, 8192)
	left[5000] = 1
	require.NoError(t, os.WriteFile(path, left, 0o600))
	_, err = Open(path, Options{})
	require.ErrorIs(t, err, ErrCorrupt)
	require.ErrorContains(t, err, "move it away")
	now, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, left, now)
}

// TestStrangersFile: a bbolt file of another program is not made a database of ours.
func TestStrangersFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "theirs.db")
	raw, err := bbolt.Open(path, 0o600, nil)
	require.NoError(t, err)
	require.NoError(t, raw.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucket([]byte("theirs"))
		return err
	}))
	require.NoError(t, raw.Close())
	before, err := os.ReadFile(path)
	require.NoError(t, err)
	for _, opts := range []Options{{}, {ReadOnly: true}} {
		_, err = Open(path, opts)
		require.ErrorIs(t, err, ErrCorrupt)
		require.ErrorContains(t, err, "another program's file")
	}
	now, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, before, now)
	require.NoDirExists(t, path+"-wal")
}

// TestSparseGiant: a file that is large by its name only, with a high-water mark to match, is refused before anything is
// mapped or made in its size; one that merely grew ahead is not.
func TestSparseGiant(t *testing.T) {
	path := closedDatabase(t)
	good, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.Truncate(path, 1<<32)) // ahead of its pages
	require.NoError(t, openTest(t, path, Options{}).Close())

	require.NoError(t, os.WriteFile(path, good, 0o600))
	require.NoError(t, os.Truncate(path, 1<<40))
	setHigh(t, path, 1<<28)
	bytesBefore := allocated()
	for _, opts := range []Options{{}, {ReadOnly: true}} {
		_, err = Open(path, opts)
		require.ErrorIs(t, err, ErrCorrupt)
		require.ErrorContains(t, err, "holes")
	}
	require.Less(t, allocated()-bytesBefore, uint64(32<<20))
	require.NoError(t, os.WriteFile(path, good, 0o600))
	require.NoError(t, openTest(t, path, Options{}).Close())
}

// setHigh forges the high-water mark of both meta pages.
func setHigh(t *testing.T, path string, high uint64) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close()
	for id := range int64(2) {
		b := make([]byte, boltMetaSize)
		_, err = f.ReadAt(b, id*int64(os.Getpagesize())+boltPageHead)
		require.NoError(t, err)
		binary.NativeEndian.PutUint64(b[40:], high)
		h := fnv.New64a()
		h.Write(b[:boltMetaSize-8])
		binary.NativeEndian.PutUint64(b[boltMetaSize-8:], h.Sum64())
		_, err = f.WriteAt(b, id*int64(os.Getpagesize())+boltPageHead)
		require.NoError(t, err)
	}
}

// restoreLeft says which text a database at path answers with.
func textAt(path string) (string, error) {
	db, err := Open(path, Options{})
	if err != nil {
		return "", err
	}
	text, err := textOf(db.Scope("acme"), "page")
	problems, cerr := db.Check(context.Background(), nil)
	if len(problems) > 0 {
		err = fmt.Errorf("%+v", problems)
	}
	return text, errors.Join(err, cerr, db.Close())
}


func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}
