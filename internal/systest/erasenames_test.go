package systest_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/filestore"
	"github.com/ctxpage/ctxpage/internal/loop"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
)

// plantNames puts needles into every name: scope, ids, session, subject, actor's note, filter, source, batch outcome.
func plantNames(t testing.TB, db *DB, n *needles) (scope, session string, ids []string, bob string) {
	t.Helper()
	ctx := t.Context()
	scope, session = "acme/"+n.next(), n.next()
	s := db.Scope(scope, WithActor("agent"))
	for range 8 {
		id := "fact-" + n.next()
		ids = append(ids, id)
		must(s.Put(ctx, Artefact{ID: id, Text: "kettle " + n.words(4), Subject: n.next()}))(t)
	}
	for i := range 40 {
		must(db.Scope("acme/bob").Put(ctx, Artefact{ID: fmt.Sprintf("fact-%d", i), Text: fmt.Sprintf("kettle of bob %d", i)}))(t)
	}
	require.NoError(t, s.Delete(ctx, ids[0]))
	must(s.Put(ctx, Artefact{ID: "fact-" + n.next(), Text: "kettle derived", DerivedFrom: []Ref{{Scope: scope, ID: ids[1], Version: 1}}}))(t)
	a := must(s.Assemble(ctx, Query{Text: "kettle " + n.next(), Budget: 4000, Filter: Filter{IDPrefix: "fact-" + n.next()[:4]}}))(t)
	must(s.Assemble(ctx, Query{Text: "kettle", Budget: 4000, Filter: Filter{Subject: n.next()}}))(t)
	tx := must(s.Begin(ctx))(t)
	require.NoError(t, tx.Put(ctx, Artefact{ID: ids[2], Text: "kettle held"}))
	require.ErrorIs(t, tx.Commit(ctx, Verdict{Confidence: 0.1, By: "judge", Note: "about " + ids[2]}), store.ErrHeld)
	must(s.Directives().Step(ctx, "use "+n.next()))(t)
	talk := s.Session(session)
	for i := range 12 {
		must(talk.Append(ctx, Turn{ID: "turn-" + n.next(), Role: []string{"user", "assistant"}[i%2], Text: "kettle " + n.words(3)}))(t)
	}
	bobs := must(db.Scope("acme/bob").Assemble(ctx, Query{Text: "kettle", Budget: 2000}))(t)
	require.NotEmpty(t, a.Manifest.Trace)
	return scope, session, ids, bobs.Manifest.Trace
}

// TestEraseNames: after an erase with Names no file has a name, with a crash at each step, too. The control: without Names
// they are found. What is another's can still be explained and replayed, and every head of before holds.
func TestEraseNames(t *testing.T) {
	t.Parallel()
	n := &needles{}
	path := filepath.Join(t.TempDir(), "agent.ctx")
	hook := func(string) error { return nil }
	db := must(openOver(path, Options{}, filestore.Options{Hook: func(step string) error { return hook(step) }}))(t)
	scope, _, _, bob := plantNames(t, db, n)
	var heads []manifest.Head
	for range 2 {
		h := must(db.Head(ctx))(t)
		heads = append(heads, h)
		must(db.Admin().Checkpoint(ctx))(t)
	}
	request := ops.Request{Scope: scope, By: "operator", Reason: "asked for", Cascade: ops.Erase}

	control := filepath.Join(t.TempDir(), "agent.ctx")
	must(db.Admin().Backup(ctx, control, nil))(t)
	plain := must(Open(control, Options{}))(t)
	must(plain.Admin().Erase(ctx, request))(t)
	require.NoError(t, plain.Close())
	require.NotEmpty(t, n.hits(t, filepath.Dir(control)), "control: without Names they stay")

	copies, steps, seen := t.TempDir(), []string{}, map[string]int{}
	hook = func(step string) error {
		if seen[step]++; seen[step] > 1 {
			return nil
		}
		at := filepath.Join(copies, fmt.Sprintf("%02d", len(steps)))
		require.NoError(t, os.Mkdir(at, 0o700))
		require.NoError(t, dbtest.Copy(path, filepath.Join(at, "agent.ctx")))
		steps = append(steps, step)
		return nil
	}
	request.Names = true
	request.DryRun = true
	dry := must(db.Admin().Erase(ctx, request))(t)
	require.NotZero(t, dry.Bodies)
	request.DryRun = false
	rep := must(db.Admin().Erase(ctx, request))(t)
	hook = func(string) error { return nil }
	require.Equal(t, dry.Bodies, rep.Done.Bodies)
	require.Empty(t, rep.NamedBy)
	require.Contains(t, steps, "prune vouched")
	require.Contains(t, steps, "prune done")
	require.Empty(t, n.hits(t, filepath.Dir(path)))
	whole(t, db, heads)
	require.True(t, must(db.Replay(ctx, bob))(t).Same)
	pruned := 0
	require.NoError(t, store.EachRecord(ctx, db.Manifests(), 0, heads[0].Size, false, func(r *manifest.Record) error {
		if r.Pruned != nil {
			pruned++
			require.Equal(t, "operator", r.Pruned.By)
			require.Contains(t, r.Pruned.String(), "erased at ")
			require.ErrorIs(t, errOf(db.Manifests().Body(ctx, r.Index)), manifest.ErrPruned)
		}
		return nil
	}))
	require.NotZero(t, pruned)
	now := must(db.Head(ctx))(t)
	require.NoError(t, must(ops.NewReceipt(ctx, db.Manifests(), *rep.Done, now))(t).Verify(&now))
	require.NotContains(t, fmt.Sprint(must(loop.Collect(db.Scopes(ctx, "acme", AtMost(100, "", nil))))(t)), scope)
	must(db.Scope(scope).Put(ctx, Artefact{ID: "new", Text: "the scope can be used again"}))(t)
	require.NoError(t, db.Close())

	for i, step := range steps {
		t.Run(fmt.Sprintf("%02d %s", i, step), func(t *testing.T) {
			at := filepath.Join(copies, fmt.Sprintf("%02d", i))
			db := must(Open(filepath.Join(at, "agent.ctx"), Options{}))(t)
			require.Empty(t, n.hits(t, at))
			whole(t, db, heads)
			require.NoError(t, db.Close())
		})
	}
}

// TestEraseNamesOfOne: the names of a few artefacts and of a session go; what was written with them, and what stays and names
// them, is said.
func TestEraseNamesOfOne(t *testing.T) {
	t.Parallel()
	n := &needles{}
	path := filepath.Join(t.TempDir(), "agent.ctx")
	db := must(Open(path, Options{}))(t)
	s := db.Scope("acme")
	id, talk, turn := n.next(), n.next(), n.next()
	require.NoError(t, s.Update(ctx, func(tx *Txn) error {
		if err := tx.Put(ctx, Artefact{ID: id, Text: "of one"}); err != nil {
			return err
		}
		return tx.Put(ctx, Artefact{ID: "other", Text: "written with it"})
	}))
	must(s.Put(ctx, Artefact{ID: "child", Text: "made of it", DerivedFrom: []Ref{{Scope: "acme", ID: id, Version: 1}}}))(t)
	must(s.Session(talk).Append(ctx, Turn{ID: turn, Role: "user", Text: "a word"}))(t)
	head := must(db.Head(ctx))(t)
	for _, req := range []ops.Request{{Refs: []Ref{{Scope: "acme", ID: id}}}, {Session: Ref{Scope: "acme", ID: talk}}} {
		req.By, req.Reason, req.Names = "desk", "request", true
		rep := must(db.Admin().Erase(ctx, req))(t)
		if len(req.Refs) > 0 {
			require.Equal(t, []string{"acme:child"}, rep.NamedBy)
		}
	}
	require.NotEmpty(t, n.hits(t, filepath.Dir(path)), "the row of the child names its parent, as NamedBy says")
	must(db.Admin().Erase(ctx, ops.Request{Refs: []Ref{{Scope: "acme", ID: "child"}}, By: "desk", Reason: "request", Names: true}))(t)
	require.Empty(t, n.hits(t, filepath.Dir(path)))
	require.Equal(t, "written with it", must(s.Get(ctx, "other"))(t).Text)
	require.Empty(t, must(db.Admin().Check(ctx, nil))(t))
	must(db.Manifests().Verify(ctx, &head, nil))(t)
	must(s.Session(talk).Append(ctx, Turn{ID: turn, Role: "user", Text: "again"}))(t)
	require.NoError(t, db.Close())
	db = must(Open(path, Options{}))(t)
	require.Len(t, must(loop.Collect(db.Scope("acme").Session(talk).Turns(ctx, 0, AtMost(10, "", nil))))(t), 1)
	require.NoError(t, db.Close())
	require.NotEmpty(t, strings.TrimSpace(talk))
}
