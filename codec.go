package ctxpage

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/oklog/ulid/v2"
	"github.com/vmihailenco/msgpack/v5"
	"github.com/vmihailenco/msgpack/v5/msgpcode"

	"github.com/ctxpage/ctxpage/lexical"
	"github.com/ctxpage/ctxpage/manifest"
)

// Rows of the catalogue are hand-coded: a million of them are read at every open, and only their fixed part is looked
// at then (engine note in FORMAT.md). Everything cold in them, and all other rows, is msgpack, decoded only after a
// scan of its lengths: five bytes can drive a msgpack decoder out of memory.

// Versions of a head row. Those of the old one end with their cold part, and the audit has no digest of them.
const (
	rowVersionOld = 1
	rowVersion    = 2
)

var errRow = errors.New("row is malformed")

// enc appends; it cannot fail.
type enc struct{ b []byte }

func (e *enc) u8(v uint8)   { e.b = append(e.b, v) }
func (e *enc) u32(v uint32) { e.b = binary.BigEndian.AppendUint32(e.b, v) }
func (e *enc) u64(v uint64) { e.b = binary.BigEndian.AppendUint64(e.b, v) }
func (e *enc) i64(v int64)  { e.u64(uint64(v)) }
func (e *enc) raw(v []byte) { e.b = append(e.b, v...) }
func (e *enc) bytes(v []byte) {
	e.b = binary.AppendUvarint(e.b, uint64(len(v)))
	e.b = append(e.b, v...)
}
func (e *enc) str(v string) {
	e.b = binary.AppendUvarint(e.b, uint64(len(v)))
	e.b = append(e.b, v...)
}
func (e *enc) count(n int) { e.b = binary.AppendUvarint(e.b, uint64(n)) }

// dec reads what enc wrote. The first short read sets err, after which every read gives zero: check err once.
// Lengths are compared with the bytes that are left before anything is made, so that a damaged row costs no memory.
type dec struct {
	b   []byte
	err error
}

func (d *dec) take(n int) []byte {
	if d.err != nil || n < 0 || n > len(d.b) {
		d.fail()
		return nil
	}
	v := d.b[:n:n]
	d.b = d.b[n:]
	return v
}

func (d *dec) fail() {
	if d.err == nil {
		d.err = errRow
	}
}

func (d *dec) u8() uint8 {
	if v := d.take(1); v != nil {
		return v[0]
	}
	return 0
}

func (d *dec) u32() uint32 {
	if v := d.take(4); v != nil {
		return binary.BigEndian.Uint32(v)
	}
	return 0
}

func (d *dec) u64() uint64 {
	if v := d.take(8); v != nil {
		return binary.BigEndian.Uint64(v)
	}
	return 0
}

func (d *dec) i64() int64 { return int64(d.u64()) }

func (d *dec) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.b = d.b[n:]
	return v
}

// count reads a number of things that take at least min bytes each.
func (d *dec) count(min int) int {
	n := d.uvarint()
	if n > uint64(len(d.b)/min) {
		d.fail()
		return 0
	}
	return int(n)
}

func (d *dec) bytes() []byte { return d.take(d.count(1)) }
func (d *dec) str() string   { return string(d.bytes()) }

// own gives bytes of the caller's own, empty and not nil where there are none.
func (d *dec) own() []byte { return append([]byte{}, d.bytes()...) }

func (d *dec) done() error {
	if d.err == nil && len(d.b) > 0 {
		d.err = errRow
	}
	return d.err
}

// Flags of a head row.
const (
	flagPinned = 1 << iota
	flagDeleted
	flagSourced
	flagSupersedes // its cold part names artefacts that it replaces
	flagGone       // gc dropped the version; of a page column: no version has it any more
	flagFloor      // there are no rows of the versions before it any more
	flagForgotten  // in the log only: all rows of the artefact go
)

// hot is the part of a head row that the catalogue keeps.
type hot struct {
	kind       Kind
	provenance Provenance
	priority   Priority
	flags      uint8
	scope      uint32
	art        uint64
	version    uint32
	lsn        uint64
	putAt      int64
	asOf       int64
	expires    int64
	group      uint64
	seq        int64
	id         []byte // borrowed from the row
}

// cold is what only a reader of the page needs.
type cold struct {
	//lint:ignore U1000 msgpack looks for it
	_msgpack    struct{} `msgpack:",as_array"`
	Role        string
	Name        string
	ToolCalls   []ToolCall
	ToolCallID  string
	Parts       []Part
	PartBytes   []int
	Source      string
	Stamp       string
	SourceHash  uint64
	SourceAt    int64
	GroupName   string
	Subject     string
	DerivedFrom []Ref
	Supersedes  []string
	Tags        []string
	Meta        []string // key, value, key, value: sorted by key, so that equal heads have equal bytes
	Relevance   *float64
	Actor       string
	Counter     string
}

const coldFields = 19

// DecodeMsgpack reads a row that unpack has scanned, so lengths can be believed. The fields are named one by one, as in
// turnRow: reflection was two thirds of reading a head, which redo, a fault, check and gc do for each one.
func (c *cold) DecodeMsgpack(d *msgpack.Decoder) error {
	x := rowDecoder{d: d}
	x.array(coldFields)
	c.Role, c.Name = x.text(), x.text()
	rowSlice(&x, &c.ToolCalls)
	c.ToolCallID = x.text()
	rowSlice(&x, &c.Parts)
	rowSlice(&x, &c.PartBytes)
	c.Source, c.Stamp, c.SourceHash, c.SourceAt = x.text(), x.text(), x.uint(), x.int()
	c.GroupName, c.Subject = x.text(), x.text()
	rowSlice(&x, &c.DerivedFrom)
	c.Supersedes, c.Tags, c.Meta = x.texts(), x.texts(), x.texts()
	if !x.null() {
		v := rowValue(&x, (*msgpack.Decoder).DecodeFloat64)
		c.Relevance = &v
	}
	c.Actor, c.Counter = x.text(), x.text()
	return x.err
}

const pageRowBytes = 8 + 4 + 8 + 4 + 4 + 4 + 8 + digestSaltSize + 32

// headRowSize is at least the size of a head's row, bytes.
func headRowSize(h *Head, coldBytes []byte) int {
	return 90 + len(h.ID) + len(h.Rows)*pageRowBytes + len(coldBytes) + rowProofSize
}

// encodeHead appends the row of a head without its proof. coldBytes is encodeCold's answer, made before the sequencer is
// entered.
func encodeHead(b []byte, h *Head, scope uint32, coldBytes []byte) []byte {
	e := enc{b}
	e.u8(rowVersion)
	e.u8(uint8(h.Kind))
	e.u8(uint8(h.Provenance))
	e.u8(uint8(h.Priority))
	var flags uint8
	if h.Pinned {
		flags |= flagPinned
	}
	if h.Deleted {
		flags |= flagDeleted
	}
	if h.Artefact.Source != "" {
		flags |= flagSourced
	}
	if len(h.Supersedes) > 0 {
		flags |= flagSupersedes
	}
	for flag, set := range map[uint8]bool{flagGone: h.Gone, flagFloor: h.Floor, flagForgotten: h.Forgotten} {
		if set {
			flags |= flag
		}
	}
	e.u8(flags)
	e.u32(scope)
	e.u64(h.Art)
	e.u32(h.Version)
	e.u64(h.LSN)
	e.i64(micros(h.PutAt))
	e.i64(micros(h.CurrentAsOf))
	e.i64(micros(h.ExpiresAt))
	e.u64(h.GroupNum)
	e.i64(h.Seq)
	e.str(h.ID)
	e.count(len(h.Rows))
	for i := range h.Rows {
		encodePageRow(&e, &h.Rows[i])
	}
	e.bytes(coldBytes)
	return e.b
}

func encodePageRow(e *enc, r *PageRow) {
	e.u64(r.Num)
	e.u32(r.Version)
	e.u64(r.LSN)
	e.u32(r.Tokens)
	e.u32(r.Bytes)
	e.u32(0) // was the number of terms; nobody reads it
	e.u64(r.Hash)
	e.raw(r.Salt[:])
	e.raw(r.Digest[:])
}

func decodePageRow(d *dec) (r PageRow) {
	r.Num = d.u64()
	r.Version = d.u32()
	r.LSN = d.u64()
	r.Tokens = d.u32()
	r.Bytes = d.u32()
	d.u32() // see encodePageRow
	r.Hash = d.u64()
	copy(r.Salt[:], d.take(digestSaltSize))
	copy(r.Digest[:], d.take(32))
	return r
}

// decodeHot reads the part that the catalogue keeps and leaves the decoder before the page rows.
func decodeHot(d *dec) (h hot) {
	if v := d.u8(); v != rowVersion && v != rowVersionOld {
		d.fail()
		return h
	}
	h.kind = Kind(d.u8())
	h.provenance = Provenance(d.u8())
	h.priority = Priority(d.u8())
	h.flags = d.u8()
	h.scope = d.u32()
	h.art = d.u64()
	h.version = d.u32()
	h.lsn = d.u64()
	h.putAt = d.i64()
	h.asOf = d.i64()
	h.expires = d.i64()
	h.group = d.u64()
	h.seq = d.i64()
	h.id = d.bytes()
	return h
}

func decodeRows(d *dec, rows []PageRow) []PageRow {
	n := d.count(pageRowBytes)
	rows = slices.Grow(rows[:0], n)
	for range n {
		rows = append(rows, decodePageRow(d))
	}
	return rows
}

// decodeHead reads a whole row. scopeName resolves the number of a scope.
func decodeHead(b []byte, scopeName func(uint32) string) (*Head, error) {
	d := dec{b: b}
	t := decodeHot(&d)
	rows := decodeRows(&d, nil)
	if d.err != nil {
		return nil, d.err
	}
	c, err := decodeCold(b, &d)
	if err != nil {
		return nil, err
	}
	h := &Head{
		Scope: scopeName(t.scope), Art: t.art, Version: t.version, LSN: t.lsn, PutAt: fromMicros(t.putAt),
		Actor: c.Actor, Deleted: t.flags&flagDeleted != 0, Gone: t.flags&flagGone != 0, Floor: t.flags&flagFloor != 0, GroupNum: t.group, Rows: rows, PartBytes: c.PartBytes, Counter: c.Counter,
		Source: Validator{Stamp: c.Stamp, Hash: c.SourceHash, At: fromMicros(c.SourceAt)},
		Artefact: Artefact{
			ID: string(t.id), Kind: t.kind, Provenance: t.provenance, Parts: c.Parts, Role: c.Role, Name: c.Name,
			ToolCalls: c.ToolCalls, ToolCallID: c.ToolCallID, Source: c.Source, ExpiresAt: fromMicros(t.expires),
			CurrentAsOf: fromMicros(t.asOf), Priority: t.priority, Relevance: c.Relevance, Group: c.GroupName, Seq: t.seq,
			Subject: c.Subject, DerivedFrom: c.DerivedFrom, Supersedes: c.Supersedes, Pinned: t.flags&flagPinned != 0,
			Tags: c.Tags,
		},
	}
	if len(c.Meta) > 0 {
		h.Meta = make(map[string]string, len(c.Meta)/2)
		for i := 0; i+1 < len(c.Meta); i += 2 {
			h.Meta[c.Meta[i]] = c.Meta[i+1]
		}
	}
	if h.Gone { // the row says who made it as it is
		h.Actor, h.GoneBy = "", c.Actor
	}
	return h, nil
}

// decodeCold reads the cold part of a row, where the decoder stands behind its page rows.
func decodeCold(row []byte, d *dec) (c cold, err error) {
	b := d.b
	if row[0] != rowVersionOld { // fields that come later stand between it and the proof
		if b = d.bytes(); d.err != nil || len(d.b) < rowProofSize {
			return c, errRow
		}
	}
	return c, unpack(b, &c)
}

func encodeCold(h *Head) ([]byte, error) {
	return msgpack.Marshal(&cold{
		Role: h.Role, Name: h.Name, ToolCalls: h.ToolCalls, ToolCallID: h.ToolCallID, Parts: h.Parts, PartBytes: h.PartBytes,
		Source: h.Artefact.Source, Stamp: h.Source.Stamp, SourceHash: h.Source.Hash, SourceAt: micros(h.Source.At),
		GroupName: h.Group, Subject: h.Subject, DerivedFrom: h.DerivedFrom, Supersedes: h.Supersedes, Tags: h.Tags,
		Meta: sortedPairs(h.Meta), Relevance: h.Relevance, Actor: cmp.Or(h.GoneBy, h.Actor), Counter: h.Counter,
	})
}

func sortedPairs(m map[string]string) []string {
	if len(m) == 0 {
		return nil
	}
	out := make([]string, 0, 2*len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, k, m[k])
	}
	return out
}

// unpack decodes msgpack that came from a file: checksum (the caller's), then lengths and depth, then decode.
func unpack(b []byte, v any) error {
	if err := manifest.Scan(b); err != nil {
		return err
	}
	return msgpack.Unmarshal(b, v)
}

// rowDecoder keeps the first error; after it all values are zero.
type rowDecoder struct {
	d   *msgpack.Decoder
	err error
}

func rowValue[T any](x *rowDecoder, read func(*msgpack.Decoder) (T, error)) (v T) {
	if x.err == nil {
		v, x.err = read(x.d)
	}
	return v
}

func (x *rowDecoder) uint() uint64 { return rowValue(x, (*msgpack.Decoder).DecodeUint64) }
func (x *rowDecoder) int() int64   { return rowValue(x, (*msgpack.Decoder).DecodeInt64) }
func (x *rowDecoder) text() string { return rowValue(x, (*msgpack.Decoder).DecodeString) }
func (x *rowDecoder) bool() bool   { return rowValue(x, (*msgpack.Decoder).DecodeBool) }

func (x *rowDecoder) array(want int) {
	if n := rowValue(x, (*msgpack.Decoder).DecodeArrayLen); x.err == nil && n != want {
		x.err = fmt.Errorf("%d fields, expected %d", n, want)
	}
}

// null takes a nil, if one is next.
func (x *rowDecoder) null() bool {
	next := rowValue(x, (*msgpack.Decoder).PeekCode)
	if x.err == nil && next == msgpcode.Nil {
		x.err = x.d.DecodeNil()
		return true
	}
	return x.err != nil
}

func (x *rowDecoder) texts() (out []string) {
	if x.null() {
		return nil
	}
	out = make([]string, max(0, rowValue(x, (*msgpack.Decoder).DecodeArrayLen)))
	for i := range out {
		out[i] = x.text()
	}
	return out
}

// rowSlice reads what few rows have.
func rowSlice[T any](x *rowDecoder, v *[]T) {
	if !x.null() {
		x.err = x.d.Decode(v)
	}
}

// sum is the checksum of a row in bbolt: it covers the key, so that a value can never answer for another key.
func sum(bucket byte, key, value []byte) uint64 {
	var h xxhash.Digest
	h.Reset()
	h.Write([]byte{bucket})
	h.Write(key)
	h.Write(value)
	return h.Sum64()
}

func seal(bucket byte, key, value []byte) []byte {
	return binary.BigEndian.AppendUint64(append(make([]byte, 0, len(value)+8), value...), sum(bucket, key, value))
}

// unseal checks and strips the checksum; the result is borrowed from v.
func unseal(bucket byte, key, v []byte) ([]byte, error) {
	if len(v) < 8 {
		return nil, fmt.Errorf("%w: value of %d bytes, expected a checksum of 8", errRow, len(v))
	}
	value := v[: len(v)-8 : len(v)-8]
	if got := sum(bucket, key, value); got != binary.BigEndian.Uint64(v[len(v)-8:]) {
		return nil, fmt.Errorf("%w: checksum differs", errRow)
	}
	return value, nil
}

// Times are kept in microseconds; the zero time is 0.
func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	if us := t.UnixMicro(); us != 0 {
		return us
	}
	return 1 // the epoch itself is a time like any other
}

func fromMicros(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}

// commitRecord is the body of a C record: what a redo needs, and the audit leaf in the same frame, so that a crash
// cannot part them.
type commitRecord struct {
	lsn    uint64
	leaf   uint64 // index of the leaf
	batch  ulid.ULID
	at     int64
	scopes []newScope
	groups []newGroup
	heads  []headRecord
	state  []StateRow
	held   []byte // encoded HeldBatch to store, nil: none
	heldID ulid.ULID
	result []byte // encoded Outcome
	body   []byte // the leaf
}

type newScope struct {
	num  uint32
	name string
}

type newGroup struct {
	num   uint64
	scope uint32
	name  string
}

// headRecord is a head row with the texts of the pages that are new in it.
type headRecord struct {
	row   []byte
	texts []pageText
	head  *Head // decoded, or what the row was made of
}

type pageText struct {
	num      uint64
	text     string
	analysis *lexical.Analysis // nil when it came from the log: then it is made again
}

const commitVersion = 1

func (c *commitRecord) encode(b []byte) []byte {
	e := enc{b}
	e.u8(commitVersion)
	e.u64(c.leaf)
	e.bytes(c.body)
	e.u64(c.lsn)
	e.raw(c.batch[:])
	e.i64(c.at)
	e.count(len(c.scopes))
	for _, s := range c.scopes {
		e.u32(s.num)
		e.str(s.name)
	}
	e.count(len(c.groups))
	for _, g := range c.groups {
		e.u64(g.num)
		e.u32(g.scope)
		e.str(g.name)
	}
	e.count(len(c.heads))
	for i := range c.heads {
		h := &c.heads[i]
		e.bytes(h.row)
		e.count(len(h.texts))
		for _, t := range h.texts {
			e.u64(t.num)
			e.str(t.text)
		}
	}
	size := 0 // a pass over a session may bring thousands of rows
	for _, s := range c.state {
		size += len(s.Key) + len(s.Value) + 16
	}
	e.b = slices.Grow(e.b, size)
	e.count(len(c.state))
	for _, s := range c.state {
		e.str(s.Key)
		if s.Value == nil {
			e.u8(0)
		} else {
			e.u8(1)
			e.bytes(s.Value)
		}
	}
	e.raw(c.heldID[:])
	e.bytes(c.held)
	e.bytes(c.result)
	return e.b
}

// commitHead reads the beginning of a C record: its leaf and its LSN. The body is borrowed.
func commitHead(b []byte) (leaf uint64, body []byte, lsn uint64, err error) {
	d := dec{b: b}
	if v := d.u8(); v != commitVersion {
		return 0, nil, 0, fmt.Errorf("%w: commit record of version %d, expected %d", errRow, v, commitVersion)
	}
	leaf, body, lsn = d.u64(), d.bytes(), d.u64()
	return leaf, body, lsn, d.err
}

// decodeCommit reads a C record. Slices are copied: the log's buffer is borrowed.
func decodeCommit(b []byte) (*commitRecord, error) {
	d := dec{b: b}
	if v := d.u8(); v != commitVersion {
		return nil, fmt.Errorf("%w: commit record of version %d, expected %d", errRow, v, commitVersion)
	}
	c := &commitRecord{leaf: d.u64(), body: d.own(), lsn: d.u64()}
	copy(c.batch[:], d.take(16))
	c.at = d.i64()
	for range d.count(5) {
		c.scopes = append(c.scopes, newScope{d.u32(), d.str()})
	}
	for range d.count(13) {
		c.groups = append(c.groups, newGroup{d.u64(), d.u32(), d.str()})
	}
	for range d.count(2) {
		h := headRecord{row: d.own()}
		for range d.count(9) {
			h.texts = append(h.texts, pageText{num: d.u64(), text: d.str()})
		}
		c.heads = append(c.heads, h)
	}
	for range d.count(2) {
		s := StateRow{Key: d.str()}
		if d.u8() == 1 {
			s.Value = d.own()
		}
		c.state = append(c.state, s)
	}
	copy(c.heldID[:], d.take(16))
	c.held, c.result = d.own(), d.own()
	return c, d.done()
}

// auditBody is the body of an A record: the index of the leaf, then the leaf.
func auditBody(index uint64) []byte { return binary.BigEndian.AppendUint64(nil, index) }

func decodeAudit(b []byte) (index uint64, leaf []byte, err error) {
	d := dec{b: b}
	index = d.u64()
	return index, d.b, d.err
}

func packStrings(v []string) ([]byte, error) { return msgpack.Marshal(v) }
