package engine

import (
	"testing"
	"time"

	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
)

// unknownField is one that no list of fields has.
var unknownField = []byte{0xff, 0x7f, 2, 'h', 'i'}

// A held batch that has fields of a later release is not approved by this one, which would apply it without them. It can
// be rejected. The control has none, and a field of an artefact is no reason: it is kept with the artefact.
func TestApprovalOfUnknownFields(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(*store.Batch)
		refused bool
	}{
		"of the batch":    {func(b *store.Batch) { b.Unknown = unknownField }, true},
		"of a put":        {func(b *store.Batch) { b.Puts[0].Unknown = unknownField }, true},
		"of an artefact":  {func(b *store.Batch) { b.Puts[0].Artefact.Unknown = unknownField }, false},
		"none: a control": {func(*store.Batch) {}, false},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMemory(t, time.Now)
			held := m.batch("acme", store.Artefact{ID: "answer", Kind: store.KindFact, Text: "perhaps"})
			held.Action, held.Reason = store.ActHold, "look at it"
			c.change(&held)
			out := must(m.Commit(t.Context(), held))(t)
			require.Equal(t, store.StatusHeld, out.Status)
			review := func(a store.Action) error {
				b := m.batch("acme")
				b.From, b.Action, b.Leaf = held.ID, a, manifest.Record{By: "ann"}
				_, err := m.Commit(t.Context(), b)
				return err
			}
			before := m.Mark().LSN
			err := review(store.ActApprove)
			if !c.refused {
				require.NoError(t, err)
				l := must(m.Resolve(t.Context(), store.Scopes{"acme"}, store.Ref{ID: "answer"}))(t)
				got := must(m.Load(t.Context(), nil, l.Pages, store.WantHead))(t)
				require.Equal(t, held.Puts[0].Artefact.Unknown, got[0].Head.Artefact.Unknown)
				return
			}
			require.ErrorIs(t, err, store.ErrNewerFormat)
			require.ErrorContains(t, err, "later release")
			require.ErrorContains(t, err, held.ID.String())
			require.Equal(t, before, m.Mark().LSN)
			require.ErrorIs(t, errOf(m.Resolve(t.Context(), store.Scopes{"acme"}, store.Ref{ID: "answer"})), store.ErrNotFound)
			h := must(m.Held(t.Context(), held.ID))(t)
			require.Empty(t, h.Decided, "it still waits")
			require.NoError(t, review(store.ActReject))
		})
	}
}
