package storetest

import (
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

var reviewing = []clause{
	{"Stale", "a batch whose context was replaced, deleted or expired is held, or fails, or passes, as it was told", checkStale},
	{"Held", "a held batch is durable, listed, and invisible", checkHeld},
	{"Approve", "an approval applies what was held, once, and gives the same outcome again", checkApprove},
	{"ApproveConflict", "a held batch that conflicts, or went stale, is not approved and goes on waiting", checkApproveConflict},
	{"Reject", "a rejected batch writes nothing and cannot be approved", checkReject},
}

func (b *bench) review(action store.Action, from ulid.ULID) store.Batch {
	r := store.Batch{ID: b.id(), From: from, Action: action, Now: b.time(), Leaf: manifest.Record{By: "operator", Note: "seen"}}
	if action == store.ActReject {
		r.Leaf.Type = manifest.TypeReject
	} else {
		r.Leaf.Type = manifest.TypeApprove
	}
	return r
}

func (b *bench) hold(p store.Put) store.Batch {
	b.Helper()
	held := b.batch(p)
	held.Action, held.Reason = store.ActHold, "confidence 0.2"
	require.Equal(b, store.StatusHeld, b.commit(held).Status)
	return held
}

func checkStale(b *bench) {
	expires := b.fact("brief", "for an hour")
	expires.Artefact.ExpiresAt = b.time().Add(time.Hour)
	b.commit(b.batch(b.fact("rule", "one"), b.fact("going", "to go"), expires))
	context := []store.Seen{b.seen("rule"), b.seen("going"), b.seen("brief")}
	fresh := b.batch(b.fact("answer", "fresh"))
	fresh.Context = context
	require.Equal(b, store.StatusApplied, b.commit(fresh).Status)

	b.put("rule", "two")
	del := b.batch()
	del.Deletes = []string{"going"}
	b.commit(del)
	b.pass(2 * time.Hour)
	want := []store.Ref{{Scope: scope, ID: "rule", Page: 1, Version: 1}, {Scope: scope, ID: "going", Page: 1, Version: 1}, {Scope: scope, ID: "brief", Page: 1, Version: 1}}
	stale := func(on store.OnStale, text string) store.Batch {
		batch := b.batch(b.fact("answer", text))
		batch.Context, batch.OnStale = context, on
		return batch
	}
	_, err := b.st.Commit(b.ctx, stale(store.FailStale, "failed"))
	require.ErrorIs(b, err, store.ErrStaleContext)
	out := b.commit(stale(store.HoldStale, "held"))
	require.Equal(b, store.StatusHeld, out.Status)
	require.Equal(b, store.ReasonStaleContext, out.Reason)
	require.Equal(b, want, out.Stale)
	require.Equal(b, "fresh", b.text("answer"))
	out = b.commit(stale(store.AllowStale, "allowed"))
	require.Equal(b, store.StatusApplied, out.Status)
	require.Equal(b, want, out.Stale)
	require.Equal(b, "allowed", b.text("answer"))
}

func checkHeld(b *bench) {
	held := b.hold(b.fact("answer", "perhaps"))
	look := func() {
		b.absent("answer")
		require.Empty(b, b.hits(b.ask("perhap", "perhaps")))
		require.Equal(b, []string{held.ID.String()}, b.scan(store.ScanQuery{What: store.ScanHeld}))
		h, err := b.st.Held(b.ctx, held.ID)
		require.NoError(b, err)
		require.Equal(b, "confidence 0.2", h.Reason)
		require.Empty(b, h.Decided)
		require.Equal(b, "perhaps", h.Batch.Puts[0].Pages[0].Text)
	}
	look()
	b.crash()
	look()
	_, err := b.st.Held(b.ctx, b.id())
	require.ErrorIs(b, err, store.ErrNotFound)
}

func checkApprove(b *bench) {
	held := b.hold(b.fact("answer", "perhaps"))
	approve := b.review(store.ActApprove, held.ID)
	approve.Raise = true
	out := b.commit(approve)
	require.Equal(b, store.StatusApplied, out.Status)
	got := b.load(b.find("answer"))
	require.Equal(b, "perhaps", got.Text)
	require.Equal(b, store.HumanVerified, got.Head.Provenance)
	require.Equal(b, "writer", got.Head.Actor, "the writer stays the writer")
	b.put("answer", "newer")
	require.Equal(b, out, b.commit(b.review(store.ActApprove, held.ID)), "decided the same way before")
	require.Equal(b, "newer", b.text("answer"))
	_, err := b.st.Commit(b.ctx, b.review(store.ActReject, held.ID))
	require.ErrorIs(b, err, store.ErrReviewed)
	b.crash()
	h, err := b.st.Held(b.ctx, held.ID)
	require.NoError(b, err)
	require.Equal(b, "approved", h.Decided)
	require.Equal(b, "operator", h.By)
	require.Empty(b, b.scan(store.ScanQuery{What: store.ScanHeld}))
	require.Len(b, b.scan(store.ScanQuery{What: store.ScanHeld, All: true}), 1)
}

func checkApproveConflict(b *bench) {
	first := b.put("rule", "one")
	conflict := b.batch(b.fact("rule", "mine"))
	conflict.Action, conflict.Reason = store.ActHold, "look"
	conflict.Expect = []store.Precondition{{Ref: store.Ref{Scope: scope, ID: "rule"}, LSN: first.LSN}}
	b.commit(conflict)
	stale := b.batch(b.fact("answer", "from the rule"))
	stale.Action, stale.Reason, stale.Context = store.ActHold, "look", []store.Seen{b.seen("rule")}
	b.commit(stale)
	b.put("rule", "two")

	_, err := b.st.Commit(b.ctx, b.review(store.ActApprove, conflict.ID))
	require.ErrorIs(b, err, store.ErrConflict)
	_, err = b.st.Commit(b.ctx, b.review(store.ActApprove, stale.ID))
	require.ErrorIs(b, err, store.ErrStaleContext)
	require.Len(b, b.scan(store.ScanQuery{What: store.ScanHeld}), 2)
	force := b.review(store.ActApprove, stale.ID)
	force.Force = true
	b.commit(force)
	require.Equal(b, "from the rule", b.text("answer"))
	require.Equal(b, "two", b.text("rule"))
}

func checkReject(b *bench) {
	held := b.hold(b.fact("answer", "perhaps"))
	out := b.commit(b.review(store.ActReject, held.ID))
	require.Equal(b, store.StatusRejected, out.Status)
	b.absent("answer")
	_, err := b.st.Commit(b.ctx, b.review(store.ActApprove, held.ID))
	require.ErrorIs(b, err, store.ErrReviewed)
	_, err = b.st.Commit(b.ctx, b.review(store.ActReject, b.id()))
	require.ErrorIs(b, err, store.ErrNotFound)
}
