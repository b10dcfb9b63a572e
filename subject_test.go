package ctxpage_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/portable"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/ops"
)

// Two tenants use one name for two people. An export and an erase of the one leave the other alone, turns and held drafts
// included; a receipt repeats the same on an older copy.
func TestSubjectsStayInTheirTenant(t *testing.T) {
	ctx := t.Context()
	path := t.TempDir() + "/agent.ctx"
	db, err := ctxpage.Open(path, ctxpage.Options{})
	require.NoError(t, err)
	const words = "pelican"
	for _, scope := range []string{"acme/support", "acme", "globex/support"} {
		s := db.Scope(scope)
		_, err := s.Put(ctx, ctxpage.Artefact{ID: "note", Text: words + " in " + scope, Subject: "user07"})
		require.NoError(t, err)
		_, err = s.Put(ctx, ctxpage.Artefact{ID: "other", Text: "about somebody else in " + scope, Subject: "user08"})
		require.NoError(t, err)
		_, err = s.Session("chat").Append(ctx, ctxpage.Turn{Role: "user", Text: words + " said in " + scope, Subject: "user07"})
		require.NoError(t, err)
		tx, err := s.Begin(ctx)
		require.NoError(t, err)
		require.NoError(t, tx.Put(ctx, ctxpage.Artefact{ID: "draft", Text: words + " drafted in " + scope, Subject: "user07"}))
		require.ErrorIs(t, tx.Commit(ctx, ctxpage.Verdict{Confidence: .1, By: "judge"}), ctxpage.ErrHeld)
	}
	export := func(db *ctxpage.DB, scope string) string {
		var out strings.Builder
		_, err := db.Admin().Export(ctx, &out, portable.ExportOptions{Subject: "user07", Scope: scope})
		require.NoError(t, err)
		return out.String()
	}
	held := export(db, "acme")
	for _, what := range []string{" in ", " said in ", " drafted in "} {
		require.Contains(t, held, words+what+"acme/support")
		require.NotContains(t, held, words+what+"globex")
		require.Contains(t, export(db, ""), words+what+"globex", "control: without a scope it is everywhere")
	}
	require.NotContains(t, held, "user08")
	_, err = db.Admin().Backup(ctx, path+".old", nil)
	require.NoError(t, err)

	req := ops.Request{Subject: "user07", Scope: "acme", By: "desk", Reason: "asked", Names: true}
	rep, err := db.Admin().Erase(ctx, req)
	require.NoError(t, err)
	require.Len(t, rep.Erased, 4)
	require.Len(t, rep.Held, 2)
	left := func(db *ctxpage.DB) {
		t.Helper()
		var out strings.Builder
		_, err := db.Admin().Export(ctx, &out, portable.ExportOptions{})
		require.NoError(t, err)
		for _, what := range []string{" in ", " said in ", " drafted in "} {
			require.NotContains(t, out.String(), words+what+"acme")
			require.Contains(t, out.String(), words+what+"globex/support")
		}
		require.Contains(t, out.String(), "about somebody else in acme/support")
	}
	left(db)
	head, err := db.Head(ctx)
	require.NoError(t, err)
	receipt, err := ops.NewReceipt(ctx, db.Manifests(), *rep.Done, head)
	require.NoError(t, err)
	require.NoError(t, db.Close())

	db, err = ctxpage.Open(path+".old", ctxpage.Options{})
	require.NoError(t, err)
	_, err = db.Admin().RepeatErase(ctx, []*ops.Receipt{receipt}, false, nil)
	require.NoError(t, err)
	left(db)
	problems, err := db.Admin().Check(ctx, nil)
	require.NoError(t, err)
	require.Empty(t, problems)
	require.NoError(t, db.Close())
}

// The preset year bounds the audit: after two years of daily contexts half of the bodies go, and every head still verifies.
func TestPresetYearBoundsTheAudit(t *testing.T) {
	ctx := t.Context()
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	db := open(t, ctxpage.Options{Clock: func() time.Time { now = now.Add(time.Second); return now }})
	s := db.Scope("acme")
	for i := range 40 {
		_, err := s.Put(ctx, ctxpage.Artefact{ID: "note-" + string(rune('a'+i%26)) + string(rune('a'+i/26)), Text: strings.Repeat("refunds and returns of the desk ", 3+i)})
		require.NoError(t, err)
	}
	for range 240 {
		now = now.Add(3 * 24 * time.Hour)
		_, err := s.Assemble(ctx, ctxpage.Query{Text: "how are refunds made today?", Budget: 3000})
		require.NoError(t, err)
	}
	bodies := func() (n, questions int) {
		for r, err := range db.Leaves(ctx, manifest.Filter{Type: manifest.TypeAssemble}) {
			require.NoError(t, err)
			if r.Pruned == nil {
				n++
			}
			if r.Question != "" {
				questions++
			}
		}
		return n, questions
	}
	_, err := db.Admin().Checkpoint(ctx)
	require.NoError(t, err)
	head, err := db.Head(ctx)
	require.NoError(t, err)
	require.NoError(t, db.Admin().Retention().Set(ctx, "", ops.Presets()["year"], "ann"))
	_, err = db.Admin().Retention().Run(ctx, ops.RunOptions{By: "ann"})
	require.NoError(t, err)
	n, questions := bodies()
	require.InDelta(t, 121, n, 2, "those of a year")
	require.Equal(t, n, questions)
	_, err = db.Manifests().Verify(ctx, &head, nil)
	require.NoError(t, err)
	v, err := s.Get(ctx, "note-aa")
	require.NoError(t, err)
	require.NotEmpty(t, v.Text, "contents stay")
}

// A version has the fields of its put alone, as Put says, and a reviewer is told what an approval would drop.
func TestReviewNamesWhatANewVersionDrops(t *testing.T) {
	ctx := t.Context()
	db := open(t, ctxpage.Options{})
	s := db.Scope("acme")
	_, err := s.Put(ctx, ctxpage.Artefact{
		ID: "policy", Text: "Refunds take 14 days.", ExpiresAt: time.Date(2090, 1, 1, 0, 0, 0, 0, time.UTC), Subject: "refunds", Tags: []string{"a", "b"}, Pinned: true,
		Meta: map[string]string{"owner": "kim"},
	})
	require.NoError(t, err)
	shown := func(a ctxpage.Artefact) []string {
		tx, err := s.Begin(ctx)
		require.NoError(t, err)
		require.NoError(t, tx.Put(ctx, a))
		var held *ctxpage.HeldError
		require.ErrorAs(t, tx.Commit(ctx, ctxpage.Verdict{Confidence: .1, By: "judge"}), &held)
		h, err := db.Review().Show(ctx, held.Batch)
		require.NoError(t, err)
		return h.Drops
	}
	require.Equal(t, []string{"acme:policy@1: expires 2090-01-01T00:00:00Z, subject refunds, pinned, tag b, meta owner=kim"},
		shown(ctxpage.Artefact{ID: "policy", Text: "Refunds take 10 days.", Tags: []string{"a"}}))
	require.Empty(t, shown(ctxpage.Artefact{ID: "new", Text: "Something else."}), "control: it replaces nothing")

	_, err = s.Put(ctx, ctxpage.Artefact{ID: "nothing"})
	require.ErrorIs(t, err, ctxpage.ErrInvalid, "an empty text")
	require.ErrorContains(t, err, "text")
}
