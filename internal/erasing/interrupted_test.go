package erasing_test

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/erase"
)

// TestReceiptOfInterruptedErase: an erase that a later open finished is listed then, and gets its receipt.
func TestReceiptOfInterruptedErase(t *testing.T) {
	ctx := t.Context()
	path := filepath.Join(t.TempDir(), "agent.ctx")
	var broken error
	db, err := openFiles(path, nil, nil, func(string) error { return broken })
	require.NoError(t, err)
	_, err = db.Scope("acme").Put(ctx, ctxpage.Artefact{ID: "a", Text: "kettle", Subject: "ann"})
	require.NoError(t, err)
	broken = errors.New("interrupted")
	_, err = db.Erase(ctx, erase.Request{Subject: "ann", By: "desk", Reason: "asked"})
	require.ErrorIs(t, err, broken)
	list, err := db.Erasures(ctx)
	require.NoError(t, err)
	require.Empty(t, list, "the files may still have it")
	broken = nil
	require.NoError(t, db.Close())

	db, err = openFiles(path, nil, nil, nil)
	require.NoError(t, err)
	defer db.Close()
	list, err = db.Erasures(ctx)
	require.NoError(t, err)
	require.Len(t, list, 1)
	head, err := db.Head(ctx)
	require.NoError(t, err)
	r, err := erase.NewReceipt(ctx, db.Manifests(), list[0], head)
	require.NoError(t, err)
	require.NoError(t, r.Verify(&head))
	require.Equal(t, 1, r.Done.Artefacts)
}
