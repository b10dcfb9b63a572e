package ops_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/store"
)

func open(t *testing.T, path string) *ctxpage.DB {
	t.Helper()
	db := must(ctxpage.Open(path, ctxpage.Options{Exclusive: true}))(t)
	t.Cleanup(func() {
		problems, err := db.Admin().Check(context.Background(), nil)
		if !errors.Is(err, store.ErrClosed) {
			require.NoError(t, err)
			require.Empty(t, problems)
			require.NoError(t, db.Close())
		}
	})
	return db
}

func put(t *testing.T, db *ctxpage.DB, scope, id, text string) error {
	_, err := db.Scope(scope).Put(t.Context(), ctxpage.Artefact{ID: id, Text: text})
	return err
}

// TestQuota: what passes one is refused with what is used and by what; everything else works, and room can be made.
func TestQuota(t *testing.T) {
	path := t.TempDir() + "/agent.ctx"
	db := open(t, path)
	k := db.Admin().Quotas()
	require.NoError(t, k.Set(t.Context(), "acme", store.Quota{Bytes: 1000}, "ann"))
	require.NoError(t, k.Set(t.Context(), "acme/a", store.Quota{Pages: 3}, "ann"))
	require.NoError(t, put(t, db, "acme/a", "x", strings.Repeat("k", 300)))
	require.NoError(t, put(t, db, "acme/a", "x", strings.Repeat("l", 300)))
	require.NoError(t, put(t, db, "acme/a", "x", strings.Repeat("l", 300)), "a touch adds nothing")
	require.NoError(t, put(t, db, "acmes", "x", strings.Repeat("k", 5000)), "another scope")
	before := must(db.Head(t.Context()))(t)

	err := put(t, db, "acme/b", "y", strings.Repeat("m", 500))
	require.ErrorIs(t, err, store.ErrQuota)
	var over *store.QuotaError
	require.ErrorAs(t, err, &over)
	require.Equal(t, &store.QuotaError{
		Scope: "acme", What: "bytes", Limit: 1000, Used: 600, Asked: 500, Old: 300,
		Kinds: []store.KindSpace{{Kind: "fact", Pages: 2, Bytes: 600, OldPages: 1, OldBytes: 300}},
	}, over)
	require.ErrorContains(t, err, "dbctl gc FILE")
	require.NoError(t, put(t, db, "acme/b", "y", strings.Repeat("m", 400)), "to the last byte")
	told := false
	require.NoError(t, store.EachRecord(t.Context(), db.Manifests(), before.Size, 1<<40, false, func(r *manifest.Record) error {
		told = told || r.Type == manifest.TypeConflict && r.Status == "quota"
		return nil
	}))
	require.True(t, told, "the audit has the refusal")

	require.ErrorIs(t, put(t, db, "acme/a", "z", "z"), store.ErrQuota)
	must(db.Scope("acme/a").Get(t.Context(), "x"))(t)
	must(db.Scope("acme/a").Assemble(t.Context(), ctxpage.Query{Text: "k", Budget: 1000}))(t)
	must(db.Admin().GC(t.Context(), ctxpage.GCOptions{KeepFor: -1}))(t)
	require.NoError(t, put(t, db, "acme/a", "z", "z"), "gc made room")
	require.NoError(t, db.Close())

	db = open(t, path)
	k = db.Admin().Quotas()
	use := must(k.All(t.Context()))(t)
	require.Len(t, use, 2)
	require.Greater(t, use[0].Used.Bodies, use[1].Used.Bodies)
	require.Positive(t, use[1].Used.Bodies)
	require.Equal(t, store.Quota{Bytes: 701, Pages: 3, Bodies: use[0].Used.Bodies}, use[0].Used)
	require.Equal(t, store.Quota{Bytes: 301, Pages: 2, Bodies: use[1].Used.Bodies}, use[1].Used)
	require.ErrorIs(t, put(t, db, "acme/b", "w", strings.Repeat("m", 300)), store.ErrQuota, "it holds after a reopen")
	require.NoError(t, db.Scope("acme/b").Delete(t.Context(), "y"))
	must(db.Admin().Erase(t.Context(), ops.Request{Refs: []store.Ref{{Scope: "acme/b", ID: "y"}}, By: "ann", Reason: "asked"}))(t)
	require.NoError(t, put(t, db, "acme/b", "w", strings.Repeat("m", 300)), "erase made room")
	require.NoError(t, k.Set(t.Context(), "acme", store.Quota{}, "ann"))
	require.NoError(t, put(t, db, "acme/b", "v", strings.Repeat("m", 3000)))
	require.ErrorIs(t, k.Set(t.Context(), "acme", store.Quota{Pages: -1}, "ann"), store.ErrInvalid)
	require.ErrorIs(t, k.Set(t.Context(), "", store.Quota{Pages: 1}, "ann"), store.ErrInvalid)
}

// TestHeld: batches that wait are bounded; a decision makes room, and what is approved is judged by the other quotas.
func TestHeld(t *testing.T) {
	db := open(t, t.TempDir()+"/agent.ctx")
	hold := func(id string) (string, error) {
		tx := must(db.Scope("acme", ctxpage.WithActor("agent")).Begin(t.Context()))(t)
		require.NoError(t, tx.Put(t.Context(), ctxpage.Artefact{ID: id, Text: "held " + id}))
		err := tx.Commit(t.Context(), ctxpage.Verdict{Confidence: 0.1, By: "judge"})
		var held *store.HeldError
		if errors.As(err, &held) {
			return held.Batch, nil
		}
		return "", err
	}
	first := must(hold("a"))(t)
	require.NoError(t, db.Admin().Quotas().Set(t.Context(), "acme", store.Quota{Held: 2, Pages: 1}, "ann"))
	second := must(hold("b"))(t)
	_, err := hold("c")
	require.ErrorIs(t, err, store.ErrQuota)
	require.ErrorContains(t, err, "dbctl review")
	must(db.Review().Approve(t.Context(), first, ctxpage.Approval{By: "ann"}))(t)
	third := must(hold("c"))(t)
	require.ErrorIs(t, errOf(db.Review().Approve(t.Context(), second, ctxpage.Approval{By: "ann"})), store.ErrQuota, "pages")
	h := must(db.Review().Show(t.Context(), second))(t)
	require.Empty(t, h.Decided, "it still waits")
	must(db.Review().Reject(t.Context(), second, "ann", "no"))(t)
	must(db.Admin().Erase(t.Context(), ops.Request{Refs: []store.Ref{{Scope: "acme", ID: "c"}}, By: "ann", Reason: "asked"}))(t)
	require.Error(t, errOf(db.Review().Show(t.Context(), third)))
	for _, id := range []string{"d", "e"} {
		require.NoError(t, errOf(hold(id)), "an erased one is not counted")
	}
	require.ErrorIs(t, errOf(hold("f")), store.ErrQuota)
}

// TestTogether: writers at the same time take exactly what there is. The control: without a quota all of them write.
func TestTogether(t *testing.T) {
	for _, limit := range []int{0, 37} {
		db := open(t, t.TempDir()+"/agent.ctx")
		require.NoError(t, db.Admin().Quotas().Set(t.Context(), "acme", store.Quota{Pages: limit}, "ann"))
		var wrote atomic.Int64
		var wg sync.WaitGroup
		for g := range 8 {
			wg.Go(func() {
				for i := range 10 {
					_, err := db.Scope(fmt.Sprint("acme/", g%3)).Put(context.Background(), ctxpage.Artefact{ID: fmt.Sprint(g, "-", i), Text: fmt.Sprint("kettle ", g, i)})
					switch {
					case err == nil:
						wrote.Add(1)
					case !errors.Is(err, store.ErrQuota):
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		want := int64(80)
		if limit > 0 {
			want = int64(limit)
		}
		require.Equal(t, want, wrote.Load())
	}
}

// TestModel: over random writes, quotas, gc and reopens the store refuses what a model refuses, and counts what it counts.
func TestModel(t *testing.T) {
	for seed := uint64(1); seed <= 6; seed++ {
		rng := rand.New(rand.NewPCG(seed, 11))
		path := t.TempDir() + "/agent.ctx"
		db := open(t, path)
		scopes := []string{"a", "a/b", "c"}
		limits := map[string]store.Quota{}
		for step := range 150 {
			scope, id := scopes[rng.IntN(3)], fmt.Sprint("i", rng.IntN(5))
			switch rng.IntN(10) {
			case 0:
				limits[scope] = store.Quota{Bytes: int64(rng.IntN(2000)), Pages: rng.IntN(20)}
				require.NoError(t, db.Admin().Quotas().Set(t.Context(), scope, limits[scope], "ann"))
			case 1:
				err := db.Scope(scope).Delete(t.Context(), id)
				require.True(t, err == nil || errors.Is(err, store.ErrNotFound), err)
			case 2:
				must(db.Admin().GC(t.Context(), ctxpage.GCOptions{KeepFor: -1, KeepNames: 1}))(t)
			case 3:
				require.NoError(t, db.Close())
				db = open(t, path)
			default:
				used := map[string]store.KindSpace{}
				spaces := must(db.Admin().Quotas().Spaces(t.Context()))(t)
				for _, s := range spaces {
					for _, k := range s.Space {
						for _, of := range store.ScopeChain(s.Name) {
							u := used[of]
							u.Pages, u.Bytes = u.Pages+k.Pages, u.Bytes+k.Bytes
							used[of] = u
						}
					}
				}
				text := strings.Repeat("k", 50+rng.IntN(100)) + fmt.Sprint(step)
				fits := true
				for _, of := range store.ScopeChain(scope) {
					q, u := limits[of], used[of]
					fits = fits && (q.Pages == 0 || u.Pages+1 <= q.Pages) && (q.Bytes == 0 || u.Bytes+int64(len(text)) <= q.Bytes)
				}
				err := put(t, db, scope, id, text)
				if fits {
					require.NoError(t, err, "seed %d step %d", seed, step)
				} else {
					require.ErrorIs(t, err, store.ErrQuota, "seed %d step %d", seed, step)
				}
			}
		}
		require.NoError(t, db.Close())
	}
}

// A closed scope refuses every write of a caller, from the moment that closing it was answered, and says where to write. The
// operator's work goes on.
func TestClosedScope(t *testing.T) {
	ctx, db := t.Context(), open(t, t.TempDir()+"/agent.ctx")
	s, k := db.Scope("acme/a"), db.Admin().Quotas()
	require.NoError(t, put(t, db, "acme/a", "x", "one"))
	tx := must(s.Begin(ctx))(t)
	require.NoError(t, tx.Put(ctx, ctxpage.Artefact{ID: "guess", Text: "perhaps"}))
	var held *store.HeldError
	require.ErrorAs(t, tx.Commit(ctx, ctxpage.Verdict{Confidence: 0.1, By: "judge"}), &held)
	require.ErrorIs(t, k.Set(ctx, "acme", store.Quota{Closed: "a\nb"}, "ann"), store.ErrInvalid)
	require.ErrorIs(t, k.Set(ctx, "acme", store.Quota{Closed: strings.Repeat("k", 513)}, "ann"), store.ErrInvalid)

	require.NoError(t, k.Set(ctx, "acme", store.Quota{Closed: "moved to b.ctx"}, "ann"))
	for name, write := range map[string]func() error{
		"put":    func() error { return put(t, db, "acme/a", "x", "two") },
		"touch":  func() error { return put(t, db, "acme/a", "x", "one") },
		"delete": func() error { return s.Delete(ctx, "x") },
		"turn": func() error {
			_, err := s.Session("talk").Append(ctx, ctxpage.Turn{Role: "user", Text: "hi"})
			return err
		},
		"directive": func() error { _, err := s.Directives().Step(ctx, "use metric units"); return err },
		"approval":  func() error { _, err := db.Review().Approve(ctx, held.Batch, ctxpage.Approval{By: "ann"}); return err },
		"rejection": func() error { _, err := db.Review().Reject(ctx, held.Batch, "ann", "no"); return err },
		"verified": func() error {
			_, err := db.Admin().PutVerified(ctx, "acme", "ann", ctxpage.Artefact{ID: "y", Text: "y"})
			return err
		},
	} {
		var over *store.QuotaError
		require.ErrorAs(t, write(), &over, name)
		require.Equal(t, &store.QuotaError{Scope: "acme", What: "closed", Closed: "moved to b.ctx"}, over, name)
	}
	require.NoError(t, put(t, db, "acmes", "x", "another scope"))
	must(s.Get(ctx, "x"))(t)
	must(db.Admin().Retention().Run(ctx, ops.RunOptions{By: "ann"}))(t)

	require.NoError(t, k.Change(ctx, "acme", "ann", func(q store.Quota) store.Quota { q.Closed = ""; return q }))
	require.NoError(t, put(t, db, "acme/a", "x", "two"), "it is open again")
}

// Commits that are under way when a scope is closed are answered before it, or refused: none comes later.
func TestClosedScopeIsFinal(t *testing.T) {
	ctx, db := t.Context(), open(t, t.TempDir()+"/agent.ctx")
	for round := range 20 {
		scope := fmt.Sprintf("t%d", round)
		var last atomic.Uint64
		var wg sync.WaitGroup
		begun := make(chan struct{}, 64)
		for w := range 4 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				for i := 0; ; i++ {
					ref, err := db.Scope(scope).Put(ctx, ctxpage.Artefact{ID: fmt.Sprintf("w%d-%d", w, i), Text: "x"})
					if err != nil {
						require.ErrorIs(t, err, store.ErrQuota)
						return
					}
					v, err := db.Scope(scope).Get(ctx, ref.ID)
					if err == nil {
						for was := last.Load(); was < v.LSN && !last.CompareAndSwap(was, v.LSN); was = last.Load() {
						}
					}
					select {
					case begun <- struct{}{}:
					default:
					}
				}
			}()
		}
		<-begun
		require.NoError(t, db.Admin().Quotas().Set(ctx, scope, store.Quota{Closed: "moved"}, "ann"))
		st := must(db.Stats(ctx))(t)
		wg.Wait()
		require.LessOrEqual(t, last.Load(), st.LSN, "no later write was accepted")
	}
}
