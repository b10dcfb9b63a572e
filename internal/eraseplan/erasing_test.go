package eraseplan_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/eraseplan"
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/internal/loop"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/session"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/storetest"
	"github.com/stretchr/testify/require"
)

// filled is a store with something of every kind in two scopes.
func filled(t *testing.T) (*storetest.Memory, *ctxpage.DB) {
	t.Helper()
	ctx := t.Context()
	now := dbtest.NewClock(time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC))
	clock := func() time.Time { return now.Add(time.Second) }
	st := must(storetest.NewMemory(storetest.Config{Now: clock, State: ctxpage.StateKinds()}))(t)
	db := must(ctxpage.Open("memory", ctxpage.Options{Store: st, Clock: clock}))(t)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	for _, scope := range []string{"acme/ann", "acme/bob"} {
		s := db.Scope(scope, ctxpage.WithActor("agent"))
		for _, a := range []ctxpage.Artefact{
			{ID: "a", Text: "kettle one", Subject: "ann"}, {ID: "a", Text: "kettle two", Subject: "someone"}, {ID: "b", Text: "pan"},
			{ID: "child", Text: "kettle three", DerivedFrom: []store.Ref{{Scope: scope, ID: "a", Version: 1}}},
			{ID: "sum", Kind: store.KindSummary, Text: "kettle", DerivedFrom: []store.Ref{{Scope: scope, ID: "a", Version: 1}}},
		} {
			must(s.Put(ctx, a))(t)
		}
		must(s.Assemble(ctx, ctxpage.Query{Text: "kettle", Budget: 2000}))(t)
		tx := must(s.Begin(ctx))(t)
		require.NoError(t, tx.Put(ctx, ctxpage.Artefact{ID: "answer", Text: "held", Subject: "ann"}))
		require.ErrorIs(t, tx.Commit(ctx, ctxpage.Verdict{Confidence: 0.1, By: "judge"}), store.ErrHeld)
		talk := s.Session("talk")
		must(talk.Append(ctx, ctxpage.Turn{ID: "t1", Role: "user", Text: "what of the kettle?"}))(t)
		require.NoError(t, talk.Record(ctx, session.Notes{Text: "note"}))
		must(s.Directives().Step(ctx, "use tea"))(t)
	}
	return st, db
}

// TestMissing: a report says of which references nothing is held. One that waits for review is held.
func TestMissing(t *testing.T) {
	st, _ := filled(t)
	plan := find(t, st, ops.Request{Refs: []store.Ref{{Scope: "acme/ann", ID: "b"}, {Scope: "acme/ann", ID: "answer"}, {Scope: "acme/ann", ID: "bb"}, {Scope: "acme", ID: "b"}, {Scope: "acme", ID: "b"}}})
	require.Equal(t, []string{"acme/ann:bb", "acme:b"}, plan.Report.Missing)
	require.Len(t, plan.Report.Erased, 1)
	require.Len(t, plan.Report.Held, 1)
}

func find(t *testing.T, st store.Store, req ops.Request) *eraseplan.Plan {
	t.Helper()
	req.By, req.Reason = "desk", "asked"
	return must(eraseplan.Find(t.Context(), st, &req))(t)
}

func refs(plan *eraseplan.Plan) (list []string) {
	for _, r := range plan.Job.Refs {
		list = append(list, r.String())
	}
	return list
}

// TestFind: what each kind of request takes, and what it leaves alone.
func TestFind(t *testing.T) {
	st, _ := filled(t)
	p := find(t, st, ops.Request{Subject: "ann"})
	require.Equal(t, []string{"acme/ann:a", "acme/ann:sum", "acme/bob:a", "acme/bob:sum"}, refs(p), "also where only an old version says so; and summaries")
	require.Len(t, p.Report.Derived, 2)
	require.Len(t, p.Job.Held, 2, "by the subject of what they would write")
	require.Len(t, p.Report.Contexts, 2)
	require.Equal(t, 2, p.Report.Questions)
	require.Empty(t, p.Report.Sessions)

	p = find(t, st, ops.Request{Subject: "ann", Cascade: ops.Erase})
	require.Contains(t, refs(p), "acme/ann:child")

	p = find(t, st, ops.Request{Scope: "acme/ann"})
	require.Subset(t, refs(p), []string{"acme/ann:a", "acme/ann:b", "acme/ann:child", "acme/ann:sum", "acme/ann:t1"})
	require.NotContains(t, refs(p), "acme/bob:a")
	require.Equal(t, []string{"acme/ann/talk"}, p.Report.Sessions)
	require.Len(t, p.Job.Held, 1)
	require.NotZero(t, p.Report.Rows)
	require.Empty(t, find(t, st, ops.Request{Scope: "acme/an"}).Job.Refs, "a scope is no prefix")
	require.Equal(t, len(refs(find(t, st, ops.Request{Scope: "acme"}))), 2*len(refs(p)), "and takes those below it")

	p = find(t, st, ops.Request{Session: store.Ref{Scope: "acme/ann", ID: "talk"}})
	require.Equal(t, []string{"acme/ann:t1"}, refs(p))
	require.Empty(t, p.Job.Held)

	p = find(t, st, ops.Request{Refs: []store.Ref{{Scope: "acme/bob", ID: "b"}}})
	require.Equal(t, []string{"acme/bob:b"}, refs(p))
	require.True(t, find(t, st, ops.Request{Refs: []store.Ref{{Scope: "acme/bob", ID: "none"}}}).Report.Empty())
	require.ErrorIs(t, errOf(eraseplan.Find(t.Context(), st, &ops.Request{})), store.ErrInvalid)
}

// TestFindRepeats: two searches of one state are the same, whatever the order of maps.
func TestFindRepeats(t *testing.T) {
	st, _ := filled(t)
	first := find(t, st, ops.Request{Scope: "acme"})
	for range 5 {
		require.Equal(t, first, find(t, st, ops.Request{Scope: "acme"}))
	}
}

// TestRepeat: what a receipt stands for is found in a store of the same database that does not know of the erase.
func TestRepeat(t *testing.T) {
	ctx := context.Background()
	for _, req := range []ops.Request{
		{Subject: "ann"}, {Scope: "acme/ann"}, {Session: store.Ref{Scope: "acme/ann", ID: "talk"}}, {Refs: []store.Ref{{Scope: "acme/bob", ID: "b"}, {Scope: "acme/bob", ID: "child"}}},
	} {
		st, _ := filled(t)
		req.By, req.Reason = "desk", "asked"
		want := find(t, st, req)
		rep := must(eraseplan.Run(ctx, st, &req))(t)
		head := must(st.Head(ctx))(t)
		r := must(ops.NewReceipt(ctx, st.Audit(), *rep.Done, head))(t)
		again := must(eraseplan.Repeat(ctx, st, []*ops.Receipt{r}, true, nil))(t)
		require.Empty(t, again, "this store has the leaf")

		other, _ := filled(t)
		old := &before{Store: other, as: st}
		again = must(eraseplan.Repeat(ctx, old, []*ops.Receipt{r}, true, nil))(t)
		require.Len(t, again, 1)
		require.Equal(t, want.Report.Erased, again[0].Erased)
		require.Equal(t, want.Report.Rows, again[0].Rows)
		require.True(t, again[0].DryRun)

		require.ErrorIs(t, errOf(eraseplan.Repeat(ctx, other, []*ops.Receipt{r}, true, nil)), ops.ErrReceipt, "another database")
		r.Done.Cascade = "erase"
		require.ErrorIs(t, errOf(eraseplan.Repeat(ctx, old, []*ops.Receipt{r}, true, nil)), ops.ErrReceipt)
	}
}

// TestNamesOfForgotten: a name that only the audit has goes as well, and goes again from a backup. The control: without Names
// nothing is held of it.
func TestNamesOfForgotten(t *testing.T) {
	path, old := dbtest.MemoryPath(t), filepath.Join(t.TempDir(), "old.ctx")
	db := must(openFiles(path, nil, nil, nil))(t)
	s := db.Scope("acme")
	for _, id := range []string{"zq7x000001x", "stays"} {
		must(s.Put(ctx, ctxpage.Artefact{ID: id, Text: "kettle"}))(t)
	}
	require.NoError(t, s.Delete(ctx, "zq7x000001x"))
	for range 2 {
		must(db.Admin().GC(ctx, ctxpage.GCOptions{KeepFor: -1, KeepNames: -1}))(t)
	}
	must(db.Admin().Backup(ctx, old, nil))(t)
	req := ops.Request{Refs: []store.Ref{{Scope: "acme", ID: "zq7x000001x"}}, By: "desk", Reason: "asked"}
	require.ErrorIs(t, errOf(db.Admin().Erase(ctx, req)), store.ErrNotFound)
	require.Error(t, none(filepath.Dir(path)), "control: the audit names it")
	req.Names = true
	rep := must(db.Admin().Erase(ctx, req))(t)
	require.NotZero(t, rep.Done.Bodies)
	require.NoError(t, none(filepath.Dir(path)))
	require.ErrorIs(t, errOf(db.Admin().Erase(ctx, req)), store.ErrNotFound, "a second run finds nothing")
	head := must(db.Head(ctx))(t)
	r := must(ops.NewReceipt(ctx, db.Manifests(), *rep.Done, head))(t)
	must(s.Get(ctx, "stays"))(t)
	require.NoError(t, db.Close())

	to := filepath.Join(filepath.Dir(dbtest.MemoryPath(t)), "agent.ctx")
	must(filestore.Restore(ctx, old, to, filestore.RestoreOptions{Prepare: func(ctx context.Context, st store.Store) error {
		again, err := eraseplan.Repeat(ctx, st, []*ops.Receipt{r}, false, nil)
		require.Len(t, again, 1)
		return err
	}}))(t)
	require.NoError(t, none(filepath.Dir(to)))
}

// TestPrunedDeletion: a leaf that says that artefacts were deleted loses its body, because it names one of them. The other,
// whose rows gc took, is not taken for one that somebody hid.
func TestPrunedDeletion(t *testing.T) {
	path := dbtest.MemoryPath(t)
	db := must(openFiles(path, nil, nil, nil))(t)
	s := db.Scope("acme")
	for _, id := range []string{"zq7x000001x", "other"} {
		must(s.Put(ctx, ctxpage.Artefact{ID: id, Text: "kettle"}))(t)
	}
	require.NoError(t, s.Update(ctx, func(tx *ctxpage.Txn) error { // one leaf for both
		return errors.Join(tx.Delete(ctx, "zq7x000001x"), tx.Delete(ctx, "other"))
	}))
	for range 2 {
		must(db.Admin().GC(ctx, ctxpage.GCOptions{KeepFor: -1, KeepNames: -1}))(t)
	}
	must(s.Put(ctx, ctxpage.Artefact{ID: "stays", Text: "kettle"}))(t)
	must(db.Admin().Erase(ctx, ops.Request{Refs: []store.Ref{{Scope: "acme", ID: "zq7x000001x"}}, Names: true, By: "desk", Reason: "asked"}))(t)
	require.NoError(t, db.Close())
	require.NoError(t, os.Remove(path+".columns")) // so that all rows are compared with the audit
	db = must(openFiles(path, nil, nil, nil))(t)
	list := must(loop.Collect(db.Scope("acme").Artefacts(ctx, "", ctxpage.AtMost(10, "", nil))))(t)
	require.Len(t, list, 1)
	problems := must(db.Admin().Check(ctx, nil))(t)
	require.Empty(t, problems)
	require.NoError(t, db.Close())
}

// before is a database as it was: content and audit are those of another store that was made alike.
type before struct {
	store.Store
	as store.Store
}

func (b *before) Info(ctx context.Context) (store.Info, error) { return b.as.Info(ctx) }

// raw reports whether a file of a directory has a text.
func raw(t *testing.T, dir, text string) (has bool) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		has = has || bytes.Contains(b, []byte(text))
		return err
	}))
	return has
}

// TestDraftsOfPrunedContext: a leaf without its body does not say of which scope its context was. The drafts that the context showed
// go with whatever is erased, because nobody can ask for them.
func TestDraftsOfPrunedContext(t *testing.T) {
	for name, req := range map[string]ops.Request{
		"scope": {Scope: "acme/ann"}, "refs": {Refs: []store.Ref{{Scope: "acme/ann", ID: "draft"}}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			now := dbtest.NewClock(time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC))
			db := must(ctxpage.Open(filepath.Join(dir, "agent.ctx"), ctxpage.Options{Clock: now.Now}))(t)
			defer db.Close()
			s := db.Scope("acme/ann")
			must(s.Put(ctx, ctxpage.Artefact{ID: "draft", Text: "kettle"}))(t)
			tx := must(s.Begin(ctx))(t)
			require.NoError(t, tx.Put(ctx, ctxpage.Artefact{ID: "draft", Text: "kettle zq7xdraft"}))
			must(tx.Assemble(ctx, ctxpage.Query{Text: "kettle", Budget: 1000}))(t)
			require.NoError(t, tx.Rollback())
			now.Add(30 * 24 * time.Hour)
			require.NoError(t, db.Admin().Retention().Set(ctx, "acme", ops.Policy{Prune: ops.Day}, "op"))
			rep := must(db.Admin().Retention().Run(ctx, ops.RunOptions{By: "op"}))(t)
			require.NotEmpty(t, rep.Items)
			must(db.Admin().Checkpoint(ctx))(t)
			require.True(t, raw(t, dir, "zq7xdraft"), "control")
			req.By, req.Reason = "desk", "asked"
			must(db.Admin().Erase(ctx, req))(t)
			require.False(t, raw(t, dir, "zq7xdraft"))
		})
	}
}

// TestNamesOfGroups: the names of groups go with what was in them, but not while something else is.
func TestNamesOfGroups(t *testing.T) {
	dir := t.TempDir()
	db := must(openFiles(filepath.Join(dir, "agent.ctx"), nil, nil, nil))(t)
	defer db.Close()
	s := db.Scope("acme")
	for _, a := range []ctxpage.Artefact{
		{ID: "a", Text: "kettle", Subject: "ann", Group: "zq7xthread"}, {ID: "a", Text: "kettle and pan", Subject: "ann", Group: "zq7xlater"},
		{ID: "b", Text: "kettle", Subject: "ann", Group: "zq7xshared"}, {ID: "c", Text: "pan", Group: "zq7xshared"},
	} {
		must(s.Put(ctx, a))(t)
	}
	must(db.Admin().Erase(ctx, ops.Request{Subject: "ann", By: "desk", Reason: "asked", Names: true}))(t)
	for name, has := range map[string]bool{"zq7xthread": false, "zq7xlater": false, "zq7xshared": true} {
		require.Equal(t, has, raw(t, dir, name), name)
	}
}

// TestNamesLater: an erase of names takes what an earlier one of the same left, however that was found. What somebody put under a
// name since then stays.
func TestNamesLater(t *testing.T) {
	for name, req := range map[string]ops.Request{
		"subject": {Subject: "person"}, "session": {Session: store.Ref{Scope: "acme/ann", ID: "zq7xtalk"}}, "scope": {Scope: "acme/ann"},
		"session of a scope": {Scope: "acme/ann"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "agent.ctx")
			db := must(openFiles(path, nil, nil, nil))(t)
			s := db.Scope("acme/ann")
			for _, id := range []string{"zq7xone", "zq7xtwo"} {
				must(s.Session("zq7xtalk").Append(ctx, ctxpage.Turn{ID: "turn-" + strings.TrimPrefix(id, "zq7x"), Role: "user", Text: "what of the kettle?"}))(t)
				must(s.Put(ctx, ctxpage.Artefact{ID: id, Subject: "person", Text: "kettle"}))(t)
			}
			must(s.Put(ctx, ctxpage.Artefact{ID: "zq7xsum", Kind: store.KindSummary, Text: "kettles", DerivedFrom: []store.Ref{{Scope: "acme/ann", ID: "zq7xone"}}}))(t)
			must(db.Admin().Promote(ctx, store.Ref{Scope: "acme/ann", ID: "zq7xone"}, "acme", "op"))(t)
			req.By, req.Reason = "desk", "asked"
			must(db.Admin().Erase(ctx, req))(t)
			if name != "session" { // else it was not erased
				must(s.Put(ctx, ctxpage.Artefact{ID: "zq7xtwo", Text: "another kettle"}))(t)
			}
			require.NoError(t, db.Close()) // the memory of the process is not what leads there
			db = must(openFiles(path, nil, nil, nil))(t)
			defer db.Close()
			s = db.Scope("acme/ann")
			req.Names = true
			gone, stays := []string{"zq7xsum", "zq7xone"}, "zq7xtwo"
			switch name {
			case "session":
				gone, stays = []string{"turn-one", "turn-two", "zq7xtalk"}, "zq7xone"
			case "session of a scope":
				req.Scope, req.Session = "", store.Ref{Scope: "acme/ann", ID: "zq7xtalk"}
				gone, stays = []string{"turn-one", "turn-two", "zq7xtalk"}, "zq7xtwo"
			case "scope":
				gone, stays = []string{"turn-one", "turn-two", "zq7xtalk", "zq7xone", "zq7xtwo"}, ""
			}
			dry := req
			dry.DryRun = true
			told := must(db.Admin().Erase(ctx, dry))(t)
			rep := must(db.Admin().Erase(ctx, req))(t)
			require.Equal(t, told.Erased, rep.Erased)
			for _, id := range gone {
				require.False(t, raw(t, dir, id), id)
			}
			if stays != "" {
				must(s.Get(ctx, stays))(t)
			}
		})
	}
}

// TestNamesWithoutBodies: a restore repeats an erase of names also if retention had taken all bodies before, so that it took none.
func TestNamesWithoutBodies(t *testing.T) {
	for name, names := range map[string]bool{"names": true, "control": false} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path, backup, to := filepath.Join(dir, "agent.ctx"), filepath.Join(dir, "backup.ctx"), filepath.Join(dir, "copy", "agent.ctx")
			require.NoError(t, os.Mkdir(filepath.Dir(to), 0o700))
			db := must(openFiles(path, nil, nil, nil))(t)
			defer db.Close()
			must(db.Scope("acme").Put(ctx, ctxpage.Artefact{ID: "zq7xname", Text: "kettle"}))(t)
			require.NoError(t, db.Admin().Retention().Set(ctx, "acme", ops.Policy{Prune: 1}, "op"))
			must(db.Admin().Retention().Run(ctx, ops.RunOptions{By: "op"}))(t)
			must(db.Admin().Backup(ctx, backup, nil))(t)
			rep := must(db.Admin().Erase(ctx, ops.Request{Refs: []store.Ref{{Scope: "acme", ID: "zq7xname"}}, By: "desk", Reason: "asked", Names: names}))(t)
			require.Zero(t, rep.Bodies)
			head := must(db.Head(ctx))(t)
			r := must(ops.NewReceipt(ctx, db.Manifests(), *rep.Done, head))(t)
			must(filestore.Restore(ctx, backup, to, filestore.RestoreOptions{Prepare: func(ctx context.Context, st store.Store) error {
				_, err := eraseplan.Repeat(ctx, st, []*ops.Receipt{r}, false, nil)
				return err
			}}))(t)
			require.Equal(t, !names, raw(t, filepath.Dir(to), "zq7xname"))
		})
	}
}

// TestNamesOfEmptiedSessions: with the last turns of a session its name goes, and not while a turn of somebody else is in it.
func TestNamesOfEmptiedSessions(t *testing.T) {
	dir := t.TempDir()
	db := must(openFiles(filepath.Join(dir, "agent.ctx"), nil, nil, nil))(t)
	defer db.Close()
	for id, others := range map[string]int{"zq7xmine": 0, "zq7xours": 1} {
		s := db.Scope("acme").Session(id)
		for range 3 {
			must(s.Append(ctx, ctxpage.Turn{Role: "user", Text: "where is the kettle?", Subject: "ann"}))(t)
		}
		for range others {
			must(s.Append(ctx, ctxpage.Turn{Role: "user", Text: "in the kitchen", Subject: "kim"}))(t)
		}
	}
	must(db.Admin().Erase(ctx, ops.Request{Subject: "ann", By: "desk", Reason: "asked", Names: true}))(t)
	require.False(t, raw(t, dir, "zq7xmine"))
	require.True(t, raw(t, dir, "zq7xours"), "control")
	turns := must(loop.Collect(db.Scope("acme").Session("zq7xours").Turns(ctx, 0)))(t)
	require.Len(t, turns, 1)
}

// TestNamesHeldMeanwhile: a batch that is held between the search of an erase and its first commit goes, too, if it names what goes.
func TestNamesHeldMeanwhile(t *testing.T) {
	for _, names := range []bool{true, false} {
		dir := t.TempDir()
		db := must(openFiles(filepath.Join(dir, "agent.ctx"), nil, nil, nil))(t)
		defer db.Close()
		s := db.Scope("acme")
		must(s.Put(ctx, ctxpage.Artefact{ID: "zq7xname", Text: "The kettle is red.", Subject: "ann"}))(t)
		held := false
		must(db.Admin().Erase(ctx, ops.Request{Subject: "ann", By: "desk", Reason: "asked", Names: names, Progress: func(what string, done, total uint64) {
			if held || what == "scopes" {
				return
			}
			held = true
			tx := must(s.Begin(ctx))(t)
			must(tx.Assemble(ctx, ctxpage.Query{Text: "kettle", Budget: 1000}))(t)
			require.NoError(t, tx.Put(ctx, ctxpage.Artefact{ID: "guess", Text: "Perhaps."}))
			require.ErrorIs(t, tx.Commit(ctx, ctxpage.Verdict{}), store.ErrHeld)
		}}))(t)
		require.True(t, held)
		require.Equal(t, !names, raw(t, dir, "zq7xname"))
	}
}

// meanwhile is a store that does something before it erases.
type meanwhile struct {
	store.Store
	do func()
}

func (m meanwhile) Maintain(ctx context.Context, job store.Job, progress store.Progress) (store.JobReport, error) {
	if job.Kind == store.JobErase {
		m.do()
	}
	return m.Store.Maintain(ctx, job, progress)
}

// TestNamesReadMeanwhile: the context of a read that ends behind the search of an erase goes, too, also while its leaf is with the
// operating system only.
func TestNamesReadMeanwhile(t *testing.T) {
	for _, names := range []bool{true, false} {
		path := filepath.Join(t.TempDir(), "agent.ctx")
		st := must(filestore.Open(filestore.Options{Path: path, State: ctxpage.StateKinds()}))(t)
		db := must(ctxpage.Open(path, ctxpage.Options{Store: st}))(t)
		defer db.Close()
		s := db.Scope("acme")
		must(s.Put(ctx, ctxpage.Artefact{ID: "zq7xname", Text: "The kettle is red.", Subject: "ann"}))(t)
		read := meanwhile{st, func() {
			must(db.Scope("acme", ctxpage.WithActor("zq7xname")).Assemble(ctx, ctxpage.Query{Text: "kettle", Budget: 1000}))(t)
		}}
		must(eraseplan.Run(ctx, read, &ops.Request{Subject: "ann", By: "desk", Reason: "asked", Names: names}))(t)
		require.Equal(t, !names, raw(t, filepath.Dir(path), "zq7xname"))
	}
}

// must returns a check that fails the test unless err is nil, and returns v: v := must(s.Get(ctx, id))(t).
func must[T any](v T, err error) func(require.TestingT) T { return dbtest.Must(v, err) }

// errOf returns the error of a call.
func errOf[T any](_ T, err error) error { return err }

var (
	firstSequence = flag.Uint64("sequence.first", 1, "seed of the first sequence of TestSequences")
	sequences     = flag.Uint64("sequences", 0, "how many TestSequences makes; 0: some seconds of them, or 10,000 with CTXPAGE_LONG=1")
)

// sequenceSteps is how many calls a sequence has.
const sequenceSteps = 30

// run makes one sequence. An error is a difference between the database and its model.
func run(dir string, seed uint64, key []byte, d defect, done map[string]int) (err error) {
	path, beside := filepath.Join(dir, "db", "agent.ctx"), filepath.Join(dir, "beside")
	if err := errors.Join(os.Mkdir(filepath.Dir(path), 0o700), os.Mkdir(beside, 0o700)); err != nil {
		return err
	}
	defer func() {
		if err == nil || d != nil {
			err = errors.Join(err, os.RemoveAll(filepath.Dir(path)), os.RemoveAll(beside))
		}
	}()
	w := &walk{
		state: newState(), dice: dice{rand.New(rand.NewPCG(seed, 17))}, seed: seed, key: key, dir: beside, path: path,
		now: time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC), defect: d, done: done,
		random: &filestore.LockedReader{R: rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16)})},
	}
	if err := w.open(); err != nil {
		return err
	}
	for n := range sequenceSteps {
		if err := w.step(); err != nil {
			return errors.Join(fmt.Errorf("seed %d step %d: %w", seed, n, err), w.db.Close())
		}
	}
	for _, last := range []func() error{func() error { return w.check(w.db, filepath.Dir(w.path)) }, w.reopen, func() error { return w.check(w.db, filepath.Dir(w.path)) }} {
		if err := last(); err != nil {
			return errors.Join(fmt.Errorf("seed %d at the end of %v: %w", seed, w.steps, err), w.db.Close())
		}
	}
	problems, err := w.db.Admin().Check(ctx, nil)
	if len(problems) > 0 {
		err = fmt.Errorf("seed %d: the check finds %+v", seed, problems)
	}
	if err = errors.Join(err, w.db.Close()); err == nil && key != nil {
		err = w.rows()
	}
	return err
}

// rows looks in the rows that the keyring opens for words that none may have.
func (w *walk) rows() error {
	kept := w.kept()
	return eachOpened(w.path, w.path+".keys", func(bucket string, words []string) error {
		for _, word := range words {
			if w.never[word] && !kept[word] {
				return fmt.Errorf("seed %d: a row of %s has %s", w.seed, bucket, word)
			}
		}
		return nil
	})
}

// sealedEvery is the key of a sequence: one of three databases is encrypted.
func sealedEvery(seed uint64) []byte {
	if seed%3 == 0 {
		return keyOf(seals)
	}
	return nil
}

// TestSequences makes random sequences of puts, deletes, turns, notes, drafts that are held and reviewed, assemblies, gc,
// retention with its prune, checkpoints, compactions, backups, restores with receipts, reopens and erases, and compares each
// with a model after every erase and at its end.
func TestSequences(t *testing.T) {
	n := *sequences
	if n == 0 && dbtest.Long {
		n = 10_000
	}
	if n == 0 {
		n = 3
	}
	r := &sequencer{t: t, until: time.Now().Add(time.Duration(dbtest.Size(500, 2000)) * time.Millisecond), end: *firstSequence + n, atLeast: *sequences == 0 && !dbtest.Long, done: map[string]int{}}
	r.next.Store(*firstSequence)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		dir := t.TempDir()
		workers.Go(func() { r.work(dir) })
	}
	workers.Wait()
	t.Logf("%d sequences from seed %d on: %v", r.ran.Load(), *firstSequence, r.done)
	require.NoError(t, r.err)
	require.NotZero(t, r.done["erase"])
}

// sequencer makes sequences on all cores, each in a database of its own.
type sequencer struct {
	t         *testing.T
	until     time.Time
	end       uint64 // the seed behind the last
	atLeast   bool   // more of them until the time is over
	next, ran atomic.Uint64
	mu        sync.Mutex // guards the rest
	done      map[string]int
	err       error
}

func (r *sequencer) work(dir string) {
	for {
		seed := r.next.Add(1) - 1
		if seed >= r.end && (!r.atLeast || time.Now().After(r.until)) {
			return
		}
		done := map[string]int{}
		err := run(dir, seed, sealedEvery(seed), nil, done)
		r.ran.Add(1)
		r.mu.Lock()
		for step, n := range done {
			r.done[step] += n
		}
		failed := r.err != nil
		if err != nil && !failed {
			r.err = err
			dbtest.Keep(r.t, filepath.Join(dir, "db", "agent.ctx"))
		}
		r.mu.Unlock()
		if err != nil || failed {
			return
		}
	}
}

// TestSequencesControl: an erase that leaves out one kind of what it should take is told.
func TestSequencesControl(t *testing.T) {
	if dbtest.Race {
		t.Skip("a control of what one goroutine finds: it runs without the race detector, which makes it ten times slower")
	}
	for what, d := range map[string]defect{
		"artefacts": func(j *store.EraseJob) { j.Refs = j.Refs[:max(1, len(j.Refs)-1)] },
		"batches":   func(j *store.EraseJob) { j.Held = nil },
		"questions": func(j *store.EraseJob) { j.Questions = nil },
		"state":     func(j *store.EraseJob) { j.State = nil },
		"notes": func(j *store.EraseJob) {
			j.State = slices.DeleteFunc(slices.Clone(j.State), func(r store.StateRow) bool { return len(r.Key) > 12 && r.Key[:12] == "session/note" })
		},
		"bodies": func(j *store.EraseJob) { j.Leaves = nil },
		"names":  func(j *store.EraseJob) { j.Names = false },
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			for seed := uint64(1); seed <= 60; seed++ {
				err := run(dir, seed, nil, d, map[string]int{})
				if err != nil {
					t.Logf("told: %v", err)
					return
				}
			}
			t.Fatal("nobody noticed")
		})
	}
}

// TestSessionErasedAfterBackup is a sequence that failed: a restore with a receipt did not find the turns of a session that was
// erased after the backup, because all rows that named the session had lost their keys.
func TestSessionErasedAfterBackup(t *testing.T) {
	require.NoError(t, run(t.TempDir(), 20484, keyOf(seals), nil, map[string]int{}))
}

// TestSubjectErasedAfterBackup are others: no row of the backup had the subject any more, so the receipt of an erase by subject
// was not found to stand for anything. The restored copy still listed the artefact (93), or a held batch that was all that the
// erase had taken; or it still had a draft whose row gc had dropped before the erase, so that it kept its key (7578).
func TestSubjectErasedAfterBackup(t *testing.T) {
	for _, seed := range []uint64{93, 4065, 4941, 6657, 7578} {
		require.NoError(t, run(t.TempDir(), seed, keyOf(seals), nil, map[string]int{}))
	}
}
