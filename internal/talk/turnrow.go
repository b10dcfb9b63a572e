package talk

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/session"
	"github.com/vmihailenco/msgpack/v5"
)

// TurnRow is what is kept of one turn. Its fields are the row, in this order. A session of ten thousand turns decodes as
// many rows when it is first touched and writes thousands in one pass, so the fields are named here one by one: the
// reflection of the general way was half of both.
type TurnRow struct {
	Hash    uint64        // of all it was made from
	Content uint64        // of the text alone, 0: none
	Counter string        // that counted Sizes
	Sizes   session.Sizes // estimates where Made has no bit
	Made    uint8         // levels whose derived page exists, a bit each
	Traits  uint16
	Title   string
	Hashes  []uint64 // session.TokenSet; never changed in place
	Signals turnSignals
	Level   uint8 // how far the watcher compacted its unit; on the first turn of the unit
	Because string
	Pinned  bool
	Yielded bool // the pin gave way to the newest turn, until there is room; in the row of the place alone

	moved bool // a row of its place is stored, and holds instead of what the row above says of it
}

// turnSignals is session.Signals without what the database knows itself.
type turnSignals struct {
	Source                              string
	Version                             uint64
	Call                                string
	Stale, Failed, Refetchable, Finding bool
	Closed, Keep                        bool
	LastRead                            int64
}

const turnFields, signalFields, placeFields = 12, 10, 6 // a place has one more when the pin gave way

// encodePlace is what changes of a turn while its text does not: a pass writes thousands of these, and token set and title
// were two thirds of what it wrote.
func (r *TurnRow) encodePlace() ([]byte, error) {
	b := bytes.NewBuffer(make([]byte, 0, 48+len(r.Because)))
	e := msgpack.GetEncoder()
	defer msgpack.PutEncoder(e)
	e.Reset(b)
	var w firstError
	fields := placeFields
	if r.Yielded {
		fields++
	}
	w.do(e.EncodeArrayLen(fields))
	w.sizes(e, &r.Sizes)
	w.do(e.EncodeUint(uint64(r.Made)))
	w.do(e.EncodeInt(r.Signals.LastRead))
	w.do(e.EncodeUint(uint64(r.Level)))
	w.do(e.EncodeString(r.Because))
	w.do(e.EncodeBool(r.Pinned))
	if r.Yielded {
		w.do(e.EncodeBool(true))
	}
	return b.Bytes(), w.err
}

// decodePlace takes over what encodePlace wrote.
func (r *TurnRow) decodePlace(raw []byte) error {
	place := turnPlace{r}
	if err := codec.Unpack(raw, &place); err != nil {
		return err
	}
	r.moved = true
	return nil
}

// turnPlace is a turnRow whose place is being read.
type turnPlace struct{ *TurnRow }

// DecodeMsgpack reads a row that unpack has scanned, so lengths can be believed.
func (p *turnPlace) DecodeMsgpack(d *msgpack.Decoder) error {
	x := codec.Fields{D: d}
	fields := codec.Value(&x, (*msgpack.Decoder).DecodeArrayLen)
	if x.Err == nil && fields != placeFields && fields != placeFields+1 {
		return fmt.Errorf("%d fields of a place, expected %d or %d", fields, placeFields, placeFields+1)
	}
	decodeSizes(&x, &p.Sizes)
	p.Made, p.Signals.LastRead = uint8(x.Uint()), x.Int()
	decodeLevel(&x, p.TurnRow)
	p.Yielded = fields > placeFields && x.Bool()
	return x.Err
}

// encode is the row as msgpack, in a buffer of the right size from the start.
func (r *TurnRow) encode() ([]byte, error) {
	b := bytes.NewBuffer(make([]byte, 0, 128+len(r.Counter)+len(r.Title)+len(r.Signals.Source)+len(r.Signals.Call)+len(r.Because)+8*len(r.Hashes)))
	e := msgpack.GetEncoder()
	defer msgpack.PutEncoder(e)
	e.Reset(b)
	err := r.EncodeMsgpack(e)
	return b.Bytes(), err
}

// EncodeMsgpack writes the row.
func (r *TurnRow) EncodeMsgpack(e *msgpack.Encoder) error {
	var w firstError
	w.do(e.EncodeArrayLen(turnFields))
	w.do(e.EncodeUint64(r.Hash))
	w.do(e.EncodeUint64(r.Content))
	w.do(e.EncodeString(r.Counter))
	w.sizes(e, &r.Sizes)
	w.do(e.EncodeUint8(r.Made))
	w.do(e.EncodeUint16(r.Traits))
	w.do(e.EncodeString(r.Title))
	w.do(e.EncodeBytes(packHashes(r.Hashes)))
	s := &r.Signals
	w.do(e.EncodeArrayLen(signalFields))
	w.do(e.EncodeString(s.Source))
	w.do(e.EncodeUint64(s.Version))
	w.do(e.EncodeString(s.Call))
	for _, yes := range [...]bool{s.Stale, s.Failed, s.Refetchable, s.Finding, s.Closed, s.Keep} {
		w.do(e.EncodeBool(yes))
	}
	w.do(e.EncodeInt64(s.LastRead))
	w.do(e.EncodeUint8(r.Level))
	w.do(e.EncodeString(r.Because))
	w.do(e.EncodeBool(r.Pinned))
	return w.err
}

type firstError struct{ err error }

func (w *firstError) do(err error) {
	if w.err == nil {
		w.err = err
	}
}

func (w *firstError) sizes(e *msgpack.Encoder, sizes *session.Sizes) {
	w.do(e.EncodeArrayLen(len(sizes)))
	for _, n := range sizes {
		w.do(e.EncodeInt(int64(n)))
	}
}

// DecodeMsgpack reads a row that unpack has scanned, so lengths can be believed.
func (r *TurnRow) DecodeMsgpack(d *msgpack.Decoder) error {
	x := codec.Fields{D: d}
	x.Array(turnFields)
	r.Hash, r.Content, r.Counter = x.Uint(), x.Uint(), x.Text()
	decodeSizes(&x, &r.Sizes)
	r.Made, r.Traits, r.Title = uint8(x.Uint()), uint16(x.Uint()), x.Text()
	r.Hashes = decodeHashes(&x)
	s := &r.Signals
	x.Array(signalFields)
	s.Source, s.Version, s.Call = x.Text(), x.Uint(), x.Text()
	for _, yes := range [...]*bool{&s.Stale, &s.Failed, &s.Refetchable, &s.Finding, &s.Closed, &s.Keep} {
		*yes = x.Bool()
	}
	s.LastRead = x.Int()
	decodeLevel(&x, r)
	return x.Err
}

func decodeSizes(x *codec.Fields, sizes *session.Sizes) {
	x.Array(len(sizes))
	for i := range sizes {
		sizes[i] = int(x.Int())
	}
}

func decodeLevel(x *codec.Fields, r *TurnRow) {
	r.Level, r.Because, r.Pinned = uint8(x.Uint()), x.Text(), x.Bool()
	if x.Err == nil && r.Level > uint8(session.Cold) {
		x.Err = fmt.Errorf("level %d", r.Level)
	}
}

func decodeHashes(x *codec.Fields) []uint64 {
	b := codec.Value(x, (*msgpack.Decoder).DecodeBytes)
	if x.Err == nil && len(b)%8 != 0 {
		x.Err = fmt.Errorf("%d bytes of token hashes", len(b))
	}
	out := make([]uint64, len(b)/8)
	for i := range out {
		out[i] = binary.LittleEndian.Uint64(b[8*i:])
	}
	return out
}

func packHashes(hashes []uint64) []byte {
	b := make([]byte, 0, 8*len(hashes))
	for _, h := range hashes {
		b = binary.LittleEndian.AppendUint64(b, h)
	}
	return b
}

// settle is the level that exists: a form that was never made, or would not be shorter, gives way to the one before.
func (r *TurnRow) settle(l session.Level) session.Level {
	if l == session.Stub {
		if n := r.Sizes[session.Summary]; r.Sizes[l] > 0 && (n == 0 || n > r.Sizes[l] || r.Made&(1<<session.Summary) == 0) {
			return l
		}
		l--
	}
	for ; l > session.Raw && l < session.Cold; l-- {
		if r.Sizes[l] > 0 && r.Made&(1<<l) != 0 {
			return l
		}
	}
	return l
}

// SignalsOf keeps what a host told of a turn and the database does not know itself.
func SignalsOf(s *session.Signals) turnSignals {
	return turnSignals{
		Source: s.Source, Version: s.Version, Call: s.Call, Stale: s.Stale, Failed: s.Failed, Refetchable: s.Refetchable,
		Finding: s.Finding, Closed: s.Closed, Keep: s.Keep, LastRead: s.LastRead,
	}
}
