package format

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/store"
)

// Rows of the catalogue are hand-coded: a million of them are read at every open, and only their fixed part is looked
// at then (FORMAT.md). What follows it are fields with tags (fields.go). Other rows are msgpack, decoded
// only after a scan of its lengths: five bytes can drive a msgpack decoder out of memory.

// Versions of a head row. A higher one is refused (codec.ErrNewer).
const (
	RowVersionOld    = 1 // ends with its cold part, msgpack, and the audit has no digest of it
	rowVersionPacked = 2 // has a cold part with a length, msgpack, then its proof
	RowVersion       = 3 // has tagged fields, then its proof
)

// Flags of a head row.
const (
	FlagPinned = 1 << iota
	FlagDeleted
	FlagSourced
	FlagSupersedes // its cold part names artefacts that it replaces
	FlagGone       // gc dropped the version; of a page column: no version has it any more
	FlagFloor      // there are no rows of the versions before it any more
	FlagForgotten  // in the log only: all rows of the artefact go

	flagsKnown = 1<<iota - 1
)

// Hot is the part of a head row that the catalogue keeps.
type Hot struct {
	Kind       store.Kind
	Provenance store.Provenance
	priority   store.Priority
	Flags      uint8
	Scope      uint32
	Art        uint64
	Version    uint32
	LSN        uint64
	PutAt      int64
	AsOf       int64
	Expires    int64
	Group      uint64
	Seq        int64
	ID         []byte // borrowed from the row
	Facts      uint32 // of what follows its page rows, once it was looked at
}

// PageRowBytes is the length of a page row.
const PageRowBytes = 8 + 4 + 8 + 4 + 4 + 4 + 8 + store.DigestSaltSize + 32

// HeadRowSize is at least the size of a head's row, bytes.
func HeadRowSize(h *store.Head, coldBytes []byte) int {
	return 90 + len(h.ID) + len(h.Rows)*PageRowBytes + len(coldBytes) + ProofSize
}

// EncodeHead appends the row of a head without its proof. coldBytes is what EncodeCold gave before the sequencer was
// entered.
func EncodeHead(b []byte, h *store.Head, scope uint32, coldBytes []byte) []byte {
	e := codec.Encoder{B: b}
	e.U8(RowVersion)
	e.U8(uint8(h.Kind))
	e.U8(uint8(h.Provenance))
	e.U8(uint8(h.Priority))
	e.U8(flagsOf(h))
	e.U32(scope)
	e.U64(h.Art)
	e.U32(h.Version)
	e.U64(h.LSN)
	e.I64(codec.Micros(h.PutAt))
	e.I64(codec.Micros(h.CurrentAsOf))
	e.I64(codec.Micros(h.ExpiresAt))
	e.U64(h.GroupNum)
	e.I64(h.Seq)
	e.Str(h.ID)
	e.Count(len(h.Rows))
	for i := range h.Rows {
		encodePageRow(&e, &h.Rows[i])
	}
	e.Raw(coldBytes)
	return e.B
}

// flagsOf returns the flags of a head. It runs for every put, so it makes no table of them.
func flagsOf(h *store.Head) (flags uint8) {
	if h.Pinned {
		flags |= FlagPinned
	}
	if h.Deleted {
		flags |= FlagDeleted
	}
	if h.Artefact.Source != "" {
		flags |= FlagSourced
	}
	if len(h.Supersedes) > 0 {
		flags |= FlagSupersedes
	}
	if h.Gone {
		flags |= FlagGone
	}
	if h.Floor {
		flags |= FlagFloor
	}
	if h.Forgotten {
		flags |= FlagForgotten
	}
	return flags
}

func encodePageRow(e *codec.Encoder, r *store.PageRow) {
	e.U64(r.Num)
	e.U32(r.Version)
	e.U64(r.LSN)
	e.U32(r.Tokens)
	e.U32(r.Bytes)
	e.U32(0) // was the number of terms; nobody reads it
	e.U64(r.Hash)
	e.Raw(r.Salt[:])
	e.Raw(r.Digest[:])
}

func decodePageRow(d *codec.Decoder) (r store.PageRow) {
	r.Num = d.U64()
	r.Version = d.U32()
	r.LSN = d.U64()
	r.Tokens = d.U32()
	r.Bytes = d.U32()
	d.U32() // see encodePageRow
	r.Hash = d.U64()
	copy(r.Salt[:], d.Take(store.DigestSaltSize))
	copy(r.Digest[:], d.Take(32))
	return r
}

// DecodeHot reads the part that the catalogue keeps and leaves the decoder before the page rows.
func DecodeHot(d *codec.Decoder) (h Hot) {
	switch v := d.U8(); {
	case v > RowVersion:
		d.FailAs(fmt.Errorf("%w: head row of version %d, this program reads up to %d", codec.ErrNewer, v, RowVersion))
		return h
	case v == 0:
		d.Fail()
		return h
	}
	h.Kind = store.Kind(d.U8())
	h.Provenance = store.Provenance(d.U8())
	h.priority = store.Priority(d.U8())
	if h.Flags = d.U8(); h.Flags > flagsKnown {
		d.FailAs(fmt.Errorf("%w: head row with flags %#x", codec.ErrNewer, h.Flags))
	}
	h.Scope = d.U32()
	h.Art = d.U64()
	h.Version = d.U32()
	h.LSN = d.U64()
	h.PutAt = d.I64()
	h.AsOf = d.I64()
	h.Expires = d.I64()
	h.Group = d.U64()
	h.Seq = d.I64()
	h.ID = d.Bytes()
	return h
}

// DecodeRows reads the page rows, into the memory of rows.
func DecodeRows(d *codec.Decoder, rows []store.PageRow) []store.PageRow {
	n := d.Count(PageRowBytes)
	rows = slices.Grow(rows[:0], n)
	for range n {
		rows = append(rows, decodePageRow(d))
	}
	return rows
}

// DecodeHead reads a whole row. scopeName resolves the number of a scope.
func DecodeHead(b []byte, scopeName func(uint32) string) (*store.Head, error) {
	d := codec.Decoder{B: b}
	t := DecodeHot(&d)
	rows := DecodeRows(&d, nil)
	if d.Err != nil {
		return nil, d.Err
	}
	h := &store.Head{
		Scope: scopeName(t.Scope), Art: t.Art, Version: t.Version, LSN: t.LSN, PutAt: codec.FromMicros(t.PutAt),
		Deleted: t.Flags&FlagDeleted != 0, Gone: t.Flags&FlagGone != 0, Floor: t.Flags&FlagFloor != 0,
		Forgotten: t.Flags&FlagForgotten != 0, GroupNum: t.Group, Rows: rows,
		Artefact: store.Artefact{
			ID: string(t.ID), Kind: t.Kind, Provenance: t.Provenance, Priority: t.priority, ExpiresAt: codec.FromMicros(t.Expires),
			CurrentAsOf: codec.FromMicros(t.AsOf), Seq: t.Seq, Pinned: t.Flags&FlagPinned != 0,
		},
	}
	if err := DecodeCold(b[0], &d, h); err != nil {
		return nil, err
	}
	return h, nil
}

// DecodeCold reads what follows the page rows, where the decoder stands.
func DecodeCold(version byte, d *codec.Decoder, h *store.Head) error {
	if version != RowVersion {
		return decodePacked(version, d, h)
	}
	if len(d.B) < ProofSize {
		return codec.ErrMalformed
	}
	d.B = d.B[:len(d.B)-ProofSize]
	coldFields.Read(d, h)
	return d.Err
}

// EncodeCold makes the fields of a row that follow its page rows.
func EncodeCold(h *store.Head) []byte {
	e := codec.Encoder{B: make([]byte, 0, 64)}
	coldFields.Append(&e, h)
	return e.B
}

// GoneRow says whether a head row is that of a dropped version.
func GoneRow(row []byte) bool {
	t := DecodeHot(&codec.Decoder{B: row})
	return t.Flags&FlagGone != 0
}

// HeadKey names a version of an artefact.
type HeadKey struct {
	Art     uint64
	Version uint32
}

// ScopeRowKey is the key of the name of a scope, in the table of heads.
func ScopeRowKey(num uint32) []byte { return binary.BigEndian.AppendUint32([]byte{'s'}, num) }

// GroupRowKey is the key of the name of a group, in the table of heads.
func GroupRowKey(num uint64) []byte { return binary.BigEndian.AppendUint64([]byte{'g'}, num) }

// HeadRowKey is the key of a head.
func HeadRowKey(k HeadKey) []byte {
	b := append(make([]byte, 0, 13), 'h')
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(b, k.Art), k.Version)
}

// TextRowKey is the key of the text of a page.
func TextRowKey(num uint64) []byte { return binary.BigEndian.AppendUint64(nil, num) }
