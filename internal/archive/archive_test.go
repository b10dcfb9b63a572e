package archive

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/wal"
	"github.com/stretchr/testify/require"
)

var ctx = context.Background()

// files are the archive's files by name.
func files(t testing.TB, f *dbtest.FS) map[string][]byte {
	t.Helper()
	names := must(f.ReadDir(testDir))(t)
	out := map[string][]byte{}
	for _, name := range names {
		out[name] = must(f.ReadFile(filepath.Join(testDir, name)))(t)
	}
	return out
}

func TestReopen(t *testing.T) {
	f, head := builtArchive(t, 60)
	l, rep := openLog(t, f, Options{DB: "db1"})
	require.Equal(t, Report{Archived: 60, Marked: 60}, rep)
	require.Equal(t, "db1", l.DB())
	fill(t, l, 75) // a tail in memory only
	for i := range uint64(75) {
		r := must(l.Leaf(i))(t)
		want := sampleRecord(i)
		want.Index = i
		require.Equal(t, want, r)
	}
	for n := range uint64(76) {
		root := must(l.Root(n))(t)
		require.Equal(t, sampleRoot(t, n), root)
	}
	got := must(l.Head(60, 0))(t)
	require.Equal(t, head, got)
	for _, err := range []error{l.Add(77, sampleBody(t, 77)), l.Add(1<<60, sampleBody(t, 77))} {
		require.ErrorIs(t, err, ErrGap)
	}
	require.ErrorIs(t, errOf(l.Leaf(75)), manifest.ErrNoLeaf)
	require.ErrorIs(t, errOf(l.Root(76)), manifest.ErrNoLeaf)
	require.ErrorIs(t, l.Archive(ctx, 76), manifest.ErrNoLeaf)
	require.NoError(t, l.Close())
	require.NoError(t, l.Close())
	require.ErrorIs(t, errOf(l.Leaf(0)), ErrClosed)
	require.ErrorIs(t, l.Add(75, sampleBody(t, 75)), ErrClosed)
	require.ErrorIs(t, l.Archive(ctx, 75), ErrClosed)
}

// TestAddOverlap: where log and archive overlap, bytes must match, in whatever order they are compared, and a leaf that
// is damaged in the archive says so itself.
func TestAddOverlap(t *testing.T) {
	const archived = 2*compareLeaves + 6
	f, _ := builtArchive(t, archived)
	l, _ := openLog(t, f, Options{})
	fill(t, l, archived+3)
	order := func(yield func(uint64) bool) {
		for i := range l.Size() {
			if !yield(i) || !yield(l.Size()-1-i) || !yield(i*29%l.Size()) {
				return
			}
		}
	}
	for i := range order {
		require.NoError(t, l.Add(i, sampleBody(t, i)))
		damaged := &codec.CorruptError{}
		require.ErrorAs(t, l.Add(i, sampleBody(t, i+1)), &damaged)
		require.Equal(t, codec.UnitLeaf, damaged.Unit)
		require.EqualValues(t, i, damaged.Num)
		other := bytes.Clone(sampleBody(t, i))
		other[len(other)-1] ^= 1
		require.ErrorAs(t, l.Add(i, other), &damaged, "of the same length")
	}
	require.EqualValues(t, archived+3, l.Size())
	for i := range l.Size() {
		require.NoError(t, l.Add(i, sampleBody(t, i)))
	}
	require.Nil(t, l.ahead, "nothing is kept when all is compared")

	b := files(t, f)[segmentName(0, 0)]
	r := must(parseRow(files(t, f)[indexName][rowOffset(5):rowOffset(6)], 5))(t)
	b[r.off+frameSize+r.size/2] ^= 1
	f.WriteFile(filepath.Join(testDir, segmentName(0, 0)), b)
	require.NoError(t, l.Close())
	l, _ = openLog(t, f, Options{})
	for i := range l.Size() {
		err := l.Add(i, sampleBody(t, i))
		damaged := &codec.CorruptError{}
		require.Equal(t, i == 5, errors.As(err, &damaged), "leaf %d: %v", i, err)
	}
}

// TestArchiveTrace pins the file operations of one archiving: what is written
// and synced before the mark counts.
func TestArchiveTrace(t *testing.T) {
	f := newFS(t)
	l, _ := openLog(t, f, Options{SegmentSize: 280})
	fill(t, l, 4)
	f.ResetTrace()
	require.NoError(t, l.Archive(ctx, 4))
	var got []string
	for _, line := range strings.Split(f.Trace(), "\n") {
		line = strings.ReplaceAll(line, testDir, ".")
		got = append(got, strings.Join(strings.Fields(line)[:2], " "))
	}
	require.Equal(t, []string{
		"create ./leaves-00000000000000000000", "write ./leaves-00000000000000000000",
		"write ./leaves-00000000000000000000", "sync ./leaves-00000000000000000000",
		"create ./leaves-00000000000000000002", "write ./leaves-00000000000000000002",
		"write ./leaves-00000000000000000002", "sync ./leaves-00000000000000000002",
		"write ./index", "sync ./index", "write ./hashes", "sync ./hashes",
		"syncdir .", "create ./mark.tmp", "write ./mark.tmp", "sync ./mark.tmp", "rename ./mark.tmp", "syncdir .",
	}, got)
}

// checkPrefix demands that the log holds exactly the first n sample leaves, in
// range, and that everything else works from there.
func checkPrefix(t *testing.T, l *Log, low, high uint64) {
	t.Helper()
	n := l.Size()
	require.True(t, low <= n && n <= high, "%d leaves, expected %d..%d", n, low, high)
	for i := range n {
		if b, err := l.Body(i); err != nil || !bytes.Equal(sampleBody(t, i), b) {
			require.NoError(t, err)
			require.Equal(t, sampleBody(t, i), b)
		}
	}
	root := must(l.Root(n))(t)
	require.Equal(t, sampleRoot(t, n), root)
}

// TestCrashAtEveryOperation kills the process at each operation of a life of
// creating, archiving thrice and rotating, with and without the power going off
// as well, and again at each operation of what follows.
func TestCrashAtEveryOperation(t *testing.T) {
	const step, runs = 8, 3
	life := func(f wal.FS) (archived uint64) {
		l, _, err := Open(ctx, testDir, f, Options{SegmentSize: 900})
		if err != nil {
			return 0
		}
		defer l.Close()
		archived = l.Archived()
		for i := l.Size(); i < runs*step; i++ {
			if l.Add(i, sampleBody(t, i)) != nil {
				return archived
			}
		}
		for upTo := archived + step; upTo <= runs*step; upTo += step {
			if l.Archive(ctx, upTo) != nil {
				return archived
			}
			archived = upTo
		}
		return archived
	}
	whole := newFS(t)
	before := whole.Ops()
	require.EqualValues(t, runs*step, life(whole))
	ops := whole.Ops() - before
	crashed, lost := 0, 0
	for n := 1; n <= ops; n++ {
		f := newFS(t)
		f.Inject(dbtest.Fault{N: n, Sticky: true, Err: dbtest.ErrCrashed, Short: n % 40})
		sure := life(f)
		f.Heal()
		for seed := range uint64(6) {
			survivors := f.CrashClone(seed, int(seed)*20)
			if seed == 0 {
				survivors = f.Clone() // killed, power stays
			}
			l, _, err := Open(ctx, testDir, survivors, Options{SegmentSize: 900})
			require.NoError(t, err, "crash at %d of %d, seed %d", n, ops, seed)
			checkPrefix(t, l, sure, min(sure+step, runs*step))
			require.NoError(t, l.Close())
			crashed++
			if l.Archived() < runs*step {
				lost++
			}
			again := survivors.Clone()
			again.Inject(dbtest.Fault{N: 1 + n%17, Sticky: true, Err: dbtest.ErrCrashed})
			life(again)
			again.Heal()
			require.EqualValues(t, runs*step, life(again.CrashClone(seed, 50)), "crash at %d of %d, seed %d, and again", n, ops, seed)
		}
		// Killed without the power going off: unsynced bytes and entries are still
		// about, and what the next process says is archived must not rest on them.
		require.EqualValues(t, runs*step, life(f))
		l, _, err := Open(ctx, testDir, f.CrashClone(uint64(n), n%50), Options{})
		require.NoError(t, err, "killed at %d of %d, power cut at the end", n, ops)
		checkPrefix(t, l, runs*step, runs*step)
	}
	t.Logf("%d operations, %d crash states, %d of them before the end", ops, crashed, lost)
}

// TestKilledBetweenRenameAndSync: the mark a killed process left is visible but
// may go with the power. Who opens next may tell others that the leaves are
// archived only once that cannot happen.
func TestKilledBetweenRenameAndSync(t *testing.T) {
	f := newFS(t)
	l, _ := openLog(t, f, Options{})
	fill(t, l, 5)
	f.Inject(dbtest.Fault{Op: dbtest.OpSyncDir, N: 2, Sticky: true})
	require.Error(t, l.Archive(ctx, 5))
	require.ErrorIs(t, l.Archive(ctx, 5), ErrFailed)
	require.EqualValues(t, 0, l.Archived())
	require.NoError(t, l.Add(5, sampleBody(t, 5)), "adding goes on")
	f.Heal()
	require.NoError(t, l.Close())
	l, rep := openLog(t, f, Options{})
	require.EqualValues(t, 5, rep.Archived)
	after, _ := openLog(t, f.CrashClone(1, 0), Options{})
	require.EqualValues(t, 5, after.Archived())
	require.NoError(t, l.Close())
}

// unsynced is a file system that forgets to sync: the control of the crash
// tests.
type unsynced struct {
	*dbtest.FS
	dirs bool
}

type unsyncedFile struct{ wal.File }

func (f unsynced) OpenFile(name string, flag int, perm os.FileMode) (wal.File, error) {
	file, err := f.FS.OpenFile(name, flag, perm)
	if err != nil || f.dirs {
		return file, err
	}
	return unsyncedFile{file}, nil
}

func (f unsynced) SyncDir(dir string) error {
	if f.dirs {
		return nil
	}
	return f.FS.SyncDir(dir)
}

func (unsyncedFile) Sync() error { return nil }

// TestCrashControl: without syncs archived leaves must be seen to get lost, or
// the tests above prove nothing.
func TestCrashControl(t *testing.T) {
	for _, dirs := range []bool{false, true} {
		bad := 0
		for seed := range uint64(20) {
			f := newFS(t)
			l, _ := openLog(t, unsynced{f, dirs}, Options{SegmentSize: 900})
			fill(t, l, 20)
			require.NoError(t, l.Archive(ctx, 20))
			l, _, err := Open(ctx, testDir, f.CrashClone(seed, 50), Options{})
			if err != nil || l.Archived() < 20 {
				bad++
			}
		}
		require.NotZero(t, bad, "directories: %v", dirs)
		t.Logf("without syncs (of directories: %v) %d of 20 lost leaves", dirs, bad)
	}
}

// TestCutAtEveryByte cuts each file at each byte. A crash cannot do that to
// synced bytes; still no wrong leaf may come of it: the prefix opens and says so,
// and the log can fill it again. Only the mark, which nothing replaces, is
// asked to be whole.
func TestCutAtEveryByte(t *testing.T) {
	const n = 9
	f, head := builtArchive(t, n)
	for name, whole := range files(t, f) {
		path := filepath.Join(testDir, name)
		for k := range whole {
			f.WriteFile(path, whole[:k])
			r, rep, err := Open(ctx, testDir, f, Options{ReadOnly: true, DB: "db1"})
			require.NoError(t, err, "%s cut to %d", name, k)
			require.Error(t, rep.Damage, "%s cut to %d", name, k)
			if name == markName {
				require.EqualValues(t, n, rep.Archived)
			} else {
				require.Less(t, rep.Archived, uint64(n))
			}
			checkPrefix(t, r, rep.Archived, rep.Archived)
			require.Error(t, errOf(r.Verify(ctx, &head, nil)), "%s cut to %d", name, k)
			require.NoError(t, r.Close())

			mended := f.Clone()
			l, rep, err := Open(ctx, testDir, mended, Options{SegmentSize: 500})
			if name == markName {
				damaged := &codec.CorruptError{}
				require.ErrorAs(t, err, &damaged)
				continue
			}
			require.NoError(t, err)
			require.EqualValues(t, n, rep.Marked)
			fill(t, l, n)
			if rep.Archived < n-1 {
				require.Error(t, l.Archive(ctx, n-1), "less than the mark vouches for")
			}
			require.NoError(t, l.Archive(ctx, n))
			require.NoError(t, errOf(l.Verify(ctx, &head, nil)), "%s cut to %d and filled", name, k)
			require.NoError(t, l.Close())
		}
		f.WriteFile(path, whole)
	}
}

// TestFilledWithOthers: what fills a damaged archive must be what was in it.
func TestFilledWithOthers(t *testing.T) {
	f, _ := builtArchive(t, 10)
	f.RemoveFile(filepath.Join(testDir, indexName))
	l, rep := openLog(t, f, Options{})
	require.Zero(t, rep.Archived)
	require.EqualValues(t, 10, rep.Marked)
	var err error
	for i := uint64(0); i < 10 && err == nil; i++ {
		err = l.Add(i, sampleBody(t, i+1))
	}
	damaged := &codec.CorruptError{}
	require.ErrorAs(t, err, &damaged)
}

// TestGarbageBehindTheMark: the rest of an archiving that did not finish goes.
func TestGarbageBehindTheMark(t *testing.T) {
	f, _ := builtArchive(t, 14)
	clean := files(t, f)
	added := int64(0)
	for name, b := range clean {
		if name != markName {
			f.WriteFile(filepath.Join(testDir, name), append(append([]byte{}, b...), "left over"...))
		}
	}
	// Only the last segment may be longer: one in the middle was full and synced.
	for name, b := range clean {
		if strings.HasPrefix(name, leavesName) && name != lastSegment(clean) {
			f.WriteFile(filepath.Join(testDir, name), b)
		} else if name != markName {
			added += 9
		}
	}
	f.WriteFile(filepath.Join(testDir, segmentName(14, 0)), []byte("half a head"))
	f.WriteFile(filepath.Join(testDir, segmentName(99, 0)), new(archive).header(kindLeaves, 99))
	f.WriteFile(filepath.Join(testDir, markTemp), []byte("x"))
	_, rep := openLog(t, f, Options{})
	require.Equal(t, Report{Archived: 14, Marked: 14, Cut: added}, rep)
	require.Equal(t, clean, files(t, f))
}

func lastSegment(files map[string][]byte) (last string) {
	for name := range files {
		if strings.HasPrefix(name, leavesName) && name > last {
			last = name
		}
	}
	return last
}

// TestNewerFiles: a newer version is not damage, and nothing is changed.
func TestNewerFiles(t *testing.T) {
	f, _ := builtArchive(t, 14)
	clean := files(t, f)
	for name, b := range clean {
		newer := append([]byte{}, b...)
		binary.LittleEndian.PutUint16(newer[4:], archiveVersion+1)
		f.WriteFile(filepath.Join(testDir, name), newer)
		_, _, err := Open(ctx, testDir, f, Options{})
		require.NotErrorIs(t, err, codec.ErrNewerFormat, "a version that was hit is damage")
		binary.LittleEndian.PutUint64(newer[16:], xxhash.Sum64(newer[:16]))
		f.WriteFile(filepath.Join(testDir, name), newer)
		before := files(t, f)
		for _, ro := range []bool{true, false} {
			_, _, err := Open(ctx, testDir, f, Options{ReadOnly: ro})
			require.ErrorIs(t, err, codec.ErrNewerFormat, name)
			damaged := &codec.CorruptError{}
			require.NotErrorAs(t, err, &damaged)
		}
		require.Equal(t, before, files(t, f))
		f.WriteFile(filepath.Join(testDir, name), b)
	}
	// A row in a state this program does not know, rightly summed.
	index := append([]byte{}, clean[indexName]...)
	row := index[rowOffset(13):]
	row[0] = rowBrief + 1
	binary.LittleEndian.PutUint64(row[rowSize-8:], sum(13, row[:rowSize-8]))
	f.WriteFile(filepath.Join(testDir, indexName), index)
	_, _, err := Open(ctx, testDir, f, Options{})
	require.ErrorIs(t, err, codec.ErrNewerFormat)
}

func TestOpenRefuses(t *testing.T) {
	f, _ := builtArchive(t, 14)
	clean := files(t, f)
	damaged := &codec.CorruptError{}
	try := func(opts Options) error {
		l, rep, err := Open(ctx, testDir, f, opts)
		if err != nil {
			return err
		}
		require.NoError(t, l.Close())
		return rep.Damage
	}
	require.ErrorAs(t, try(Options{DB: "db2"}), &damaged)
	require.ErrorContains(t, try(Options{DB: "db2", ReadOnly: true}), `belongs to database "db1"`)
	require.Error(t, try(Options{SegmentSize: -1}))
	require.Error(t, try(Options{SegmentSize: maxSegment + 1}))
	require.Error(t, try(Options{DB: strings.Repeat("x", 256)}))
	for _, name := range []string{markName, indexName, hashesName, lastSegment(clean)} {
		b := append([]byte{}, clean[name]...)
		b[9] ^= 1
		f.WriteFile(filepath.Join(testDir, name), b)
		require.ErrorAs(t, try(Options{ReadOnly: true}), &damaged, name)
		if !strings.HasPrefix(name, leavesName) {
			require.ErrorAs(t, try(Options{}), &damaged, name)
		}
		f.WriteFile(filepath.Join(testDir, name), clean[name])
	}
	b := append([]byte{}, clean[hashesName]...)
	b[hashOffset(int64(hashCount(14)))-1] ^= 1 // the topmost hash
	f.WriteFile(filepath.Join(testDir, hashesName), b)
	require.ErrorContains(t, try(Options{}), "do not give the root")
	f.WriteFile(filepath.Join(testDir, hashesName), clean[hashesName])
	f.RemoveFile(filepath.Join(testDir, markName))
	require.ErrorContains(t, try(Options{}), "mark is missing")
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	f.WriteFile(filepath.Join(testDir, markName), clean[markName])
	_, _, err := Open(canceled, testDir, f, Options{})
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, try(Options{DB: "db1"}), "control: untouched it opens")
	require.Equal(t, clean, files(t, f))
}

// TestReadOnly: nothing is created or changed, absent archives are empty.
func TestReadOnly(t *testing.T) {
	f := newFS(t)
	before := f.Ops()
	l, rep := openLog(t, f, Options{ReadOnly: true})
	require.Equal(t, Report{}, rep)
	fill(t, l, 3)
	require.ErrorIs(t, l.Archive(ctx, 3), errReadOnly)
	must(l.Verify(ctx, nil, nil))(t)
	require.Equal(t, before, f.Ops())
	require.ErrorIs(t, errOf(f.Stat(testDir)), fs.ErrNotExist)
}

// TestArchiveCancelled: ctx stops it between two writes; the next call goes on.
func TestArchiveCancelled(t *testing.T) {
	f := newFS(t)
	l, _ := openLog(t, f, Options{})
	big := sampleRecord(0)
	note := make([]byte, writeChunk)
	rand.NewChaCha8([32]byte{}).Read(note) // it has no dense form
	big.Note = string(note)
	b := must(Encode(big))(t)
	require.NoError(t, l.Add(0, b))
	fill(t, l, 3)
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	require.ErrorIs(t, l.Archive(canceled, 3), context.Canceled)
	require.Zero(t, l.Archived())
	require.NoError(t, l.Archive(ctx, 3))
	must(l.Verify(ctx, nil, nil))(t)
}

// TestFullDiskAtEachWrite: wherever an archiving meets the end of the disk, the same log archives once there is room,
// and in between another open finds the old archive. The control is a failed sync of the name of the mark, after which
// nobody knows what the disk has: that stays an error.
func TestFullDiskAtEachWrite(t *testing.T) {
	met := 0
	for n := 1; ; n++ {
		f, _ := builtArchive(t, 14)
		l, _ := openLog(t, f, Options{SegmentSize: 4 << 10})
		fill(t, l, 60)
		f.Inject(dbtest.Fault{Op: dbtest.OpWrite, N: n, Sticky: true, Short: 5, Err: syscall.ENOSPC})
		err := l.Archive(ctx, 60)
		if err == nil {
			break
		}
		met++
		require.ErrorIs(t, err, syscall.ENOSPC)
		require.ErrorIs(t, l.Archive(ctx, 60), syscall.ENOSPC)
		other, rep := openLog(t, f.Clone(), Options{})
		require.EqualValues(t, 14, rep.Archived)
		require.NoError(t, other.Close())
		f.Heal()
		require.NoError(t, l.Archive(ctx, 60), "write %d", n)
		must(l.Verify(ctx, nil, nil))(t)
		require.NoError(t, l.Close())
		l, rep = openLog(t, f.CrashClone(1, 0), Options{})
		require.EqualValues(t, 60, rep.Archived)
		must(l.Verify(ctx, nil, nil))(t)
	}
	require.Greater(t, met, 4)
	f, _ := builtArchive(t, 14)
	l, _ := openLog(t, f, Options{})
	fill(t, l, 60)
	f.Inject(dbtest.Fault{Op: dbtest.OpSyncDir, Err: syscall.ENOSPC})
	require.Error(t, l.Archive(ctx, 60))
	require.ErrorIs(t, l.Archive(ctx, 60), ErrFailed)
}

// TestFullDisk: an archiving without room fails, the old archive stays, and
// after making room a new open writes it.
func TestFullDisk(t *testing.T) {
	f, _ := builtArchive(t, 14)
	l, _ := openLog(t, f, Options{})
	fill(t, l, 40)
	f.Limit(f.Used() + 200)
	require.Error(t, l.Archive(ctx, 40))
	require.ErrorIs(t, l.Archive(ctx, 40), syscall.ENOSPC, "it is tried again")
	must(l.Leaf(39))(t)
	require.NoError(t, errOf(l.Verify(ctx, nil, nil)), "what a failed archiving left is no damage")
	require.NoError(t, l.Close())
	l, rep := openLog(t, f, Options{})
	require.EqualValues(t, 14, rep.Archived)
	require.Zero(t, rep.Cut, "it gave back what it took")
	f.Heal()
	fill(t, l, 40)
	require.NoError(t, l.Archive(ctx, 40))
	must(l.Verify(ctx, nil, nil))(t)
}

// TestOnDisk: modes, and no link followed, on the real file system.
func TestOnDisk(t *testing.T) {
	dbtest.NeedsPosix(t, "modes of files, and links without a privilege")
	dir := filepath.Join(t.TempDir(), "agent.ctx-manifest")
	l, _, err := Open(ctx, dir, nil, Options{SegmentSize: 900})
	require.NoError(t, err)
	fill(t, l, 20)
	require.NoError(t, l.Archive(ctx, 20))
	require.NoError(t, l.Close())
	st := must(os.Stat(dir))(t)
	require.Equal(t, fs.ModeDir|0o700, st.Mode())
	entries := must(os.ReadDir(dir))(t)
	require.Greater(t, len(entries), 4)
	for _, e := range entries {
		info := must(e.Info())(t)
		require.Equal(t, fs.FileMode(0o600), info.Mode(), e.Name())
	}
	l, rep, err := Open(ctx, dir, wal.OS(), Options{})
	require.NoError(t, err)
	require.EqualValues(t, 20, rep.Archived)
	require.NoError(t, l.Close())

	link := dir + "-link"
	require.NoError(t, os.Symlink(dir, link))
	_, _, err = Open(ctx, link, nil, Options{})
	require.ErrorContains(t, err, "no directory")
	index := filepath.Join(dir, indexName)
	require.NoError(t, os.Rename(index, index+".away"))
	require.NoError(t, os.Symlink(index+".away", index))
	_, _, err = Open(ctx, dir, nil, Options{})
	require.Error(t, err)
}

// TestGoldenArchive opens the archive that is kept; the same leaves still give its bytes.
func TestGoldenArchive(t *testing.T) {
	const golden = "testdata/archive"
	if *update {
		f, _ := builtArchive(t, 14)
		require.NoError(t, os.MkdirAll(golden, 0o755))
		for name, b := range files(t, f) {
			require.NoError(t, os.WriteFile(filepath.Join(golden, name), b, 0o644))
		}
	}
	f := goldenArchive(t, golden)
	again, _ := builtArchive(t, 14)
	require.Equal(t, files(t, again), files(t, f), "the same leaves still give the same bytes")
}

// goldenArchive opens a copy of an archive of 14 leaves and checks it.
func goldenArchive(t *testing.T, golden string) *dbtest.FS {
	f := newFS(t)
	require.NoError(t, f.MkdirAll(testDir, 0o700))
	entries := must(os.ReadDir(golden))(t)
	for _, e := range entries {
		b := must(os.ReadFile(filepath.Join(golden, e.Name())))(t)
		f.WriteFile(filepath.Join(testDir, e.Name()), b)
	}
	l, rep := openLog(t, f, Options{DB: "db1"})
	require.Equal(t, Report{Archived: 14, Marked: 14}, rep)
	checkPrefix(t, l, 14, 14)
	must(l.Verify(ctx, nil, nil))(t)
	return f
}

func TestCorruptErrorText(t *testing.T) {
	err := corruptAt("index", 56, 1, errors.New("wrong checksum"))
	require.Equal(t, "ctxpage: index at offset 56 (leaf 1) is damaged: wrong checksum; "+hintRestore, err.Error())
	require.Equal(t, "ctxpage: the audit is damaged: x", (&codec.CorruptError{File: audit, Err: fmt.Errorf("x")}).Error())
	require.Equal(t, uint64(0xef46db3751d8e999), xxhash.Sum64(nil), "the checksum is xxHash64, seed 0")
}
