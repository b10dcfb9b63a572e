package ctxpage

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/manifest"
)

// What a cut is made from is worked out once for a page in memory, and counted with it.
func TestPartsStayWithTheFrame(t *testing.T) {
	ctx := context.Background()
	const limit = 40 << 10
	db := openTest(t, filepath.Join(t.TempDir(), "agent.ctx"), Options{WorkingSet: limit})
	defer db.Close()
	s := db.Scope("acme")
	for i := range 30 {
		_, err := s.Put(ctx, Artefact{ID: fmt.Sprint("policy-", i), Kind: KindChunk, Text: fmt.Sprint(i, " ", strings.Repeat(refundPage, 3))})
		require.NoError(t, err)
	}
	look := func(topK int) *Assembly {
		a, err := s.Assemble(ctx, Query{Text: "refund limit", Budget: 330, TopK: topK})
		require.NoError(t, err)
		return a
	}
	first := look(1)
	require.Equal(t, manifest.FormRange, first.Blocks[0].Form)
	f := db.table.slot(first.Blocks[0].Num).Load()
	made := f.parts.Load()
	require.NotNil(t, made)
	require.Equal(t, int64(len(f.text))+frameOverhead+made.Bytes(), f.bytes)
	require.Equal(t, f.bytes, db.table.stats().Bytes)
	again := look(1)
	require.Equal(t, first.Text(), again.Text())
	require.Same(t, made, f.parts.Load())
	for range 3 {
		look(30) // more than there is room for
		require.LessOrEqual(t, db.table.stats().Bytes, int64(limit))
	}
	require.Positive(t, db.table.stats().Evictions)
}

const refundPage = "# Refunds\n\nThis page tells how refunds are made at the desk. " +
	"Mr. Lund wrote it in May. The coffee machine is on the second floor. " +
	"A refund goes back to the card that was charged. The refund limit for agents is $400 per case. " +
	"Above the limit a manager decides about the refund. Lunch is at noon. " +
	"Please water the plants on Fridays. Refunds are booked the same day. Parking is free on Sundays. " +
	"The printer needs paper of the heavier kind.\n"
