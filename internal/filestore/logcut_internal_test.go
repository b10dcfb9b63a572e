package filestore

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/engine"
	"github.com/ctxpage/ctxpage/internal/lexical"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/wal"
	"github.com/stretchr/testify/require"
)

var corruptAll = flag.Bool("corrupt.all", false, "flip every byte of the log, not a part of them")

// bytesFS shows one file of bytes as the only segment of a log, so that a test may cut and flip it ten thousand times a
// second. It is for reading.
type bytesFS struct {
	wal.FS
	dir, name string
	data      []byte
}

func (f *bytesFS) ReadDir(dir string) ([]string, error) {
	if dir == f.dir {
		return []string{f.name}, nil
	}
	return nil, fs.ErrNotExist
}

func (f *bytesFS) Stat(name string) (fs.FileInfo, error) { return nil, fs.ErrNotExist }

func (f *bytesFS) OpenFile(name string, flag int, perm os.FileMode) (wal.File, error) {
	if name == filepath.Join(f.dir, f.name) {
		return &bytesFile{data: f.data}, nil
	}
	return nil, fs.ErrNotExist
}

type bytesFile struct {
	wal.File
	data []byte
}

func (f *bytesFile) ReadAt(p []byte, off int64) (int, error) {
	if off > int64(len(f.data)) {
		off = int64(len(f.data))
	}
	n := copy(p, f.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *bytesFile) Size() (int64, error) { return int64(len(f.data)), nil }
func (f *bytesFile) Close() error         { return nil }

// logUnderTest is the log of a real database, about 64 KiB of it, and what it holds record by record.
type logUnderTest struct {
	sys     sysRow
	file    bytesFS
	records []loggedRecord
	all     tables // after the last
	words   *lexical.Analyzer
	path    string
	bolt    []byte     // bbolt's file, as a crash leaves it
	files   *dbtest.FS // log and archive, likewise
}

type loggedRecord struct {
	end     int64 // offset behind its frame
	seq     uint64
	durable uint64
	lsn     uint64 // after it
	rows    int
	leaves  uint64
	root    manifest.Hash
}

const logBytes = 64 << 10

// openOn opens the database at path with its log and its archive on a file system.
func openOn(path string, files wal.FS) (*Store, error) {
	return Open(Options{Path: path, FS: files, Segment: 8 << 20}) // preallocated in steps of 64 KiB
}

// put writes an artefact, or holds it.
func put(st *Store, action store.Action, a store.Artefact, text string) (store.Outcome, error) {
	now := time.Now()
	id, err := store.NewID(now, st.opts.Rand)
	if err != nil {
		return store.Outcome{}, err
	}
	a.KindDefaults()
	a.CurrentAsOf = now
	p := store.Put{Artefact: a, Counter: "bytes"}
	for piece := range slices.Chunk([]byte(text), 4<<10) {
		np := store.NewPage{Text: string(piece), Tokens: len(piece), Hash: store.ContentHash(string(piece)), Salt: [store.DigestSaltSize]byte(id[:])}
		np.Digest = store.SaltedDigest(np.Salt[:], np.Text)
		p.Pages = append(p.Pages, np)
	}
	b := store.Batch{ID: id, Scope: "acme", Actor: "writer", Now: now, Action: action, Puts: []store.Put{p}, Leaf: manifest.Record{Type: manifest.TypeCommit}}
	if action == store.ActHold {
		b.Reason = "no verdict"
	}
	return st.Commit(context.Background(), b)
}

// makeLog writes commits, leaves of reads, marks and held drafts until the log is long enough; no checkpoint comes between.
// The bulk is in the drafts, which a replay does not analyse: it is replayed some hundred thousand times.
func makeLog(t *testing.T) *logUnderTest {
	l := &logUnderTest{path: dbtest.MemoryPath(t), words: lexical.NewAnalyzer()}
	files := dbtest.NewFS()
	dir := filepath.Dir(l.path)
	require.NoError(t, files.MkdirAll(dir, 0o700))
	for ; dir != "/"; dir = filepath.Dir(dir) {
		require.NoError(t, files.SyncDir(dir))
	}
	require.NoError(t, files.SyncDir("/"))
	st := must(openOn(l.path, files))(t)
	for n := 1; st.log.Size() < logBytes; n++ {
		id := fmt.Sprint("page-", n%3)
		must(put(st, store.ActApply, store.Artefact{ID: id}, fmt.Sprint("number ", n)))(t)
		leaf := &manifest.Record{Type: manifest.TypeGet, Scope: "acme", Actor: "writer", Reason: "get " + id}
		require.NoError(t, st.note(ctx, store.Written, leaf))
		out, err := put(st, store.ActHold, store.Artefact{ID: "draft", Kind: store.KindFact}, fmt.Sprintf("held %d%s", n, strings.Repeat(".", 9000)))
		require.NoError(t, err)
		require.Equal(t, store.StatusHeld, out.Status)
		if n%3 == 0 {
			require.NoError(t, st.line.mark(st.eng.Leaves))
		}
	}
	require.NoError(t, st.log.Sync(ctx, st.log.Last(), nil))
	l.sys, l.file = st.sys, bytesFS{dir: l.path + "-wal"}
	names := must(files.ReadDir(l.file.dir))(t)
	require.Len(t, names, 1)
	l.file.name = names[0]
	l.file.data = must(files.ReadFile(filepath.Join(l.file.dir, names[0])))(t)
	l.file.data = l.file.data[:st.log.Size()]
	clear(l.file.data[64:segmentHeader]) // the length, as a power cut may tear it: otherwise each cut is damage
	l.files = files.CrashClone(1, 0)
	l.bolt = must(os.ReadFile(l.path))(t)
	files.Inject(dbtest.Fault{Err: dbtest.ErrCrashed, Sticky: true})
	_ = st.Close() // it says what it met: the crash
	l.index(t)
	return l
}

// index replays the whole log once and notes the state after each record.
func (l *logUnderTest) index(t *testing.T) {
	s := must(l.store())(t)
	require.NoError(t, errOf(wal.Scan(context.Background(), l.file.dir, &l.file, func(r wal.Record) error {
		if n := len(l.records); n > 0 {
			l.records[n-1].end = r.Offset
		}
		if err := s.redo(r); err != nil {
			return err
		}
		root, err := s.eng.Leaves.Root(s.eng.Leaves.Size())
		l.records = append(l.records, loggedRecord{
			seq: r.Seq, durable: r.Durable, lsn: s.eng.Position().LSN, rows: s.eng.Waiting().Rows, leaves: s.eng.Leaves.Size(), root: root,
		})
		return err
	})))
	l.records[len(l.records)-1].end = int64(len(l.file.data))
	l.all = must(tablesOf(s.eng))(t)
}

// store is a store of an empty file, before recovery.
func (l *logUnderTest) store() (*Store, error) {
	s := &Store{sys: l.sys, opts: Options{Path: l.path, ReadOnly: true, Analyzer: l.words, FS: &l.file}.withDefaults()}
	s.eng = engine.New(engine.Options{Path: l.path, ReadOnly: true, Now: s.opts.Now, Rand: s.opts.Rand, Analyzer: l.words})
	s.eng.Attach(noLog{})
	if err := s.eng.IndexAnew(tables{}); err != nil {
		return nil, err
	}
	return s, s.openManifest(context.Background())
}

// tables are rows in memory.
type tables [engine.TableVec + 1]map[string][]byte

// tablesOf are the rows that a checkpoint would write.
func tablesOf(e *engine.Engine) (t tables, err error) {
	for i := range t {
		t[i] = map[string][]byte{}
	}
	_, err = e.Checkpoint().Write(t, &engine.RowCounts{})
	return t, err
}

// noLog is a log that has no rows and is not asked for more.
type noLog struct{ engine.Log }

func (noLog) View(fn func(engine.Reader) error) error { return fn(tables{}) }

func (t tables) View(fn func(engine.Reader) error) error { return fn(t) }

func (t tables) Get(of engine.Table, key []byte) []byte { return t[of][string(key)] }

func (t tables) From(of engine.Table, key []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(k, v []byte) bool) {
		for _, k := range slices.Sorted(maps.Keys(t[of])) {
			if k >= string(key) && !yield([]byte(k), t[of][k]) {
				return
			}
		}
	}
}

func (t tables) Next(of engine.Table, key []byte) (k, v []byte) {
	for k, v := range t.From(of, key) {
		return k, v
	}
	return nil, nil
}

func (t tables) Before(of engine.Table, key []byte) (last []byte) {
	for k := range t.From(of, nil) {
		if bytes.Compare(k, key) >= 0 {
			break
		}
		last = k
	}
	return last
}

func (t tables) Last(of engine.Table) []byte { return t.Before(of, bytes.Repeat([]byte{0xff}, 64)) }

func (t tables) Len(of engine.Table) int { return len(t[of]) }

func (t tables) Put(of engine.Table, key, value []byte) error {
	t[of][string(key)] = value
	return nil
}

func (t tables) Delete(of engine.Table, key []byte) error {
	delete(t[of], string(key))
	return nil
}

var errWrong = errors.New("something was recovered that was never written")

// recovered replays the log as it is now. It gives how many records came through; ErrCorrupt if damage was told;
// errWrong if what came through is not exactly those records.
func (l *logUnderTest) recovered() (int, error) {
	s, err := l.store()
	if err != nil {
		return 0, err
	}
	rec, err := s.recover(context.Background())
	if err != nil {
		return 0, err
	}
	want := loggedRecord{}
	if rec.Last > 0 {
		want = l.records[rec.Last-1]
	}
	root, err := s.eng.Leaves.Root(s.eng.Leaves.Size())
	lsn, leaves, rows := s.eng.Position().LSN, s.eng.Leaves.Size(), s.eng.Waiting().Rows
	if err != nil || lsn != want.lsn || leaves != want.leaves || leaves > 0 && root != want.root || rows != want.rows {
		return 0, fmt.Errorf("%w: lsn %d, %d leaves, %d rows; expected %+v; %w", errWrong, lsn, leaves, rows, want, err)
	}
	have, err := tablesOf(s.eng)
	return int(rec.Last), cmp.Or(err, have.within(l.all))
}

// within compares rows with those of the whole log: names are never used twice, so each must be the same there.
func (t tables) within(all tables) error {
	for of := range t {
		for k, v := range t[of] {
			if !bytes.Equal(v, all[of][k]) {
				return fmt.Errorf("%w: row %x of %s", errWrong, k, engine.Table(of))
			}
		}
	}
	return nil
}

// each calls check for every number below n, on all processors, with a log of its own.
func (l *logUnderTest) each(n int, check func(l *logUnderTest, i int) error) error {
	defer debug.SetGCPercent(debug.SetGCPercent(800))
	workers := runtime.GOMAXPROCS(0)
	errs := make(chan error, workers)
	for w := range workers {
		go func() {
			own := *l
			own.file.data = slices.Clone(l.file.data)
			var err error
			for i := w; i < n && err == nil; i += workers {
				err = check(&own, i)
			}
			errs <- err
		}()
	}
	var err error
	for range workers {
		err = errors.Join(err, <-errs)
	}
	return err
}

// before is how many records end at or before an offset.
func (l *logUnderTest) before(off int) int {
	n := 0
	for n < len(l.records) && l.records[n].end <= int64(off) {
		n++
	}
	return n
}

const segmentHeader = 80 // synced before the segment has its name: no crash damages it

// TestLogCut cuts the log of a database at the places of flips, and at its end: the records before the cut are there, none
// of them changed, and nothing else. The long form cuts at every byte.
func TestLogCut(t *testing.T) {
	l := makeLog(t)
	whole := l.file.data
	places := append(l.flips(), len(whole))
	require.NoError(t, l.each(len(places), func(l *logUnderTest, i int) error {
		at := places[i]
		l.file.data = whole[:at]
		n, err := l.recovered()
		switch {
		case at < segmentHeader && errors.Is(err, store.ErrCorrupt):
			return nil
		case at < segmentHeader || err != nil || n != l.before(at):
			return fmt.Errorf("cut at %d: expected %d records, got %d, %w", at, l.before(at), n, err)
		}
		return nil
	}))
	t.Logf("%d cuts, %d records", len(places), len(l.records))
}

// TestLogFlip flips a bit in every byte of it. A record that another says was durable is not cut away: that is damage.
// The last group is in doubt, and what comes before the flip is there.
func TestLogFlip(t *testing.T) {
	l := makeLog(t)
	places := l.flips()
	require.NoError(t, l.each(len(places), func(l *logUnderTest, i int) error {
		at := places[i]
		l.file.data[at] ^= 1 << (at % 8)
		defer func() { l.file.data[at] ^= 1 << (at % 8) }()
		before := l.before(at)
		n, err := l.recovered()
		switch {
		case errors.Is(err, store.ErrNewerFormat) || err != nil && !errors.Is(err, store.ErrCorrupt):
			return fmt.Errorf("flip at %d: %w", at, err)
		case 64 <= at && at < segmentHeader:
			if err != nil || n != len(l.records) {
				return fmt.Errorf("flip at %d, in a length that is not known: expected all records, got %d, %w", at, n, err)
			}
		case at < segmentHeader || l.vouched(before):
			if err == nil {
				return fmt.Errorf("flip at %d, in what was durable: expected damage, got %d records", at, n)
			}
		case err != nil || n != before:
			return fmt.Errorf("flip at %d: expected %d records, got %d, %w", at, before, n, err)
		}
		return nil
	}))
	t.Logf("%d flips", len(places))
}

// flips are the places to flip: every byte of the segment's header and of the heads of the frames, and every eighth of
// the bodies. -corrupt.all and the long form take every byte.
func (l *logUnderTest) flips() (out []int) {
	frame := int64(segmentHeader)
	for at, i := 0, 0; at < len(l.file.data); at++ {
		for l.records[i].end <= int64(at) {
			frame = l.records[i].end
			i++
		}
		if *corruptAll || dbtest.Long || int64(at) < frame+40 || at%8 == i%8 {
			out = append(out, at)
		}
	}
	return out
}

// vouched reports whether a record behind the nth says that the nth was durable.
func (l *logUnderTest) vouched(n int) bool {
	for _, r := range l.records[n+1:] {
		if r.durable >= l.records[n].seq {
			return true
		}
	}
	return false
}

// TestLogFlipControl: with the checksum put right again, as if nobody looked at it, the flip is seen by the comparison.
func TestLogFlipControl(t *testing.T) {
	l := makeLog(t)
	at := bytes.LastIndex(l.file.data, []byte("held "))
	l.file.data[at] ^= 1
	require.NotErrorIs(t, errOf(l.recovered()), errWrong)
	l.reseal(l.records[l.before(at)-1].end)
	require.ErrorIs(t, errOf(l.recovered()), errWrong)
}

// reseal computes the checksums of the frame at off anew.
func (l *logUnderTest) reseal(off int64) {
	key := binary.LittleEndian.AppendUint64(nil, xxhash.Sum64(l.file.data[16:40]))
	frame := l.file.data[off:]
	n := binary.LittleEndian.Uint32(frame[12:])
	binary.LittleEndian.PutUint64(frame, xxhash.Sum64(append(slices.Clone(key), frame[8:40+n]...)))
}

// TestLogCutOpen opens whole databases for writing with a cut log: at every record's end, and at random places. What is
// left is sound, and can be written to and opened again.
func TestLogCutOpen(t *testing.T) {
	l := makeLog(t)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 2 * len(l.records) {
		at := l.records[i/2].end
		if i%2 == 1 {
			at = segmentHeader + rng.Int64N(int64(len(l.file.data))-segmentHeader)
		}
		require.NoError(t, os.WriteFile(l.path, l.bolt, 0o600))
		files := l.files.Clone()
		files.WriteFile(filepath.Join(l.file.dir, l.file.name), l.file.data[:at])
		st, err := openOn(l.path, files)
		require.NoError(t, err, "cut at %d", at)
		require.Empty(t, must(st.Maintain(ctx, store.Job{Kind: store.JobCheck}, nil))(t).Problems, "cut at %d", at)
		var want loggedRecord
		if n := l.before(int(at)); n > 0 {
			want = l.records[n-1]
		}
		require.Equal(t, want.lsn, must(st.Stat(ctx))(t).LSN, "cut at %d", at)
		must(put(st, store.ActApply, store.Artefact{ID: "later"}, "after the cut"))(t)
		require.NoError(t, st.Close())
		st = must(openOn(l.path, files))(t)
		found := must(st.Resolve(ctx, store.Scopes{"acme"}, store.Ref{ID: "later"}))(t)
		loaded := must(st.Load(ctx, store.Scopes{"acme"}, found.Pages, store.WantText))(t)
		require.NoError(t, loaded[0].Err)
		require.Equal(t, "after the cut", loaded[0].Text)
		require.Equal(t, want.lsn+1, loaded[0].Head.LSN)
		require.NoError(t, st.Close())
	}
}
