package ctxpage

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/store"
)

func TestKindDefaults(t *testing.T) {
	for _, c := range []struct {
		a          Artefact
		kind       Kind
		provenance Provenance
		priority   Priority
	}{
		{Artefact{}, KindFact, Validated, PriorityHigh},
		{Artefact{Source: "file:/x"}, KindChunk, Chunk, PriorityMedium},
		{Artefact{Role: "user"}, KindMessage, Chunk, PriorityMedium},
		{Artefact{Role: "assistant"}, KindMessage, Scratch, PriorityMedium},
		{Artefact{Role: "tool", Source: "file:/x"}, KindMessage, Tool, PriorityMedium},
		{Artefact{Kind: KindSystem}, KindSystem, Chunk, PriorityCritical},
		{Artefact{Kind: KindTool}, KindTool, Tool, PriorityMedium},
		{Artefact{Kind: KindScratch}, KindScratch, Scratch, PriorityLow},
		{Artefact{Kind: KindSummary}, KindSummary, Validated, PriorityMedium},
		{Artefact{Kind: KindFact, Provenance: Tool, Priority: PriorityLow}, KindFact, Tool, PriorityLow},
	} {
		a := c.a
		a.KindDefaults()
		require.Equal(t, fmt.Sprint(c.kind, c.provenance, c.priority), fmt.Sprint(a.Kind, a.Provenance, a.Priority), "%+v", c.a)
	}
	for k := KindAuto; k <= KindSummary; k++ {
		text, err := k.MarshalText()
		require.NoError(t, err)
		var back Kind
		require.NoError(t, back.UnmarshalText(text))
		require.Equal(t, k, back)
	}
	_, err := ParseKind("page")
	require.ErrorIs(t, err, ErrInvalid)
}

// One transaction may write so much and no more; what it replaces of its own is not counted twice.
func TestTransactionLimits(t *testing.T) {
	db, err := Open(t.TempDir()+"/agent.ctx", Options{})
	require.NoError(t, err)
	defer db.Close()
	tx, err := db.Scope("acme").Begin(t.Context())
	require.NoError(t, err)
	require.NoError(t, tx.Put(t.Context(), Artefact{ID: "x", Text: strings.Repeat("x", 10)}))
	tx.bytes = store.MaxTxnBytes - 10
	require.NoError(t, tx.Put(t.Context(), Artefact{ID: "x", Text: strings.Repeat("y", 20)}), "ten of it go")
	require.Equal(t, store.MaxTxnBytes, tx.bytes)
	require.ErrorIs(t, tx.Put(t.Context(), Artefact{ID: "y", Text: "y"}), ErrInvalid)
	require.NoError(t, tx.Delete(t.Context(), "x"))
	require.NoError(t, tx.Put(t.Context(), Artefact{ID: "y", Text: "y"}))
	require.NoError(t, tx.Rollback())

	err = db.Scope("acme").Update(t.Context(), func(tx *Txn) error {
		for i := range store.MaxTxnWrites {
			require.NoError(t, tx.Put(t.Context(), Artefact{ID: fmt.Sprint(i), Text: "t"}))
		}
		require.NoError(t, tx.Put(t.Context(), Artefact{ID: "0", Text: "again"}), "the same artefact is no more")
		return tx.Put(t.Context(), Artefact{ID: "one more", Text: "t"})
	})
	require.ErrorIs(t, err, ErrInvalid)
}
