package filestore

import (
	"encoding/binary"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"
)

// After a boot the pages that every open walks are read in large requests, and the texts, which no open needs, are not.
// To ask whether a page is there makes the kernel fetch it, so the control is a file of its own.
func TestWarmReadsWhatOpensWalk(t *testing.T) {
	heads, texts := missingOf(t, func(*os.File, int64) {})
	if heads < 500 || texts < 500 {
		t.Skipf("the kernel keeps files in its page cache: %d and %d leaves are not there after it was told to drop them", heads, texts)
	}
	headsBefore, textsBefore := heads, texts
	heads, texts = missingOf(t, readRows)
	require.Less(t, heads, headsBefore/10, "leaves of meta that are not in the page cache; the kernel may drop some again")
	require.Greater(t, texts, textsBefore/2, "texts are not read")

	f, size := coldFile(t)
	must(io.Copy(io.Discard, io.NewSectionReader(f, 0, size)))(t)
	require.True(t, inPageCache(f, size), "a file that was read")
}

// missingOf counts the leaves of meta and content that are not in the page cache after read.
func missingOf(t *testing.T, read func(*os.File, int64)) (heads, texts int) {
	f, size := coldFile(t)
	m := must(newestMeta(f, size))(t)
	read(f, size)
	w := &warming{f: f, m: m}
	roots := w.buckets()
	w.leaves(roots["meta"])
	heads = missing(t, f, w.ids, m.pageSize)
	w.ids = nil
	w.leaves(roots["content"])
	return heads, missing(t, f, w.ids, m.pageSize)
}

// A damaged file costs no more than a whole one: a circle ends, and so does what leads out of the file.
func TestWarmEndsOnDamage(t *testing.T) {
	f, size := coldFile(t)
	m := must(newestMeta(f, size))(t)
	root := (&warming{f: f, m: m}).buckets()["meta"]
	for name, child := range map[string]uint64{"a circle": root, "outside": m.high + 5, "a meta page": 0} {
		b := make([]byte, 8)
		binary.NativeEndian.PutUint64(b, child)
		_, err := f.WriteAt(b, int64(root)*m.pageSize+boltPageHead+8) // the first child of the root
		require.NoError(t, err)
		w := &warming{f: f, m: m}
		w.leaves(root)
		w.read()
		require.LessOrEqual(t, uint64(len(w.ids)), m.high, name)
	}
}

// coldFile is a file of bbolt with two large buckets, which the kernel was told to drop from its page cache.
func coldFile(t *testing.T) (*os.File, int64) {
	path := filepath.Join(t.TempDir(), "cold")
	db := must(bbolt.Open(path, 0o600, &bbolt.Options{NoSync: true, FreelistType: bbolt.FreelistMapType}))(t)
	for _, bucket := range []string{"meta", "content"} {
		require.NoError(t, db.Update(func(tx *bbolt.Tx) error {
			b, err := tx.CreateBucket([]byte(bucket))
			for i := uint64(0); i < 20_000 && err == nil; i++ {
				err = b.Put(binary.BigEndian.AppendUint64(nil, i), make([]byte, 200))
			}
			return err
		}))
	}
	require.NoError(t, db.Sync())
	require.NoError(t, db.Close())
	f := must(os.OpenFile(path, os.O_RDWR, 0))(t)
	t.Cleanup(func() { f.Close() })
	require.NoError(t, unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_RANDOM)) // no reading ahead on this handle: it would hide what is missing
	require.NoError(t, unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
	st := must(f.Stat())(t)
	return f, st.Size()
}

// missing counts the pages that are not in the page cache.
func missing(t *testing.T, f *os.File, ids []uint64, pageSize int64) (n int) {
	for _, id := range ids {
		_, err := unix.Preadv2(int(f.Fd()), [][]byte{make([]byte, 1)}, int64(id)*pageSize, unix.RWF_NOWAIT)
		if err == unix.EAGAIN {
			n++
			continue
		}
		if err == unix.EOPNOTSUPP {
			t.Skip("this file system cannot tell what is in the page cache")
		}
		require.NoError(t, err)
	}
	return n
}
