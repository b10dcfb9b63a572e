package filestore_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/internal/loop"
	"github.com/ctxpage/ctxpage/internal/triage"
	"github.com/ctxpage/ctxpage/store"
	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
)

// editRow changes a row of a closed database's file.
func editRow(t *testing.T, path string, bucket, key []byte, change func(v []byte) []byte) {
	t.Helper()
	raw := must(bbolt.Open(path, 0o600, nil))(t)
	require.NoError(t, raw.Update(func(tx *bbolt.Tx) error {
		b := tx.Bucket(bucket)
		v := slices.Clone(b.Get(key))
		require.NotEmpty(t, v)
		return b.Put(key, change(v))
	}))
	require.NoError(t, raw.Close())
}

// headKey is the key of the row of a version.
func headKey(art uint64, version uint32) []byte {
	return codec.AppendOrdered(codec.AppendOrdered([]byte{'h'}, art), uint64(version))
}

func flipFirst(v []byte) []byte { v[0] ^= 1; return v }

// TestDamagedContent: of a database whose index is all tail, a damaged text costs that page and nothing else. Who reads
// it is told, a question and an assembly name it, the check finds it, and so does the next open.
func TestDamagedContent(t *testing.T) {
	path := closedDatabase(t)
	editRow(t, path, names.Content, textKey(3), flipFirst) // of page-2
	for _, opts := range []Options{{ReadOnly: true}, {}, {}} {
		db := openTest(t, path, opts)
		s := db.Scope("acme")
		for n := range 5 {
			v, err := s.Get(ctx, fmt.Sprint("page-", n))
			if n == 2 {
				var damage *store.CorruptError
				require.ErrorAs(t, err, &damage)
				require.ErrorContains(t, err, "content of page 3")
				continue
			}
			require.NoError(t, err)
			require.Equal(t, fmt.Sprint("text ", n), v.Text)
		}
		require.Len(t, must(hitsOf(s.Search(ctx, "text 4", 10)))(t), 4)
		a := must(s.Assemble(ctx, Query{Text: "text 4", Budget: 2000}))(t)
		require.Len(t, a.Blocks, 4)
		left := slices.IndexFunc(a.Left, func(l LeftOut) bool { return l.Ref.ID == "page-2" })
		require.GreaterOrEqual(t, left, 0, "%+v", a.Left)
		require.Equal(t, triage.Damaged, a.Left[left].Reason)
		problems := must(db.Admin().Check(ctx, nil))(t)
		require.Len(t, problems, 1, "%+v", problems)
		require.Equal(t, "content 3", problems[0].Where)
		if !opts.ReadOnly {
			must(s.Put(ctx, Artefact{ID: "later", Text: "written beside damage"}))(t)
			require.NoError(t, s.Delete(ctx, "later"))
		}
		require.NoError(t, db.Close())
	}
	db := openTest(t, path, Options{})
	require.NoError(t, errOf(db.Scope("acme").Put(ctx, Artefact{ID: "page-2", Text: "text 2"})), "putting it again heals it")
	require.Equal(t, "text 2", must(db.Scope("acme").Get(ctx, "page-2"))(t).Text)
}

// TestUnreadIsNamed: a damaged page that nothing proposes, for its words are not known, is named all the same.
func TestUnreadIsNamed(t *testing.T) {
	path := dbtest.MemoryPath(t)
	db := openTest(t, path, Options{})
	for n := range 300 {
		must(db.Scope("acme").Put(ctx, Artefact{ID: fmt.Sprint("page-", n), Text: fmt.Sprint("needle number ", n)}))(t)
	}
	require.NoError(t, db.Close())
	editRow(t, path, names.Content, textKey(1), flipFirst)
	db = openTest(t, path, Options{})
	a := must(db.Scope("acme").Assemble(ctx, Query{Text: "needle", Budget: 500, TopK: 5}))(t)
	require.Contains(t, a.Left, LeftOut{Ref: Ref{Scope: "acme", ID: "page-0", Page: 1, Version: 1}, Reason: triage.Damaged})
	must(db.Scope("acme/other").Assemble(ctx, Query{Text: "needle", Budget: 500, TopK: 5}))(t)
	b := must(db.Scope("else").Assemble(ctx, Query{Text: "needle", Budget: 500, TopK: 5}))(t)
	require.Empty(t, b.Left, "another scope hears nothing of it")
}

// TestDamagedTree: a zeroed page of bbolt below which only texts lie costs those texts, not the database.
func TestDamagedTree(t *testing.T) {
	path := dbtest.MemoryPath(t)
	makeDamageBase(t, path)
	good := must(os.ReadFile(path))(t)
	raw := must(bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true}))(t)
	var leaf, size uint64
	require.NoError(t, raw.View(func(tx *bbolt.Tx) error {
		leaf, size = uint64(tx.Bucket(names.Content).Root()), uint64(raw.Info().PageSize)
		return nil
	}))
	require.NoError(t, raw.Close())
	clear(good[leaf*size : leaf*size+size])
	require.NoError(t, os.WriteFile(path, good, 0o600))
	db := openTest(t, path, Options{ReadOnly: true})
	require.NotEmpty(t, must(loop.Collect(db.Scope("acme").Artefacts(ctx, "", AtMost(100, "", nil))))(t))
	require.ErrorIs(t, errOf(db.Scope("acme/bulk").Get(ctx, "bulk-8")), store.ErrCorrupt)
}

// TestDamagedPostings: damage of the index that a question meets, in a row of postings and in one of scopes, is told, and mended
// by closing and opening again.
func TestDamagedPostings(t *testing.T) {
	t.Parallel()
	for kind, of := range map[string]string{"T": "shelf\x00", "S": ""} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			path := dbtest.MemoryPath(t)
			makeDamageBase(t, path)
			db := openTest(t, path, Options{})
			var key []byte
			require.NoError(t, inside(db).Bolt.View(func(tx *bbolt.Tx) error {
				c := tx.Bucket(names.Seg).Cursor()
				for k, _ := c.Seek([]byte(kind)); bytes.HasPrefix(k, []byte(kind)); k, _ = c.Next() {
					if bytes.Contains(k, []byte(of)) {
						key = slices.Clone(k)
					}
				}
				return nil
			}))
			require.NoError(t, db.Close())
			require.NotEmpty(t, key)
			editRow(t, path, names.Seg, key, flipFirst)
			for _, readOnly := range []bool{true, false} {
				db = openTest(t, path, Options{ReadOnly: readOnly})
				_, err := db.Scope("acme/bulk").Search(ctx, "shelf", 5)
				require.ErrorIs(t, err, store.ErrCorrupt)
				require.ErrorContains(t, err, "open it for writing")
				must(db.Scope("acme/bulk").Get(ctx, "bulk-8"))(t)
				require.NoError(t, db.Close())
			}
			db = openTest(t, path, Options{})
			require.Len(t, must(hitsOf(db.Scope("acme/bulk").Search(ctx, "shelf 77 parcel", 5)))(t), 5)
			require.Empty(t, must(db.Admin().Check(ctx, nil))(t))
		})
	}
}

// TestHeldRows: the count of what waits for review follows holds and decisions, before and after it was first asked for,
// across checkpoints and opens; lists come in pages; a damaged row costs itself.
func TestHeldRows(t *testing.T) {
	path := dbtest.MemoryPath(t)
	db := openTest(t, path, Options{})
	count := func(db *DB) int {
		st := must(db.Stats(ctx))(t)
		require.Len(t, must(loop.Collect(db.Review().Batches(ctx, "", false, AtMost(100, "", nil))))(t), st.Held)
		return st.Held
	}
	var ids []string
	for n := range 12 {
		ids = append(ids, hold(t, db.Scope("acme", WithActor("writer")), fmt.Sprint("draft-", n), fmt.Sprint("text ", n)))
		if n%5 == 0 {
			must(db.Admin().Checkpoint(ctx))(t)
		}
		if n > 5 {
			require.Equal(t, n+1, count(db))
		}
	}
	for n, id := range ids[:4] {
		must(db.Review().Approve(ctx, id, Approval{By: "ann"}))(t)
		must(db.Review().Approve(ctx, id, Approval{By: "ann"}))(t)
		require.Equal(t, 11-n, count(db))
	}
	must(db.Review().Reject(ctx, ids[4], "ann", ""))(t)
	require.Equal(t, 7, count(db))
	slices.Sort(ids[5:]) // the list is by id: oldest first, within a millisecond in any order
	for range 2 {
		var got []string
		for cursor := ""; ; {
			var next string
			for _, h := range must(loop.Collect(db.Review().Batches(ctx, "acme", false, AtMost(3, cursor, &next))))(t) {
				got = append(got, h.ID)
			}
			if cursor = next; cursor == "" {
				break
			}
		}
		slices.Sort(ids[5:])
		require.Equal(t, ids[5:], got)
		require.NoError(t, db.Close())
		db = openTest(t, path, Options{})
		require.Equal(t, 7, count(db))
	}
	require.NoError(t, db.Close())
	require.ErrorIs(t, errOf(loop.Collect(db.Review().Batches(ctx, "", false, AtMost(3, "", nil)))), store.ErrClosed)

	key := ulid.MustParse(ids[7])
	editRow(t, path, names.Held, key[:], flipFirst)
	db = openTest(t, path, Options{})
	list, err := loop.Collect(db.Review().Batches(ctx, "", false, AtMost(100, "", nil)))
	require.ErrorIs(t, err, store.ErrCorrupt)
	require.ErrorContains(t, err, ids[7])
	require.Len(t, list, 6)
	require.ErrorIs(t, errOf(db.Review().Show(ctx, ids[7])), store.ErrCorrupt)
	must(db.Review().Approve(ctx, ids[8], Approval{By: "ann"}))(t)
	st, err := db.Stats(ctx)
	require.ErrorIs(t, err, store.ErrCorrupt)
	require.Equal(t, 5, st.Held)
	require.ErrorIs(t, errOf(loop.Collect(db.Review().Batches(ctx, "", false, AtMost(3, "nonsense", nil)))), store.ErrInvalid)
}

// makeSalvageBase is makeDamageBase with what else a database may hold: directives, supersessions, derived pages.
func makeSalvageBase(t *testing.T, path string) {
	live := dbtest.MemoryPath(t)
	makeDamageBase(t, live)
	db := openTest(t, live, Options{})
	defer db.Close()
	s := db.Scope("acme", WithActor("writer"))
	must(s.Directives().Step(ctx, "Remember for this conversation: always answer in French."))(t)
	put := func(a Artefact) {
		must(s.Put(ctx, a))(t)
	}
	put(Artefact{ID: "old-rule", Text: "the old rule"})
	put(Artefact{ID: "rule", Text: "the rule", Supersedes: []string{"old-rule"}})
	put(Artefact{ID: "rule", Text: "the rule, corrected", Pinned: true, Meta: map[string]string{"a": "b"}})
	put(Artefact{ID: "parent", Text: "the parent"})
	put(Artefact{ID: "child", Kind: store.KindSummary, Text: "the child", DerivedFrom: []Ref{{Scope: "acme", ID: "parent", Version: 1}}})
	put(Artefact{ID: "orphan", Kind: store.KindSummary, Text: "of an old parent", DerivedFrom: []Ref{{Scope: "acme", ID: "rule", Version: 1}}})
	must(db.Admin().Checkpoint(ctx))(t)
	put(Artefact{ID: "late", Text: "in the log only"})
	require.NoError(t, s.Delete(ctx, "page-23"))
	require.NoError(t, dbtest.Copy(live, path))
}

// TestSalvageWhole: of a sound database nothing is lost, and the copy is sound.
func TestSalvageWhole(t *testing.T) {
	t.Parallel()
	path, to := dbtest.MemoryPath(t), dbtest.MemoryPath(t)
	makeSalvageBase(t, path)
	before := fingerprint(t, path)
	rep := must(Salvage(ctx, path, to, filestore.SalvageOptions{By: "ann"}))(t)
	require.Equal(t, before, fingerprint(t, path))
	require.Empty(t, rep.Lost)
	require.Equal(t, contents(t, path), contents(t, to))
	require.Equal(t, len(contents(t, path)), rep.Artefacts)

	db := openTest(t, to, Options{})
	require.Empty(t, must(db.Admin().Check(ctx, nil))(t))
	old := openTest(t, path, Options{ReadOnly: true})
	was := must(loop.Collect(old.Review().Batches(ctx, "", false, AtMost(100, "", nil))))(t)
	held := must(loop.Collect(db.Review().Batches(ctx, "", false, AtMost(100, "", nil))))(t)
	require.Equal(t, was, held)
	must(db.Review().Approve(ctx, held[0].ID, Approval{By: "ann"}))(t)
	is := must(db.Scope("acme").Directives().State(ctx))(t)
	require.Equal(t, must(old.Scope("acme").Directives().State(ctx))(t), is)
	shown := func(db *DB) (out []string) {
		a := must(db.Scope("acme").Assemble(ctx, Query{Text: "rule child orphan", Budget: 4000}))(t)
		for _, b := range a.Blocks {
			out = append(out, b.Ref.ID+": "+b.Text)
		}
		return out
	}
	require.Equal(t, shown(old), shown(db))
	fresh := func(id string) error { _, err := db.Scope("acme").Get(ctx, id); return err }
	require.NoError(t, fresh("child"))
	require.ErrorIs(t, fresh("orphan"), store.ErrDirty, "its parent is not the one it was made of")

	require.ErrorContains(t, errOf(Salvage(ctx, path, to, filestore.SalvageOptions{})), "exists")
	require.ErrorIs(t, errOf(Salvage(ctx, to+"-none", to+"2", filestore.SalvageOptions{})), store.ErrNotExist)
	require.ErrorIs(t, errOf(Salvage(ctx, to, path+"2", filestore.SalvageOptions{})), store.ErrLocked)
}

// judgeSalvage damages a copy of a database and salvages it. What is in the new one is what was in the old, or the report
// says that it may be older; what is not there is told.
func judgeSalvage(t *testing.T, base string, damage func(path string) string, opts filestore.SalvageOptions, truth map[string]string) (lost int, wrong error) {
	path, to := dbtest.MemoryPath(t), dbtest.MemoryPath(t)
	require.NoError(t, dbtest.Copy(base, path))
	what := damage(path)
	rep, err := Salvage(context.Background(), path, to, opts)
	require.NoError(t, err, what)
	got := contents(t, to)
	require.Len(t, got, rep.Artefacts)
	told, toldOlder := fmt.Sprint(rep.Lost), ""
	for _, l := range rep.Lost {
		if strings.HasPrefix(l.Why, "copied as it was at lsn") {
			toldOlder += l.What + " "
		}
	}
	require.Equal(t, rep.Unproved, strings.Count(toldOlder, " "), what)
	blanket := strings.Contains(told, "none of its") || strings.Contains(told, "{artefacts number") || strings.Contains(told, "end of the log") || strings.Contains(told, "{log ")
	for name, text := range got {
		if truth[name] != text && !strings.Contains(toldOlder, name+"@") {
			wrong = fmt.Errorf("%s: %s: expected %q, got %q", what, name, truth[name], text)
		}
	}
	for name := range truth {
		if got[name] != "" {
			continue
		}
		lost++
		if !strings.Contains(told, name+"@") && !blanket {
			wrong = fmt.Errorf("%s: %s is missing, and nobody says so: %.500s", what, name, told)
		}
	}
	return lost, wrong
}

// TestSalvage salvages databases with random damage.
func TestSalvage(t *testing.T) {
	t.Parallel()
	base := dbtest.MemoryPath(t)
	makeSalvageBase(t, base)
	truth := contents(t, base)
	lost, times := 0, uint64(*salvageTimes)
	for seed := uint64(0); seed < times || lost == 0 && seed < 30*times; seed++ { // damage that costs nothing shows little
		n, err := judgeSalvage(t, base, func(path string) string {
			what := must(harm(path, seed))(t)
			if seed%3 == 0 {
				more := must(harm(path, seed+1000))(t)
				what += ", " + more
			}
			return what
		}, filestore.SalvageOptions{}, truth)
		require.NoError(t, err, "seed %d", seed)
		lost += n
	}
	require.Positive(t, lost)
	t.Logf("%d artefacts lost, of %d in each of at least %d damaged databases", lost, len(truth), times)
}

// TestSalvageControl: an artefact whose newest version is lost is not there, and in its older version only who asks for
// that; what TestSalvage compares then sees it.
func TestSalvageControl(t *testing.T) {
	t.Parallel()
	base := dbtest.MemoryPath(t)
	makeSalvageBase(t, base)
	truth := contents(t, base)
	db := openTest(t, base, Options{})
	located := must(storeOf(db).Resolve(context.Background(), store.Scopes{"acme"}, Ref{ID: "rule"}))(t)
	loaded := must(storeOf(db).Load(context.Background(), store.Scopes{"acme"}, located.Pages, store.WantHead))(t)
	require.EqualValues(t, 2, loaded[0].Head.Version)
	var row []byte
	require.NoError(t, inside(db).Bolt.View(func(tx *bbolt.Tx) error {
		row = slices.Clone(tx.Bucket(names.Meta).Get(headKey(loaded[0].Head.Art, 2)))
		return nil
	}))
	require.NoError(t, db.Close())
	require.NotEmpty(t, row)
	damage := func(path string) string { // wherever it stands: in the tree, in free pages, in the log
		names := must(filepath.Glob(path + "-wal/*"))(t)
		for _, name := range append(names, path) {
			b := must(os.ReadFile(name))(t)
			bad := slices.Clone(row[:len(row)-8])
			bad[0] ^= 1
			require.NoError(t, os.WriteFile(name, bytes.ReplaceAll(b, row[:len(row)-8], bad), 0o600))
		}
		return "version 2 of the rule"
	}
	n := must(judgeSalvage(t, base, damage, filestore.SalvageOptions{}, truth))(t)
	require.Equal(t, 2, n, "the rule, and what it had replaced")
	_, err := judgeSalvage(t, base, damage, filestore.SalvageOptions{Older: true}, truth)
	require.ErrorContains(t, err, "the rule, corrected")
	require.NotErrorIs(t, err, store.ErrCorrupt)
}

// wipeLog overwrites what the log holds beside the file.
func wipeLog(t *testing.T, path string) {
	for _, name := range must(filepath.Glob(path + "-wal/*.wal"))(t) {
		st := must(os.Stat(name))(t)
		require.NoError(t, os.Truncate(name, segmentHeader))
		require.NoError(t, os.Truncate(name, st.Size()))
	}
}

// TestSalvageStages: each part of a database lost as a whole.
func TestSalvageStages(t *testing.T) {
	t.Parallel()
	base := dbtest.MemoryPath(t)
	makeSalvageBase(t, base)
	truth := contents(t, base)
	zero := func(name string, at, n int64) func(path string) string {
		return func(path string) string {
			f := must(os.OpenFile(path+name, os.O_RDWR, 0))(t)
			must(f.WriteAt(make([]byte, n), at))(t)
			require.NoError(t, f.Close())
			return fmt.Sprint(name, " zeroed at ", at)
		}
	}
	for name, c := range map[string]struct {
		damage func(path string) string
		most   int // artefacts lost
	}{
		"nothing":          {func(string) string { return "" }, 0},
		"both meta pages":  {zero("", 0, 8192), 0},
		"audit":            {func(path string) string { return fmt.Sprint(os.RemoveAll(path + "-manifest")) }, 0},
		"log":              {func(path string) string { wipeLog(t, path); return "log" }, len(truth)},
		"half of the file": {func(path string) string { return fmt.Sprint(os.Truncate(path, 600_000)) }, len(truth) - 60},
		"the file":         {func(path string) string { return fmt.Sprint(os.Remove(path)) }, len(truth)},
	} {
		n, err := judgeSalvage(t, base, c.damage, filestore.SalvageOptions{}, truth)
		require.NoError(t, err, name)
		require.LessOrEqual(t, n, c.most, name)
		t.Log(name, n)
		if name == "log" {
			require.Equal(t, 1, n, "the one in the log only")
		}
	}
}

// TestSalvageReadsWhatOpenReads: a crash inside a rotation leaves a segment without a seal before an empty one, of which
// nothing is lost. A file with a strange name beside the segments is named, and what they hold is copied.
func TestSalvageReadsWhatOpenReads(t *testing.T) {
	live, base := dbtest.MemoryPath(t), dbtest.MemoryPath(t)
	db := openTest(t, live, Options{})
	for n := range 5 {
		must(db.Scope("acme").Put(ctx, Artefact{ID: fmt.Sprint("page-", n), Text: fmt.Sprint("text ", n)}))(t)
	}
	name := logFile(t, live)
	unsealed := must(os.ReadFile(name))(t)
	require.NoError(t, inside(db).Log.Rotate())
	require.NoError(t, dbtest.Copy(live, base))
	require.NoError(t, db.Close())
	name = filepath.Join(base+"-wal", filepath.Base(name))
	require.NotEqual(t, name, logFile(t, base), "the control: there is a second segment")
	require.NoError(t, os.WriteFile(name, unsealed, 0o600))
	opened := dbtest.MemoryPath(t)
	require.NoError(t, dbtest.Copy(base, opened))
	truth := contents(t, opened)
	require.Len(t, truth, 5)

	salvaged := func() []filestore.Loss {
		to := dbtest.MemoryPath(t)
		rep := must(Salvage(ctx, base, to, filestore.SalvageOptions{}))(t)
		require.Equal(t, 5, rep.Artefacts, "%+v", rep.Lost)
		require.Equal(t, truth, contents(t, to))
		return rep.Lost
	}
	require.Empty(t, salvaged())
	strange := filepath.Join(base+"-wal", "copy of 1.wal")
	require.NoError(t, os.WriteFile(strange, unsealed, 0o600))
	require.ErrorIs(t, errOf(Open(base, Options{ReadOnly: true})), store.ErrCorrupt)
	lost := salvaged()
	require.Len(t, lost, 1, "%+v", lost) // the audit is all there
	require.Contains(t, lost[0].Why, strange)
	require.Contains(t, lost[0].Why, "not the name of a segment")

	require.NoError(t, os.Rename(name, strange))
	rep := must(Salvage(ctx, base, dbtest.MemoryPath(t), filestore.SalvageOptions{}))(t)
	require.Contains(t, fmt.Sprint(rep.Lost), "its first segments are missing", "the control: a segment that got another name is missed")
	require.NoError(t, os.Remove(strange))
	rep = must(Salvage(ctx, base, dbtest.MemoryPath(t), filestore.SalvageOptions{}))(t)
	require.Zero(t, rep.Artefacts)
	require.Contains(t, fmt.Sprint(rep.Lost), "{log it begins at record 6, but the file ends at record 0: its first segments are missing}")

	require.NoError(t, os.RemoveAll(base+"-wal"))
	rep = must(Salvage(ctx, base, dbtest.MemoryPath(t), filestore.SalvageOptions{}))(t)
	require.Zero(t, rep.Artefacts)
	require.Contains(t, fmt.Sprint(rep.Lost), "the log has no segment")
}

// TestSalvageTaken: a database that was made at the path while the damaged one was read is left alone.
func TestSalvageTaken(t *testing.T) {
	ctx := context.Background()
	path, to := dbtest.MemoryPath(t), dbtest.MemoryPath(t)
	makeSalvageBase(t, path)
	other := openTest(t, to+".made", Options{})
	must(other.Scope("acme").Put(ctx, Artefact{ID: "mine", Text: "somebody else's"}))(t)
	require.NoError(t, other.Close())
	before := contents(t, to+".made")
	made := false
	ctx = &askedContext{Context: ctx, asked: func() { // which the first look at the file does
		if !made {
			made = true
			_ = os.Remove(to)
			require.NoError(t, dbtest.Copy(to+".made", to))
		}
	}}
	_, err := Salvage(ctx, path, to, filestore.SalvageOptions{})
	require.True(t, made)
	require.Error(t, err)
	require.Equal(t, before, contents(t, to))
}

// askedContext tells when it is asked whether it has ended.
type askedContext struct {
	context.Context
	asked func()
}

func (c *askedContext) Err() error {
	c.asked()
	return c.Context.Err()
}

// TestSalvageHugeVersion: a damaged row whose key names a version and an artefact far beyond all that there are costs a line of the
// report, not a count down from there. The control is the rest of the database, which is copied.
func TestSalvageHugeVersion(t *testing.T) {
	t.Parallel()
	path := closedDatabase(t)
	raw := must(bbolt.Open(path, 0o600, nil))(t)
	require.NoError(t, raw.Update(func(tx *bbolt.Tx) error {
		b := tx.Bucket(names.Meta)
		row := slices.Clone(b.Get(headKey(1, 1)))
		require.NotEmpty(t, row)
		for art := range uint64(40) {
			if err := b.Put(headKey(0x6172626f75722068+art, 0xfffffff0), row); err != nil {
				return err
			}
		}
		return b.Put(headKey(2, 0xfffffff0), row)
	}))
	require.NoError(t, raw.Close())
	to := filepath.Join(t.TempDir(), "salvaged.ctx")
	rep := must(Salvage(t.Context(), path, to, filestore.SalvageOptions{Older: true}))(t)
	require.Equal(t, 5, rep.Artefacts, "%v", rep.Lost)
	require.Equal(t, 1, rep.Older)
	require.Contains(t, fmt.Sprint(rep.Lost), "4294967280")
}

// TestSalvageEnded: a salvage whose context ends, at whatever look at it, ends with its error and leaves nothing.
func TestSalvageEnded(t *testing.T) {
	t.Parallel()
	path := dbtest.MemoryPath(t)
	makeSalvageBase(t, path)
	looks := 0
	count := &salvageContext{Context: t.Context(), asked: func() error { looks++; return nil }}
	must(Salvage(count, path, filepath.Join(t.TempDir(), "all.ctx"), filestore.SalvageOptions{}))(t)
	require.Greater(t, looks, 20, "control: it is asked on the way")
	for at := 1; at < looks; at += max(1, looks/12) {
		n, to := 0, filepath.Join(t.TempDir(), "part.ctx")
		ending := &salvageContext{Context: t.Context(), asked: func() error {
			if n++; n >= at {
				return context.Canceled
			}
			return nil
		}}
		require.ErrorIs(t, errOf(Salvage(ending, path, to, filestore.SalvageOptions{})), context.Canceled, "look %d", at)
		require.Empty(t, must(filepath.Glob(to+"*"))(t))
	}
}

// salvageContext asks a function whether it has ended.
type salvageContext struct {
	context.Context
	asked func() error
}

func (c *salvageContext) Err() error { return c.asked() }

// TestSalvagePipe: who left a pipe in the file's place does not make us wait.
func TestSalvagePipe(t *testing.T) {
	path, to := filepath.Join(t.TempDir(), "a.ctx"), dbtest.MemoryPath(t)
	dbtest.NeedsPosix(t, "named pipes")
	require.NoError(t, dbtest.Mkfifo(path))
	done := make(chan error, 1)
	go func() {
		_, err := Salvage(context.Background(), path, to, filestore.SalvageOptions{})
		done <- err
	}()
	select {
	case err := <-done:
		require.ErrorContains(t, err, "is not a regular file")
	case <-time.After(time.Minute):
		t.Fatal("it waits for a writer")
	}
}

var salvageTimes = flag.Int("salvage.times", dbtest.Times(3, 12, 60), "how many databases TestSalvage damages")

// TestSalvageOfNoDatabase: a file of something else is not copied to an empty database.
func TestSalvageOfNoDatabase(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{"empty": "", "text": "this is no database", "large": strings.Repeat("zebra ", 50_000)} {
		path, to := filepath.Join(dir, name), filepath.Join(dir, name+" new")
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		_, err := Salvage(context.Background(), path, to, filestore.SalvageOptions{})
		require.ErrorIs(t, err, store.ErrNotDatabase, name)
		require.ErrorContains(t, err, "expected the main file of a database", name)
		require.NoFileExists(t, to)
	}
}

// TestSalvageHeldConflict: a draft whose artefact was written, or deleted, since it was held is salvaged as what it is:
// a draft with a conflict, which its review names.
func TestSalvageHeldConflict(t *testing.T) {
	path, to := dbtest.MemoryPath(t), dbtest.MemoryPath(t)
	db := openTest(t, path, Options{})
	s := db.Scope("acme", WithActor("writer"))
	for _, id := range []string{"changed", "deleted", "same"} {
		must(s.Put(ctx, Artefact{ID: id, Text: "what stood there"}))(t)
	}
	for _, id := range []string{"changed", "deleted", "same", "new"} {
		hold(t, s, id, "a draft of "+id)
	}
	for _, id := range []string{"changed", "new"} {
		must(s.Put(ctx, Artefact{ID: id, Text: "somebody was faster"}))(t)
	}
	require.NoError(t, s.Delete(ctx, "deleted"))
	require.NoError(t, db.Close())

	require.Equal(t, 4, must(Salvage(ctx, path, to, filestore.SalvageOptions{}))(t).Held)
	db = openTest(t, to, Options{})
	list := must(loop.Collect(db.Review().Batches(ctx, "", false, AtMost(10, "", nil))))(t)
	require.Len(t, list, 4)
	for _, h := range list {
		shown := must(db.Review().Show(ctx, h.ID))(t)
		_, err := db.Review().Approve(ctx, h.ID, Approval{By: "ann"})
		if h.Writes[0].ID == "same" {
			require.Empty(t, shown.Conflicts)
			require.NoError(t, err)
			continue
		}
		require.Len(t, shown.Conflicts, 1, h.Writes[0].ID)
		require.ErrorIs(t, err, store.ErrConflict, h.Writes[0].ID)
		require.NotContains(t, err.Error(), "18446744073709551615")
	}
}

// TestSalvageOfEditedRows: what somebody edited in the file, its checksums right, is not copied, and is told; the rest is
// copied. The control believes the rows: it copies what was edited, or passes over what was hidden.
func TestSalvageOfEditedRows(t *testing.T) {
	t.Parallel()
	e := newEditable(t)
	edits := e.hidings()
	for field, change := range headEdits {
		edits[field] = e.head("policy", change)
	}
	for _, name := range slices.Sorted(maps.Keys(edits)) {
		t.Run(name, func(t *testing.T) {
			e.t = t
			for i, opts := range []filestore.SalvageOptions{{}, filestore.SalvageOptions{}.Peek()} {
				trust := i == 1
				to := filepath.Join(t.TempDir(), "to.ctx")
				rep := must(Salvage(ctx, e.file(edits[name]), to, opts))(t)
				told := slices.ContainsFunc(rep.Lost, func(l filestore.Loss) bool {
					return strings.Contains(l.What+l.Why, "policy") || strings.Contains(l.Why, "edited")
				})
				if trust {
					if told { // a row that contradicts the audit's names or itself is told also so
						require.Contains(t, []string{"moved", "scope", "taken away", "scope's name", "a version on top", "digest"}, name)
					}
					continue
				}
				if name != "taken away" && name != "scope's name" { // what was committed is still in the log, and is copied
					require.True(t, told, "%v", rep.Lost)
				}
				db := openTest(t, to, Options{})
				v, err := db.Scope("acme").Get(ctx, "policy")
				if !told {
					require.NoError(t, err)
				}
				if err == nil { // the genuine row, from the log or a free page, or below one that was made up
					require.Equal(t, editText, v.Text)
					require.Equal(t, store.Chunk, v.Provenance)
					require.Equal(t, store.KindMessage, v.Kind)
					require.Equal(t, "writer", v.Actor)
					require.True(t, v.Pinned)
				}
				if name != "replaced" {
					v = must(db.Scope("acme").Get(ctx, "plain"))(t)
					require.Equal(t, "shipping takes three days", v.Text)
				}
				require.NoError(t, db.Close())
			}
		})
	}
}

// TestSalvageOfEditedDrafts: of held batches neither one that was edited nor one whose decision was taken back is copied.
func TestSalvageOfEditedDrafts(t *testing.T) {
	t.Parallel()
	e := newEditable(t)
	key := ulid.MustParse(e.held)
	var before []byte
	e.file(func(tx *bbolt.Tx) { before = slices.Clone(tx.Bucket(names.Held).Get(key[:])) })
	edited := func(tx *bbolt.Tx) {
		row := must(codec.Unseal('d', key[:], tx.Bucket(names.Held).Get(key[:])))(t)
		row = must(editHeld(row, func(h *store.HeldBatch) { h.Batch.Actor = "another" }))(t)
		require.NoError(t, tx.Bucket(names.Held).Put(key[:], codec.Seal('d', key[:], row)))
	}
	salvaged := func(path string, opts filestore.SalvageOptions) filestore.Salvaged {
		return must(Salvage(ctx, path, filepath.Join(t.TempDir(), "to.ctx"), opts))(t)
	}
	require.Equal(t, 1, salvaged(e.file(func(*bbolt.Tx) {}), filestore.SalvageOptions{}).Held)
	require.Zero(t, salvaged(e.file(edited), filestore.SalvageOptions{}).Held)
	require.Equal(t, 1, salvaged(e.file(edited), filestore.SalvageOptions{}.Peek()).Held, "the control")

	db := openTest(t, filepath.Join(e.dir, "agent.ctx"), Options{})
	must(db.Review().Reject(ctx, e.held, "judge", "no"))(t)
	require.NoError(t, db.Close())
	back := func(tx *bbolt.Tx) { require.NoError(t, tx.Bucket(names.Held).Put(key[:], before)) }
	rep := salvaged(e.file(back), filestore.SalvageOptions{})
	require.Zero(t, rep.Held)
	require.Contains(t, fmt.Sprint(rep.Lost), "was decided")
	require.Equal(t, 1, salvaged(e.file(back), filestore.SalvageOptions{}.Peek()).Held, "the control")
}
