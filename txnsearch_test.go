package ctxpage

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A transaction finds its own drafts by their words, and not what they replace; nobody else finds them. What it finds
// is part of what it saw.
func TestTxnSearch(t *testing.T) {
	ctx := context.Background()
	db := openTest(t, filepath.Join(t.TempDir(), "agent.ctx"), Options{})
	defer db.Close()
	s := db.Scope("acme", WithActor("agent"))
	for id, text := range map[string]string{"policy": "the refund limit is 200", "hours": "the refund desk opens at noon"} {
		_, err := s.Put(ctx, Artefact{ID: id, Text: text})
		require.NoError(t, err)
	}
	tx, err := s.Begin(ctx)
	require.NoError(t, err)
	require.NoError(t, tx.Put(ctx, Artefact{ID: "policy", Text: "the refund limit is 400"}))
	hits, err := hitsOf(tx.Search(ctx, "refund limit", 10))
	require.NoError(t, err)
	texts := map[string]bool{}
	for _, h := range hits {
		texts[h.Text] = true
	}
	require.Equal(t, map[string]bool{"the refund limit is 400": true, "the refund desk opens at noon": true}, texts)
	hits, err = hitsOf(s.Search(ctx, "refund limit", 10))
	require.NoError(t, err)
	require.Equal(t, "the refund limit is 200", hits[0].Text)

	_, err = s.Put(ctx, Artefact{ID: "hours", Text: "the refund desk opens at nine"})
	require.NoError(t, err)
	var held *HeldError
	require.ErrorAs(t, tx.Commit(ctx, Verdict{Confidence: 1, By: "checker"}), &held)
	require.Equal(t, ReasonStaleContext, held.Reason)
	_, err = tx.Search(ctx, "refund", 1)
	require.ErrorIs(t, err, ErrTxnDone)
}
