package ops_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/loop"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/store"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// world is a database whose time moves when it is told to.
type world struct {
	*testing.T
	db  *ctxpage.DB
	now *dbtest.Clock
}

func newWorld(t *testing.T) *world {
	w := &world{T: t, now: dbtest.NewClock(time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC))}
	db := must(ctxpage.Open(t.TempDir()+"/agent.ctx", ctxpage.Options{Exclusive: true, Clock: w.now.Now}))(t)
	w.db = db
	t.Cleanup(func() {
		problems := must(db.Admin().Check(context.Background(), nil))(t)
		require.Empty(t, problems)
		require.NoError(t, db.Close())
	})
	return w
}

func (w *world) put(scope, id string, kind store.Kind) {
	w.Helper()
	must(w.db.Scope(scope, ctxpage.WithActor("agent")).Put(w.Context(), ctxpage.Artefact{ID: id, Kind: kind, Text: "kettle " + id}))(w)
}

func (w *world) there(scope, id string) bool {
	_, err := w.db.Scope(scope).Get(w.Context(), id)
	return err == nil
}

func (w *world) set(scope string, p ops.Policy) {
	w.Helper()
	require.NoError(w, w.db.Admin().Retention().Set(w.Context(), scope, p, "ann"))
}

func (w *world) run(o ops.RunOptions) *ops.RunReport {
	w.Helper()
	rep := must(w.db.Admin().Retention().Run(w.Context(), o))(w)
	return rep
}

func (w *world) hold(scope, id string) string {
	w.Helper()
	tx := must(w.db.Scope(scope, ctxpage.WithActor("agent")).Begin(w.Context()))(w)
	require.NoError(w, tx.Put(w.Context(), ctxpage.Artefact{ID: id, Text: "held"}))
	var held *store.HeldError
	require.ErrorAs(w, tx.Commit(w.Context(), ctxpage.Verdict{Confidence: 0.1, By: "judge"}), &held)
	return held.Batch
}

const day = ops.Day

func TestAge(t *testing.T) {
	for text, want := range map[string]ops.Age{"30d": 30 * day, "8w": 56 * day, "36h": 36 * day / 24, "forever": ops.Forever, "": 0} {
		got, err := ops.ParseAge(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got)
		again := must(ops.ParseAge(got.String()))(t)
		require.Equal(t, got, again)
	}
	for _, bad := range []string{"0s", "-3d", "0d", "d", "soon", "99999999999d", "200000w", "1.5d"} {
		require.ErrorIs(t, errOf(ops.ParseAge(bad)), store.ErrInvalid, bad)
	}
	var p ops.Policy
	require.NoError(t, json.Unmarshal([]byte(`{"kinds":{"fact":"30d"},"held":"forever"}`), &p))
	require.Equal(t, ops.Policy{Kinds: map[string]ops.Age{"fact": 30 * day}, Held: ops.Forever}, p)
	require.Error(t, json.Unmarshal([]byte(`{"held":"soon"}`), &p))
}

func TestPolicyCheck(t *testing.T) {
	for _, bad := range []ops.Policy{
		{Kinds: map[string]ops.Age{"thing": day}}, {Kinds: map[string]ops.Age{"system": day}}, {KeepVersions: -1, Versions: day}, {KeepVersions: 2},
	} {
		require.ErrorIs(t, bad.Check(), store.ErrInvalid)
	}
	w := newWorld(t)
	require.ErrorIs(t, w.db.Admin().Retention().Set(t.Context(), "a//b", ops.Policy{Held: day}, "ann"), store.ErrInvalid)
	require.ErrorIs(t, w.db.Admin().Retention().Set(t.Context(), "a", ops.Policy{Held: day}, ""), store.ErrInvalid)
}

// TestEffective: field by field the nearest scope that says something counts, and forever is something.
func TestEffective(t *testing.T) {
	w := newWorld(t)
	w.set("", ops.Policy{Kinds: map[string]ops.Age{"fact": 30 * day, "scratch": day}, Held: 7 * day, Versions: 10 * day, KeepVersions: 3})
	w.set("acme", ops.Policy{Kinds: map[string]ops.Age{"fact": ops.Forever}, Held: 2 * day})
	w.set("acme/a", ops.Policy{Versions: day})
	e := must(w.db.Admin().Retention().Effective(t.Context(), "acme/a/b"))(t)
	require.Equal(t, ops.Effective{
		Scope: "acme/a/b", Kinds: map[string]ops.Rule{"fact": {Age: ops.Forever, From: "acme"}, "scratch": {Age: day}},
		Held: ops.Rule{Age: 2 * day, From: "acme"}, Versions: ops.Rule{Age: day, From: "acme/a"},
	}, e, "keep_versions goes with the age of versions")
	e = must(w.db.Admin().Retention().Effective(t.Context(), "acmes"))(t)
	require.Equal(t, ops.Rule{Age: 7 * day}, e.Held, "a scope is no prefix")

	w.set("acme", ops.Policy{})
	all := must(w.db.Admin().Retention().All(t.Context()))(t)
	require.Len(t, all, 2, "an empty policy is none")
}

// TestRun: each rule takes what is old, nothing else, and a dry run says the same before. The audit names the policy.
func TestRun(t *testing.T) {
	w := newWorld(t)
	require.Empty(t, w.run(ops.RunOptions{}).Items, "without a policy nothing goes")
	for _, scope := range []string{"acme/a", "acme/b", "other"} {
		w.put(scope, "fact", store.KindFact)
		w.put(scope, "scratch", store.KindScratch)
		for i := range 3 {
			must(w.db.Scope(scope).Session("talk").Append(t.Context(), ctxpage.Turn{ID: fmt.Sprint("t", i), Role: "user", Text: "what of it?"}))(t)
		}
		for i := range 40 {
			must(w.db.Scope(scope).Directives().Step(t.Context(), fmt.Sprintf("use tea number %d", i)))(t)
		}
	}
	waits, decided := w.hold("acme/a", "x"), w.hold("acme/a", "y")
	must(w.db.Review().Reject(t.Context(), decided, "ann", "no"))(t)
	w.put("acme/a", "fact", store.KindFact) // a touch: it is the same
	before := must(w.db.Head(t.Context()))(t)

	w.set("acme", ops.Policy{
		Kinds: map[string]ops.Age{"scratch": 5 * day}, Sessions: 5 * day, Held: 5 * day, Decided: 5 * day, Directives: 5 * day, Versions: 5 * day,
	})
	w.set("acme/b", ops.Policy{Sessions: ops.Forever})
	require.Empty(t, w.run(ops.RunOptions{}).Items, "nothing is old")
	w.now.Add(6 * 24 * time.Hour)
	w.put("acme/b", "scratch", store.KindScratch) // a touch does not make it younger
	w.put("acme/b", "young", store.KindScratch)

	dry := w.run(ops.RunOptions{DryRun: true})
	require.True(t, w.there("acme/a", "scratch"))
	rep := w.run(ops.RunOptions{By: "ann"})
	require.Equal(t, dry.Items, rep.Items)
	count := map[string]int{}
	for _, it := range rep.Items {
		count[it.Scope+" "+it.What] = it.Count
		require.Equal(t, "acme", it.From)
	}
	require.Equal(t, map[string]int{
		"acme/a scratch": 1, "acme/b scratch": 1, "acme/a session": 1, "acme/a held": 1, "acme/a decided": 1, "acme/a directives": 8, "acme/b directives": 8,
	}, count)
	require.False(t, w.there("acme/a", "scratch") || w.there("acme/b", "scratch") || w.there("acme/a", "t0"))
	require.True(t, w.there("acme/a", "fact") && w.there("other", "scratch") && w.there("acme/b", "young") && w.there("acme/b", "t0"))
	h := must(w.db.Review().Show(t.Context(), waits))(t)
	require.Equal(t, "rejected", h.Decided)
	require.ErrorIs(t, errOf(w.db.Review().Show(t.Context(), decided)), store.ErrGone)
	st := must(w.db.Scope("acme/a").Directives().State(t.Context()))(t)
	require.NotEmpty(t, st.Effective, "what holds stays")
	turns := must(loop.Collect(w.db.Scope("acme/a").Session("talk").Turns(t.Context(), 0, ctxpage.AtMost(10, "", nil))))(t)
	require.Empty(t, turns)
	_, err := w.db.Scope("acme/a").Session("talk").Append(t.Context(), ctxpage.Turn{ID: "t9", Role: "user", Text: "a new one"})
	require.NoError(t, err, "the session can begin anew")

	told := 0
	require.NoError(t, store.EachRecord(t.Context(), w.db.Manifests(), before.Size, 1<<40, false, func(r *manifest.Record) error {
		if r.Parent == rep.Trace && r.Action == "retention" && r.By == "ann" {
			require.Contains(t, r.Reason, "retention of acme: ")
			told++
		}
		return nil
	}))
	require.GreaterOrEqual(t, told, 5)

	again := w.run(ops.RunOptions{})
	require.Len(t, again.Items, 1, "what the first run rejected is decided now")
	require.Equal(t, []string{waits}, again.Items[0].First)
	require.Empty(t, w.run(ops.RunOptions{}).Items, "a third run finds nothing")
	w.now.Add(6 * 24 * time.Hour)
	again = w.run(ops.RunOptions{Scope: "acme/a"})
	require.NotNil(t, again.GC)
	require.NotZero(t, again.GC.Dropped.Versions, "what was deleted then is dropped now")
	for _, ref := range again.GC.Refs {
		require.Equal(t, "acme/a", ref.Scope)
	}
}

// TestRemoveSession: one goes, and one whose name begins alike stays.
func TestRemoveSession(t *testing.T) {
	w := newWorld(t)
	k := w.db.Admin().Retention()
	for _, name := range []string{"talk", "talks"} {
		for i := range 4 {
			must(w.db.Scope("acme").Session(name).Append(t.Context(), ctxpage.Turn{ID: fmt.Sprint(name, i), Role: "user", Text: "what of it?"}))(t)
		}
	}
	dry := must(k.RemoveSession(t.Context(), "acme", "talk", "ann", true))(t)
	require.Equal(t, 4, dry.Turns)
	require.True(t, w.there("acme", "talk0"))
	rep := must(k.RemoveSession(t.Context(), "acme", "talk", "ann", false))(t)
	dry.DryRun = false
	require.Equal(t, dry, rep)
	require.False(t, w.there("acme", "talk0"))
	turns := must(loop.Collect(w.db.Scope("acme").Session("talks").Turns(t.Context(), 0, ctxpage.AtMost(10, "", nil))))(t)
	require.Len(t, turns, 4)
	require.ErrorIs(t, errOf(k.RemoveSession(t.Context(), "acme", "talk", "ann", false)), store.ErrNotFound)
}

// TestPurgeReviews: decided ones go, those that wait only where they are asked for.
func TestPurgeReviews(t *testing.T) {
	w := newWorld(t)
	k := w.db.Admin().Retention()
	waits, decided, elsewhere := w.hold("acme", "x"), w.hold("acme", "y"), w.hold("other", "z")
	for _, id := range []string{decided, elsewhere} {
		must(w.db.Review().Reject(t.Context(), id, "ann", "no"))(t)
	}
	require.ErrorIs(t, errOf(k.PurgeReviews(t.Context(), ops.Purge{})), store.ErrInvalid, "nobody asked")
	rep := must(k.PurgeReviews(t.Context(), ops.Purge{By: "ann", Older: day}))(t)
	require.Empty(t, rep.Items, "they are young")
	for _, dry := range []bool{true, false} {
		rep = must(k.PurgeReviews(t.Context(), ops.Purge{By: "ann", Scope: "acme", DryRun: dry}))(t)
		require.Len(t, rep.Items, 1)
		require.Equal(t, []string{decided}, rep.Items[0].First)
	}
	must(w.db.Review().Show(t.Context(), elsewhere))(t)
	rep = must(k.PurgeReviews(t.Context(), ops.Purge{By: "ann", Waiting: true}))(t)
	require.Len(t, rep.Items, 2)
	require.ErrorIs(t, errOf(w.db.Review().Show(t.Context(), waits)), store.ErrGone)
}

// TestRunModel: over random puts, deletes and times a run takes what a model says, and never anything else.
func TestRunModel(t *testing.T) {
	for seed := uint64(1); seed <= 8; seed++ {
		rng := rand.New(rand.NewPCG(seed, 3))
		w := newWorld(t)
		type item struct {
			kind store.Kind
			at   time.Time
		}
		model := map[string]item{}
		kinds := []store.Kind{store.KindFact, store.KindScratch, store.KindTool}
		ages := map[string]map[string]ops.Age{"a": {"fact": 4 * day, "scratch": 2 * day}, "a/b": {"fact": ops.Forever}}
		for scope, kinds := range ages {
			w.set(scope, ops.Policy{Kinds: kinds, Versions: 3 * day})
		}
		age := func(scope string, kind store.Kind) ops.Age {
			if scope == "a/b" && kind == store.KindFact || scope == "c" {
				return ops.Forever
			}
			return ages["a"][kind.String()]
		}
		for step := range 120 {
			scope, id := []string{"a", "a/b", "c"}[rng.IntN(3)], fmt.Sprint("i", rng.IntN(8))
			key := scope + ":" + id
			switch rng.IntN(8) {
			case 0:
				w.now.Add(time.Duration(rng.IntN(30)) * time.Hour)
			case 1:
				if _, ok := model[key]; ok {
					require.NoError(t, w.db.Scope(scope).Delete(t.Context(), id))
					delete(model, key)
				}
			case 2:
				w.run(ops.RunOptions{})
				for key, it := range model {
					scope := key[:len(key)-3]
					if a := age(scope, it.kind); a > 0 && !it.at.After(w.now.Now().Add(-time.Duration(a))) {
						delete(model, key)
					}
				}
			default:
				kind := kinds[rng.IntN(3)]
				must(w.db.Scope(scope).Put(t.Context(), ctxpage.Artefact{ID: id, Kind: kind, Text: fmt.Sprint("kettle ", step)}))(t)
				model[key] = item{kind, w.now.Now()}
			}
		}
		for _, scope := range []string{"a", "a/b", "c"} {
			vs := must(loop.Collect(w.db.Scope(scope).Artefacts(t.Context(), "", ctxpage.AtMost(100, "", nil))))(t)
			want := 0
			for key, it := range model {
				if key[:len(key)-3] == scope {
					want++
					v, err := w.db.Scope(scope).Get(t.Context(), key[len(key)-2:])
					require.NoError(t, err, "seed %d: %s", seed, key)
					require.Equal(t, it.kind, v.Kind)
				}
			}
			require.Len(t, vs, want, "seed %d scope %s", seed, scope)
		}
	}
}

// TestMaintain: with the option a run comes by itself; without, nothing goes.
func TestMaintain(t *testing.T) {
	now := time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)
	path := t.TempDir() + "/agent.ctx"
	open := func(every time.Duration) *ctxpage.DB {
		return must(ctxpage.Open(path, ctxpage.Options{Exclusive: true, Maintain: every, Clock: func() time.Time { return now }}))(t)
	}
	db := open(0)
	must(db.Scope("acme").Put(t.Context(), ctxpage.Artefact{ID: "a", Text: "kettle"}))(t)
	require.NoError(t, db.Admin().Retention().Set(t.Context(), "", ops.Policy{Kinds: map[string]ops.Age{"fact": day}}, "ann"))
	require.NoError(t, db.Close())
	now = now.Add(48 * time.Hour)
	db = open(0)
	require.NoError(t, errOf(db.Scope("acme").Get(t.Context(), "a")), "off by default")
	require.NoError(t, db.Close())
	db = open(time.Hour)
	require.Eventually(t, func() bool { _, err := db.Scope("acme").Get(t.Context(), "a"); return err != nil }, time.Minute, 5*time.Millisecond)
	require.NoError(t, db.Close())
	require.ErrorIs(t, errOf(ctxpage.Open(path, ctxpage.Options{Maintain: -1})), store.ErrInvalid)
}

// TestPrune: bodies of old leaves go by the rule of their scope, the others stay, and what is served does not change; a head
// of before verifies.
func TestPrune(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	w.set("acme", ops.Policy{Prune: 30 * day})
	w.set("acme/legal", ops.Policy{Prune: ops.Forever})
	for _, scope := range []string{"acme/a", "acme/legal"} {
		w.put(scope, "fact", store.KindFact)
	}
	old := must(w.db.Scope("acme/a").Assemble(ctx, ctxpage.Query{Text: "kettle", Budget: 2000}))(t)
	kept := must(w.db.Scope("acme/legal").Assemble(ctx, ctxpage.Query{Text: "kettle", Budget: 2000}))(t)
	w.now.Add(40 * 24 * time.Hour)
	young := must(w.db.Scope("acme/a").Assemble(ctx, ctxpage.Query{Text: "kettle", Budget: 2000}))(t)
	head := must(w.db.Head(ctx))(t)
	dry := w.run(ops.RunOptions{DryRun: true})
	require.NoError(t, errOf(w.db.Replay(ctx, old.Manifest.Trace)), "a dry run changes nothing")
	rep := w.run(ops.RunOptions{By: "ann"})
	require.Equal(t, dry.Items, rep.Items)
	require.Len(t, rep.Items, 2, "and the leaf of the policy itself")
	require.Equal(t, "body", rep.Items[1].What)
	require.Equal(t, 2, rep.Items[1].Count, "the put and the context")
	_, err := w.db.Replay(ctx, old.Manifest.Trace)
	require.ErrorIs(t, err, manifest.ErrPruned)
	require.ErrorIs(t, err, store.ErrGone)
	require.ErrorContains(t, err, "pruned at 2026-04-10T09:00:00Z by ann")
	for _, trace := range []string{kept.Manifest.Trace, young.Manifest.Trace} {
		again := must(w.db.Replay(ctx, trace))(t)
		require.True(t, again.Same)
	}
	require.True(t, w.there("acme/a", "fact"))
	must(w.db.Manifests().Verify(ctx, &head, nil))(t)
	require.Empty(t, w.run(ops.RunOptions{}).Items, "a second run finds nothing")
}

// noPrune is a store that cannot remove bodies, as one on PostgreSQL.
type noPrune struct{ store.Store }

func (s noPrune) Maintain(ctx context.Context, job store.Job, p store.Progress) (store.JobReport, error) {
	if job.Erase != nil && len(job.Erase.Leaves) > 0 {
		return store.JobReport{}, errors.ErrUnsupported
	}
	return s.Store.Maintain(ctx, job, p)
}

// TestPruneUnsupported: a store that cannot prune says so, and carries out the other policies.
func TestPruneUnsupported(t *testing.T) {
	w := newWorld(t)
	w.set("acme", ops.Policy{Prune: 30 * day, Versions: 30 * day})
	w.put("acme", "fact", store.KindFact)
	must(w.db.Scope("acme").Put(t.Context(), ctxpage.Artefact{ID: "fact", Text: "newer"}))(t)
	w.now.Add(70 * 24 * time.Hour)
	k := *w.db.Admin().Retention()
	k.Store = noPrune{k.Store}
	rep, err := k.Run(t.Context(), ops.RunOptions{})
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.NotNil(t, rep.GC)
	require.Equal(t, 1, rep.GC.Dropped.Versions)
	require.NotContains(t, fmt.Sprint(rep.Items), "body")
}

// TestPruneKeepsPromotions: only the leaf of a promotion tells an erase that there is a copy.
func TestPruneKeepsPromotions(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	w.set("acme", ops.Policy{Prune: 30 * day})
	w.put("acme/ann", "fact", store.KindFact)
	must(w.db.Admin().Promote(ctx, store.Ref{Scope: "acme/ann", ID: "fact"}, "acme", "op"))(t)
	w.now.Add(40 * 24 * time.Hour)
	require.NotEmpty(t, w.run(ops.RunOptions{By: "ann"}).Items)
	rep := must(w.db.Admin().Erase(ctx, ops.Request{Scope: "acme/ann", By: "desk", Reason: "asked", DryRun: true}))(t)
	require.Contains(t, rep.Erased, ops.Item{Ref: "acme:fact", Kind: "fact", Versions: 1, Why: "promoted from acme/ann:fact"})
}

// must returns a check that fails the test unless err is nil, and returns v: v := must(s.Get(ctx, id))(t).
func must[T any](v T, err error) func(require.TestingT) T { return dbtest.Must(v, err) }

// errOf returns the error of a call.
func errOf[T any](_ T, err error) error { return err }
