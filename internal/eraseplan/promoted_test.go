package eraseplan_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/eraseplan"
	"github.com/ctxpage/ctxpage/ops"
	"github.com/ctxpage/ctxpage/store"
)

// TestPromotedCopies: what was promoted goes with its original, by every request that takes the original, and nothing that was put
// in its place later.
func TestPromotedCopies(t *testing.T) {
	ctx := t.Context()
	for name, req := range map[string]ops.Request{
		"scope":   {Scope: "acme/ann"},
		"session": {Session: store.Ref{Scope: "acme/ann", ID: "talk"}},
		"refs":    {Refs: []store.Ref{{Scope: "acme/ann", ID: "t1"}}},
	} {
		t.Run(name, func(t *testing.T) {
			req.By, req.Reason = "desk", "asked"
			st, db := filled(t)
			must(db.Admin().Promote(ctx, store.Ref{Scope: "acme/ann", ID: "t1"}, "acme", "op"))(t)
			_, err := db.Admin().Promote(ctx, store.Ref{Scope: "acme/bob", ID: "b"}, "acme", "op") // control: it stays
			require.NoError(t, err)
			must(db.Scope("acme").Put(ctx, ctxpage.Artefact{ID: "sum", Kind: store.KindSummary, Text: "kettle", DerivedFrom: []store.Ref{{Scope: "acme", ID: "t1", Version: 1}}}))(t)
			old := must(st.Scan(ctx, store.ScanQuery{What: store.ScanArtefacts, Scopes: store.Scopes{"acme"}, Limit: 100}))(t)
			dry := find(t, st, req)
			rep := must(db.Admin().Erase(ctx, req))(t)
			require.Equal(t, dry.Report.Erased, rep.Erased)
			require.Contains(t, rep.Erased, ops.Item{Ref: "acme:t1", Kind: "message", Versions: 1, Why: "promoted from acme/ann:t1"})
			require.Contains(t, rep.Erased, ops.Item{Ref: "acme:sum", Kind: "summary", Versions: 1, Why: "derived from acme:t1"})
			must(db.Scope("acme").Get(ctx, "b"))(t)

			// an export has no audit, so the receipt names the copy
			info := must(st.Info(ctx))(t)
			e := eraseplan.NewEarlier(info.Secret, []store.EraseReport{*rep.Done})
			for _, h := range old.Heads {
				e.Version(h)
			}
			e.Follow()
			for id, goes := range map[string]bool{"t1": true, "sum": true, "b": false} {
				require.Equal(t, goes, e.Takes(store.Ref{Scope: "acme", ID: id}), id)
			}

			// what has its name now is no copy
			must(db.Scope("acme").Put(ctx, ctxpage.Artefact{ID: "t1", Text: "another thing"}))(t)
			must(db.Scope("acme/ann").Session("talk").Append(ctx, ctxpage.Turn{ID: "t1", Role: "user", Text: "what of the pan?"}))(t)
			rep = must(db.Admin().Erase(ctx, req))(t)
			for _, item := range rep.Erased {
				require.NotEqual(t, "acme:t1", item.Ref)
			}
		})
	}
}

// TestFormerSummary: an artefact that was a summary in an earlier version has the words of what it was made from, whatever it is now.
func TestFormerSummary(t *testing.T) {
	ctx := t.Context()
	st, db := filled(t)
	must(db.Scope("acme/ann").Put(ctx, ctxpage.Artefact{ID: "sum", Text: "another thing"}))(t)
	_, err := db.Scope("acme/ann").Put(ctx, ctxpage.Artefact{ID: "child", Text: "another child"}) // control: it was a fact
	require.NoError(t, err)
	for _, a := range []ctxpage.Artefact{ // control: it was a summary of something else, and derived from it later
		{ID: "other", Kind: store.KindSummary, Text: "pan", DerivedFrom: []store.Ref{{Scope: "acme/ann", ID: "b", Version: 1}}},
		{ID: "other", Text: "kettle and pan", DerivedFrom: []store.Ref{{Scope: "acme/ann", ID: "a", Version: 2}}},
	} {
		must(db.Scope("acme/ann").Put(ctx, a))(t)
	}
	plan := find(t, st, ops.Request{Refs: []store.Ref{{Scope: "acme/ann", ID: "a"}}})
	require.Equal(t, []ops.Item{
		{Ref: "acme/ann:a", Kind: "fact", Versions: 2, Why: "asked for"},
		{Ref: "acme/ann:sum", Kind: "fact", Versions: 2, Why: "derived from acme/ann:a"},
	}, plan.Report.Erased)
}

// TestPromotionOutlivesNames: an erase of names does not take the leaf of a promotion that only has the same id in it.
func TestPromotionOutlivesNames(t *testing.T) {
	ctx := t.Context()
	db := must(openFiles(filepath.Join(t.TempDir(), "agent.ctx"), nil, nil, nil))(t)
	defer db.Close()
	for _, scope := range []string{"acme/ann", "acme/bob"} {
		must(db.Scope(scope).Put(ctx, ctxpage.Artefact{ID: "plan", Text: "kettle of " + scope}))(t)
	}
	must(db.Admin().Promote(ctx, store.Ref{Scope: "acme/ann", ID: "plan"}, "acme", "op"))(t)
	erased := func(scope string) (refs []string) {
		rep := must(db.Admin().Erase(ctx, ops.Request{Scope: scope, By: "desk", Reason: "asked", Names: true}))(t)
		for _, item := range rep.Erased {
			refs = append(refs, item.Ref)
		}
		return refs
	}
	require.Equal(t, []string{"acme/bob:plan"}, erased("acme/bob"))
	require.Equal(t, []string{"acme:plan", "acme/ann:plan"}, erased("acme/ann"))
}
