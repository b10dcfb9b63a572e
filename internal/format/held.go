package format

import (
	"fmt"
	"strings"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/store"
	"github.com/oklog/ulid/v2"
)

// The row of a held batch.
//
//	old        msgpack                             no digest in the audit
//	format 2   HeldMark · msgpack · proof
//	now        HeldMark · version · fields · proof
//
// A msgpack map begins with a byte above all versions, so the second byte tells the last two apart.

// Versions of the row of a held batch. A higher one is refused.
const (
	heldVersion = 1
	heldPacked  = 0x80 // from here on it is the first byte of msgpack
)

// EncodeHeld makes the row of a held batch, without mark and proof.
func EncodeHeld(h *store.HeldBatch) []byte {
	e := codec.Encoder{B: []byte{heldVersion}}
	heldFields.Append(&e, h)
	return e.B
}

// DecodeHeld decodes the row of a held batch without comparing it with the audit.
func DecodeHeld(row []byte) (h store.HeldBatch, err error) {
	rest, _, _, err := CutHeld(row)
	if err != nil {
		return h, err
	}
	if len(rest) > 0 && rest[0] >= heldPacked {
		err = codec.Unpack(rest, &h)
		return h, err
	}
	return readHeld(rest, &heldFields)
}

// HeldState reads what a list needs to know of a held batch that it may not show, the scope and
// whether it is decided: reading the drafts takes much longer.
func HeldState(row []byte) (h store.HeldBatch, err error) {
	rest, _, _, err := CutHeld(row)
	if err != nil {
		return h, err
	}
	return DecodeHeldState(rest)
}

var heldStateFields = func() *codec.Record[store.HeldBatch] {
	r := heldFields.Only("Decided", "LSN", "Outcome")
	r.Fields[0] = codec.Inner(1, "Batch", batchFields.Only("Scope"), func(h *store.HeldBatch) *store.Batch { return &h.Batch })
	return r
}()

// DecodeHeldState is HeldState of a row without mark and proof.
func DecodeHeldState(rest []byte) (h store.HeldBatch, err error) {
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

// readHeld reads version and fields of the row of a held batch, all of them or the few that fields
// lists.
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

// HeldMark begins the row of a held batch that has a digest; no msgpack begins with it.
const HeldMark = 0xc1

// CutHeld parts the row of a held batch from its proof; ok is false for one that has none.
func CutHeld(row []byte) (rest []byte, p Proof, ok bool, err error) {
	if len(row) == 0 || row[0] != HeldMark {
		return row, p, false, nil
	}
	rest, p, err = CutProof(row[1:])
	return rest, p, true, err
}

// HeldDigest covers the row of a held batch and its id.
func HeldDigest(salt, id, row []byte) [32]byte {
	return store.SaltedMAC(salt, func(b []byte) []byte {
		e := codec.Encoder{B: b}
		e.Str("held")
		e.Bytes(id)
		e.Raw(row)
		return e.B
	})
}

// ReviewGonePrefix begins the keys of state rows, always without a value, that delete a held batch.
const ReviewGonePrefix = "\x00held/"

// GoneReview is the batch that a state row deletes.
func GoneReview(key string) (id ulid.ULID, ok bool) {
	rest, ok := strings.CutPrefix(key, ReviewGonePrefix)
	if !ok || len(rest) != len(id) {
		return id, false
	}
	return ulid.ULID([]byte(rest)), true
}
