package archive

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/manifest"
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
