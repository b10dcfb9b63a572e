package codec

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"
	"strconv"
)

// The brief form of the body of an audit leaf: of a commit of one page that its host vouched for, as a put and a turn of a
// conversation make it. Such leaves differ in a few fields. The dense form took 73 bytes more of a turn to say where the rest
// repeats. A leaf is brief on its own, as it is dense on its own.
const (
	briefActor   = 1 << iota // the actor is not called as the scope
	briefSession             // a session is named
	briefTurn                // and the id is block-SESSION-N
	briefAppend              // the action is append
	briefState               // the commit wrote one state row, not none
	briefVersion             // the version is not 1

	briefKnown = 1<<iota - 1
)

// BriefMost is the length of the longest brief form: whoever wants its end reads all of it.
const BriefMost = 240

// Parts of a body that the form implies. Package archive has the tags of the fields.
const (
	briefStart   = "\x01\x01\x01\x06\x02\x11\x01"         // leaf version 1, type commit, trace: a ULID
	briefFlags   = "\x04\x01\x18"                         // the leaf has writes and digests of rows
	briefApplied = "*\x07applied+\x13vouched by the host" // status, reason
	briefAction  = "3\x06append"
	briefPage    = "#1@" // of a reference, before the version

	ulidBytes   = 16
	digestBytes = 32
	entryBytes  = 24 // of a state row
	tallyBytes  = 8  // the numbers of state rows and rows at the end of the body
)

// brief has the values of a form. The slices are borrowed.
type brief struct {
	bits                             uint8
	trace, scope, actor, session, id []byte
	digest, rows                     []byte
	at                               int64
	lsn, num, version                uint64
}

// BriefForm appends the brief form of the body of leaf index to b; false: it has none. It makes no memory where b has room for a
// form and a body.
func BriefForm(b []byte, index uint64, body []byte) ([]byte, bool) {
	var s brief
	if !s.parse(body) {
		return b, false
	}
	form := s.append(b, index)
	if len(form)-len(b) > BriefMost {
		return b, false
	}
	back, err := appendBody(form[len(form):], index, form[len(b):])
	return form, err == nil && bytes.Equal(back, body) // so the body has nothing that the form does not say or imply
}

// parse takes what the form says from a body that may have one. BriefForm compares the rest.
func (s *brief) parse(body []byte) bool {
	const time, scope, actor, lsn, session, writes, action, last = 5, 6, 7, 8, 13, 48, 51, 51
	const num, ref, version, digest = 1, 2, 3, 4
	if !bytes.HasPrefix(body, []byte(briefStart)) {
		return false
	}
	var f [last + 1][]byte
	var w [digest + 1][]byte
	d := Decoder{B: body[len(briefStart):]}
	s.trace = d.Take(ulidBytes)
	rows := readTags(&d, f[:])
	list := Decoder{B: f[writes]}
	one := Decoder{}
	if list.Uvarint() == 1 {
		one.B = list.Bytes()
	}
	readTags(&one, w[:])
	if d.Err != nil || one.Err != nil || len(w[digest]) != digestBytes || len(rows) < tallyBytes {
		return false
	}
	s.scope, s.actor, s.session, s.digest, s.rows = f[scope], f[actor], f[session], w[digest], rows[:len(rows)-tallyBytes]
	s.at, _ = binary.Varint(f[time])
	s.lsn, _ = binary.Uvarint(f[lsn])
	s.num, _ = binary.Uvarint(w[num])
	s.version, _ = binary.Uvarint(w[version])
	s.bits = bit(briefActor, !bytes.Equal(s.actor, s.scope)) | bit(briefSession, s.session != nil) | bit(briefAppend, f[action] != nil) |
		bit(briefState, len(s.rows) > digestBytes) | bit(briefVersion, s.version != 1)
	id, named := bytes.CutPrefix(w[ref], s.scope)
	end := bytes.LastIndex(id, []byte(briefPage))
	if !named || end < 1 {
		return false
	}
	s.id = id[1:end]
	return true
}

// bit is b if it is on.
func bit(b uint8, on bool) uint8 {
	if on {
		return b
	}
	return 0
}

// readTags takes the fields up to the highest tag that there is room for. It returns the value of the first one above it.
func readTags(d *Decoder, fields [][]byte) (beyond []byte) {
	for len(d.B) > 0 && d.Err == nil && beyond == nil {
		tag, v := d.Uvarint(), d.Bytes()
		if tag < uint64(len(fields)) {
			fields[tag] = v
		} else {
			beyond = v
		}
	}
	return beyond
}

// append makes the form.
func (s *brief) append(b []byte, index uint64) []byte {
	turn, isTurn := s.turn()
	e := Encoder{B: append(b, s.bits|bit(briefTurn, isTurn))}
	e.Raw(s.trace)
	e.Varint(s.at - ulidMicros(s.trace))
	e.Bytes(s.scope)
	if s.bits&briefActor != 0 {
		e.Bytes(s.actor)
	}
	if s.bits&briefSession != 0 {
		e.Bytes(s.session)
	}
	e.Varint(int64(s.lsn - index))
	e.Varint(int64(s.num - s.lsn))
	if isTurn {
		e.Uvarint(turn)
	} else {
		e.Bytes(s.id)
	}
	if s.bits&briefVersion != 0 {
		e.Uvarint(s.version)
	}
	e.Raw(s.digest)
	e.Raw(s.rows)
	return e.B
}

// turn returns the number of the turn in an id that was made of it.
func (s *brief) turn() (n uint64, ok bool) {
	var memory [BriefMost]byte
	prefix := turnPrefix(memory[:0], s.session)
	if s.session == nil || !bytes.HasPrefix(s.id, prefix) {
		return 0, false
	}
	digits := s.id[len(prefix):]
	n, err := strconv.ParseUint(string(digits), 10, 64)
	return n, err == nil && bytes.Equal(strconv.AppendUint(memory[:0], n, 10), digits)
}

func turnPrefix(b, session []byte) []byte {
	return append(append(append(b, "block-"...), session...), '-')
}

// ulidMicros is the time of a ULID in µs; 0 if there is none.
func ulidMicros(id []byte) int64 {
	if len(id) < ulidBytes {
		return 0
	}
	return int64(binary.BigEndian.Uint64(id)>>16) * 1000
}

// BriefRows returns how many rows and state rows the commit of a brief form wrote. Their digests are its last bytes.
func BriefRows(form []byte) (rows, state int, err error) {
	if len(form) < digestBytes+entryBytes || len(form) > BriefMost || form[0] > briefKnown {
		return 0, 0, errBrief
	}
	return 1, int(form[0]&briefState) / briefState, nil
}

var errBrief = fmt.Errorf("%w: the brief form of a leaf", ErrMalformed)

// FromBrief returns the body of leaf index from its brief form.
func FromBrief(index uint64, form []byte) ([]byte, error) {
	return appendBody(make([]byte, 0, 2*BriefMost), index, form)
}

// appendBody is FromBrief, and appends the body to b.
func appendBody(b []byte, index uint64, form []byte) ([]byte, error) {
	_, state, err := BriefRows(form)
	if err != nil {
		return nil, err
	}
	var id [BriefMost]byte
	d := Decoder{B: form}
	s := brief{bits: d.U8(), trace: d.Take(ulidBytes), version: 1}
	s.at = ulidMicros(s.trace) + d.Varint()
	s.scope = d.Bytes()
	if s.actor = s.scope; s.bits&briefActor != 0 {
		s.actor = d.Bytes()
	}
	if s.bits&briefSession != 0 {
		s.session = d.Bytes()
	}
	s.lsn = index + uint64(d.Varint())
	s.num = s.lsn + uint64(d.Varint())
	if s.bits&briefTurn != 0 {
		s.id = strconv.AppendUint(turnPrefix(id[:0], s.session), d.Uvarint(), 10)
	} else {
		s.id = d.Bytes()
	}
	if s.bits&briefVersion != 0 {
		s.version = d.Uvarint()
	}
	s.digest, s.rows = d.Take(digestBytes), d.B
	if d.Err != nil || len(s.rows) != digestBytes+state*entryBytes {
		return nil, errBrief
	}
	return s.body(b, state), nil
}

// body appends the leaf, as package archive encodes it.
func (s *brief) body(b []byte, state int) []byte {
	e := Encoder{B: append(b, briefStart...)}
	e.Raw(s.trace)
	e.B = append(e.B, briefFlags...)
	e.number(5, uint64(s.at)<<1^uint64(s.at>>63)) // zigzag
	e.field(6, s.scope)
	e.field(7, s.actor)
	e.number(8, s.lsn)
	if s.bits&briefSession != 0 {
		e.field(13, s.session)
	}
	e.B = append(e.B, 40, 1+ulidBytes, 1)
	e.Raw(s.trace)
	e.B = append(e.B, briefApplied...)
	e.Uvarint(48)
	writes := e.Begin()
	e.Uvarint(1)
	write := e.Begin()
	e.number(1, s.num)
	e.Uvarint(2)
	ref := e.Begin()
	e.B = append(append(append(append(e.B, s.scope...), ':'), s.id...), briefPage...)
	e.B = strconv.AppendUint(e.B, s.version, 10)
	e.End(ref)
	e.number(3, s.version)
	e.field(4, s.digest)
	e.End(write)
	e.End(writes)
	if s.bits&briefAppend != 0 {
		e.B = append(e.B, briefAction...)
	}
	e.Uvarint(100)
	e.Uvarint(uint64(len(s.rows) + tallyBytes))
	e.Raw(s.rows)
	e.U32(uint32(state))
	e.U32(1)
	return e.B
}

// field appends a field of a leaf; number, one that is a uvarint.
func (e *Encoder) field(tag uint64, v []byte) {
	e.Uvarint(tag)
	e.Bytes(v)
}

func (e *Encoder) number(tag, v uint64) {
	e.Uvarint(tag)
	e.Uvarint(uint64(bits.Len64(v|1)+6) / 7)
	e.Uvarint(v)
}
