package engine

import (
	"fmt"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/store"
)

// The row of an outcome is a record of fields (codec.Record). A transaction of 500 puts has 500
// references, which differ in a few letters of their ids, so a list of references stores of each
// only the difference from the one before. An outcome is encoded under the sequencer's lock, where all other writers
// wait, so nothing here reflects.

// outcomeVersion is the first byte of the row.
const outcomeVersion = 1

var outcomeFields = codec.Record[outcomeRow]{
	Name: "an outcome", Unknown: func(r *outcomeRow) *[]byte { return &r.Unknown },
	Fields: []codec.Field[outcomeRow]{
		codec.Uint(1, "Status", func(r *outcomeRow) *store.Status { return &r.Status }),
		codec.Uint(2, "LSN", func(r *outcomeRow) *uint64 { return &r.LSN }),
		codec.Uint(3, "Leaf", func(r *outcomeRow) *uint64 { return &r.Leaf }),
		refsField(4, "Refs", func(r *outcomeRow) *[]store.Ref { return &r.Refs }),
		codec.Text(5, "Reason", func(r *outcomeRow) *string { return &r.Reason }),
		refsField(6, "Stale", func(r *outcomeRow) *[]store.Ref { return &r.Stale }),
		refsField(7, "Repeats", func(r *outcomeRow) *[]store.Ref { return &r.Repeats }),
		codec.Blob(8, "Bound", func(r *outcomeRow) *[]byte { return &r.Bound }),
	},
}

// encode is the row; its unknown fields stay in it.
func (r *outcomeRow) encode() []byte {
	return outcomeFields.Row(outcomeVersion, r, 64+8*len(r.Refs))
}

// decodeOutcome reads the row of an outcome.
func decodeOutcome(row []byte) (r outcomeRow, err error) {
	err = outcomeFields.ReadRow(row, outcomeVersion, &r)
	return r, err
}

// These bits say which parts of a reference differ from the reference before it in the list. The
// first one is compared with a reference of no scope, no id, page 0 and version 1.
const (
	refScope   = 1 << iota // another scope
	refPage                // another page than 0
	refVersion             // another version than 1

	refBits = 1<<iota - 1
)

// refsField is a list of references as a field of the record.
func refsField(tag uint64, name string, at func(*outcomeRow) *[]store.Ref) codec.Field[outcomeRow] {
	return codec.Field[outcomeRow]{
		Tag: tag, Name: name,
		Write: func(e *codec.Encoder, r *outcomeRow) { writeRefs(e, *at(r)) },
		Read:  func(d *codec.Decoder, r *outcomeRow) { *at(r) = readRefs(d) },
	}
}

// writeRefs writes a list of references:
//
//	count                             varint
//	bits                              one byte, for each reference, and then for each:
//	scope                             if refScope: length and text; otherwise that of the reference before
//	shared, rest                      how many bytes of the id are those of the id before; length and text of the rest
//	page                              if refPage: signed varint
//	version                           if refVersion: varint
//
// An empty list is not written at all.
func writeRefs(e *codec.Encoder, refs []store.Ref) {
	if len(refs) == 0 {
		return
	}
	e.Count(len(refs))
	var last store.Ref
	for i := range refs {
		r, bits := &refs[i], uint8(0)
		if r.Scope != last.Scope {
			bits |= refScope
		}
		if r.Page != 0 {
			bits |= refPage
		}
		if r.Version != 1 {
			bits |= refVersion
		}
		e.U8(bits)
		if bits&refScope != 0 {
			e.Str(r.Scope)
		}
		same := commonPrefix(last.ID, r.ID)
		e.Count(same)
		e.Str(r.ID[same:])
		if bits&refPage != 0 {
			e.Varint(int64(r.Page))
		}
		if bits&refVersion != 0 {
			e.Uvarint(uint64(r.Version))
		}
		last = *r
	}
}

// readRefs is the reverse of writeRefs. It fails on bits of a later release rather than guess what
// they mean (codec.ErrNewer).
func readRefs(d *codec.Decoder) []store.Ref {
	const least = 3 // bytes of a reference
	refs := make([]store.Ref, d.Count(least))
	last := store.Ref{}
	for i := range refs {
		bits := d.U8()
		if bits > refBits {
			d.FailAs(fmt.Errorf("%w: a reference with bits %#x", codec.ErrNewer, bits))
		}
		r := store.Ref{Scope: last.Scope, Version: 1}
		if bits&refScope != 0 {
			r.Scope = d.Str()
		}
		same := d.Uvarint()
		if same > uint64(len(last.ID)) {
			d.Fail()
		}
		rest := d.Bytes()
		if d.Err != nil {
			return nil
		}
		r.ID = last.ID[:same] + string(rest)
		if bits&refPage != 0 {
			r.Page = int(d.Varint())
		}
		if bits&refVersion != 0 {
			v := d.Uvarint()
			if r.Version = uint32(v); uint64(r.Version) != v {
				d.Fail()
			}
		}
		refs[i], last = r, r
	}
	return refs
}

// commonPrefix returns how many bytes two strings begin with in common.
func commonPrefix(a, b string) (n int) {
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}
