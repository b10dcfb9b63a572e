package archive

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/wal"
	"github.com/stretchr/testify/require"
)

// planned appends the prune leaf for some leaves, as the owner of the log does, and archives nothing.
func planned(t testing.TB, l *Log, leaves ...uint64) *manifest.Record {
	t.Helper()
	p := must(l.PlanPrune(context.Background(), manifest.Record{Trace: testTrace(9000 + l.Size()), Time: 1_790_000_000_000_000, By: "desk", Action: ActionErase}, SpansOf(leaves)))(t)
	leaf := must(NewLeaf(p))(t)
	p.Index = l.Size()
	require.NoError(t, l.AddNew(p.Index, leaf))
	return p
}

// held counts where the scope of the sample leaves, or the reference of leaf 5, can be read in the files, also in bodies in their
// dense form.
func held(t testing.TB, f *dbtest.FS, what string) (n int) {
	t.Helper()
	for name, b := range files(t, f) {
		if _, _, leaves := parseSegmentName(name); leaves {
			b = bodiesOf(b)
		}
		n += bytes.Count(b, []byte(what))
	}
	return n
}

// bodiesOf is a segment with the bodies of its leaves behind it, if they are dense or brief.
func bodiesOf(segment []byte) []byte {
	all := bytes.Clone(segment)
	for at := headerSize; at+frameSize <= len(segment); {
		body := segment[at+frameSize:]
		n := int(binary.LittleEndian.Uint32(segment[at:]))
		if n > len(body) {
			break
		}
		if plain, err := codec.FromDense(body[:n]); err == nil {
			all = append(all, plain...)
		}
		if plain, err := codec.FromBrief(0, body[:n]); err == nil {
			all = append(all, plain...)
		}
		at += frameSize + n
	}
	return all
}

// TestPrune: the bodies are in no file, the hashes stay, what names nobody stays, and all proofs hold; also after more leaves
// came, after the log brought the same leaves again, and beside a reader.
func TestPrune(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	f, head := builtArchive(t, 60)
	l, _ := openLog(t, f, Options{DB: "db1", SegmentSize: 1500})
	require.NotZero(t, held(t, f, "page-5@1"), "control: the name is in a file")
	rows := held(t, f, "page-8@1")
	before := must(l.view())(t)
	p := planned(t, l, 5, 6, 7, 30)
	require.NoError(t, l.Prune(ctx, p))
	require.Zero(t, held(t, f, "page-5@1"))
	require.Equal(t, rows, held(t, f, "page-8@1"), "the others stay")
	old, err := before.leaf(5)
	require.NoError(t, err, "a view of before reads on")
	require.Equal(t, "acme:page-5@1", old.Writes[0].Ref)

	check := func(l *Log) {
		must(l.Verify(ctx, &head, nil))(t)
		_, err := l.Body(5)
		require.ErrorIs(t, err, manifest.ErrPruned)
		require.ErrorContains(t, err, "leaf 5 was erased at ")
		r := must(l.Leaf(5))(t)
		require.Equal(t, "desk", r.Pruned.By)
		require.Equal(t, p.Index, r.Pruned.Leaf)
		want := StubOf(sampleRecord(5))
		want.Index, want.Pruned = 5, r.Pruned
		require.Equal(t, want, r)
		require.Empty(t, r.Scope+r.Actor+r.Writes[0].Ref)
		found := must(l.ByTrace(ctx, testTrace(5)))(t)
		require.Len(t, found, 1)
		n := 0
		require.NoError(t, l.Each(ctx, 0, 60, true, func(r *manifest.Record) error {
			if r.Pruned != nil {
				n++
			} else {
				require.Equal(t, "acme/support", r.Scope)
			}
			return nil
		}))
		require.Equal(t, 4, n)
		proof := must(l.ProveInclusion(5, 60))(t)
		require.NoError(t, proof.Verify(sampleBody(t, 5), head), "who kept the body can still prove it")
		names := must(l.Names(ctx))(t)
		require.Empty(t, names[5])
		require.Equal(t, "acme:page-8@1", names[8])
	}
	check(l)
	require.NoError(t, l.Archive(ctx, l.Size()))
	for i := uint64(61); i < 90; i++ {
		require.NoError(t, l.Add(i, sampleBody(t, i)))
	}
	require.NoError(t, l.Archive(ctx, l.Size()))
	check(l)
	require.NoError(t, l.Prune(ctx, p), "done already")

	again, _ := openLog(t, f, Options{DB: "db1", SegmentSize: 1500})
	for i := range uint64(60) { // the log still had them
		require.NoError(t, again.Add(i, sampleBody(t, i)))
	}
	require.Error(t, again.Add(5, sampleBody(t, 6)), "control: another body is not that of the stub")
	check(again)
	more := planned(t, again, 5, 8)
	require.EqualValues(t, 1, more.Size, "a stub is not covered twice")
	require.NoError(t, again.Prune(ctx, more))
	must(again.Verify(ctx, &head, nil))(t)
	reader, rep, err := Open(ctx, testDir, f, Options{ReadOnly: true})
	require.NoError(t, err)
	require.NoError(t, rep.Damage)
	require.Equal(t, again.Archived(), reader.Size())
	require.NoError(t, again.Archive(ctx, again.Size()))
	last, _ := openLog(t, f, Options{ReadOnly: true})
	must(last.Verify(ctx, &head, nil))(t)
}

// TestPruneCrash: a crash at every operation leaves an archive of before or of after; the same prune leaf finishes it, and
// then no file has a body.
func TestPruneCrash(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	base, head := builtArchive(t, 60)
	run := func(f *dbtest.FS) error {
		l, _, err := Open(ctx, testDir, f, Options{DB: "db1", SegmentSize: 1500})
		if err != nil {
			return err
		}
		defer l.Close()
		p := planned(t, l, 5, 6, 7, 30)
		return l.Prune(ctx, p)
	}
	whole := base.Clone()
	ops := whole.Ops()
	require.NoError(t, run(whole))
	ops = whole.Ops() - ops
	require.Greater(t, ops, 10)
	seen := map[bool]int{}
	for n := 1; n <= ops; n++ {
		f := base.Clone()
		f.Inject(dbtest.Fault{N: n, Sticky: true, Err: dbtest.ErrCrashed, Short: n % 40})
		_ = run(f)
		for seed := range uint64(5) {
			left := f.CrashClone(seed, int(seed)*25)
			l, _, err := Open(ctx, testDir, left, Options{DB: "db1", SegmentSize: 1500})
			require.NoError(t, err, "crash at %d of %d, seed %d", n, ops, seed)
			r := must(l.Leaf(5))(t)
			seen[r.Pruned != nil]++
			p := planned(t, l, 5, 6, 7, 30)
			if r.Pruned == nil {
				require.EqualValues(t, 4, p.Size)
				require.NoError(t, l.Prune(ctx, p))
				must(l.Verify(ctx, &head, nil))(t)
			} else {
				require.Zero(t, p.Size)
			}
			require.NoError(t, l.Close())
			require.Zero(t, held(t, left, "page-5@1"), "crash at %d of %d, seed %d", n, ops, seed)
		}
	}
	require.NotZero(t, seen[true])
	require.NotZero(t, seen[false])
}

// TestPruneFails: a disk that fails or is full leaves the archive as it was, and it goes on.
func TestPruneFails(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, op := range []dbtest.Op{dbtest.OpWrite, dbtest.OpSync, dbtest.OpRename} {
		f, head := builtArchive(t, 60)
		l, _ := openLog(t, f, Options{DB: "db1", SegmentSize: 1500})
		p := planned(t, l, 5, 30)
		f.Inject(dbtest.Fault{Op: op, N: 1})
		require.Error(t, l.Prune(ctx, p), op)
		f.Heal()
		r := must(l.Leaf(5))(t)
		require.Nil(t, r.Pruned)
		require.NoError(t, l.Prune(ctx, p), op)
		must(l.Verify(ctx, &head, nil))(t)
		require.Zero(t, held(t, f, "page-5@1"))
	}
	f, _ := builtArchive(t, 20)
	l, _ := openLog(t, f, Options{DB: "db1"})
	p := planned(t, l, 5)
	p.Root = slices.Clone(p.Root)
	p.Root[3]++
	require.ErrorContains(t, l.Prune(ctx, p), "does not vouch")
	require.Error(t, errOf(l.PlanPrune(ctx, manifest.Record{Trace: "no id", By: "desk"}, []manifest.Span{{1, 2}})))
	_, err := l.PlanPrune(ctx, manifest.Record{Trace: testTrace(7), By: "desk"}, []manifest.Span{{19, 22}})
	require.ErrorContains(t, err, "archived", "the leaf is in the log alone")
}

// TestForgedStub: who replaces a body by a stub, edits a stub, or has no prune leaf for it, is found out; with all checksums
// made right.
func TestForgedStub(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	damaged := func(name string, change func(l *Log, p *manifest.Record), why string, first int64) {
		f, head := builtArchive(t, 60)
		l, _ := openLog(t, f, Options{DB: "db1", SegmentSize: 1 << 20})
		p := planned(t, l, 5, 6, 30)
		change(l, p)
		got, err := l.Verify(ctx, &head, nil)
		if why == "" {
			require.NoError(t, err, name)
			return
		}
		require.ErrorContains(t, err, why, name)
		require.Equal(t, first, got.First, name)
	}
	forge := func(l *Log, leaves ...uint64) { // a prune whose leaf is not in the log
		p := must(l.PlanPrune(ctx, manifest.Record{Trace: testTrace(1), Time: 1, By: "nobody", Action: ActionPrune}, SpansOf(leaves)))(t)
		require.NoError(t, l.Prune(ctx, p))
	}
	damaged("control", func(l *Log, p *manifest.Record) { require.NoError(t, l.Prune(ctx, p)) }, "", 0)
	damaged("no leaf", func(l *Log, _ *manifest.Record) { forge(l, 8) }, "no prune leaf vouches", 8)
	damaged("one more", func(l *Log, p *manifest.Record) {
		require.NoError(t, l.Prune(ctx, p))
		q := *p // the same trace, one leaf more
		made := must(l.PlanPrune(ctx, manifest.Record{Trace: p.Trace, Time: 1, By: "desk", Action: ActionErase}, []manifest.Span{{9, 10}}))(t)
		q.Covers, q.Size, q.Root = made.Covers, made.Size, made.Root
		require.NoError(t, l.Prune(ctx, &q))
	}, "no prune leaf vouches", 9)
	damaged("edited", func(l *Log, p *manifest.Record) {
		require.NoError(t, l.Prune(ctx, p))
		v := must(l.view())(t)
		r := must(v.row(30))(t)
		s := must(v.segment(30))(t)
		frame := make([]byte, frameSize+int(r.size))
		must(s.file.ReadAt(frame, int64(r.off)))(t)
		body := frame[frameSize:]
		rec := must(Decode(30, body[stubHead:]))(t)
		rec.Time++
		edited := must(Encode(rec))(t)
		copy(body[stubHead:], edited)
		must(s.file.WriteAt(appendFrame(nil, 30, body), int64(r.off)))(t)
		require.NoError(t, errOf(l.Leaf(30)), "its checksum is right")
	}, "not those that its leaf vouches for", 5)
}

// TestPrunedMark: the mark of a pruned archive carries its generation; that of another does not change.
func TestPrunedMark(t *testing.T) {
	for _, gen := range []uint32{0, 1, 70000} {
		s := stamp{db: "db1", size: 7, gen: gen}
		b := s.encode(&archive{})
		got := must(new(archive).parseStamp(b))(t)
		require.Equal(t, s, got)
		for n := range b {
			require.Error(t, errOf(new(archive).parseStamp(b[:n])))
		}
	}
	b := (&stamp{db: "db1", gen: 2}).encode(&archive{})
	b[4] = 3
	copy(b[16:], fmt.Appendf(nil, "%s", le64(xxhash.Sum64(b[:16]))))
	require.ErrorIs(t, errOf(new(archive).parseStamp(b)), codec.ErrNewerFormat)
	for name, want := range map[string]bool{
		filepath.Base(segmentName(5, 0)): true, segmentName(5, 9): true, segmentName(5, 0) + "-": false, segmentName(5, 0) + "-0": false, segmentName(5, 0) + "-00000000": false,
	} {
		_, _, ok := parseSegmentName(name)
		require.Equal(t, want, ok, name)
	}
}

func le64(v uint64) []byte {
	b := make([]byte, 8)
	for i := range b {
		b[i] = byte(v >> (8 * i))
	}
	return b
}

// TestCoversCodec: a prune leaf says what it covers; what no program writes is refused.
func TestCoversCodec(t *testing.T) {
	r := &manifest.Record{Type: manifest.TypePrune, Trace: testTrace(1), Covers: []manifest.Span{{0, 3}, {5, 6}, {1 << 40, 1<<40 + 9}}, Size: 13}
	b := must(Encode(r))(t)
	got := must(Decode(0, b))(t)
	require.Equal(t, r, got)
	for _, bad := range [][]manifest.Span{{{3, 3}}, {{5, 6}, {1, 2}}, {{0, MaxCovers + 1}}} {
		require.Error(t, errOf(Encode(&manifest.Record{Type: manifest.TypePrune, Covers: bad})))
	}
	require.True(t, Covered([]manifest.Span{{1, 3}, {5, 6}}, 5))
	require.False(t, Covered([]manifest.Span{{1, 3}, {5, 6}}, 3))
	require.Contains(t, (&manifest.Pruned{}).String(), "no leaf of the audit")
}

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
