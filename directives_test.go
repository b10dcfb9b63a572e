package ctxpage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ctxpage/ctxpage/directive"
	"github.com/ctxpage/ctxpage/internal/archive"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/directivelog"
	"github.com/ctxpage/ctxpage/internal/loop"
	"github.com/ctxpage/ctxpage/internal/triage"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/render"
	"github.com/ctxpage/ctxpage/store"
	"github.com/ctxpage/ctxpage/token"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func tell(t *testing.T, s *Scope, input string) directive.Decision {
	t.Helper()
	return must(s.Directives().Step(context.Background(), input))(t)
}

func stateOf(t require.TestingT, s *Scope) DirectiveState {
	return must(s.Directives().State(context.Background()))(t)
}

func sound(t require.TestingT, db *DB) {
	require.Empty(t, must(db.Admin().Check(context.Background(), nil))(t))
}

// directiveTexts is what the directive blocks of an assembly say, in their order.
func directiveTexts(a *Assembly) (texts []string) {
	for _, b := range a.Blocks {
		if b.Ref.ID == directivelog.PageID {
			texts = append(texts, b.Text)
		}
	}
	return texts
}

func TestDirectivesOverLevels(t *testing.T) {
	db := openTest(t, filepath.Join(t.TempDir(), "agent.ctx"), Options{})
	acme, support, agent := db.Scope("acme"), db.Scope("acme/support"), db.Scope("acme/support/a7")
	tell(t, agent, "set premise be brief")
	tell(t, agent, "use docker")
	tell(t, acme, "set premise We are Acme")
	tell(t, acme, "prohibit shell")
	tell(t, support, "use email")

	d := tell(t, agent, "use shell")
	require.Equal(t, directive.Clarify, d.Kind)
	require.Equal(t, "inherited_prohibition", d.Code)
	require.Equal(t, "acme", d.Scope)
	require.Contains(t, d.Prompt, "acme")
	d = tell(t, agent, "remove policy email")
	require.Equal(t, "inherited_use", d.Code)
	require.Equal(t, "acme/support", d.Scope)

	st := stateOf(t, agent)
	require.Equal(t, uint64(2), st.Version)
	require.Equal(t, []directive.ScopedPremise{{Scope: "acme", Premise: "We are Acme"}, {Scope: "acme/support/a7", Premise: "be brief"}}, st.Effective.Premises)
	require.Contains(t, st.Effective.Text(), "- prohibit shell\n")
	require.Len(t, stateOf(t, acme).Effective.Policies, 1, "nothing flows upwards")
	require.Empty(t, stateOf(t, db.Scope("other")).Effective.Policies)

	must(agent.Put(ctx, Artefact{ID: "rules", Kind: store.KindSystem, Text: "You answer mail."}))(t)
	must(acme.Put(ctx, Artefact{ID: "house", Kind: store.KindSystem, Text: "You work for Acme."}))(t)
	must(agent.Put(ctx, Artefact{ID: "pin", Pinned: true, Text: "The customer is called Ann."}))(t)
	a := must(agent.Assemble(ctx, Query{Text: "docker", Budget: 2000}))(t)
	var order []string
	for _, b := range a.Blocks {
		order = append(order, b.Ref.Scope+" "+b.Ref.ID)
	}
	require.Equal(t, []string{
		"acme house", "acme/support/a7 rules", "acme " + directivelog.PageID, "acme/support " + directivelog.PageID, "acme/support/a7 " + directivelog.PageID, "acme/support/a7 pin",
	}, order)
	require.Equal(t, []string{"premise: We are Acme\npolicies:\n- prohibit shell\n", "policies:\n- use email\n", "premise: be brief\npolicies:\n- use docker\n"}, directiveTexts(a))
	m := a.Messages()
	require.Equal(t, render.RoleSystem, m[0].Role)
	require.Contains(t, a.Text(), "[system]:\npremise: We are Acme")
	sound(t, db)
}

// A context has the directives whatever the query asks for, and none is made without them.
func TestDirectivesEnterAlways(t *testing.T) {
	db := openTest(t, filepath.Join(t.TempDir(), "agent.ctx"), Options{})
	s := db.Scope("acme")
	tell(t, s, "set premise "+strings.Repeat("a long story ", 400)) // far more than a page
	must(s.Put(ctx, Artefact{ID: "fact", Text: "docker is a tool"}))(t)
	for _, q := range []Query{
		{Text: "docker"}, {Text: "docker", Kinds: []store.Kind{store.KindFact}}, {Text: "docker", Floor: store.HumanVerified}, {Preset: "START", TopK: 1},
	} {
		q.Budget = 4000
		a := must(s.Assemble(ctx, q))(t)
		require.Len(t, directiveTexts(a), 1, "%+v", q)
		for _, x := range a.Manifest.Excluded {
			for _, p := range x.Nearest {
				require.NotEqual(t, a.Blocks[0].Num, p.Num)
			}
		}
	}
	a := must(s.Assemble(ctx, Query{Floor: store.HumanVerified, Budget: 4000}))(t)
	require.Equal(t, []manifest.Exclusion{{Reason: triage.BelowFloor, Count: 1}}, a.Manifest.Excluded, "the fact alone is below the floor")
	require.ErrorIs(t, errOf(s.Assemble(ctx, Query{Text: "docker", Budget: 500})), store.ErrBudget)
}

func TestDirectivesReplayAndThePast(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.ctx")
	db := openTest(t, path, Options{})
	s := db.Scope("acme/a")
	tell(t, s, "set premise first")
	must(s.Put(ctx, Artefact{ID: "rules", Kind: store.KindSystem, Text: "Rules of then."}))(t)
	a := must(s.Assemble(ctx, Query{Text: "x", Budget: 1000}))(t)
	tell(t, s, "change premise to second")
	must(s.Put(ctx, Artefact{ID: "rules", Kind: store.KindSystem, Text: "Rules of now."}))(t)
	b := must(s.Assemble(ctx, Query{Text: "x", Budget: 1000}))(t)
	tell(t, s, "clear state")
	require.NoError(t, s.Delete(ctx, "rules"))
	for range 2 {
		require.Empty(t, must(s.Assemble(ctx, Query{Text: "x", Budget: 1000}))(t).Blocks, "an empty state has no page")
		for _, was := range []*Assembly{a, b} {
			require.Equal(t, was.Text(), must(db.Replay(ctx, was.Trace))(t).Text)
			require.Equal(t, was.Text(), must(s.Assemble(ctx, Query{Text: "x", Budget: 1000, AsOf: was.LSN}))(t).Text())
		}
		sound(t, db)
		require.NoError(t, db.Close())
		db = openTest(t, path, Options{})
		s = db.Scope("acme/a")
	}
	require.NoError(t, db.Close())
}

// An ancestor prohibits what is in use below: the step below was right when it was taken, and what is shown is what
// holds now.
func TestDirectivesOverruled(t *testing.T) {
	db := openTest(t, filepath.Join(t.TempDir(), "agent.ctx"), Options{})
	acme, agent := db.Scope("acme"), db.Scope("acme/a7")
	tell(t, agent, "set premise be brief")
	tell(t, agent, "use docker")
	tell(t, agent, "use vim")
	tell(t, agent, "prohibit shell")
	before := stateOf(t, acme)
	require.Zero(t, before.Version)
	tell(t, acme, "prohibit docker")
	tell(t, acme, "use shell") // prohibited below, where it stays so
	a := must(agent.Assemble(ctx, Query{Text: "docker", Budget: 1000}))(t)
	require.Equal(t, []string{"policies:\n- prohibit docker\n", "premise: be brief\npolicies:\n- prohibit shell\n- use vim\n"}, directiveTexts(a))
	require.Equal(t, manifest.FormRange, a.Blocks[1].Form)
	require.LessOrEqual(t, a.Tokens, 1000)
	require.Equal(t, a.Text(), must(db.Replay(ctx, a.Trace))(t).Text)
	w := must(db.Why(ctx, a.Trace, Ref{Scope: "acme/a7", ID: directivelog.PageID}))(t)
	require.Contains(t, strings.Join(w.Steps, "\n"), directivelog.OverruledPart)

	up := must(acme.Assemble(ctx, Query{Text: "docker", Budget: 1000}))(t)
	require.Equal(t, []string{"policies:\n- prohibit docker\n- use shell\n"}, directiveTexts(up), "above it holds")

	tell(t, agent, "clear premise")
	tell(t, agent, "remove policy vim")
	tell(t, acme, "reset policies")
	tell(t, acme, "prohibit docker")
	tell(t, agent, "remove policy shell")
	a = must(agent.Assemble(ctx, Query{Text: "docker", Budget: 1000}))(t)
	require.Equal(t, []string{"policies:\n- prohibit docker\n"}, directiveTexts(a))
	require.Equal(t, []LeftOut{{Ref: Ref{Scope: "acme/a7", ID: directivelog.PageID, Page: 1, Version: 7}, Reason: directivelog.Overruled, Score: a.Left[0].Score}}, a.Left)
}

func TestDirectivesRestartWithAQuestion(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.ctx")
	db := openTest(t, path, Options{})
	s := db.Scope("acme", WithActor("ann"))
	d := tell(t, s, "use podman instead of docker")
	require.Equal(t, "replace_absent", d.Code)
	require.Equal(t, uint64(1), stateOf(t, s).Version)
	require.Equal(t, "answer_needed", tell(t, s, "what is the weather?").Code)
	trial := must(s.Directives().Preview(ctx, "yes"))(t)
	require.True(t, !trial.Before.Equal(trial.After))
	require.Equal(t, uint64(1), stateOf(t, s).Version, "neither a repeated question nor a preview is a version")
	require.NoError(t, db.Close())

	db = openTest(t, path, Options{})
	s = db.Scope("acme", WithActor("bob"))
	require.NotNil(t, stateOf(t, s).Own.Pending)
	require.Equal(t, directive.Clarify, tell(t, s, "clear state").Kind)
	require.True(t, tell(t, s, "Yes, please!").Kind == directive.Clarify)
	require.True(t, tell(t, s, "yes please!").Changed)
	st := stateOf(t, s)
	require.Nil(t, st.Own.Pending)
	require.Equal(t, []string{"podman"}, st.Own.State.Items(directive.Use))

	var next string
	list := must(loop.Collect(s.Directives().Entries(ctx, AtMost(1, "", &next))))(t)
	require.Len(t, list, 1)
	require.Equal(t, "bob", list[0].Actor)
	require.Equal(t, "yes please!", list[0].Input)
	require.Equal(t, directive.Update, list[0].Decision.Kind)
	require.True(t, list[0].Decision.State.Equal(st.Own.State))
	list = must(loop.Collect(s.Directives().Entries(ctx, AtMost(1, next, &next))))(t)
	require.Empty(t, next)
	require.Equal(t, directive.Entry{
		Version: 1, At: list[0].At, Actor: "ann", Action: "step", Input: "use podman instead of docker", Decision: d, After: list[0].After,
	}, list[0])
	require.Equal(t, d.Prompt, list[0].After.Pending.Prompt)
	require.ErrorIs(t, errOf(loop.Collect(s.Directives().Entries(ctx, AtMost(1, "x", nil)))), store.ErrInvalid)
	require.NoError(t, db.Close())

	db = openTest(t, path, Options{ReadOnly: true})
	s = db.Scope("acme")
	require.Equal(t, directive.Passthrough, tell(t, s, "hello").Kind)
	require.ErrorIs(t, errOf(s.Directives().Step(ctx, "use vim")), store.ErrReadOnly)
	require.Equal(t, uint64(2), stateOf(t, s).Version)
}

func TestDirectivesRestoreAndImport(t *testing.T) {
	db := openTest(t, filepath.Join(t.TempDir(), "agent.ctx"), Options{})
	s := db.Scope("acme")
	d := s.Directives()
	tell(t, s, "set premise one")         // 1
	tell(t, s, "use vim")                 // 2
	tell(t, s, "use emacs instead of ed") // 3, asks
	tell(t, s, "no")                      // 4
	tell(t, s, "clear state")             // 5
	sessions := []directive.Session{{}}
	list := must(loop.Collect(d.Entries(ctx)))(t)
	for _, e := range slices.Backward(list) {
		sessions = append(sessions, e.After)
	}
	require.Len(t, sessions, 6)
	version := uint64(5)
	for _, v := range []uint64{3, 1, 2, 0, 5, 4} {
		require.NoError(t, d.Restore(ctx, v))
		st := stateOf(t, s)
		require.Equal(t, directive.ExportCheckpoint(sessions[v]), directive.ExportCheckpoint(st.Own))
		if v != 5 { // 0 was the same
			version++
		}
		require.Equal(t, version, st.Version, "restoring %d", v)
		a := must(s.Assemble(ctx, Query{Budget: 1000}))(t)
		require.Equal(t, st.Effective.Text(), strings.Join(directiveTexts(a), ""))
		sound(t, db)
	}
	require.ErrorIs(t, d.Restore(ctx, 99), store.ErrNotFound)

	state := must(directive.NewState("imported", directive.Policy{Item: "The Vim", Polarity: directive.Prohibit}))(t)
	require.NoError(t, d.Import(ctx, directive.Session{State: state}))
	require.NoError(t, d.Import(ctx, directive.Session{State: state}))
	require.Equal(t, version+1, stateOf(t, s).Version)
	require.ErrorIs(t, d.Import(ctx, directive.Session{Pending: &directive.Pending{New: "the"}}), store.ErrInvalid)
	list = must(loop.Collect(d.Entries(ctx, AtMost(2, "", nil))))(t)
	require.Equal(t, []string{"import", "restore"}, []string{list[0].Action, list[1].Action})
	sound(t, db)
}

func TestDirectivesApply(t *testing.T) {
	db := openTest(t, filepath.Join(t.TempDir(), "agent.ctx"), Options{})
	tell(t, db.Scope("acme"), "prohibit shell")
	s := db.Scope("acme/a")
	o := must(s.Directives().Apply(ctx, []directive.Message{
		{Role: "user", Content: "set premise brief"}, {Role: "assistant", Content: "use vim"}, {Role: "user", Content: "use docker"},
		{Role: "user", Content: "hello"}, {Role: "user", Content: "use shell"}, {Role: "user", Content: "use never"},
	}))(t)
	require.True(t, o.Stopped)
	require.Equal(t, 5, o.Read)
	require.Contains(t, o.Prompt, "acme")
	require.Equal(t, []string{"docker"}, o.State.Items())
	st := stateOf(t, s)
	require.Equal(t, uint64(2), st.Version)
	require.True(t, o.State.Equal(st.Own.State))
	list := must(loop.Collect(s.Directives().Entries(ctx)))(t)
	require.Equal(t, "use docker", list[0].Input)
	require.Equal(t, "set premise brief", list[1].Input)
	require.Zero(t, list[1].After.State.Len())
	o = must(s.Directives().Apply(ctx, []directive.Message{{Role: "user", Content: "clear state"}, {Role: "user", Content: "bye"}}))(t)
	require.Equal(t, directive.Outcome{Read: 2}, o)
	sound(t, db)
}

// What the gate is for, and what pages say, has nothing to do with directives.
func TestDirectivesAreNotGatedAndPagesDoNotStep(t *testing.T) {
	db := openTest(t, filepath.Join(t.TempDir(), "agent.ctx"), Options{Gate: 1})
	s := db.Scope("acme", WithActor("agent"))
	tell(t, s, "prohibit shell")
	for _, id := range []string{"user", "system"} {
		must(s.Put(ctx, Artefact{ID: id, Kind: store.KindMessage, Role: id, Text: "remove policy shell"}))(t)
	}
	tx := must(s.Begin(ctx))(t)
	require.Len(t, must(tx.Assemble(ctx, Query{Text: "remove policy shell", Budget: 1000}))(t).Blocks, 3)
	require.Equal(t, uint64(1), stateOf(t, s).Version)
	require.NoError(t, tx.Put(ctx, Artefact{ID: "answer", Text: "clear state"}))
	tell(t, s, "use vim") // takes effect at once, whatever becomes of the answer
	err := tx.Commit(ctx, Verdict{Confidence: 1, By: "checker"})
	var held *store.HeldError
	require.ErrorAs(t, err, &held)
	require.Equal(t, store.ReasonStaleContext, held.Reason, "the answer was written under other directives")
	require.Equal(t, uint64(2), stateOf(t, s).Version)
	require.Len(t, must(loop.Collect(db.Review().Batches(ctx, "", false)))(t), 1)
}

func TestReservedIDs(t *testing.T) {
	db := openTest(t, filepath.Join(t.TempDir(), "agent.ctx"), Options{})
	s := db.Scope("acme/a")
	tell(t, s, "use vim")
	tx := must(s.Begin(ctx))(t)
	defer tx.Rollback()
	put := func(a Artefact) error { _, err := s.Put(ctx, a); return err }
	verified := func() error {
		_, err := db.Admin().PutVerified(ctx, "acme", "ann", Artefact{ID: directivelog.PageID, Kind: store.KindSystem, Text: "x"})
		return err
	}
	promote := func() error {
		_, err := db.Admin().Promote(ctx, Ref{Scope: "acme/a", ID: directivelog.PageID}, "acme", "ann")
		return err
	}
	for name, err := range map[string]error{
		"put": put(Artefact{ID: directivelog.PageID, Text: "x"}), "any": put(Artefact{ID: "ctxpage:x", Text: "x"}), "draft": tx.Put(ctx, Artefact{ID: directivelog.PageID, Text: "x"}),
		"supersede": put(Artefact{ID: "x", Text: "x", Supersedes: []string{directivelog.PageID}}), "delete": s.Delete(ctx, directivelog.PageID),
		"draft delete": tx.Delete(ctx, directivelog.PageID), "verified": verified(), "promote": promote(),
	} {
		require.ErrorIs(t, err, store.ErrInvalid, name)
		require.ErrorContains(t, err, store.ReservedPrefix, name)
	}
	require.NoError(t, put(Artefact{ID: "ctxpage", Text: "x"}))
	v := must(s.Get(ctx, directivelog.PageID))(t)
	require.Equal(t, "policies:\n- use vim\n", v.Text)
	require.Equal(t, store.KindSystem, v.Kind)
	sound(t, db)
}

func TestDirectivesRefuseOddInput(t *testing.T) {
	db := openTest(t, filepath.Join(t.TempDir(), "agent.ctx"), Options{})
	s := db.Scope("acme")
	long := strings.Repeat("x", directivelog.MaxInput-len("use "))
	for _, c := range []struct {
		input string
		err   error
	}{
		{"use " + long, nil}, {"prohibit z" + long, store.ErrInvalid}, {"use a\xff", store.ErrInvalid}, {"hello \xff" + long + long, nil}, {"use c\x00d", nil},
	} {
		require.ErrorIs(t, errOf(s.Directives().Preview(ctx, c.input)), c.err)
		require.ErrorIs(t, errOf(s.Directives().Step(ctx, c.input)), c.err)
	}
	done, cancel := context.WithCancel(ctx)
	cancel()
	require.ErrorIs(t, errOf(s.Directives().Step(done, "use y")), context.Canceled)
	require.ErrorIs(t, errOf(db.Scope("a//b").Directives().Step(ctx, "use y")), store.ErrInvalid)
	require.ErrorIs(t, errOf(loop.Collect(db.Scope("a//b").Directives().Entries(ctx))), store.ErrInvalid)
	require.Equal(t, uint64(2), stateOf(t, s).Version)
	sound(t, db)
}

// The leaf names actor, action and version; what was said is in no leaf.
func TestDirectiveLeaf(t *testing.T) {
	db := openTest(t, filepath.Join(t.TempDir(), "agent.ctx"), Options{})
	s := db.Scope("acme", WithActor("ann"))
	tell(t, s, "prohibit zyzzyva")
	tell(t, s, "use zyzzyva instead of quux")
	tell(t, s, "no thanks")
	tell(t, s, "hello zyzzyva")
	require.NoError(t, s.Directives().Restore(ctx, 0))
	var leaves []*manifest.Record
	require.NoError(t, store.EachRecord(ctx, db.Manifests(), 0, dbtest.SizeOf(db.Manifests()), false, func(r *manifest.Record) error {
		require.NotContains(t, string(must(archive.Encode(r))(t)), "zyzzyva")
		if r.Type == manifest.TypeDirective {
			leaves = append(leaves, r)
		}
		return nil
	}))
	require.Len(t, leaves, 4)
	for i, l := range leaves {
		require.Equal(t, fmt.Sprint("version ", i+1), l.Note)
		require.Equal(t, "ann", l.Actor)
		require.Equal(t, "acme", l.Scope)
		require.Equal(t, "applied", l.Status)
	}
	require.Equal(t, []string{"step", "step", "step", "restore"}, []string{leaves[0].Action, leaves[1].Action, leaves[2].Action, leaves[3].Action})
	require.Equal(t, []int{1, 0, 0, 1}, []int{len(leaves[0].Writes), len(leaves[1].Writes), len(leaves[2].Writes), len(leaves[3].Writes)})
	require.True(t, leaves[3].Writes[0].Deleted)
}

func TestDirectivesConcurrently(t *testing.T) {
	db := openTest(t, filepath.Join(t.TempDir(), "agent.ctx"), Options{})
	scopes := []*Scope{db.Scope("acme"), db.Scope("acme/a")}
	const each = 20
	var all sync.WaitGroup
	errs := make(chan error, 4*each+each)
	for g := range 4 {
		all.Go(func() {
			for i := range each {
				c, cancel := context.WithCancel(ctx)
				go cancel() // at any moment: a step happens as a whole or not at all
				_, err := scopes[g%2].Directives().Step(c, fmt.Sprintf("use item %d %d", g, i))
				if errors.Is(err, context.Canceled) {
					_, err = scopes[g%2].Directives().Step(ctx, fmt.Sprintf("use item %d %d", g, i))
				}
				cancel()
				errs <- err
			}
		})
	}
	all.Go(func() {
		for range each {
			_, err := scopes[1].Assemble(ctx, Query{Text: "item", Budget: 8000})
			errs <- err
		}
	})
	all.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
	for _, s := range scopes {
		st := stateOf(t, s)
		require.Equal(t, 2*each, st.Own.State.Len())
		list := must(loop.Collect(s.Directives().Entries(ctx, AtMost(1000, "", nil))))(t)
		require.Equal(t, st.Version, list[0].Version)
		for i := range list[:len(list)-1] {
			require.Equal(t, list[i].Version, list[i+1].Version+1)
		}
	}
	sound(t, db)
}

// A crash at any byte of the log leaves the directives as before the step or as after it, all three forms alike.
func TestDirectivesCrash(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "agent.ctx")
	db := openTest(t, path, Options{})
	s := db.Scope("acme")
	tell(t, s, "set premise old")
	segments := must(filepath.Glob(path + "-wal/*"))(t)
	log := segments[len(segments)-1]
	from := must(os.ReadFile(log))(t)
	tell(t, s, "change premise to new")
	to := must(os.ReadFile(log))(t)
	end := changedUpTo(from, to)
	killed := filepath.Join(t.TempDir(), "agent.ctx")
	require.NoError(t, dbtest.Copy(path, killed))
	start := 0
	for start < len(from) && from[start] == to[start] {
		start++
	}
	seen := map[string]int{}
	for cut := start; cut <= end; cut += max(1, (end-start)/12) {
		copyTo := filepath.Join(t.TempDir(), "agent.ctx")
		require.NoError(t, dbtest.Copy(killed, copyTo))
		torn := slices.Clone(to)
		if cut+max(1, (end-start)/12) <= end { // the last one is whole
			clear(torn[cut:])
		}
		require.NoError(t, os.WriteFile(filepath.Join(copyTo+"-wal", filepath.Base(log)), torn, 0o600))
		crashed := openTest(t, copyTo, Options{})
		sound(t, crashed)
		seen[stateOf(t, crashed.Scope("acme")).Own.State.Premise()]++
		require.NoError(t, crashed.Close())
	}
	require.Len(t, seen, 2)
	require.Positive(t, seen["old"])
	require.Equal(t, 1, seen["new"])
}

// changedUpTo is where the second of two images of a file stops differing from the first.
func changedUpTo(from, to []byte) int {
	end := len(to)
	for end > 0 && (end > len(from) && to[end-1] == 0 || end <= len(from) && from[end-1] == to[end-1]) {
		end--
	}
	return end
}

// The negative control of every test that calls sound: forms that differ are found.
func TestCheckFindsDirectivesThatDiffer(t *testing.T) {
	row := func(version uint64, premise string) []byte {
		state := must(directive.NewState(premise))(t)
		return directivelog.Pack(&directive.Entry{Version: version, After: directive.Session{State: state}})
	}
	log := directivelog.LogKey
	for name, state := range map[string][]store.StateRow{
		"page":      {{Key: log("acme", 2), Value: row(2, "other")}, {Key: directivelog.StateKey("acme"), Value: row(2, "other")}},
		"no page":   {{Key: log("b", 1), Value: row(1, "other")}, {Key: directivelog.StateKey("b"), Value: row(1, "other")}},
		"no state":  {{Key: directivelog.StateKey("acme"), Value: nil}},
		"journal":   {{Key: log("acme", 1), Value: row(1, "other")}},
		"no entry":  {{Key: directivelog.StateKey("acme"), Value: row(2, "old")}},
		"wrong key": {{Key: log("b", 3), Value: row(2, "x")}},
		"damaged":   {{Key: log("acme", 1), Value: []byte{0xc1}}},
	} {
		t.Run(name, func(t *testing.T) {
			db := openTest(t, filepath.Join(t.TempDir(), "agent.ctx"), Options{})
			defer db.Close()
			tell(t, db.Scope("acme"), "set premise old")
			sound(t, db)
			id := must(db.newID())(t)
			require.NoError(t, errOf(db.store.Commit(ctx, store.Batch{ID: id, Scope: "b", Actor: "x", Now: db.opts.Clock(), State: state, Leaf: manifest.Record{Type: manifest.TypeCommit}})))
			problems := must(db.Admin().Check(ctx, nil))(t)
			require.NotEmpty(t, problems)
			if name == "damaged" {
				require.Equal(t, "I10", problems[0].Invariant)
				require.ErrorIs(t, errOf(loop.Collect(db.Scope("acme").Directives().Entries(ctx))), store.ErrCorrupt)
				return
			}
			require.Equal(t, "I14", problems[0].Invariant)
		})
	}
}

// A damaged fact is left out and says so; without its directives there is no context.
func TestNoContextWithoutItsDirectives(t *testing.T) {
	for _, damaged := range []string{"premise: old", "a fact"} {
		db := openTest(t, filepath.Join(t.TempDir(), "agent.ctx"), Options{WorkingSet: -1})
		s := db.Scope("acme")
		tell(t, s, "set premise old")
		must(s.Put(ctx, Artefact{ID: "fact", Text: "a fact"}))(t)
		must(db.Admin().Checkpoint(ctx))(t)
		damage(db, damaged)
		a, err := db.Scope("acme").Assemble(ctx, Query{Text: "fact", Budget: 1000})
		if damaged == "a fact" {
			require.NoError(t, err)
			require.Len(t, a.Blocks, 1)
			require.Equal(t, triage.Damaged, a.Left[0].Reason)
		} else {
			require.ErrorIs(t, err, store.ErrCorrupt)
		}
		require.NoError(t, db.Close())
	}
}

// cancelling ends a context in the midst of a step.
type cancelling struct {
	token.Counter
	cancel context.CancelFunc
}

func (c cancelling) Count(text string) int {
	c.cancel()
	return c.Counter.Count(text)
}

// A step that is cut short by its context could leave the next one judging a state whose successor is on its way.
func TestAStepThatHasBegunIsSeenThrough(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	db := openTest(t, filepath.Join(t.TempDir(), "agent.ctx"), Options{Counter: cancelling{token.Default(), cancel}})
	require.True(t, must(db.Scope("acme").Directives().Step(ctx, "use vim"))(t).Changed)
	require.Error(t, ctx.Err())
	require.Equal(t, uint64(1), stateOf(t, db.Scope("acme")).Version)
}

// The database equals package directive over a chain of sessions in memory, and a context says what holds.
func TestDirectivesModel(t *testing.T) {
	t.Parallel()
	names := []string{"a", "a/b", "a/b/c"}
	items := []string{"x", "The X", "y", "z"}
	inputs := rapid.Custom(func(t *rapid.T) string {
		item := rapid.SampledFrom(items)
		switch rapid.IntRange(0, 11).Draw(t, "verb") {
		case 0:
			return "set premise " + item.Draw(t, "premise")
		case 1:
			return "change premise to " + item.Draw(t, "premise")
		case 2:
			return rapid.SampledFrom([]string{"clear premise", "reset policies", "clear state"}).Draw(t, "all")
		case 3, 4:
			return "prohibit " + item.Draw(t, "item")
		case 5:
			return "remove policy " + item.Draw(t, "item")
		case 6:
			return "use " + item.Draw(t, "new") + " instead of " + item.Draw(t, "old")
		case 7, 8:
			return rapid.SampledFrom([]string{"yes", "no", "hello", ""}).Draw(t, "answer")
		}
		return "use " + item.Draw(t, "item")
	})
	dir, runs := filepath.Dir(dbtest.MemoryPath(t)), 0
	rapid.Check(t, func(rt *rapid.T) {
		runs++
		path := filepath.Join(dir, fmt.Sprint(runs))
		opts := Options{}
		db := must(Open(path, opts))(rt)
		defer func() { require.NoError(rt, db.Close()) }()
		model := make([]directive.Session, len(names))
		version := make([]uint64, len(names))
		var past []*Assembly
		for range rapid.IntRange(1, 25).Draw(rt, "steps") {
			at := rapid.IntRange(0, len(names)-1).Draw(rt, "scope")
			s := db.Scope(names[at])
			var above []directive.Scoped
			for i, m := range model[:at] {
				above = append(above, directive.Scoped{Scope: names[i], State: m.State})
			}
			input := inputs.Draw(rt, "input")
			trial := must(s.Directives().Preview(ctx, input))(rt)
			next, want := directive.StepIn(above, model[at], input)
			sameDecision(rt, want, trial.Decision)
			got := must(s.Directives().Step(ctx, input))(rt)
			sameDecision(rt, want, got)
			if !directivelog.SameSession(model[at], next) {
				version[at]++
			}
			model[at] = next
			if rapid.IntRange(0, 9).Draw(rt, "reopen") == 0 {
				require.NoError(rt, db.Close())
				db = must(Open(path, opts))(rt)
			}
			var levels []directive.Scoped
			for i, m := range model {
				levels = append(levels, directive.Scoped{Scope: names[i], State: m.State})
				st := stateOf(rt, db.Scope(names[i]))
				require.Equal(rt, directive.ExportCheckpoint(m), directive.ExportCheckpoint(st.Own))
				require.Equal(rt, directive.Join(levels...), st.Effective)
				require.Equal(rt, version[i], st.Version)
			}
			a := must(db.Scope(names[2]).Assemble(ctx, Query{Text: "x", Budget: 2000}))(rt)
			saysWhatHolds(rt, directive.Join(levels...), a)
			if a.LSN > 0 { // as of 0 is now
				past = append(past, a)
			}
		}
		for _, a := range past {
			require.Equal(rt, a.Text(), must(db.Replay(ctx, a.Trace))(rt).Text)
			again := must(db.Scope(names[2]).Assemble(ctx, Query{Text: "x", Budget: 2000, AsOf: a.LSN}))(rt)
			require.Equal(rt, directiveTexts(a), directiveTexts(again))
		}
		sound(rt, db)
	})
}

// sameDecision compares decisions; equal states may have different trees.
func sameDecision(t require.TestingT, want, got directive.Decision) {
	require.True(t, want.State.Equal(got.State))
	want.State, got.State = directive.State{}, directive.State{}
	require.Equal(t, want, got)
}

// saysWhatHolds compares the lines of the directive pages with the effective state: premises in their order, each policy
// that holds and no other.
func saysWhatHolds(t require.TestingT, e directive.Effective, a *Assembly) {
	var premises []string
	policies := map[string]bool{}
	for _, text := range directiveTexts(a) {
		heading := false
		for line := range strings.Lines(text) {
			line = strings.TrimSuffix(line, "\n")
			switch {
			case strings.HasPrefix(line, "premise: "):
				premises = append(premises, strings.TrimPrefix(line, "premise: "))
			case line == "policies:":
				heading = true
			default:
				require.True(t, heading)
				policies[line] = true
			}
		}
	}
	var want []string
	for _, p := range e.Premises {
		want = append(want, p.Premise)
	}
	require.Equal(t, want, premises)
	require.Len(t, policies, len(e.Policies))
	for _, p := range e.Policies {
		require.True(t, policies["- "+string(p.Polarity)+" "+p.Item])
	}
}

// TestLongDirective: what is too long for a directive is refused before anything is made of it; prose of any length
// passes.
func TestLongDirective(t *testing.T) {
	db, _ := openInternal(t)
	d := db.Scope("acme").Directives()
	long := strings.Repeat("\ufb01", 2<<20) // each becomes two letters
	var before, after runtime.MemStats
	for _, verb := range []string{"use ", "prohibit ", "set premise ", "change premise to ", "remove policy ", "use x instead of "} {
		runtime.ReadMemStats(&before)
		_, err := d.Step(t.Context(), verb+long)
		_, perr := d.Preview(t.Context(), verb+long)
		runtime.ReadMemStats(&after)
		require.ErrorIs(t, err, store.ErrInvalid, verb)
		require.ErrorIs(t, perr, store.ErrInvalid, verb)
		require.ErrorContains(t, err, "expected at most 65536")
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(2*len(long)+(6<<20)), verb) // of which the inputs themselves are two
	}
	for _, prose := range []string{"users say: " + long, long, "clear state" + strings.Repeat(" ", directivelog.MaxInput) + "later"} {
		require.Zero(t, must(d.Step(t.Context(), prose))(t).Kind)
	}
}
