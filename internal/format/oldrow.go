package format

import (
	"cmp"
	"maps"
	"slices"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/store"
	"github.com/vmihailenco/msgpack/v5"
)

// Head rows of formats 1 to 3 are read for ever and never written again. They must stay decodable
// byte for byte: the audit has digests of rows of formats 2 and 3, and a golden file of each format
// is opened by a test.

// EncodeFixed appends the row of a head of versions 1 to 3 without its proof: numbers have their
// whole width. Tests make rows of older programs with it.
func EncodeFixed(b []byte, version uint8, h *store.Head, scope uint32, coldBytes []byte) []byte {
	e := codec.Encoder{B: b}
	e.U8(version)
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
		r := &h.Rows[i]
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
	e.Raw(coldBytes)
	return e.B
}

// EncodeFixedCold makes the fields of a row of version 3, which implies nothing.
func EncodeFixedCold(h *store.Head) []byte {
	e := codec.Encoder{}
	coldFields.Append(&e, h)
	return e.B
}

// decodeFixed reads what follows the flags in a row of versions 1 to 3, up to the page rows.
func decodeFixed(d *codec.Decoder, h *Hot) {
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
}

// decodeFixedRows reads the page rows of head rows of versions 1 to 3, 88 bytes each, into the
// memory of rows.
func decodeFixedRows(d *codec.Decoder, rows []store.PageRow) []store.PageRow {
	n := d.Count(PageRowBytes)
	rows = slices.Grow(rows[:0], n)
	for range n {
		r := store.PageRow{Num: d.U64(), Version: d.U32(), LSN: d.U64(), Tokens: d.U32(), Bytes: d.U32()}
		d.U32() // see EncodeFixed
		r.Hash = d.U64()
		copy(r.Salt[:], d.Take(store.DigestSaltSize))
		copy(r.Digest[:], d.Take(32))
		rows = append(rows, r)
	}
	return rows
}

// packed is the cold part of a head row of version 1 or 2. Its fields never change.
type packed struct {
	//lint:ignore U1000 msgpack looks for it
	_msgpack    struct{} `msgpack:",as_array"`
	Role        string
	Name        string
	ToolCalls   []store.ToolCall
	ToolCallID  string
	Parts       []store.Part
	PartBytes   []int
	Source      string
	Stamp       string
	SourceHash  uint64
	SourceAt    int64
	GroupName   string
	Subject     string
	DerivedFrom []store.Ref
	Supersedes  []string
	Tags        []string
	Meta        []string // key, value, key, value: sorted by key, so that equal heads have equal bytes
	Relevance   *float64
	Actor       string
	Counter     string
}

const packedFields = 19

// DecodeMsgpack reads a row whose lengths unpack has scanned. The fields are named one by one:
// reflection took two thirds of the time to read a head, which redo, a fault, check and gc do for
// each one.
func (c *packed) DecodeMsgpack(d *msgpack.Decoder) error {
	x := codec.Fields{D: d}
	x.Array(packedFields)
	c.Role, c.Name = x.Text(), x.Text()
	codec.Slice(&x, &c.ToolCalls)
	c.ToolCallID = x.Text()
	codec.Slice(&x, &c.Parts)
	codec.Slice(&x, &c.PartBytes)
	c.Source, c.Stamp, c.SourceHash, c.SourceAt = x.Text(), x.Text(), x.Uint(), x.Int()
	c.GroupName, c.Subject = x.Text(), x.Text()
	codec.Slice(&x, &c.DerivedFrom)
	c.Supersedes, c.Tags, c.Meta = x.Texts(), x.Texts(), x.Texts()
	if !x.Null() {
		v := codec.Value(&x, (*msgpack.Decoder).DecodeFloat64)
		c.Relevance = &v
	}
	c.Actor, c.Counter = x.Text(), x.Text()
	return x.Err
}

// decodePacked reads the cold part of a row of an old version. The decoder stands behind the page
// rows.
func decodePacked(version byte, d *codec.Decoder, h *store.Head) error {
	b := d.B
	if version != RowVersionOld {
		if b = d.Bytes(); d.Err != nil || len(d.B) < ProofSize {
			return codec.ErrMalformed
		}
	}
	var c packed
	if err := codec.Unpack(b, &c); err != nil {
		return err
	}
	h.Role, h.Name, h.ToolCalls, h.ToolCallID, h.Parts, h.PartBytes = c.Role, c.Name, c.ToolCalls, c.ToolCallID, c.Parts, c.PartBytes
	h.Artefact.Source, h.Group, h.Subject, h.DerivedFrom, h.Supersedes = c.Source, c.GroupName, c.Subject, c.DerivedFrom, c.Supersedes
	h.Source = store.Validator{Stamp: c.Stamp, Hash: c.SourceHash, At: codec.FromMicros(c.SourceAt)}
	h.Tags, h.Relevance, h.Counter = c.Tags, c.Relevance, c.Counter
	if h.Actor = c.Actor; h.Gone { // the row says who made it as it is
		h.Actor, h.GoneBy = "", c.Actor
	}
	if len(c.Meta) > 0 {
		h.Meta = make(map[string]string, len(c.Meta)/2)
		for i := 0; i+1 < len(c.Meta); i += 2 {
			h.Meta[c.Meta[i]] = c.Meta[i+1]
		}
	}
	return nil
}

// EncodePacked makes the cold part of a row of the old versions.
func EncodePacked(h *store.Head) ([]byte, error) {
	meta := []string{}
	for _, k := range slices.Sorted(maps.Keys(h.Meta)) {
		meta = append(meta, k, h.Meta[k])
	}
	return msgpack.Marshal(&packed{
		Role: h.Role, Name: h.Name, ToolCalls: h.ToolCalls, ToolCallID: h.ToolCallID, Parts: h.Parts, PartBytes: h.PartBytes,
		Source: h.Artefact.Source, Stamp: h.Source.Stamp, SourceHash: h.Source.Hash, SourceAt: codec.Micros(h.Source.At),
		GroupName: h.Group, Subject: h.Subject, DerivedFrom: h.DerivedFrom, Supersedes: h.Supersedes, Tags: h.Tags,
		Meta: meta, Relevance: h.Relevance, Actor: cmp.Or(h.GoneBy, h.Actor), Counter: h.Counter,
	})
}
