package filestore_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	. "github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/internal/loop"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
)

func openForget(t *testing.T, o Options, files ...filestore.Options) (*DB, string) {
	path := dbtest.CheckedPath[store.Problem](t, openChecked)
	return openTest(t, path, o, files...), path
}

// churn makes new versions of a live set of fixed size, ever new artefacts that are deleted, turns that are deleted, drafts
// that are rolled back, and batches that are held and rejected.
func churn(t *testing.T, db *DB, round int) {
	s := db.Scope("acme", WithActor("agent"))
	for i := range 6 {
		must(s.Put(ctx, Artefact{ID: fmt.Sprintf("doc-%d", i), Text: fmt.Sprintf("zebra %d of round %d", i, round)}))(t)
		id := fmt.Sprintf("note-%d-%d", round, i)
		must(s.Put(ctx, Artefact{ID: id, Text: "violin " + id}))(t)
		require.NoError(t, s.Delete(ctx, id))
	}
	refs := must(s.Session("chat").Append(ctx, Turn{Role: "user", Text: fmt.Sprintf("harbour %d", round), Signals: session.Signals{Finding: true}}))(t)
	require.NoError(t, s.Delete(ctx, refs[0].ID))
	for _, end := range []float64{0, .1} {
		tx := must(s.Begin(ctx))(t)
		require.NoError(t, tx.Put(ctx, Artefact{ID: fmt.Sprintf("draft-%d", round), Text: "orchid of a draft"}))
		must(tx.Assemble(ctx, Query{Text: "orchid draft", Budget: 1000, Floor: store.Scratch}))(t)
		if end == 0 {
			require.NoError(t, tx.Rollback())
			continue
		}
		require.ErrorIs(t, tx.Commit(ctx, Verdict{Confidence: end, By: "tests"}), store.ErrHeld)
		must(db.Review().Reject(ctx, tx.ID(), "anna", ""))(t)
	}
}

// rowsOf counts the rows of each bucket as a checkpoint left them.
func rowsOf(t *testing.T, db *DB) map[string]int {
	rows := map[string]int{}
	must(db.Admin().Checkpoint(context.Background()))(t)
	require.NoError(t, inside(db).Bolt.View(func(tx *bbolt.Tx) error {
		for _, b := range []string{"meta", "content", "held", "state"} {
			rows[b] = tx.Bucket([]byte(b)).Stats().KeyN
		}
		return nil
	}))
	return rows
}

// With a live set of fixed size and gc, no bucket grows.
func TestGCStaysFlat(t *testing.T) {
	t.Parallel()
	db, path := openForget(t, Options{})
	var after map[string]int
	for round := range 40 {
		churn(t, db, round)
		rep := must(db.Admin().GC(context.Background(), GCOptions{KeepFor: -1, KeepNames: 10}))(t)
		require.Equal(t, []int{2, 1, 1}, []int{rep.Drafts, rep.Reviews, rep.Turns})
		if round == 39 {
			require.Equal(t, []int{6, 8}, []int{rep.Names, rep.Records})
		}
		if rows := rowsOf(t, db); round == 12 {
			after = rows
		} else if round > 12 {
			require.Equal(t, after, rows, "round %d", round)
		}
		if round == 25 {
			require.NoError(t, db.Close())
			db = openTest(t, path, Options{})
		}
	}
	require.NoError(t, db.Close())
}

// An artefact that was erased, forgotten and put again begins with version 1, and a check knows it though the leaf that says so was
// pruned: the audit names only the erased version. TestAnEditedDeletionIsNotServed is the control.
func TestForgottenAndPutAgain(t *testing.T) {
	t.Parallel()
	clock := dbtest.NewClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	db, _ := openForget(t, Options{Clock: clock.Now}) // it checks the file at the end
	s := db.Scope("acme")
	must(s.Put(ctx, Artefact{ID: "a", Text: "zebra", Subject: "anna"}))(t)
	must(db.Admin().Erase(ctx, ops.Request{Subject: "anna", By: "op", Reason: "asked"}))(t)
	must(db.Admin().GC(ctx, GCOptions{KeepFor: -1, KeepNames: -1}))(t)
	require.EqualValues(t, 1, must(s.Put(ctx, Artefact{ID: "a", Text: "violin"}))(t).Version)
	clock.Add(48 * time.Hour)
	require.NoError(t, db.Admin().Retention().Set(ctx, "acme", ops.Policy{Prune: ops.Age(time.Hour)}, "op"))
	must(db.Admin().Retention().Run(ctx, ops.RunOptions{}))(t)
	require.Empty(t, must(db.Admin().Check(ctx, nil))(t))
}

// What is forgotten is told from what never was for as long as KeepRecords and KeepNames say, and is never taken for
// something else: not by a reference, not by a replay, not by an answer to an old context.
func TestGCForgets(t *testing.T) {
	t.Parallel()
	db, path := openForget(t, Options{})
	s := db.Scope("acme", WithActor("agent"))
	for v := range 9 {
		must(s.Put(ctx, Artefact{ID: "a", Text: fmt.Sprintf("zebra %d", v+1)}))(t)
		if v == 0 {
			continue
		}
		must(s.Put(ctx, Artefact{ID: fmt.Sprintf("gone-%d", v), Text: "violin"}))(t)
	}
	old := must(s.Assemble(ctx, Query{Text: "violin", Budget: 1000}))(t)
	for v := 1; v < 9; v++ {
		require.NoError(t, s.Delete(ctx, fmt.Sprintf("gone-%d", v)))
	}
	for range 2 {
		must(db.Admin().GC(ctx, GCOptions{KeepFor: -1, KeepRecords: 2, KeepNames: 3}))(t)
	}
	high := highest(db)
	for range 2 {
		s = db.Scope("acme", WithActor("agent"))
		require.Len(t, must(loop.Collect(s.Versions(ctx, "a")))(t), 3, "the live one and two records")
		for v := 1; v < 9; v++ {
			require.ErrorIs(t, errOf(s.Recall(ctx, Ref{Scope: "acme", ID: "a", Version: uint32(v)})), store.ErrGone, "version %d", v)
			want := store.ErrNotFound
			if v > 5 {
				want = store.ErrGone
			}
			require.ErrorIs(t, errOf(s.Recall(ctx, Ref{Scope: "acme", ID: fmt.Sprintf("gone-%d", v), Version: 1})), want, "gone-%d", v)
		}
		require.ErrorIs(t, errOf(db.Replay(ctx, old.Trace)), store.ErrGone)
		tx := must(s.Resume(ctx, old.Trace))(t)
		require.NoError(t, tx.Put(ctx, Artefact{ID: "answer", Text: "an answer to what is forgotten"}))
		var held *store.HeldError
		require.ErrorAs(t, tx.Commit(ctx, Verdict{Confidence: 1, By: "tests"}), &held)
		require.Equal(t, store.ReasonStaleContext, held.Reason)
		require.NoError(t, db.Close())
		db = openTest(t, path, Options{})
	}
	require.EqualValues(t, 1, must(db.Scope("acme").Put(ctx, Artefact{ID: "gone-1", Text: "a new one"}))(t).Version)
	require.Equal(t, [3]uint64{high[0] + 1, high[1] + 1, high[2]}, highest(db), "no number is given twice")
	require.NoError(t, db.Close())
}

// What was replaced does not come back when the record of what replaced it would go.
func TestGCForgetsNoSupersession(t *testing.T) {
	t.Parallel()
	db, path := openForget(t, Options{})
	s := db.Scope("acme")
	for _, a := range []Artefact{{ID: "old", Text: "zebra"}, {ID: "new", Text: "zebra too", Supersedes: []string{"old"}}} {
		must(s.Put(ctx, a))(t)
	}
	require.NoError(t, s.Delete(ctx, "new"))
	for range 3 {
		must(db.Admin().GC(ctx, GCOptions{KeepFor: -1, KeepNames: -1, KeepRecords: -1}))(t)
		require.NoError(t, db.Close())
		db = openTest(t, path, Options{})
		require.Empty(t, must(db.Scope("acme").Search(ctx, "zebra", 10))(t).Hits)
	}
	require.NoError(t, db.Close())
}

// A used id whose outcome is no longer kept is refused, never applied twice; an unused one of that age is applied.
func TestOutcomesAreBounded(t *testing.T) {
	t.Parallel()
	db, path := openForget(t, Options{})
	s := db.Scope("acme")
	put := func(id ulid.ULID) error {
		return s.Update(ctx, func(tx *Txn) error { return tx.Put(ctx, Artefact{ID: "a", Text: "zebra"}) }, WithID(id.String()))
	}
	used := must(newID())(t)
	free := must(newID())(t)
	require.NoError(t, put(used))
	must(db.Admin().Checkpoint(ctx))(t)
	for ulid.Now() <= used.Time() { // ids of one millisecond are in no order, and the lowest go
		time.Sleep(time.Millisecond)
	}
	for range bounds.Outcomes + 10 {
		must(s.Put(ctx, Artefact{ID: "b", Text: "violin"}))(t)
	}
	for range 2 {
		must(db.Admin().Checkpoint(ctx))(t)
		require.NoError(t, inside(db).Bolt.View(func(tx *bbolt.Tx) error {
			require.Equal(t, bounds.Outcomes, tx.Bucket(names.Txn).Stats().KeyN)
			return nil
		}))
		require.ErrorIs(t, put(used), store.ErrTxnExpired)
		require.NoError(t, db.Close())
		db = openTest(t, path, Options{})
		s = db.Scope("acme")
	}
	require.NoError(t, put(free))
	require.NoError(t, db.Close())
}

// namesCut forgets the names of artefacts that were deleted.
var namesCut = gcCut{
	opts: GCOptions{KeepFor: -1, KeepRecords: -1, KeepNames: 5},
	fill: func(db *DB) error {
		if err := fillGC(ctx, db); err != nil {
			return err
		}
		for n := range 300 {
			id := fmt.Sprintf("temp-%d", n)
			if _, err := db.Scope("acme").Put(ctx, Artefact{ID: id, Text: "violin"}); err != nil {
				return err
			}
			if err := db.Scope("acme").Delete(ctx, id); err != nil {
				return err
			}
		}
		_, err := db.Admin().GC(ctx, GCOptions{KeepFor: -1})
		return err
	},
	look: func(db *DB, _ int, rep store.GCReport, _ bool) (int, error) {
		if err := lookForgotten(db); err != nil {
			return 0, err
		}
		left, err := db.Admin().GC(ctx, GCOptions{KeepFor: -1, KeepRecords: -1, KeepNames: 5})
		if err == nil && rep.Names > 0 && left.Names != 0 && left.Names != 295 && left.Names != 295-bounds.DropVersions+gcArts {
			err = fmt.Errorf("the next run forgot %d artefacts", left.Names)
		}
		if err == nil {
			err = lookForgotten(db)
		}
		return left.Names, err
	},
}

func lookForgotten(db *DB) error {
	s := db.Scope("acme")
	for a := range gcArts {
		got, err := s.Get(ctx, gcID(a))
		if err != nil || got.Text != gcText(a, gcVersions) {
			return fmt.Errorf("%s: %w", gcID(a), err)
		}
		for v := 1; v < gcVersions; v++ {
			if _, err := s.Recall(ctx, Ref{Scope: "acme", ID: gcID(a), Version: uint32(v)}); !errors.Is(err, store.ErrGone) {
				return fmt.Errorf("version %d: %w", v, err)
			}
		}
	}
	problems, err := db.Admin().Check(ctx, nil)
	if err == nil && len(problems) > 0 {
		err = fmt.Errorf("check: %+v", problems)
	}
	return err
}

// An artefact was superseded by another one that gc has forgotten. The rows then only tell of what came later: it was put again,
// or superseded by a third. A check finds nothing wrong with that.
func TestCheckAfterWhatSupersededIsForgotten(t *testing.T) {
	t.Parallel()
	for name, later := range map[string]Artefact{"put again": {ID: "old", Text: "horse"}, "superseded again": {ID: "third", Text: "zebra as well", Supersedes: []string{"old"}}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, _ := openForget(t, Options{})
			s := db.Scope("acme")
			for _, a := range []Artefact{{ID: "old", Text: "zebra"}, {ID: "new", Text: "zebra too", Supersedes: []string{"old"}}, later} {
				must(s.Put(ctx, a))(t)
			}
			require.NoError(t, s.Delete(ctx, "new"))
			for range 2 {
				must(db.Admin().GC(ctx, GCOptions{KeepFor: -1, KeepNames: -1, KeepRecords: 5}))(t)
			}
			require.NotErrorIs(t, errOf(s.Get(ctx, "new")), store.ErrGone, "it is forgotten")
			must(db.Admin().Checkpoint(ctx))(t)
			require.Empty(t, must(db.Admin().Check(ctx, nil))(t))
			require.NoError(t, db.Close())
		})
	}
}

// forgetsAll is a gc that keeps nothing of what was deleted.
var forgetsAll = GCOptions{KeepFor: -1, KeepNames: -1, KeepRecords: -1}

func passing(n int) string { return fmt.Sprintf("request/%05d", n) }

// visit puts something into a scope, in a group, too, and deletes it.
func visit(ctx context.Context, db *DB, scope string) error {
	s := db.Scope(scope)
	for _, a := range []Artefact{{ID: "note", Text: "violin of " + scope}, {ID: "part", Group: "file", Text: "harbour of " + scope}} {
		if _, err := s.Put(ctx, a); err != nil {
			return err
		}
		if err := s.Delete(ctx, a.ID); err != nil {
			return err
		}
	}
	return nil
}

func scopesOf(t *testing.T, db *DB) (names []string) {
	for s, err := range db.Scopes(context.Background(), "") {
		require.NoError(t, err)
		names = append(names, s.Name)
	}
	return names
}

// Scopes that come and go leave no rows. One that comes back begins anew, and shows nothing of what it was.
func TestGCForgetsScopes(t *testing.T) {
	t.Parallel()
	db, path := openForget(t, Options{})
	require.NoError(t, errOf(db.Scope("acme").Put(ctx, Artefact{ID: "a", Text: "zebra"})))
	begin := rowsOf(t, db)["meta"]
	const rounds, scopes = 3, 200
	for round := range rounds {
		for n := range scopes {
			require.NoError(t, visit(ctx, db, passing(round*scopes+n)))
		}
		if round == 1 { // some of a file, some of a log
			require.NoError(t, db.Close())
			db = openTest(t, path, Options{})
		}
		require.Greater(t, rowsOf(t, db)["meta"], begin+3*scopes, "the control: without gc they stay")
		plan := forgetsAll
		plan.DryRun = true
		must(db.Admin().GC(ctx, GCOptions{KeepFor: -1, KeepNames: -1}))(t) // content goes, records stay
		want := must(db.Admin().GC(ctx, plan))(t)
		require.Equal(t, want.Scopes, must(db.Admin().GC(ctx, forgetsAll))(t).Scopes)
		require.LessOrEqual(t, rowsOf(t, db)["meta"], begin, "round %d", round)
		require.Equal(t, []string{"acme"}, scopesOf(t, db))
		require.Equal(t, 1, must(db.Stats(ctx))(t).Scopes)
	}
	for range 2 {
		require.ErrorIs(t, errOf(db.Scope(passing(7)).Get(ctx, "note")), store.ErrNotFound)
		require.NoError(t, db.Close())
		db = openTest(t, path, Options{})
	}
	s := db.Scope(passing(7))
	require.EqualValues(t, 1, must(s.Put(ctx, Artefact{ID: "note", Group: "file", Text: "orchid"}))(t).Version)
	for range 2 {
		found := must(db.Scope(passing(7)).Search(ctx, "violin harbour orchid zebra", 10))(t)
		require.Len(t, found.Hits, 1)
		require.Equal(t, "orchid", found.Hits[0].Text)
		require.Equal(t, []string{"acme", passing(7)}, scopesOf(t, db))
		require.NoError(t, db.Close())
		db = openTest(t, path, Options{})
	}
	high := newestScope(t, db)
	require.Equal(t, 1+rounds*scopes+1, high, "no number is given twice")
	require.NoError(t, db.Close())
}

// newestScope is the highest number of a scope that has a row.
func newestScope(t *testing.T, db *DB) (n int) {
	must(db.Admin().Checkpoint(context.Background()))(t)
	require.NoError(t, inside(db).Bolt.View(func(tx *bbolt.Tx) error {
		k, _ := tx.Bucket(names.Meta).Cursor().Last()
		require.Equal(t, byte('s'), k[0])
		n = int(binary.BigEndian.Uint32(k[1:]))
		return nil
	}))
	return n
}

// What still names a scope keeps its name, each for itself; the control is a scope that nothing names.
func TestGCKeepsScopes(t *testing.T) {
	t.Parallel()
	db, path := openForget(t, Options{})
	dir := t.TempDir()
	require.NoError(t, db.Admin().AddFileRoot(ctx, dir))
	ways := map[string]func(s *Scope) error{
		"directive": func(s *Scope) error { _, err := s.Directives().Step(ctx, "use zerolog"); return err },
		"window":    func(s *Scope) error { return s.Session("chat").SetWindow(ctx, session.Config{Total: 64_000}) },
		"notes":     func(s *Scope) error { return s.Session("chat").Record(ctx, session.Notes{Goal: "a goal"}) },
		"directory": func(s *Scope) error { return s.AddDirectory(ctx, Directory{Dir: dir}) },
		"live":      func(s *Scope) error { _, err := s.Put(ctx, Artefact{ID: "live", Text: "zebra"}); return err },
		"held": func(s *Scope) error {
			tx, err := s.Begin(ctx)
			if err != nil {
				return err
			}
			if err := tx.Put(ctx, Artefact{ID: "draft", Text: "zebra"}); err != nil {
				return err
			}
			if err := tx.Commit(ctx, Verdict{Confidence: .1, By: "tests"}); !errors.Is(err, store.ErrHeld) {
				return fmt.Errorf("expected a held batch: %w", err)
			}
			return nil
		},
		"empty": func(*Scope) error { return nil },
	}
	var want []string
	for name, do := range ways {
		require.NoError(t, visit(ctx, db, name))
		require.NoError(t, do(db.Scope(name, WithActor("agent"))), name)
		if name != "empty" {
			want = append(want, name)
		}
	}
	for range 2 {
		for range 2 { // texts first, then what was left of them
			must(db.Admin().GC(ctx, forgetsAll))(t)
		}
		require.ElementsMatch(t, want, scopesOf(t, db))
		require.NoError(t, db.Close())
		db = openTest(t, path, Options{})
	}
	held := must(loop.Collect(db.Review().Batches(ctx, "", false, AtMost(10, "", nil))))(t)
	must(db.Review().Approve(ctx, held[0].ID, Approval{By: "anna"}))(t)
	require.Equal(t, "zebra", must(db.Scope("held").Get(ctx, "draft"))(t).Text)
	require.NoError(t, db.Close())
}

// Who puts something into a scope while gc is about to drop its name is not overtaken.
func TestGCScopesBesidePuts(t *testing.T) {
	t.Parallel()
	var db *DB
	once := true
	db, path := openForget(t, Options{}, filestore.Options{Hook: func(step string) error {
		if step != "gc scopes" || once {
			return nil
		}
		once = true
		_, err := db.Scope(passing(1)).Put(ctx, Artefact{ID: "new", Text: "orchid"})
		return err
	}})
	for n := range 3 {
		require.NoError(t, visit(ctx, db, passing(n)))
	}
	must(db.Admin().GC(ctx, GCOptions{KeepFor: -1}))(t) // nothing is forgotten yet
	once = false
	must(db.Admin().GC(ctx, forgetsAll))(t)
	require.True(t, once)
	require.Equal(t, []string{passing(1)}, scopesOf(t, db))
	var wg sync.WaitGroup
	for w := range 4 { // beside gc after gc, in the same scopes
		wg.Go(func() {
			for i := range 150 {
				s, id := db.Scope(passing(10+(i+15*w)%60)), fmt.Sprint("w", w)
				if _, err := s.Put(ctx, Artefact{ID: id, Text: fmt.Sprint("lamp ", i)}); err != nil {
					t.Error(err)
				}
				if _, err := s.Get(ctx, id); err != nil {
					t.Error(err)
				}
				if err := s.Delete(ctx, id); err != nil {
					t.Error(err)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { defer close(done); wg.Wait() }()
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		must(db.Admin().GC(ctx, forgetsAll))(t)
	}
	for range 2 {
		require.Equal(t, "orchid", must(textOf(db.Scope(passing(1)), "new"))(t))
		for range 2 {
			must(db.Admin().GC(ctx, forgetsAll))(t)
		}
		require.Equal(t, []string{passing(1)}, scopesOf(t, db))
		require.NoError(t, db.Close())
		db = openTest(t, path, Options{})
	}
	require.NoError(t, db.Close())
}

// scopesCut drops the names of scopes. One of them comes back after a whole run.
var scopesCut = gcCut{
	opts: forgetsAll,
	fill: func(db *DB) error {
		_, err := db.Scope("acme").Put(ctx, Artefact{ID: "a", Text: "zebra"})
		for n := 0; err == nil && n < 60; n++ {
			err = visit(ctx, db, passing(n))
		}
		if err == nil {
			_, err = db.Admin().GC(ctx, GCOptions{KeepFor: -1, KeepNames: -1})
		}
		return err
	},
	done: func(db *DB, rep store.GCReport) error {
		if rep.Scopes != 60 {
			return fmt.Errorf("%d scopes went", rep.Scopes)
		}
		_, err := db.Scope(passing(3)).Put(ctx, Artefact{ID: "back", Text: "orchid"})
		return err
	},
	look: func(db *DB, _ int, _ store.GCReport, done bool) (int, error) {
		infos, err := loop.Collect(db.Scopes(ctx, "", AtMost(100, "", nil)))
		return len(infos), errors.Join(err, lookScopes(ctx, db, done))
	},
}

// lookScopes looks at what a crash left, and lets another run do the rest.
func lookScopes(ctx context.Context, db *DB, back bool) error {
	want := 1
	if back {
		want = 2
		if text, err := textOf(db.Scope(passing(3)), "back"); err != nil || text != "orchid" {
			return fmt.Errorf("what came back: %q, %w", text, err)
		}
		if _, err := db.Scope(passing(3)).Recall(ctx, Ref{Scope: passing(3), ID: "note", Version: 1}); !errors.Is(err, store.ErrNotFound) {
			return fmt.Errorf("of before: %w", err)
		}
	}
	if _, err := db.Scope(passing(5)).Put(ctx, Artefact{ID: "meanwhile", Text: "lamp"}); err != nil {
		return err
	}
	for range 2 {
		if _, err := db.Admin().GC(ctx, forgetsAll); err != nil {
			return err
		}
	}
	infos, err := loop.Collect(db.Scopes(ctx, "", AtMost(100, "", nil)))
	if err == nil && len(infos) != want+1 {
		err = fmt.Errorf("%d scopes are left", len(infos))
	}
	if text, terr := textOf(db.Scope(passing(5)), "meanwhile"); text != "lamp" {
		err = errors.Join(err, fmt.Errorf("what was put between: %q, %w", text, terr))
	}
	problems, cerr := db.Admin().Check(ctx, nil)
	if err = errors.Join(err, cerr); err == nil && len(problems) > 0 {
		err = fmt.Errorf("check: %+v", problems)
	}
	return err
}

// Opening reads what is there: scopes that were dropped cost a number each, and no row.
func TestGCScopesOpen(t *testing.T) {
	t.Parallel()
	db, path := openForget(t, Options{})
	for n := range 400 {
		require.NoError(t, visit(ctx, db, passing(n)))
	}
	before := rowsOf(t, db)["meta"]
	must(db.Admin().GC(ctx, forgetsAll))(t)
	must(db.Admin().GC(ctx, forgetsAll))(t)
	require.Zero(t, rowsOf(t, db)["meta"])
	require.NoError(t, db.Close())
	require.Greater(t, before, 1200)
	copied := dbtest.MemoryPath(t)
	require.NoError(t, dbtest.Copy(path, copied))
	db = openTest(t, copied, Options{ReadOnly: true})
	require.Empty(t, scopesOf(t, db))
	require.NoError(t, db.Close())
}
