package engine

import (
	"errors"
	"fmt"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/store"
)

// The row of a held batch.
//
//	old        msgpack                             no digest in the audit
//	format 2   heldMark · msgpack · proof
//	now        heldMark · version · fields · proof
//
// A msgpack map begins with a byte above all versions, so the second byte tells the last two apart.

const (
	heldVersion = 1
	heldPacked  = 0x80 // from here on it is the first byte of msgpack
)

func encodeHeld(h *store.HeldBatch) []byte {
	e := codec.Encoder{B: []byte{heldVersion}}
	heldFields.Append(&e, h)
	return e.B
}

// DecodeHeld decodes the row of a held batch without comparing it with the audit.
func DecodeHeld(row []byte) (h store.HeldBatch, err error) {
	rest, _, _, err := cutHeld(row)
	if err != nil {
		return h, err
	}
	if len(rest) > 0 && rest[0] >= heldPacked {
		err = codec.Unpack(rest, &h)
		return h, err
	}
	return readHeld(rest, &heldFields)
}

// heldState reads what a list needs to know of a held batch that it may not show, the scope and whether it is decided:
// reading the drafts takes much longer.
func heldState(row []byte) (h store.HeldBatch, err error) {
	rest, _, _, err := cutHeld(row)
	if err != nil {
		return h, err
	}
	return decodeHeldState(rest)
}

var heldStateFields = func() *codec.Record[store.HeldBatch] {
	r := heldFields.Only("Decided", "LSN", "Outcome")
	r.Fields[0] = codec.Inner(1, "Batch", batchFields.Only("Scope"), func(h *store.HeldBatch) *store.Batch { return &h.Batch })
	return r
}()

// decodeHeldState is heldState of a row without mark and proof.
func decodeHeldState(rest []byte) (h store.HeldBatch, err error) {
	if len(rest) == 0 || rest[0] < heldPacked {
		return readHeld(rest, heldStateFields)
	}
	var old struct {
		Batch   struct{ Scope string }
		Decided string
		LSN     uint64
		Outcome struct{ LSN uint64 }
	}
	err = codec.Unpack(rest, &old)
	h.Batch.Scope, h.Decided, h.LSN, h.Outcome.LSN = old.Batch.Scope, old.Decided, old.LSN, old.Outcome.LSN
	return h, err
}

func readHeld(rest []byte, fields *codec.Record[store.HeldBatch]) (h store.HeldBatch, err error) {
	d := codec.Decoder{B: rest}
	switch v := d.U8(); {
	case v == 0:
		return h, codec.ErrMalformed
	case v > heldVersion:
		return h, fmt.Errorf("%w: held batch of version %d, this program reads up to %d", codec.ErrNewer, v, heldVersion)
	}
	fields.Read(&d, &h)
	return h, d.Err
}

// approvable refuses a batch that says more than this program understands: applied without it, that would be lost. Fields
// of its artefacts are kept with them (store.Artefact.Unknown).
func approvable(b *store.Batch) error {
	unknown := len(b.Unknown)
	for i := range b.Puts {
		unknown += len(b.Puts[i].Unknown)
	}
	if unknown == 0 {
		return nil
	}
	return errors.New("it was held by a later release and has fields that this one does not know; approve it with that release, or reject it")
}
