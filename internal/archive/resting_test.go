package archive

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/wal"
	"github.com/stretchr/testify/require"
)

// countFS counts the files that are open.
type countFS struct {
	wal.FS
	mu   sync.Mutex
	open int
}

type countFile struct {
	wal.File
	fs *countFS
}

func (c *countFS) OpenFile(name string, flag int, perm os.FileMode) (wal.File, error) {
	f, err := c.FS.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	c.add(1)
	return countFile{f, c}, nil
}

func (c *countFS) add(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open += n
	return c.open
}

func (f countFile) Close() error {
	f.fs.add(-1)
	return f.File.Close()
}

func (f countFile) Stat() (os.FileInfo, error) {
	return f.File.(interface{ Stat() (os.FileInfo, error) }).Stat()
}

// TestRest: an archive at rest has no file open. Reads and archiving wake it and are told of; so are views that began before
// a prune, whose files have lost their names by then. A file that was replaced during the rest is refused, not read. The
// control is the same file in its place.
func TestRest(t *testing.T) {
	ctx, fsys, dir := context.Background(), &countFS{FS: wal.OS()}, filepath.Join(t.TempDir(), "m")
	l, _, err := Open(ctx, dir, fsys, Options{DB: "d", SegmentSize: 1 << 10})
	require.NoError(t, err)
	woken := 0
	rest := func() {
		l.Rest(func() { woken++ })
		require.Zero(t, fsys.add(0))
	}
	leaf := func(i uint64) *manifest.Record {
		r := sampleRecord(i)
		r.Index = i
		return r
	}
	add := func(from, to uint64) {
		for i := from; i < to; i++ {
			body := must(Encode(leaf(i)))(t)
			require.NoError(t, l.Add(i, body))
		}
		require.NoError(t, l.Archive(ctx, to))
	}
	add(0, 20)
	rest()
	add(20, 40)
	require.Positive(t, woken)
	rest()
	for i := range uint64(40) {
		r := must(l.Leaf(i))(t)
		require.Equal(t, testTrace(i), r.Trace)
		rest()
	}
	rep := must(l.Verify(ctx, nil, nil))(t)
	require.Zero(t, rep.Found)

	var wg sync.WaitGroup // rests come at any moment of a read
	for g := range 4 {
		wg.Go(func() {
			for i := range uint64(200) {
				if g == 0 {
					l.Rest(func() {})
				} else if _, err := l.Leaf(i % 40); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()

	rest()
	name := filepath.Join(dir, indexFile(0))
	b := must(os.ReadFile(name))(t)
	require.NoError(t, os.Rename(name, name+".away"))
	require.NoError(t, os.WriteFile(name, b, 0o600))
	require.ErrorIs(t, errOf(l.Leaf(3)), errReplaced)
	require.NoError(t, os.Rename(name+".away", name))
	require.NoError(t, errOf(l.Leaf(3)), "the control")
	rest()
	require.NoError(t, l.Close())
	require.ErrorIs(t, errOf(l.Leaf(3)), ErrClosed)
	require.Zero(t, fsys.add(0))
}

// TestRestAndPrune: a view that began before a prune goes on with the old files, though they rested and have lost their names.
func TestRestAndPrune(t *testing.T) {
	ctx, dir := context.Background(), filepath.Join(t.TempDir(), "m")
	l, _, err := Open(ctx, dir, nil, Options{DB: "d", SegmentSize: 1500})
	require.NoError(t, err)
	for i := range uint64(60) {
		r := sampleRecord(i)
		r.Index = i
		body := must(Encode(r))(t)
		require.NoError(t, l.Add(i, body))
	}
	require.NoError(t, l.Archive(ctx, 60))
	before := must(l.view())(t)
	p := planned(t, l, 5, 30)
	l.Rest(func() {})
	require.NoError(t, l.Prune(ctx, p))
	for range 2 {
		old := must(before.leaf(5))(t)
		require.Equal(t, "acme:page-5@1", old.Writes[0].Ref)
		l.Rest(func() {})
	}
	require.ErrorIs(t, errOf(l.Body(5)), manifest.ErrPruned)
	require.NoError(t, l.Close())
	require.NoError(t, before.arch.close()) // its files have no name any more, or cannot lose it before they are closed
}
