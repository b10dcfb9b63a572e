package ctxpage_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	. "github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/listing"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// A message that a plain write puts into a group begins a session, which is listed as one that was appended to. A write does not
// undo what was decided about a session.
func TestPutBeginsSession(t *testing.T) {
	db := open(t, Options{})
	s := db.Scope("acme/ann")
	turn := Artefact{ID: "m1", Kind: KindMessage, Role: "user", Text: "which tea?", Group: "chat-1", Seq: 1}
	put(t, s, turn)
	put(t, s, Artefact{ID: "f1", Text: "a fact in a group", Group: "notes"})
	list, err := listing.Collect(s.Sessions(ctx))
	require.NoError(t, err)
	require.Equal(t, []string{"chat-1"}, list)
	put(t, s, Artefact{ID: "m2", Kind: KindMessage, Role: "assistant", Text: "green", Group: "chat-1", Seq: 2})
	_, err = s.Session("chat-1").Append(ctx, Turn{Role: "user", Text: "why?"})
	require.NoError(t, err)
	require.NoError(t, s.Update(ctx, func(tx *Txn) error {
		turn.ID, turn.Group = "m3", "chat-2"
		return tx.Put(ctx, turn)
	}))
	s = reopen(t, db, Options{}).Scope("acme/ann")
	list, err = listing.Collect(s.Sessions(ctx))
	require.NoError(t, err)
	require.Equal(t, []string{"chat-1", "chat-2"}, list)
	w, err := s.Session("chat-1").Inspect(ctx)
	require.NoError(t, err)
	require.Len(t, w.Turns, 3)
}

// Raise gives the artefacts of a selection a higher provenance, so that a search shows them. The audit says by whom and why.
func TestRaise(t *testing.T) {
	db := open(t, Options{})
	s := db.Scope("acme/ann")
	for id, text := range map[string]string{"a1": "Ann likes tea in the morning", "a2": "tea is bought at the harbour every Friday", "b1": "the cupboard above the stove holds tea"} {
		put(t, s, Artefact{ID: id, Kind: KindFact, Text: text, Provenance: Scratch, Tags: []string{id[:1]}, Meta: map[string]string{"k": id}})
	}
	put(t, s, Artefact{ID: "m1", Kind: KindMessage, Role: "assistant", Text: "green tea", Group: "chat", Seq: 1})
	shown := func(opts ...ReadOption) (n int, below string) {
		found, err := s.Search(ctx, "tea", 10, opts...)
		require.NoError(t, err)
		return len(found.Hits), found.Below()
	}
	n, below := shown()
	require.Zero(t, n)
	require.Contains(t, below, "matches below the provenance floor: 4")
	n, below = shown(WithFloor(Scratch))
	require.Equal(t, 3, n, "the turn is found in its session only")
	require.Empty(t, below)

	r := Raise{To: Validated, By: "bob", Why: "read them", Where: Filter{TagsAll: []string{"a"}}, DryRun: true}
	dry, err := db.Admin().Raise(ctx, "acme/ann", r)
	require.NoError(t, err)
	require.Len(t, dry.Refs, 2)
	n, _ = shown()
	require.Zero(t, n, "a dry run writes nothing")
	r.DryRun = false
	did, err := db.Admin().Raise(ctx, "acme/ann", r)
	require.NoError(t, err)
	require.Len(t, did.Refs, 2)
	v := get(t, s, "a1")
	require.Equal(t, Validated, v.Provenance)
	require.Equal(t, map[string]string{"k": "a1"}, v.Meta, "everything else is as it was")
	var last manifest.Record
	require.NoError(t, store.EachRecord(ctx, db.Manifests(), 0, dbtest.SizeOf(db.Manifests()), false, func(r *manifest.Record) error {
		if r.Type == manifest.TypeCommit {
			last = *r
		}
		return nil
	}))
	require.Equal(t, []string{"bob", "read them", "raised to validated"}, []string{last.By, last.Note, last.Reason})
	again, err := db.Admin().Raise(ctx, "acme/ann", r)
	require.NoError(t, err)
	require.Equal(t, Raised{Refs: []Ref{}, Above: 2}, *again)
	n, below = shown()
	require.Equal(t, 2, n)
	require.Contains(t, below, ": 2")

	_, err = db.Admin().Raise(ctx, "acme/ann", Raise{To: HumanVerified, By: "bob", IDs: []string{"m1"}})
	require.NoError(t, err)
	turns, err := listing.Collect(s.Session("chat").Turns(ctx, 0))
	require.NoError(t, err)
	require.Len(t, turns, 1, "a raised turn stays in its session")
	_, err = db.Admin().Raise(ctx, "acme/ann", Raise{To: Validated, By: "bob", IDs: []string{"none"}})
	require.ErrorIs(t, err, ErrNotFound)
	for _, bad := range []Raise{{To: Validated}, {To: Scratch, By: "bob"}, {By: "bob"}} {
		_, err = db.Admin().Raise(ctx, "acme/ann", bad)
		require.ErrorIs(t, err, ErrInvalid)
	}
}
