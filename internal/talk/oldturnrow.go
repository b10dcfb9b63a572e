package talk

import (
	"encoding/binary"
	"fmt"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/session"
	"github.com/vmihailenco/msgpack/v5"
)

// Rows of turns as programs wrote them before the fields had numbers: msgpack arrays of so many fields. They are read, and
// written anew with the next change of the turn.

const oldTurnFields, oldSignalFields, oldPlaceFields = 12, 10, 6 // a place has one more when the pin gave way

// oldTurn is a row of a turn that is being read.
type oldTurn struct{ *TurnRow }

// DecodeMsgpack reads a row that Unpack has scanned, so lengths can be believed.
func (r *oldTurn) DecodeMsgpack(d *msgpack.Decoder) error {
	x := codec.Fields{D: d}
	x.Array(oldTurnFields)
	r.Hash, r.Content, r.Counter = x.Uint(), x.Uint(), x.Text()
	oldSizes(&x, &r.Sizes)
	r.Made, r.Traits = uint8(x.Uint()), uint16(x.Uint())
	x.Text() // the title: see oldTitleField
	r.Hashes = oldHashes(&x)
	s := &r.Signals
	x.Array(oldSignalFields)
	s.Source, s.Version, s.Call = x.Text(), x.Uint(), x.Text()
	for _, yes := range [...]*bool{&s.Stale, &s.Failed, &s.Refetchable, &s.Finding, &s.Closed, &s.Keep} {
		*yes = x.Bool()
	}
	s.LastRead = x.Int()
	oldLevel(&x, r.TurnRow)
	return x.Err
}

// oldPlace is a turn whose place is being read.
type oldPlace struct{ *TurnRow }

// DecodeMsgpack reads a row that Unpack has scanned, so lengths can be believed.
func (p *oldPlace) DecodeMsgpack(d *msgpack.Decoder) error {
	x := codec.Fields{D: d}
	fields := codec.Value(&x, (*msgpack.Decoder).DecodeArrayLen)
	if x.Err == nil && fields != oldPlaceFields && fields != oldPlaceFields+1 {
		return fmt.Errorf("%d fields of a place, expected %d or %d", fields, oldPlaceFields, oldPlaceFields+1)
	}
	oldSizes(&x, &p.Sizes)
	p.Made, p.Signals.LastRead = uint8(x.Uint()), x.Int()
	oldLevel(&x, p.TurnRow)
	p.Yielded = fields > oldPlaceFields && x.Bool()
	return x.Err
}

func oldSizes(x *codec.Fields, sizes *session.Sizes) {
	x.Array(len(sizes))
	for i := range sizes {
		sizes[i] = int(x.Int())
	}
}

func oldLevel(x *codec.Fields, r *TurnRow) {
	r.Level, r.Because, r.Pinned = uint8(x.Uint()), x.Text(), x.Bool()
	if x.Err == nil && r.Level > uint8(session.Cold) {
		x.Err = fmt.Errorf("level %d", r.Level)
	}
}

func oldHashes(x *codec.Fields) []uint64 {
	b := codec.Value(x, (*msgpack.Decoder).DecodeBytes)
	if x.Err == nil && len(b)%8 != 0 {
		x.Err = fmt.Errorf("%d bytes of token hashes", len(b))
	}
	return shortHashes(unpackHashes(b))
}

func unpackHashes(b []byte) []uint64 {
	out := make([]uint64, len(b)/8)
	for i := range out {
		out[i] = binary.LittleEndian.Uint64(b[8*i:])
	}
	return out
}
