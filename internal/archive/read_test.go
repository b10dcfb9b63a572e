package archive

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/wal"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestEach(t *testing.T) {
	const size = 700 // more than a block, archived and not
	f, _ := builtArchive(t, 600)
	l, _ := openLog(t, f, Options{})
	fill(t, l, size)
	rapid.Check(t, func(t *rapid.T) {
		from := rapid.Uint64Range(0, size+10).Draw(t, "from")
		to := rapid.Uint64Range(0, size+10).Draw(t, "to")
		reverse := rapid.Bool().Draw(t, "reverse")
		var got, want []uint64
		require.NoError(t, l.Each(ctx, from, to, reverse, func(r *manifest.Record) error {
			require.Equal(t, testTrace(r.Index), r.Trace)
			got = append(got, r.Index)
			return nil
		}))
		for i := from; i < min(to, size); i++ {
			want = append(want, i)
		}
		if reverse {
			for a, b := 0, len(want)-1; a < b; a, b = a+1, b-1 {
				want[a], want[b] = want[b], want[a]
			}
		}
		require.Equal(t, want, got)
	})
	stop := errors.New("enough")
	require.ErrorIs(t, l.Each(ctx, 0, size, false, func(*manifest.Record) error { return stop }), stop)
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	require.ErrorIs(t, l.Each(canceled, 0, size, false, func(*manifest.Record) error { return nil }), context.Canceled)
}

// TestEachDamaged: everything before a damaged leaf is read, then its error.
func TestEachDamaged(t *testing.T) {
	f, _ := builtArchive(t, 40)
	name := filepath.Join(testDir, indexName)
	b := must(f.ReadFile(name))(t)
	b[rowOffset(17)+20] ^= 1
	f.WriteFile(name, b)
	l, _ := openLog(t, f, Options{})
	n := uint64(0)
	err := l.Each(ctx, 0, 40, false, func(r *manifest.Record) error { n++; return nil })
	damaged := &codec.CorruptError{}
	require.ErrorAs(t, err, &damaged)
	require.Equal(t, codec.UnitLeaf, damaged.Unit)
	require.EqualValues(t, 17, damaged.Num)
	require.EqualValues(t, 17, n)
	require.ErrorAs(t, errOf(l.ByTrace(ctx, testTrace(3))), &damaged, "a search that cannot see all does not say that there is nothing more")
}

func TestByTrace(t *testing.T) {
	f, _ := builtArchive(t, 90)
	l, _ := openLog(t, f, Options{})
	fill(t, l, 100)
	for i := range uint64(100) {
		got := must(l.ByTrace(ctx, testTrace(i)))(t)
		want := []uint64{i}
		if i%3 == 1 && i < 99 { // its commit follows it
			want = append(want, i+1)
		}
		var have []uint64
		for _, r := range got {
			have = append(have, r.Index)
		}
		require.Equal(t, want, have)
	}
	require.ErrorIs(t, errOf(l.ByTrace(ctx, "01J9ZK4D7Q9999999999999999")), manifest.ErrNoLeaf)
}

// TestByTraceCollision: leaves whose hash in the index is the same are told
// apart by the trace itself.
func TestByTraceCollision(t *testing.T) {
	f := newFS(t)
	l, _ := openLog(t, f, Options{})
	fill(t, l, 4)
	for k := range l.now.tail {
		l.now.tail[k].row.trace = HashTrace(testTrace(2))
	}
	got := must(l.ByTrace(ctx, testTrace(2)))(t)
	require.Len(t, got, 1)
	require.EqualValues(t, 2, got[0].Index)
}

func TestWrittenAndNames(t *testing.T) {
	f, _ := builtArchive(t, 60)
	l, _ := openLog(t, f, Options{})
	fill(t, l, 62)
	add := func(r *manifest.Record) {
		b := must(Encode(r))(t)
		require.NoError(t, l.Add(l.Size(), b))
	}
	add(&manifest.Record{Type: manifest.TypeCommit, Trace: "x", Writes: []manifest.Write{{Num: 5, Ref: "acme:page-5@2", Version: 2, Digest: manifest.Digest{9}}, {Num: 8, Ref: "acme:page-8@1", Version: 1, Touch: true}}})
	add(&manifest.Record{Type: manifest.TypeGC, Trace: "y", Writes: []manifest.Write{{Num: 5, Ref: "acme:page-5@1", Version: 1, Gone: true}, {Num: 5, Ref: "acme:page-5@2", Version: 2, Gone: true}}})
	r, w, err := l.Written(ctx, 5, 2)
	require.NoError(t, err)
	require.EqualValues(t, 62, r.Index)
	require.Equal(t, manifest.Digest{9}, w.Digest)
	r, w, err = l.Written(ctx, 5, 1)
	require.NoError(t, err)
	require.EqualValues(t, 5, r.Index)
	require.Equal(t, "acme:page-5@1", w.Ref)
	r, _, err = l.Written(ctx, 8, 1)
	require.NoError(t, err)
	require.EqualValues(t, 8, r.Index, "a touch wrote nothing")
	_, _, err = l.Written(ctx, 5, 3)
	require.ErrorIs(t, err, manifest.ErrNoLeaf)

	names := must(l.Names(ctx))(t)
	require.Len(t, names, 20)
	require.Equal(t, "acme:page-5@2", names[5], "a drop names no page")
	noted := map[uint64]string{}
	require.NoError(t, l.Each(ctx, 0, 64, false, func(r *manifest.Record) error {
		for _, w := range r.Writes {
			if !w.Gone {
				noted[w.Num] = w.Ref
			}
		}
		return nil
	}))
	require.Equal(t, noted, names)
}

// TestOpenReader: leaves that move from the log into the archive between the
// two looks are found at the next.
func TestOpenReader(t *testing.T) {
	f, _ := builtArchive(t, 10)
	owner, _ := openLog(t, f, Options{})
	fill(t, owner, 20)
	looks := 0
	tail := func(add func(uint64, []byte) error) error {
		if looks++; looks == 1 {
			require.NoError(t, owner.Archive(ctx, 15)) // and the log lets go of them
		}
		for i := uint64(13); i < 20; i++ {
			if err := add(i, sampleBody(t, i)); err != nil {
				return err
			}
		}
		return nil
	}
	l, rep, err := OpenReader(ctx, testDir, f, nil, tail)
	require.NoError(t, err)
	require.Equal(t, 2, looks)
	require.EqualValues(t, 15, rep.Archived)
	checkPrefix(t, l, 20, 20)
	require.NoError(t, owner.Archive(ctx, 20))
	require.NoError(t, errOf(l.Verify(ctx, nil, nil)), "the archive may grow beside a reader")
	require.NoError(t, l.Close())

	_, _, err = OpenReader(ctx, testDir, f, nil, func(add func(uint64, []byte) error) error { return add(99, sampleBody(t, 99)) })
	require.ErrorIs(t, err, ErrGap)
	stop := errors.New("stop")
	_, _, err = OpenReader(ctx, testDir, f, nil, func(func(uint64, []byte) error) error { return stop })
	require.ErrorIs(t, err, stop)
}

// TestConcurrent: adding, archiving and all ways of reading at once.
func TestConcurrent(t *testing.T) {
	const size = 600
	f := newFS(t)
	l, _ := openLog(t, f, Options{SegmentSize: 5000})
	bodies := make([][]byte, size)
	for i := range bodies {
		bodies[i] = sampleBody(t, uint64(i))
	}
	var wg sync.WaitGroup
	errs := make(chan error, 64)
	done := make(chan struct{})
	loop := func(fn func() error) {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if err := fn(); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	loop(func() error { return l.Archive(ctx, l.Size()) })
	loop(func() error { _, err := l.Verify(ctx, nil, nil); return err })
	loop(func() error {
		n := l.Size()
		if n == 0 {
			return nil
		}
		b, err := l.Mark(n)
		if err == nil {
			err = l.CheckMark(b)
		}
		if err == nil {
			_, err = l.ProveInclusion(n/2, n)
		}
		return err
	})
	loop(func() error {
		next := uint64(0)
		return l.Each(ctx, 0, size, false, func(r *manifest.Record) error {
			if r.Index != next || r.Trace != testTrace(next) {
				return errors.New("a leaf out of order")
			}
			next++
			return nil
		})
	})
	loop(func() error {
		_, err := l.ByTrace(ctx, testTrace(7))
		if errors.Is(err, manifest.ErrNoLeaf) {
			err = nil
		}
		return err
	})
	for i, b := range bodies {
		if err := l.Add(uint64(i), b); err != nil {
			errs <- err
			break
		}
	}
	close(done)
	wg.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
	require.NoError(t, l.Archive(ctx, size))
	checkPrefix(t, l, size, size)
	must(l.Verify(ctx, nil, nil))(t)
}

// A wait ends with the next leaf, with its time, or with the log.
func TestWait(t *testing.T) {
	l, _, err := Open(ctx, "m", newFS(t), Options{DB: "db"})
	require.NoError(t, err)
	r := l.Reader(nil)
	size := must(r.Wait(ctx, 0, time.Millisecond))(t)
	require.Zero(t, size)
	type answer struct {
		size uint64
		err  error
	}
	wait := func(size uint64) chan answer {
		told := make(chan answer, 1)
		go func() {
			now, err := r.Wait(ctx, size, time.Hour)
			told <- answer{now, err}
		}()
		return told
	}
	one, two := wait(0), wait(1)
	require.NoError(t, l.Add(0, sampleBody(t, 0)))
	require.Equal(t, answer{1, nil}, <-one)
	require.NoError(t, l.Add(1, sampleBody(t, 1)))
	require.Equal(t, answer{2, nil}, <-two)
	require.Equal(t, answer{2, nil}, <-wait(0), "it is there already")
	three := wait(2)
	require.NoError(t, l.Close())
	require.ErrorIs(t, (<-three).err, ErrClosed)
}

// numbered is an audit of leaves without content. It gives fewer at a time than it is asked for, as a store may, and the
// later ones of two calls first.
type numbered struct {
	bad     uint64 // the leaf that cannot be read
	reading atomic.Int64
	most    atomic.Int64
}

var errBad = errors.New("it cannot be read")

func (a *numbered) Records(ctx context.Context, from, to uint64, _ bool, limit int) (out []*manifest.Record, err error) {
	n := a.reading.Add(1)
	defer a.reading.Add(-1)
	for was := a.most.Load(); n > was && !a.most.CompareAndSwap(was, n); was = a.most.Load() {
	}
	if from/leavesAhead%2 == 0 {
		time.Sleep(100 * time.Microsecond)
	}
	for i := from; i < min(to, from+uint64(min(limit, 50))); i++ {
		if i == a.bad {
			return out, errBad
		}
		out = append(out, &manifest.Record{Index: i})
	}
	return out, ctx.Err()
}

// Leaves come in their order, however many readers decode them, and each error comes where it is.
func TestEachAhead(t *testing.T) {
	t.Parallel()
	errFn := errors.New("enough")
	for _, c := range []struct{ size, bad, stop, want uint64 }{
		{0, 9000, 9000, 0}, {1, 9000, 9000, 1}, {leavesAhead, 9000, 9000, leavesAhead}, {2000, 9000, 9000, 2000}, {2000, 777, 9000, 777}, {2000, 9000, 555, 556}, {2000, 0, 9000, 0},
	} {
		a, seen := &numbered{bad: c.bad}, uint64(0)
		err := EachAhead(t.Context(), a, c.size, func(r *manifest.Record) error {
			require.Equal(t, seen, r.Index)
			seen++
			if r.Index == c.stop {
				return errFn
			}
			return nil
		})
		switch {
		case c.stop < c.size:
			require.ErrorIs(t, err, errFn)
		case c.bad < c.size:
			require.ErrorIs(t, err, errBad)
		default:
			require.NoError(t, err)
		}
		require.Equal(t, c.want, seen, "%+v", c)
		require.Zero(t, a.reading.Load(), "a reader is left")
		require.LessOrEqual(t, a.most.Load(), int64(readersAhead))
	}
	ctx, cancel := context.WithCancel(t.Context())
	err := EachAhead(ctx, &numbered{bad: 9000}, 2000, func(r *manifest.Record) error {
		if r.Index == 300 {
			cancel()
		}
		return nil
	})
	require.ErrorIs(t, err, context.Canceled)
}

// countedFile is a file in memory that counts reads.
type countedFile struct {
	wal.File
	data  []byte
	reads int
}

func (f *countedFile) ReadAt(b []byte, off int64) (int, error) {
	f.reads++
	return bytes.NewReader(f.data).ReadAt(b, off)
}

// What an interrupted archiving left behind the last archived leaf is overwritten by the next one. A block that holds some
// of it must not show it once the file goes further.
func TestBlocksShowNothingBehindTheArchive(t *testing.T) {
	f := &countedFile{data: bytes.Repeat([]byte{1}, 2*blockSize)}
	var c blocks
	b := make([]byte, 100)
	require.NoError(t, c.readAt(0, f, b, 0, 1000))
	require.NoError(t, c.readAt(0, f, b, 900, 1000))
	require.Equal(t, 1, f.reads)

	copy(f.data[1000:], bytes.Repeat([]byte{2}, 500)) // the next archiving
	require.NoError(t, c.readAt(0, f, b, 950, 1500))
	require.Equal(t, append(bytes.Repeat([]byte{1}, 50), bytes.Repeat([]byte{2}, 50)...), b)
	require.NoError(t, c.readAt(0, f, b, 1400, 1500))
	require.Equal(t, bytes.Repeat([]byte{2}, 100), b)
	require.Equal(t, 2, f.reads)

	// The control: a caller that says too much is shown what is not there any more.
	require.NoError(t, c.readAt(0, f, b, 1900, 2500))
	copy(f.data[1900:], bytes.Repeat([]byte{3}, 100))
	require.NoError(t, c.readAt(0, f, b, 1900, 2500))
	require.NotEqual(t, f.data[1900:2000], b)
}

func TestBlocksReadWhatTheFileHas(t *testing.T) {
	f := &countedFile{data: make([]byte, 3*blockSize+50)}
	for i := range f.data {
		f.data[i] = byte(i * 7 >> 3)
	}
	var c blocks
	size := int64(len(f.data))
	for off := int64(0); off < size; off += 37 {
		for _, n := range []int64{1, 32, 256, blockSize, 2 * blockSize} {
			b := make([]byte, n)
			err := c.readAt(5, f, b, off, size)
			if off+n > size {
				require.ErrorIs(t, err, io.EOF)
				continue
			}
			require.NoError(t, err)
			require.Equal(t, f.data[off:off+n], b)
		}
	}
	other := &countedFile{data: make([]byte, blockSize)}
	b := make([]byte, 8)
	require.NoError(t, c.readAt(6, other, b, 8, blockSize)) // of another segment
	require.Equal(t, make([]byte, 8), b)
	other.data = other.data[:10]
	require.ErrorIs(t, c.readAt(7, other, b, 8, blockSize), io.EOF)
	require.NoError(t, c.readAt(7, other, b, 2, blockSize), "what was asked for is whole, the block is not")
}

// The cache holds at most a quarter of a small file, and of a large one as much as it has slots.
func TestBlocksAreBoundedByTheFile(t *testing.T) {
	for _, c := range []struct {
		of           uint64
		blocks, held int
	}{
		{0, 4, 4}, {0, 16, 16}, {0, 100, 16}, {0, 170, 32}, {0, 1000, 128}, {ofIndex, 1000, 128},
		{0, 5000, blockSlots}, {7, 1000, blockSlots},
	} {
		f := &countedFile{data: make([]byte, c.blocks*blockSize)}
		var cache blocks
		b := make([]byte, 8)
		for i := range c.blocks {
			require.NoError(t, cache.readAt(c.of, f, b, int64(i*blockSize), int64(len(f.data))))
		}
		held := 0
		for i := range cache.slots {
			if cache.slots[i].Load() != nil {
				held++
			}
		}
		require.Equal(t, c.held, held, "%d blocks of %d", c.blocks, c.of)
	}
	require.LessOrEqual(t, unsafe.Sizeof(fileBlock{}), uintptr(4<<10), "a block takes one page of memory")
}

// A block that is used again keeps its slot while others are asked for once. One that is asked for twice in a row takes it.
func TestBlocksStayWhileTheyAreUsed(t *testing.T) {
	f := &countedFile{data: make([]byte, 4*leastSlots*blockSize)}
	for i := range f.data {
		f.data[i] = byte(i / blockSize)
	}
	var c blocks
	reads := func(block int) int {
		b, was := make([]byte, 8), f.reads
		require.NoError(t, c.readAt(0, f, b, int64(block*blockSize+block), int64(len(f.data))))
		require.Equal(t, bytes.Repeat([]byte{byte(block)}, 8), b)
		return f.reads - was
	}
	const used, once, another = 3, 3 + leastSlots, 3 + 2*leastSlots // of one slot
	require.Equal(t, 1, reads(used))
	for range 3 {
		require.Equal(t, 1, reads(once))
		require.Equal(t, 0, reads(used))
		require.Equal(t, 1, reads(another))
		require.Equal(t, 0, reads(used))
	}
	require.Equal(t, 1, reads(once))
	require.Equal(t, 1, reads(once))
	require.Equal(t, 0, reads(once))
	require.Equal(t, 1, reads(used))
}

// A process killed while it made the archive leaves files without a mark. To a reader that is an empty archive, not
// damage; with a leaf in it, it is.
func TestReaderOfANewbornArchive(t *testing.T) {
	ctx := context.Background()
	for _, leaves := range []uint64{0, 1} {
		dir := filepath.Join(t.TempDir(), "m")
		l, _, err := Open(ctx, dir, nil, Options{DB: "d"})
		require.NoError(t, err)
		for i := range leaves {
			body := must(Encode(&manifest.Record{Type: manifest.TypeGet, Trace: "t"}))(t)
			require.NoError(t, l.Add(i, body))
		}
		require.NoError(t, l.Archive(ctx, leaves))
		require.NoError(t, l.Close())
		require.NoError(t, os.Remove(filepath.Join(dir, markName)))
		r, _, err := Open(ctx, dir, nil, Options{ReadOnly: true, DB: "d"})
		require.NoError(t, err)
		v, err := r.Verify(ctx, nil, nil)
		require.Equal(t, leaves > 0, v.Found > 0 || err != nil)
		require.NoError(t, r.Close())
	}
}
