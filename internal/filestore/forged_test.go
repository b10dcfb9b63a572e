package filestore_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	. "github.com/ctxpage/ctxpage"
	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/dbtest"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/store"
	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
)

// A page that a version does not have is gone, whatever a manifest says.
func TestLoadOfAVersionWithoutThePage(t *testing.T) {
	db := openTest(t, dbtest.MemoryPath(t), Options{})
	scope := db.Scope("acme")
	for _, text := range []string{"one", "two"} {
		must(scope.Put(ctx, Artefact{ID: "a", Text: text}))(t)
	}
	for range 2 { // from the overlay, then from the file
		out := must(storeOf(db).Load(ctx, nil, []store.PageKey{{Num: 1, Version: 1}, {Num: 1, Version: 2}, {Num: 2, Version: 1}, {Num: 2, Version: 2}, {Num: 2, Version: 9}}, store.WantHead))(t)
		require.NoError(t, out[0].Err)
		require.NoError(t, out[3].Err)
		for _, i := range []int{1, 2, 4} {
			require.ErrorIs(t, out[i].Err, store.ErrGone)
		}
		must(db.Admin().Checkpoint(ctx))(t)
	}
}

// After a Commit nobody knows the end of, Rollback does not claim one.
func TestRollbackOfAnUnknownOutcome(t *testing.T) {
	db := openTest(t, dbtest.MemoryPath(t), Options{})
	s := inside(db).Engine
	tx := must(db.Scope("acme").Begin(ctx))(t)
	require.NoError(t, tx.Put(ctx, Artefact{ID: "a", Text: "t"}))
	_ = s.Fail(errors.New("the disk died"))
	require.ErrorIs(t, tx.Commit(ctx, Verdict{Confidence: 1, By: "checker"}), store.ErrOutcomeUnknown)
	leaves := dbtest.SizeOf(storeOf(db).Audit())
	require.ErrorIs(t, tx.Rollback(), store.ErrOutcomeUnknown)
	require.Equal(t, leaves, dbtest.SizeOf(storeOf(db).Audit()))
	require.ErrorIs(t, tx.Rollback(), store.ErrTxnDone)
	require.ErrorContains(t, db.Close(), "the disk died")
}

// Numbers in a forged file, with right checksums, are refused before anything as long as them is made.
func TestForgedNumbers(t *testing.T) {
	for name, forge := range map[string]func(meta *bbolt.Bucket) error{
		"page": func(meta *bbolt.Bucket) error {
			key := headKey(1, 1)
			row, err := codec.Unseal('m', key, slices.Clone(meta.Get(key)))
			if err != nil {
				return err
			}
			at := len(row) - len(bytes.SplitN(row, []byte("forged-id"), 2)[1]) + 1 // after the number of the page
			require.EqualValues(t, 1, row[at], "the tokens of the page")
			return meta.Put(key, codec.Seal('m', key, slices.Replace(row, at, at+1, binary.AppendVarint(nil, 1<<39)...)))
		},
		"artefact": func(meta *bbolt.Bucket) error {
			key := headKey(1, 1)
			row, err := codec.Unseal('m', key, slices.Clone(meta.Get(key)))
			if err != nil {
				return err
			}
			at := 7 // after version, kind, provenance, priority, flags, what is implied, and the scope
			require.EqualValues(t, 1, row[at])
			return meta.Put(key, codec.Seal('m', key, slices.Replace(row, at, at+1, binary.AppendUvarint(nil, 1<<31)...)))
		},
		"scope": func(meta *bbolt.Bucket) error {
			if err := meta.Delete(scopeKey(1)); err != nil {
				return err
			}
			return meta.Put(scopeKey(1<<31), codec.Seal('m', scopeKey(1<<31), []byte("acme")))
		},
		"group": func(meta *bbolt.Bucket) error {
			if err := meta.Delete(groupKey(1)); err != nil {
				return err
			}
			return meta.Put(groupKey(1<<39), codec.Seal('m', groupKey(1<<39), append([]byte{0, 0, 0, 1}, "talk"...)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			db := openTest(t, dbtest.MemoryPath(t), Options{})
			require.NoError(t, errOf(db.Scope("acme").Put(ctx, Artefact{ID: "forged-id", Text: "t", Group: "talk"})))
			require.NoError(t, db.Close())
			b := must(bbolt.Open(db.Path(), 0o600, nil))(t)
			require.NoError(t, b.Update(func(tx *bbolt.Tx) error { return forge(tx.Bucket(names.Meta)) }))
			require.NoError(t, b.Close())
			for _, ro := range []bool{true, false} {
				require.ErrorIs(t, errOf(Open(db.Path(), Options{ReadOnly: ro})), store.ErrCorrupt)
			}
		})
	}
}

// editHead changes a head row as an attacker would who can write the file: the proof at its end stays, so the row no longer
// has the digest that its leaf says. The caller seals the result. The other edit functions do the same to other rows.
func editHead(row []byte, change func(h *store.Head, scope *uint32)) ([]byte, error) {
	scope := uint32(0)
	h, err := format.DecodeHead(row, func(n uint32) string { scope = n; return "of that number" })
	if err != nil {
		return nil, err
	}
	change(h, &scope)
	_, p, err := format.CutHeadProof(row)
	return p.AppendHead(format.EncodeHead(nil, h, scope, format.EncodeCold(h))), err
}

// editHeld changes the row of a held batch and keeps its proof.
func editHeld(row []byte, change func(*store.HeldBatch)) ([]byte, error) {
	h, err := format.DecodeHeld(row)
	if err != nil {
		return nil, err
	}
	change(&h)
	_, p, err := format.CutProof(row)
	return p.Append(format.EncodeHeld(&h)), err
}

// editState changes the value of a state row and keeps its place in the audit.
func editState(key, sealed, value []byte) ([]byte, error) {
	body, err := format.StateBodyOf(key, sealed)
	if err != nil {
		return nil, err
	}
	return codec.Seal(format.TagState, key, format.StateBody(format.StateLSN(body), format.StateProof(body), value)), nil
}

// moveState makes the row of one key the row of another.
func moveState(key, sealed, to []byte) ([]byte, error) {
	body, err := format.StateBodyOf(key, sealed)
	return codec.Seal(format.TagState, to, body), err
}

// editOutcome changes the row of an outcome.
func editOutcome(row []byte, change func(*store.Outcome)) ([]byte, error) {
	r, err := format.DecodeOutcome(row)
	if err != nil {
		return nil, err
	}
	change(&r.Outcome)
	return r.Encode(), nil
}
