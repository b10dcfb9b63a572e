package filestore_test

import (
	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/store"
)

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
