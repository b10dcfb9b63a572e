package ctxpage_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/listing"
	"github.com/ctxpage/ctxpage/internal/portable"
	"github.com/ctxpage/ctxpage/manifest"
)

// leafOf returns the newest leaf of the audit.
func newestLeaf(t *testing.T, db *ctxpage.DB) *manifest.Record {
	t.Helper()
	size, err := db.Manifests().Size(t.Context())
	require.NoError(t, err)
	leaf, err := db.Manifests().Leaf(t.Context(), size-1)
	require.NoError(t, err)
	return leaf
}

// A turn that was written from a context names its trace wherever it is read: in the window, in a recall, in an explanation
// and in an export, also after the file was opened again. What the user said has none.
func TestTurnsNameTheirContext(t *testing.T) {
	ctx := t.Context()
	path := t.TempDir() + "/agent.ctx"
	db, err := ctxpage.Open(path, ctxpage.Options{})
	require.NoError(t, err)
	s := db.Scope("acme/support")
	_, err = s.Put(ctx, ctxpage.Artefact{ID: "policy", Text: "Refunds take 14 days."})
	require.NoError(t, err)
	chat := s.Session("chat")
	_, err = chat.Append(ctx, ctxpage.Turn{Role: "user", Text: "How long do refunds take?"})
	require.NoError(t, err)
	a, err := s.Assemble(ctx, ctxpage.Query{Text: "How long do refunds take?", Budget: 2000, Session: "chat"})
	require.NoError(t, err)
	refs, err := chat.Append(ctx,
		ctxpage.Turn{Role: "user", Text: "Be quick."},
		ctxpage.Turn{Role: "assistant", Text: "Fourteen days.", Trace: a.Trace, Subject: "dana"})
	require.NoError(t, err)
	id := refs[1].ID

	check := func(db *ctxpage.DB) {
		s := db.Scope("acme/support")
		chat := s.Session("chat")
		w, err := chat.Inspect(ctx)
		require.NoError(t, err)
		var traces []string
		for _, turn := range w.Turns {
			traces = append(traces, turn.Trace)
		}
		require.Equal(t, []string{"", "", a.Trace}, traces)
		v, err := chat.Recall(ctx, id)
		require.NoError(t, err)
		require.Equal(t, a.Trace, v.Trace)
		require.Equal(t, "dana", v.Subject)
		v, err = s.Get(ctx, id)
		require.NoError(t, err)
		require.Equal(t, a.Trace, v.Trace)
		in, err := chat.Inspect(ctx, id, refs[0].ID)
		require.NoError(t, err)
		require.Contains(t, in.Turn[id], "written from the context of trace "+a.Trace)
		require.NotContains(t, in.Turn[refs[0].ID], "written from", "the user was given no context")
		var out strings.Builder
		_, err = db.Admin().Export(ctx, &out, portable.ExportOptions{})
		require.NoError(t, err)
		require.Equal(t, 1, strings.Count(out.String(), `"trace":"`+a.Trace+`","artefact"`), out.String())

		w2, err := db.Why(ctx, v.Trace, ctxpage.Ref{})
		require.NoError(t, err)
		told := strings.Join(w2.Steps, "\n")
		require.Contains(t, told, "asked in acme/support by acme/support")
		require.Contains(t, told, "in session chat")
		require.Contains(t, told, "in: acme/support:policy#1@1, full")
		require.Equal(t, "How long do refunds take?", w2.Question)
	}
	check(db)
	require.NoError(t, db.Close())
	db, err = ctxpage.Open(path, ctxpage.Options{})
	require.NoError(t, err)
	check(db)
	require.NoError(t, db.Close())
}

// A memory that an agent wrote names the context of its draft, also when it was held and approved.
func TestMemoriesNameTheirContext(t *testing.T) {
	ctx := t.Context()
	db := open(t, ctxpage.Options{})
	s := db.Scope("acme")
	_, err := s.Put(ctx, ctxpage.Artefact{ID: "policy", Text: "Refunds take 14 days."})
	require.NoError(t, err)
	v, err := s.Get(ctx, "policy")
	require.NoError(t, err)
	require.Empty(t, v.Trace, "the host put it")
	a, err := s.Assemble(ctx, ctxpage.Query{Text: "refunds", Budget: 1000})
	require.NoError(t, err)
	for id, confidence := range map[string]float64{"sure": .9, "unsure": .1} {
		tx, err := db.Scope("acme", ctxpage.Gated()).Resume(ctx, a.Trace)
		require.NoError(t, err)
		require.NoError(t, tx.Put(ctx, ctxpage.Artefact{ID: id, Text: "Refunds take two weeks, " + id}))
		if err = tx.Commit(ctx, ctxpage.Verdict{Confidence: confidence, By: "judge"}); confidence < .7 {
			var held *ctxpage.HeldError
			require.ErrorAs(t, err, &held)
			_, err = db.Review().Approve(ctx, held.Batch, ctxpage.Approval{By: "kim"})
		}
		require.NoError(t, err)
		v, err := s.Get(ctx, id)
		require.NoError(t, err)
		require.Equal(t, a.Trace, v.Trace, id)
	}
}

// Every read leaves a manifest: a replay and a shown draft, too. What returns no contents leaves none.
func TestReplayAndReviewLeaveManifests(t *testing.T) {
	ctx := t.Context()
	db := open(t, ctxpage.Options{})
	s := db.Scope("acme")
	_, err := s.Put(ctx, ctxpage.Artefact{ID: "policy", Text: "Refunds take 14 days."})
	require.NoError(t, err)
	a, err := s.Assemble(ctx, ctxpage.Query{Text: "refunds", Budget: 1000})
	require.NoError(t, err)
	tx, err := s.Begin(ctx)
	require.NoError(t, err)
	require.NoError(t, tx.Put(ctx, ctxpage.Artefact{ID: "draft", Text: "Perhaps."}))
	var held *ctxpage.HeldError
	require.ErrorAs(t, tx.Commit(ctx, ctxpage.Verdict{Confidence: .1, By: "judge"}), &held)

	leaves := func() uint64 {
		n, err := db.Manifests().Size(ctx)
		require.NoError(t, err)
		return n
	}
	was := leaves()
	for _, read := range []struct {
		what, actor, parent string
		do                  func() error
	}{
		{"replay", "operator", a.Trace, func() error { _, err := db.Replay(ctx, a.Trace); return err }},
		{"replay", "ann", a.Trace, func() error {
			_, err := db.Scope("acme", ctxpage.WithActor("ann"), ctxpage.Gated()).Replay(ctx, a.Trace)
			return err
		}},
		{"review", "operator", held.Batch, func() error { _, err := db.Review().Show(ctx, held.Batch); return err }},
	} {
		require.NoError(t, read.do())
		require.Equal(t, was+1, leaves(), read.what)
		leaf := newestLeaf(t, db)
		require.Equal(t, []any{manifest.TypeRecall, read.what, "acme", read.actor, read.parent}, []any{leaf.Type, leaf.Action, leaf.Scope, leaf.Actor, leaf.Parent})
		require.Positive(t, leaf.Tokens)
		if read.what == "replay" {
			require.Len(t, leaf.Pages, 1)
			require.Equal(t, a.Manifest.Pages[0].Num, leaf.Pages[0].Num)
			require.Equal(t, a.Manifest.Rendered, leaf.Rendered)
		}
		was++
	}
	_, err = db.Scope("other").Replay(ctx, a.Trace)
	require.ErrorIs(t, err, ctxpage.ErrNotFound, "a handle replays its own contexts alone")
	require.NoError(t, db.Replayable(ctx, a.Trace))
	list, err := listing.Collect(db.Review().Batches(ctx, "acme", false))
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Empty(t, list[0].Writes[0].Text, "a list has no contents")
	require.Empty(t, list[0].Writes[0].Pages[0].Text)
	require.Positive(t, list[0].Writes[0].Tokens)
	require.Equal(t, was, leaves())
	_, err = s.Resume(ctx, a.Trace)
	require.NoError(t, err, "a replay does not join the read set")
}

// Leaves lists the audit by what somebody remembers of a call.
func TestLeavesByFilter(t *testing.T) {
	ctx := t.Context()
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	db := open(t, ctxpage.Options{Clock: func() time.Time { now = now.Add(time.Minute); return now }})
	for _, scope := range []string{"acme", "globex"} {
		s := db.Scope(scope, ctxpage.WithActor("bot-"+scope))
		for _, chat := range []string{"one", "two"} {
			_, err := s.Session(chat).Append(ctx, ctxpage.Turn{Role: "user", Text: "Hello."})
			require.NoError(t, err)
		}
		_, err := s.Put(ctx, ctxpage.Artefact{ID: "policy", Text: "Refunds take 14 days."})
		require.NoError(t, err)
		for _, chat := range []string{"one", "two"} {
			_, err = s.Assemble(ctx, ctxpage.Query{Text: "refunds in " + chat, Budget: 1000, Session: chat})
			require.NoError(t, err)
		}
	}
	questions := func(f manifest.Filter) (out []string) {
		f.Type = manifest.TypeAssemble
		for r, err := range db.Leaves(ctx, f) {
			require.NoError(t, err)
			out = append(out, r.Scope+" "+r.Question)
		}
		return out
	}
	require.Equal(t, []string{"globex refunds in two", "globex refunds in one", "acme refunds in two", "acme refunds in one"}, questions(manifest.Filter{}))
	require.Equal(t, []string{"globex refunds in two", "acme refunds in two"}, questions(manifest.Filter{Session: "two"}))
	require.Equal(t, []string{"acme refunds in two", "acme refunds in one"}, questions(manifest.Filter{Actor: "bot-acme"}))
	require.Equal(t, []string{"acme refunds in one"}, questions(manifest.Filter{Scope: "acme", Session: "one"}))
	var times []time.Time
	for r, err := range db.Leaves(ctx, manifest.Filter{Type: manifest.TypeAssemble}) {
		require.NoError(t, err)
		times = append(times, time.UnixMicro(r.Time))
	}
	require.Equal(t, []string{"globex refunds in one", "acme refunds in two"}, questions(manifest.Filter{Since: times[2], Until: times[0]}))
}
