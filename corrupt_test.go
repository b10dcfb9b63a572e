//go:build rehome

package ctxpage

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/ctxpage/ctxpage/filestore"
	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/lexical"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/wal"
	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
)

var (
	corruptAll  = flag.Bool("corrupt.all", false, "flip every byte of the log, not a part of them")
	damageTimes = flag.Int("damage.times", 240, "how many databases TestDamage damages")
	damageSeed  = flag.Uint64("damage.seed", 1, "the first seed")
)

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
	sys     filestore.sysRow
	file    bytesFS
	records []loggedRecord
	all     *filestore.overlay // after the last
	words   *lexical.Analyzer
	rig     *rig
	im      image
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

// makeLog writes commits, reads, marks and held drafts until the log is long enough; no checkpoint comes between. The
// bulk is in the drafts, which a replay does not analyse: it is replayed some hundred thousand times.
func makeLog(t *testing.T) *logUnderTest {
	ctx := context.Background()
	r := newRig(t, Options{})
	db, err := r.open()
	require.NoError(t, err)
	s, st := db.Scope("acme", WithActor("writer")), db.store.(*filestore.Store)
	for n := 1; st.log.Size() < logBytes; n++ {
		_, err := s.Put(ctx, Artefact{ID: fmt.Sprint("page-", n%3), Text: fmt.Sprint("number ", n)})
		require.NoError(t, err)
		_, err = s.Get(ctx, fmt.Sprint("page-", n%3))
		require.NoError(t, err)
		tx, err := s.Begin(ctx)
		require.NoError(t, err)
		require.NoError(t, tx.Put(ctx, Artefact{ID: "draft", Kind: KindFact, Text: fmt.Sprintf("held %d%s", n, strings.Repeat(".", 9000))}))
		require.ErrorIs(t, tx.Commit(ctx, Verdict{}), ErrHeld)
		if n%3 == 0 {
			require.NoError(t, st.mark())
		}
	}
	require.NoError(t, st.log.Sync(ctx, st.log.Last()))
	l := &logUnderTest{sys: st.sys, file: bytesFS{dir: r.path + "-wal"}, words: lexical.NewAnalyzer(), rig: r}
	names, err := r.fs.ReadDir(l.file.dir)
	require.NoError(t, err)
	require.Len(t, names, 1)
	l.file.name = names[0]
	l.file.data, err = r.fs.ReadFile(filepath.Join(l.file.dir, names[0]))
	require.NoError(t, err)
	l.file.data = l.file.data[:st.log.Size()]
	l.im = r.cut(1, 0)
	require.NoError(t, r.restart(db, l.im))
	l.index(t)
	return l
}

// index replays the whole log once and notes the state after each record.
func (l *logUnderTest) index(t *testing.T) {
	s, err := l.store()
	require.NoError(t, err)
	_, err = wal.Scan(context.Background(), l.file.dir, &l.file, 0, func(r wal.Record) error {
		if n := len(l.records); n > 0 {
			l.records[n-1].end = r.Offset
		}
		if err := s.redo(r); err != nil {
			return err
		}
		root, err := s.man.Root(s.man.Size())
		l.records = append(l.records, loggedRecord{
			seq: r.Seq, durable: r.Durable, lsn: s.cat.lsn, rows: s.over.rows(), leaves: s.man.Size(), root: root,
		})
		return err
	})
	require.NoError(t, err)
	l.records[len(l.records)-1].end = int64(len(l.file.data))
	l.all = s.over
}

// store is a store of an empty file, before recovery.
func (l *logUnderTest) store() (*filestore.Store, error) {
	s := &filestore.Store{cat: filestore.newCatalogue(), over: filestore.newOverlay(), sys: l.sys}
	s.opts = filestore.Options{Path: strings.TrimSuffix(l.file.dir, "-wal"), ReadOnly: true, Analyzer: l.words, Fs: &l.file}
	s.seq.init()
	var err error
	if s.idx, err = lexical.Open(filestore.noRows{}); err != nil {
		return nil, err
	}
	return s, s.openManifest(context.Background())
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
	root, err := s.man.Root(s.man.Size())
	if err != nil || s.cat.lsn != want.lsn || s.man.Size() != want.leaves || want.leaves > 0 && root != want.root || s.over.rows() != want.rows {
		return 0, fmt.Errorf("%w: lsn %d, %d leaves, %d rows; expected %+v; %w", errWrong, s.cat.lsn, s.man.Size(), s.over.rows(), want, err)
	}
	return int(rec.Last), sameRows(s.over, l.all)
}

// sameRows compares rows with those of the whole log: names are never used twice, so each must be the same there.
func sameRows(o, all *filestore.overlay) error {
	for k, v := range o.heads {
		if !bytes.Equal(v, all.heads[k]) {
			return fmt.Errorf("%w: head %v", errWrong, k)
		}
	}
	for k, v := range o.texts {
		if v != all.texts[k] {
			return fmt.Errorf("%w: text %d", errWrong, k)
		}
	}
	for _, m := range [][2]map[ulid.ULID][]byte{{o.held, all.held}, {o.result, all.result}} {
		for k, v := range m[0] {
			if !bytes.Equal(v, m[1][k]) {
				return fmt.Errorf("%w: row %s", errWrong, k)
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

const segmentHeader = 64 // synced before the segment has its name: no crash damages it

// TestLogCut cuts the log of a database at every byte: the records before the cut are there, none of them changed, and
// nothing else.
func TestLogCut(t *testing.T) {
	l := makeLog(t)
	whole := l.file.data
	require.NoError(t, l.each(len(whole)+1, func(l *logUnderTest, at int) error {
		l.file.data = whole[:at]
		n, err := l.recovered()
		switch {
		case at < segmentHeader && errors.Is(err, ErrCorrupt):
			return nil
		case at < segmentHeader || err != nil || n != l.before(at):
			return fmt.Errorf("cut at %d: expected %d records, got %d, %w", at, l.before(at), n, err)
		}
		return nil
	}))
	t.Logf("%d cuts, %d records", len(whole)+1, len(l.records))
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
		case errors.Is(err, ErrNewerFormat) || err != nil && !errors.Is(err, ErrCorrupt):
			return fmt.Errorf("flip at %d: %w", at, err)
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
// the bodies. -corrupt.all takes every byte.
func (l *logUnderTest) flips() (out []int) {
	frame := int64(segmentHeader)
	for at, i := 0, 0; at < len(l.file.data); at++ {
		for l.records[i].end <= int64(at) {
			frame = l.records[i].end
			i++
		}
		if *corruptAll || int64(at) < frame+40 || at%8 == i%8 {
			out = append(out, at)
		}
	}
	return out
}

// vouched says whether a record behind the nth says that the nth was durable.
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
	_, err := l.recovered()
	require.NotErrorIs(t, err, errWrong)
	l.reseal(l.records[l.before(at)-1].end)
	_, err = l.recovered()
	require.ErrorIs(t, err, errWrong)
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
	ctx := context.Background()
	l := makeLog(t)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 2 * len(l.records) {
		at := l.records[i/2].end
		if i%2 == 1 {
			at = segmentHeader + rng.Int64N(int64(len(l.file.data))-segmentHeader)
		}
		require.NoError(t, l.rig.restart(nil, image{l.im.fs.Clone(), l.im.bolt}))
		l.rig.fs.WriteFile(filepath.Join(l.file.dir, l.file.name), l.file.data[:at])
		db, err := l.rig.open()
		require.NoError(t, err, "cut at %d", at)
		problems, err := db.Check(ctx, nil)
		require.NoError(t, err)
		require.Empty(t, problems, "cut at %d", at)
		st, err := db.Stats(ctx)
		require.NoError(t, err)
		var want loggedRecord
		if n := l.before(int(at)); n > 0 {
			want = l.records[n-1]
		}
		require.Equal(t, want.lsn, st.LSN, "cut at %d", at)
		_, err = db.Scope("acme").Put(ctx, Artefact{ID: "later", Text: "after the cut"})
		require.NoError(t, err)
		require.NoError(t, db.Close())
		db, err = l.rig.open()
		require.NoError(t, err)
		v, err := db.Scope("acme").Get(ctx, "later")
		require.NoError(t, err)
		require.Equal(t, "after the cut", v.Text)
		require.Equal(t, want.lsn+1, v.LSN)
		require.NoError(t, db.Close())
	}
}

// everything is what a database answers, by question.
type everything map[string]string

// ask asks a database all there is to ask. An answer that is damage is left out and counted; any other error is one.
func ask(db *DB) (ans everything, damaged int, err error) {
	ctx := context.Background()
	ans = everything{}
	put := func(question string, answer any, aerr error) {
		switch {
		case errors.Is(aerr, ErrCorrupt):
			damaged++
		case aerr != nil:
			ans[question] = aerr.Error()
		default:
			ans[question] = fmt.Sprintf("%+v", answer)
		}
	}
	for _, scope := range []string{"acme", "acme/east", "acme/west"} {
		s := db.Scope(scope)
		for n := range damagePages {
			id := fmt.Sprint("page-", n)
			v, err := s.Get(ctx, id)
			put("get "+scope+" "+id, versionText(v), err)
			if n%4 == 0 {
				hist, _, err := s.History(ctx, id, "", 0)
				put("history "+scope+" "+id, heads(hist), err)
				v, err = s.GetRef(ctx, Ref{Scope: scope, ID: id, Version: 1})
				put("first "+scope+" "+id, versionText(v), err)
			}
		}
		list, _, err := s.List(ctx, "", "", 1000)
		put("list "+scope, heads(list), err)
		hits, err := hitsOf(s.Search(ctx, "refund number 7", 5))
		put("search "+scope, hitTexts(hits), err)
		for _, h := range hits { // a hit is a page of what Get gives
			v, err := s.GetRef(ctx, Ref{Scope: h.Ref.Scope, ID: h.Ref.ID})
			if err == nil && !strings.Contains(v.Text, h.Text) {
				put("hit of "+scope, h, nil)
			}
		}
	}
	bulk := db.Scope("acme/bulk")
	for n := range bulkPages / 8 {
		v, err := bulk.Get(ctx, fmt.Sprint("bulk-", n*8))
		put(fmt.Sprint("bulk ", n), versionText(v), err)
	}
	hits, err := hitsOf(bulk.Search(ctx, "shelf 77 parcel", 20))
	put("search bulk", hitTexts(hits), err)
	for _, h := range hits {
		var n int
		if _, err := fmt.Sscanf(h.Ref.ID, "bulk-%d", &n); err != nil || h.Text != bulkText(n) {
			put("hit "+h.Ref.ID, h.Text, err)
		}
	}
	held, _, err := db.Review().List(ctx, "", true, "", 100)
	put("held", fmt.Sprint(len(held), heldWrites(held)), err)
	roots, err := db.FileRoots(ctx)
	put("roots", roots, err)
	st, err := db.Stats(ctx)
	put("stats", fmt.Sprint(st.LSN, st.Artefacts, st.Pages, st.PageVersions, st.Scopes, st.Held), err)
	return ans, damaged, nil
}

// misses says whether a search gave another list than the true one.
func (ans everything) misses(truth everything) bool {
	for q, a := range ans {
		if strings.HasPrefix(q, "search ") && a != truth[q] {
			return true
		}
	}
	return false
}

const (
	damagePages = 24
	bulkPages   = 1100 // enough for a segment of the index
)

func bulkText(n int) string { return fmt.Sprintf("parcel %d lies on shelf %d", n, n%100) }

func versionText(v *Version) string {
	if v == nil {
		return ""
	}
	return fmt.Sprintf("%s %d %v %s", v.Ref, v.Version, v.Provenance, v.Text)
}

func heads(list []*Version) (out []string) {
	for _, v := range list {
		out = append(out, fmt.Sprintf("%s %d %d", v.Ref, v.Version, v.Tokens))
	}
	return out
}

func hitTexts(hits []Hit) (out []string) {
	for _, h := range hits {
		out = append(out, fmt.Sprintf("%s %.6f %s", h.Ref, h.Score, h.Text))
	}
	return out
}

func heldWrites(held []Held) (out []string) {
	for _, h := range held {
		out = append(out, h.Reason, h.Writes[0].ID, h.Writes[0].Text)
	}
	return out
}

// differences names the answers that are not the true ones. A search may find less: what a damaged page of the index hides
// is found by the check, not by a query; but what it finds must be true.
func (truth everything) differences(ans everything) error {
	var errs []error
	for q, a := range ans {
		if a != truth[q] && !strings.HasPrefix(q, "search ") {
			errs = append(errs, fmt.Errorf("%s: expected %.200q, got %.200q", q, truth[q], a))
		}
	}
	return errors.Join(errs...)
}

// makeDamageBase writes a database of all sorts of rows, checkpointed several times, with some commits in the log only,
// as a killed process leaves it.
func makeDamageBase(t *testing.T, path string) {
	ctx := context.Background()
	live := dbtest.MemoryPath(t)
	db := openTest(t, live, Options{rotate: 1})
	defer db.Close()
	require.NoError(t, db.AddFileRoot(ctx, t.TempDir()))
	require.NoError(t, db.Scope("acme/bulk").Update(ctx, func(tx *Txn) error {
		for n := range bulkPages {
			if err := tx.Put(ctx, Artefact{ID: fmt.Sprint("bulk-", n), Kind: KindFact, Text: bulkText(n)}); err != nil {
				return err
			}
		}
		return nil
	}))
	for round := range 4 {
		for i, scope := range []string{"acme", "acme/east", "acme/west"} {
			s := db.Scope(scope, WithActor("writer"))
			for n := round; n < damagePages; n += 2 {
				_, err := s.Put(ctx, Artefact{
					ID: fmt.Sprint("page-", n), Kind: KindFact, Group: fmt.Sprint("group-", n%3), Seq: int64(n),
					Text: strings.Repeat(fmt.Sprintf("The refund number %d of round %d is %d dollars.\n", n, round, n*i), 1+n%3*60),
				})
				require.NoError(t, err)
			}
			require.NoError(t, s.Delete(ctx, fmt.Sprint("page-", round)))
			tx, err := s.Begin(ctx)
			require.NoError(t, err)
			require.NoError(t, tx.Put(ctx, Artefact{ID: "draft", Text: fmt.Sprint("held in round ", round)}))
			require.ErrorIs(t, tx.Commit(ctx, Verdict{}), ErrHeld)
		}
		if round < 3 {
			_, err := db.Checkpoint(ctx)
			require.NoError(t, err)
		}
	}
	require.NoError(t, dbtest.Copy(live, path))
	c := copyBolt(path)
	require.NoError(t, os.Truncate(path, int64(len(c.used)))) // it is copied often
}

// harm does one thing to one file of a database, by a seed. It says what it did.
func harm(path string, seed uint64) (string, error) {
	rng := rand.New(rand.NewPCG(seed, 11))
	file := path
	if rng.IntN(3) == 0 {
		var files []string
		for _, dir := range []string{"-wal", "-manifest"} {
			entries, err := os.ReadDir(path + dir)
			if err != nil {
				return "", err
			}
			for _, e := range entries {
				files = append(files, filepath.Join(path+dir, e.Name()))
			}
		}
		file = files[rng.IntN(len(files))]
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	used := max(1, len(bytes.TrimRight(b, "\x00")))
	page := rng.IntN((used + 4095) / 4096)
	bit := byte(1) << rng.IntN(8)
	what := ""
	switch kind := rng.IntN(10); {
	case kind < 5:
		at := rng.IntN(used)
		b[at] ^= bit
		what = fmt.Sprintf("flip %d/%d", at, bit)
	case kind < 7:
		at := min(page*4096+rng.IntN(64), used-1)
		b[at] ^= bit
		what = fmt.Sprintf("flip %d/%d, in a page's head", at, bit)
	case kind < 9:
		clear(b[page*4096 : min(len(b), page*4096+4096)])
		what = fmt.Sprintf("zero page %d", page)
	default:
		b = b[:rng.IntN(used)]
		what = fmt.Sprintf("cut at %d", len(b))
	}
	return filepath.Base(file) + " " + what, os.WriteFile(file, b, 0o600)
}

// damagedChild takes a base, a place for copies, and a range of seeds. For each seed it damages a copy and asks it
// everything; it prints a line before and one after, so that the parent knows which one killed it.
func init() { children["damaged"] = damagedChild }

func damagedChild(args []string) error {
	base, path := args[0], args[1]
	from, err := strconv.ParseUint(args[2], 10, 64)
	if err != nil {
		return err
	}
	to, err := strconv.ParseUint(args[3], 10, 64)
	if err != nil {
		return err
	}
	truth, err := truthOf(base, path)
	if err != nil {
		return err
	}
	for seed := from; seed < to; seed++ {
		if err := copyAnew(base, path); err != nil {
			return err
		}
		what, err := harm(path, seed)
		if err != nil {
			return err
		}
		fmt.Printf("seed %d: %s\n", seed, what)
		fmt.Println(judgeDamaged(path, truth, seed%2 == 0))
	}
	return nil
}

func truthOf(base, path string) (map[uint64]everything, error) {
	truth := map[uint64]everything{}
	if err := copyAnew(base, path); err != nil {
		return nil, err
	}
	db, err := Open(path, Options{ReadOnly: true})
	if err != nil {
		return nil, err
	}
	ans, _, err := ask(db)
	truth[db.store.(*filestore.Store).cat.lsn] = ans
	return truth, errors.Join(err, db.Close())
}

func copyAnew(base, path string) error {
	for _, suffix := range []string{"", "-wal", "-manifest", ".lock"} {
		if err := os.RemoveAll(path + suffix); err != nil {
			return err
		}
	}
	return dbtest.Copy(base, path)
}

// judgeDamaged opens a damaged database and asks it everything: "refused", "told n", "whole", or "WRONG …".
func judgeDamaged(path string, truth map[uint64]everything, readOnly bool) string {
	return judgeOpened(path, truth, Options{ReadOnly: readOnly, WorkingSet: -1})
}

func judgeOpened(path string, truth map[uint64]everything, o Options) string {
	db, err := Open(path, o)
	if errors.Is(err, ErrCorrupt) {
		return "refused"
	}
	if err != nil {
		return "WRONG error of Open: " + err.Error()
	}
	verdict := judgeOpen(db, truth)
	if !o.ReadOnly && !strings.HasPrefix(verdict, "WRONG") { // writing to what is damaged must not make it answer wrongly
		_, perr := db.Scope("acme/new").Put(context.Background(), Artefact{ID: "new", Text: "written on damage"})
		_, cerr := db.Checkpoint(context.Background())
		_, kerr := db.Check(context.Background(), nil)
		if perr != nil || cerr != nil || kerr != nil {
			verdict += " (write refused)"
		}
	}
	if err := db.Close(); err != nil && !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrOutcomeUnknown) {
		return "WRONG error of Close: " + err.Error()
	}
	return verdict
}

func judgeOpen(db *DB, truth map[uint64]everything) string {
	ans, damaged, err := ask(db)
	if err != nil {
		return "WRONG " + err.Error()
	}
	lsn := db.store.(*filestore.Store).cat.lsn
	want := truth[lsn]
	if want == nil {
		return fmt.Sprintf("shorter: ends at lsn %d", lsn)
	}
	if err := want.differences(ans); err != nil {
		return "WRONG " + strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	if ans.misses(want) {
		problems, err := db.Check(context.Background(), nil)
		if err == nil && len(problems) == 0 {
			return "WRONG a search finds less, and the check finds nothing"
		}
		return "told"
	}
	if damaged > 0 {
		return "told"
	}
	return "whole"
}

// TestDamage damages the files of a database at random and asks it everything: it answers right, or says that it is
// damaged; it does not die and does not hang.
func TestDamage(t *testing.T) {
	t.Parallel()
	base := dbtest.MemoryPath(t)
	makeDamageBase(t, base)
	const each = 60
	for part := range *damageTimes / each {
		t.Run(fmt.Sprint(part), func(t *testing.T) {
			t.Parallel()
			from := *damageSeed + uint64(part*each)
			path := dbtest.MemoryPath(t)
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // a hang
			defer cancel()
			out, err := childCommandContext(ctx, "damaged", base, path, fmt.Sprint(from), fmt.Sprint(from+each)).Output()
			lines := strings.Split(strings.TrimSpace(string(out)), "\n")
			require.NoError(t, err, "died or hung at: %s", lines[len(lines)-1])
			require.Len(t, lines, 2*each)
			count := map[string]int{}
			for i := 0; i < len(lines); i += 2 {
				count[strings.Fields(lines[i+1])[0]]++
				if strings.HasPrefix(lines[i+1], "WRONG") || strings.HasPrefix(lines[i+1], "shorter") && !strings.Contains(lines[i], ".wal") {
					t.Errorf("%s\n  %s", lines[i], lines[i+1])
				}
			}
			t.Log(count)
			require.Greater(t, count["refused"]+count["told"], each/10, "too little damage was noticed to mean anything")
		})
	}
}

// TestDamageControl: a content with its checksum made right again, and not compared with its digest, is a wrong answer that
// the questions of TestDamage see.
func TestDamageControl(t *testing.T) {
	t.Parallel()
	base, path := dbtest.MemoryPath(t), dbtest.MemoryPath(t)
	makeDamageBase(t, base)
	truth, err := truthOf(base, path)
	require.NoError(t, err)
	require.Equal(t, "whole", judgeDamaged(path, truth, true))

	edit := func(change func(v []byte) []byte) {
		require.NoError(t, copyAnew(base, path))
		raw, err := bbolt.Open(path, 0o600, nil)
		require.NoError(t, err)
		require.NoError(t, raw.Update(func(tx *bbolt.Tx) error {
			b, key := tx.Bucket(filestore.bucketContent), filestore.textRowKey(9) // of bulk-8
			return b.Put(key, change(slices.Clone(b.Get(key))))
		}))
		require.NoError(t, raw.Close())
	}
	edit(func(v []byte) []byte { v[0] ^= 1; return v })
	require.Equal(t, "told", judgeDamaged(path, truth, true))
	edit(func(v []byte) []byte { v[0] ^= 1; return codec.Seal('c', filestore.textRowKey(9), v[:len(v)-8]) })
	require.Equal(t, "told", judgeDamaged(path, truth, true), "its digest is in the head row")
	require.Contains(t, judgeOpened(path, truth, Options{ReadOnly: true, WorkingSet: -1, trust: true}), "WRONG")
}

// TestBoltWalk: the walk finds nothing in a file that bbolt's own check finds sound, and finds each page that is zeroed,
// the second meta page and free ones apart.
func TestBoltWalk(t *testing.T) {
	t.Parallel()
	base := dbtest.MemoryPath(t)
	makeDamageBase(t, base)
	raw, err := bbolt.Open(base, 0o600, &bbolt.Options{ReadOnly: true})
	require.NoError(t, err)
	free := map[int]bool{}
	require.NoError(t, raw.View(func(tx *bbolt.Tx) error {
		for err := range tx.Check() {
			return err
		}
		for id := 0; ; id++ {
			p, err := tx.Page(id)
			if err != nil || p == nil {
				return err
			}
			free[id] = p.Type == "free"
		}
	}))
	require.NoError(t, raw.Close())
	b, err := os.ReadFile(base)
	require.NoError(t, err)
	walk := func(b []byte) (found []string) {
		filestore.walkBolt(bytes.NewReader(b), int64(len(b)), func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) })
		return found
	}
	require.Empty(t, walk(b))
	overflow := 0
	for id := 2; id < len(free); id++ {
		if free[id] {
			continue
		}
		page := b[id*4096 : id*4096+4096]
		if overflow--; overflow >= 0 {
			continue // the rest of a large page: its rows have checksums
		}
		overflow = int(binary.NativeEndian.Uint32(page[12:]))
		was := slices.Clone(page)
		clear(page)
		require.NotEmpty(t, walk(b), "page %d zeroed", id)
		copy(page, was)
	}
}

// TestCheckListsTheAudit: a leaf that was changed in the archive is a problem like any other, not the end of the check.
func TestCheckListsTheAudit(t *testing.T) {
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "agent.ctx")
	db := openTest(t, path, Options{})
	defer db.Close()
	for n := range 20 {
		_, err := db.Scope("acme").Put(ctx, Artefact{ID: fmt.Sprint(n), Text: "text"})
		require.NoError(t, err)
	}
	_, err := db.Checkpoint(ctx)
	require.NoError(t, err)
	found, err := db.Check(ctx, nil)
	require.NoError(t, err)
	require.Empty(t, found)

	names, err := filepath.Glob(path + "-manifest/leaves-*")
	require.NoError(t, err)
	require.Len(t, names, 1)
	f, err := os.OpenFile(names[0], os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteAt([]byte("forged"), 400)
	require.NoError(t, errors.Join(err, f.Close()))
	found, err = db.Check(ctx, nil)
	require.NoError(t, err)
	require.NotEmpty(t, found)
	require.Equal(t, "I8", found[0].Invariant)
}
