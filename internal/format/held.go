package format

import (
	"fmt"
	"strings"

	"github.com/oklog/ulid/v2"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/store"
)

// OutcomeRow is an outcome as the record of its commit and the rows have it. Bound is the digest of the batch's content
// (Batch.Bound): an id is no secret, so a caller that repeats it must also repeat the batch to learn how it ended.
type OutcomeRow struct {
	store.Outcome
	Bound   []byte
	Unknown []byte // fields of a later release
}

// outcomeVersion is the first byte of the row.
const outcomeVersion = 1

var outcomeRowFields = codec.Record[OutcomeRow]{
	Name: "the row of an outcome", Unknown: func(r *OutcomeRow) *[]byte { return &r.Unknown },
	Fields: []codec.Field[OutcomeRow]{
		codec.Inner(1, "Outcome", &outcomeFields, func(r *OutcomeRow) *store.Outcome { return &r.Outcome }),
		codec.Blob(2, "Bound", func(r *OutcomeRow) *[]byte { return &r.Bound }),
	},
}

// Encode makes the row; its unknown fields stay in it.
func (r *OutcomeRow) Encode() []byte {
	return outcomeRowFields.Row(outcomeVersion, r, 64+32*len(r.Refs))
}

// DecodeOutcome reads the row of an outcome.
func DecodeOutcome(row []byte) (r OutcomeRow, err error) {
	err = outcomeRowFields.ReadRow(row, outcomeVersion, &r)
	return r, err
}

// The row of a held batch: version · fields · proof.

// heldVersion is the version of the row. A higher one is refused.
const heldVersion = 1

// EncodeHeld makes the row of a held batch, without its proof.
func EncodeHeld(h *store.HeldBatch) []byte {
	e := codec.Encoder{B: []byte{heldVersion}}
	heldFields.Append(&e, h)
	return e.B
}

// DecodeHeld decodes the row of a held batch without comparing it with the audit.
func DecodeHeld(row []byte) (h store.HeldBatch, err error) {
	return readHeld(row, &heldFields)
}

// HeldState reads what a list needs to know of a held batch that it may not show, the scope and
// whether it is decided: reading the drafts takes much longer.
func HeldState(row []byte) (h store.HeldBatch, err error) {
	return readHeld(row, heldStateFields)
}

var heldStateFields = func() *codec.Record[store.HeldBatch] {
	r := heldFields.Only("Decided", "LSN", "Outcome")
	r.Fields[0] = codec.Inner(1, "Batch", batchFields.Only("Scope"), func(h *store.HeldBatch) *store.Batch { return &h.Batch })
	return r
}()

// readHeld reads version and fields of the row of a held batch, all of them or the few that fields
// lists.
func readHeld(row []byte, fields *codec.Record[store.HeldBatch]) (h store.HeldBatch, err error) {
	rest, _, err := CutProof(row)
	if err != nil {
		return h, err
	}
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
