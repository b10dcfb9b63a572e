package filestore_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	. "github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/internal/loop"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/wal"
	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
)

var salvageRuns = flag.Int("salvage.runs", dbtest.Times(3, 12, 60), "how many databases TestSalvageIntact damages")

const countedArtefacts = 147

func countedText(n, version int) string {
	return fmt.Sprintf("artefact %d version %d of the truth", n, version)
}

// countedBase makes a database of which the true content is known: three segments of the log, two of them in the file
// already, some artefacts with several versions, and one write per record.
func countedBase(t *testing.T) (path string, newest map[string]int) {
	live, path := dbtest.MemoryPath(t), dbtest.MemoryPath(t)
	db := openTest(t, live, Options{})
	log := inside(db).Log
	newest = map[string]int{}
	put := func(n int) {
		id := fmt.Sprint("art-", n)
		newest[id]++
		must(db.Scope("acme").Put(ctx, Artefact{ID: id, Text: countedText(n, newest[id])}))(t)
	}
	for n := range countedArtefacts {
		put(n)
		if n%5 == 0 {
			put(n / 2)
		}
		if n == 40 || n == 90 {
			must(db.Admin().Checkpoint(ctx))(t)
			require.NoError(t, log.Rotate())
		}
		if n%7 == 0 {
			must(db.Scope("acme").Get(ctx, fmt.Sprint("art-", n)))(t)
		}
	}
	require.NoError(t, log.Sync(ctx, log.Last(), nil))
	require.NoError(t, dbtest.Copy(live, path))
	require.NoError(t, db.Close())
	require.Len(t, logFiles(t, path), 3)
	return path, newest
}

func logFiles(t *testing.T, path string) []string {
	names := must(filepath.Glob(path + "-wal/*.wal"))(t)
	slices.Sort(names)
	return names
}

// damageDone says what a damage took: artefacts of which the newest version stands in no sound byte any more.
type damageDone struct {
	what string
	lost map[string]bool
}

// commitsOf gives, by record of the log, the artefact it writes, and where it stands.
func commitsOf(t *testing.T, path string) (ids []string, recs []wal.Record, seq uint64) {
	require.NoError(t, errOf(wal.Scan(context.Background(), path+"-wal", nil, func(r wal.Record) error {
		id := ""
		if r.Kind == wal.KindCommit {
			c := must(format.DecodeCommit(r.Body))(t)
			for _, h := range c.Heads {
				id = headRow(t, h.Row).ID
			}
		}
		size := len(r.Body)
		r.Body = nil
		r.Durable = uint64(size)
		ids, recs = append(ids, id), append(recs, r)
		return nil
	})))
	db := openTest(t, path, Options{ReadOnly: true})
	seq = inside(db).Seq
	require.NoError(t, db.Close())
	return ids, recs, seq
}

func headRow(t *testing.T, row []byte) *store.Head {
	return must(format.DecodeHead(row, func(uint32) string { return "" }))(t)
}

func openFileOf(t *testing.T, path string) (*os.File, int64) {
	f := must(os.Open(path))(t)
	return f, must(f.Stat())(t).Size()
}

// flipRecord damages one record of the log.
func flipRecord(t *testing.T, path string, rng *rand.Rand) damageDone {
	ids, recs, applied := commitsOf(t, path)
	i := rng.IntN(len(recs))
	b := must(os.ReadFile(recs[i].Segment))(t)
	b[recs[i].Offset+40+rng.Int64N(int64(recs[i].Durable))] ^= 1 << rng.IntN(8)
	require.NoError(t, os.WriteFile(recs[i].Segment, b, 0o600))
	lost := map[string]bool{}
	if recs[i].Seq > applied && ids[i] != "" && !slices.Contains(ids[i+1:], ids[i]) {
		lost[ids[i]] = true
	}
	return damageDone{fmt.Sprint("record ", recs[i].Seq, " of the log, ", ids[i]), lost}
}

// shortenSegment cuts the end off a segment; nothing of what was in the file already is lost.
func shortenSegment(t *testing.T, path string, rng *rand.Rand) damageDone {
	ids, recs, applied := commitsOf(t, path)
	cut := recs[rng.IntN(len(recs))] // within it: where a log ends between two records nothing tells that there were more
	name, at := cut.Segment, cut.Offset+40+rng.Int64N(int64(cut.Durable))
	require.NoError(t, os.Truncate(name, at))
	lost := map[string]bool{}
	for i, r := range recs {
		if r.Segment == name && r.Offset+40+int64(r.Durable) > at && r.Seq > applied && ids[i] != "" {
			lost[ids[i]] = true
		} else {
			delete(lost, ids[i])
		}
	}
	return damageDone{fmt.Sprint(filepath.Base(name), " cut at ", at), lost}
}

// zeroPage overwrites a page of the file. What stands in the log as well is not lost.
func zeroPage(t *testing.T, path string, rng *rand.Rand) damageDone {
	ids, recs, _ := commitsOf(t, path)
	file, size := openFileOf(t, path)
	defer file.Close()
	m := must(names.Newest(file, size))(t)
	page := 2 + rng.Int64N(int64(m.High)-2)
	from, to := page*m.PageSize, (page+1)*m.PageSize
	lost, arts, nums := map[string]bool{}, map[uint64]bool{}, map[uint64]bool{}
	idOf := map[uint64]string{}
	pages := map[uint64]uint64{}
	names.Walk(file, size, func(bucket string, k, v []byte, at int64) {
		hit := at < to && at+int64(len(v)) > from || at-int64(len(k)) < to && at > from
		switch {
		case bucket == "meta" && k[0] == 'h':
			row := must(codec.Unseal('m', k, v))(t)
			head := headRow(t, row)
			idOf[head.Art] = head.ID
			for _, r := range head.Rows {
				pages[r.Num] = head.Art
			}
			arts[head.Art] = arts[head.Art] || hit
		case bucket == "content" && hit:
			num, _ := codec.Ordered(k)
			nums[num] = true
		}
	}, func(format string, args ...any) { t.Errorf(format, args...) })
	for num := range nums {
		arts[pages[num]] = true
	}
	for art, hit := range arts {
		lost[idOf[art]] = hit
	}
	for i := range recs {
		delete(lost, ids[i])
	}
	require.NoError(t, writeZeros(path, from, m.PageSize))
	return damageDone{fmt.Sprint("page ", page), lost}
}

func writeZeros(path string, at, n int64) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteAt(make([]byte, n), at)
	return err
}

// removeSegment takes a segment away.
func removeSegment(t *testing.T, path string, rng *rand.Rand) damageDone {
	ids, recs, applied := commitsOf(t, path)
	names := logFiles(t, path)
	name := names[rng.IntN(len(names))]
	require.NoError(t, os.Remove(name))
	lost := map[string]bool{}
	for i, r := range recs {
		if r.Segment == name && r.Seq > applied && ids[i] != "" {
			lost[ids[i]] = true
		} else {
			delete(lost, ids[i])
		}
	}
	return damageDone{filepath.Base(name) + " removed", lost}
}

// salvaged compares a salvage with the truth. It counts the artefacts that stand in sound bytes, and those of them that
// were copied in their newest version; and names the first thing that was made up, or is missing without a word.
func salvaged(t *testing.T, path string, newest map[string]int, done damageDone) (intact, copied int, wrong error) {
	to := dbtest.MemoryPath(t)
	rep, err := Salvage(ctx, path, to, filestore.SalvageOptions{})
	require.NoError(t, err, done.what)
	told := fmt.Sprint(rep.Lost)
	db := openTest(t, to, Options{})
	defer db.Close()
	list := must(loop.Collect(db.Scope("acme").Artefacts(ctx, "", AtMost(1000, "", nil))))(t)
	got := map[string]int{}
	for _, v := range list {
		full := must(db.Scope("acme").Get(ctx, v.Ref.ID))(t)
		n := must(strconv.Atoi(strings.TrimPrefix(v.Ref.ID, "art-")))(t)
		for version := 1; version <= newest[v.Ref.ID]; version++ {
			if full.Text == countedText(n, version) {
				got[v.Ref.ID] = version
			}
		}
		if got[v.Ref.ID] == 0 {
			wrong = fmt.Errorf("%s: %s never said %q", done.what, v.Ref.ID, full.Text)
		}
	}
	end := strings.Contains(told, "{end of the log")
	blanket := end || strings.Contains(told, "{artefacts number") || strings.Contains(told, "{artefacts from number")
	for id, version := range newest {
		if !done.lost[id] {
			intact++
			if got[id] == version {
				copied++
			}
		}
		if got[id] != version && !strings.Contains(told, "acme:"+id+"@") && !(got[id] == 0 && blanket) && !end {
			wrong = fmt.Errorf("%s: %s is there in version %d of %d, and nobody says so: %.600s", done.what, id, got[id], version, told)
		}
	}
	return intact, copied, wrong
}

var salvageDamages = map[string]func(*testing.T, string, *rand.Rand) damageDone{
	"a flipped bit of the log": flipRecord, "a shortened segment": shortenSegment, "a removed segment": removeSegment, "a zeroed page": zeroPage,
}

// TestSalvageIntact damages databases in each way at random places. At least 99 % of the artefacts that stand in sound
// bytes are copied as they were in the end, none is made up, and whatever is not as it was is listed.
func TestSalvageIntact(t *testing.T) {
	t.Parallel()
	base, newest := countedBase(t)
	for _, kind := range slices.Sorted(maps.Keys(salvageDamages)) {
		intact, copied := 0, 0
		for seed := range uint64(*salvageRuns) {
			path := dbtest.MemoryPath(t)
			require.NoError(t, dbtest.Copy(base, path))
			done := salvageDamages[kind](t, path, rand.New(rand.NewPCG(seed, 5)))
			n, ok, wrong := salvaged(t, path, newest, done)
			require.NoError(t, wrong, "%s, seed %d", kind, seed)
			intact, copied = intact+n, copied+ok
		}
		t.Logf("%s: %d of %d intact artefacts copied", kind, copied, intact)
		require.GreaterOrEqual(t, copied*100, intact*99, kind)
		require.GreaterOrEqual(t, intact, *salvageRuns*countedArtefacts/2, "the control: damage leaves most of it")
	}
}

// TestSalvageIntactControl: a salvage of another truth, and one that says nothing, are found out.
func TestSalvageIntactControl(t *testing.T) {
	base, newest := countedBase(t)
	_, copied, wrong := salvaged(t, base, newest, damageDone{})
	require.NoError(t, wrong)
	require.Equal(t, countedArtefacts, copied)
	newest["art-3"]++
	_, copied, wrong = salvaged(t, base, newest, damageDone{})
	require.ErrorContains(t, wrong, "nobody says so")
	require.Equal(t, countedArtefacts-1, copied)
	newest["art-3"], newest["art-4"] = newest["art-3"]-1, 0
	_, _, wrong = salvaged(t, base, newest, damageDone{})
	require.ErrorContains(t, wrong, "art-4 never said")
}

// TestSalvageShortened: a shortened segment that the file has taken in gives as much as one that is gone.
func TestSalvageShortened(t *testing.T) {
	t.Parallel()
	base, newest := countedBase(t)
	size := must(os.Stat(logFiles(t, base)[1]))(t)
	for _, at := range []int64{0, 10, segmentHeader, segmentHeader + 100, size.Size() / 2, size.Size() - 1, size.Size() - 40} {
		path := dbtest.MemoryPath(t)
		require.NoError(t, dbtest.Copy(base, path))
		require.NoError(t, os.Truncate(logFiles(t, path)[1], at))
		_, copied, wrong := salvaged(t, path, newest, damageDone{what: fmt.Sprint("cut at ", at)})
		require.NoError(t, wrong)
		require.Equal(t, countedArtefacts, copied, "cut at %d", at)
		require.Zero(t, unproved(t, path), "cut at %d: the file has what the segment brought", at)
	}
}

// unproved counts the artefacts of which a salvage cannot say whether a lost commit changed them.
func unproved(t *testing.T, path string) int {
	return must(Salvage(context.Background(), path, dbtest.MemoryPath(t), filestore.SalvageOptions{}))(t).Unproved
}

// TestSalvageProves: what was committed after a lost record is the newest there was; only of what is older nobody knows.
func TestSalvageProves(t *testing.T) {
	base, _ := countedBase(t)
	ids, recs, applied := commitsOf(t, base)
	tried := 0
	for i := range recs {
		if recs[i].Seq <= applied || ids[i] == "" || slices.Contains(ids[i+1:], ids[i]) || i%5 > 0 {
			continue
		}
		path := dbtest.MemoryPath(t)
		require.NoError(t, dbtest.Copy(base, path))
		segment := filepath.Join(path+"-wal", filepath.Base(recs[i].Segment))
		b := must(os.ReadFile(segment))(t)
		b[recs[i].Offset+50] ^= 1
		require.NoError(t, os.WriteFile(segment, b, 0o600))
		later := map[string]bool{}
		for _, id := range ids[i+1:] {
			if id != "" {
				later[id] = true
			}
		}
		require.LessOrEqual(t, unproved(t, path), countedArtefacts-len(later), "record %d", recs[i].Seq)
		tried++
	}
	require.Positive(t, tried)
}

// A name that gc forgot and that was put again is salvaged as it is now, also where its scope was forgotten with it.
func TestSalvageOfAForgottenName(t *testing.T) {
	for _, scope := range []string{"acme", "beta"} {
		db, path := openForget(t, Options{})
		must(db.Scope("acme").Put(ctx, Artefact{ID: "stays", Text: "orchid"}))(t)
		s := db.Scope(scope)
		for _, text := range []string{"zebra", "zebra two", "zebra three"} {
			must(s.Put(ctx, Artefact{ID: "a", Text: text}))(t)
		}
		require.NoError(t, s.Delete(ctx, "a"))
		for range 2 {
			must(db.Admin().GC(ctx, forgetsAll))(t)
		}
		must(s.Put(ctx, Artefact{ID: "a", Text: "violin"}))(t)
		for range 2 {
			must(db.Admin().Checkpoint(ctx))(t)
		}
		require.NoError(t, db.Close())
		to := dbtest.MemoryPath(t)
		rep := must(Salvage(ctx, path, to, filestore.SalvageOptions{}))(t)
		require.Empty(t, rep.Lost)
		require.Equal(t, 2, rep.Artefacts)
		db = openTest(t, to, Options{})
		require.Equal(t, "violin", must(textOf(db.Scope(scope), "a"))(t))
		require.NoError(t, db.Close())
	}
}

// TestSalvageOfTwoLives: rows of an artefact that gc forgot are found, as on a free page, and the name was put again: the
// later artefact is copied, alone. Both have their digest in the audit.
func TestSalvageOfTwoLives(t *testing.T) {
	db, path := openForget(t, Options{})
	s := db.Scope("acme")
	must(s.Put(ctx, Artefact{ID: "a", Text: "zebra"}))(t)
	require.NoError(t, db.Close())
	rows := map[string][2][]byte{} // by bucket: of the first life
	raw := must(bbolt.Open(path, 0o600, nil))(t)
	require.NoError(t, raw.View(func(tx *bbolt.Tx) error {
		for _, of := range []struct{ bucket, prefix string }{{"meta", "h"}, {"content", ""}} {
			k, v := tx.Bucket([]byte(of.bucket)).Cursor().Seek([]byte(of.prefix))
			rows[of.bucket] = [2][]byte{slices.Clone(k), slices.Clone(v)}
		}
		return nil
	}))
	require.NoError(t, raw.Close())
	db = openTest(t, path, Options{}, filestore.Options{Rotate: 1}) // the log must not have the deletion any more
	require.NoError(t, db.Scope("acme").Delete(ctx, "a"))
	for range 2 {
		must(db.Admin().GC(ctx, GCOptions{KeepFor: -1, KeepNames: -1, KeepRecords: -1, Scope: "acme"}))(t)
	}
	must(db.Scope("acme").Put(ctx, Artefact{ID: "a", Text: "violin"}))(t)
	for n := range 4 {
		must(db.Scope("acme").Put(ctx, Artefact{ID: "other", Text: fmt.Sprint("orchid ", n)}))(t)
		must(db.Admin().Checkpoint(ctx))(t)
	}
	require.NoError(t, db.Close())
	edited := dbtest.MemoryPath(t)
	require.NoError(t, dbtest.Copy(path, edited))
	raw = must(bbolt.Open(edited, 0o600, nil))(t)
	require.NoError(t, raw.Update(func(tx *bbolt.Tx) error {
		for bucket, row := range rows {
			require.Nil(t, tx.Bucket([]byte(bucket)).Get(row[0]))
			require.NoError(t, tx.Bucket([]byte(bucket)).Put(row[0], row[1]))
		}
		return nil
	}))
	require.NoError(t, raw.Close())
	to := dbtest.MemoryPath(t)
	require.Equal(t, 2, must(Salvage(ctx, edited, to, filestore.SalvageOptions{}))(t).Artefacts)
	db = openTest(t, to, Options{})
	v := must(db.Scope("acme").Get(ctx, "a"))(t)
	require.Equal(t, "violin", v.Text)
	require.EqualValues(t, 1, v.Version)
}
