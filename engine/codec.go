package engine

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/lexical"
	"github.com/ctxpage/ctxpage/store"
	"github.com/oklog/ulid/v2"
	"github.com/vmihailenco/msgpack/v5"
)

// Rows of the catalogue are hand-coded: a million of them are read at every open, and only their fixed part is looked
// at then (engine note in FORMAT.md). Everything cold in them, and all other rows, is msgpack, decoded only after a
// scan of its lengths: five bytes can drive a msgpack decoder out of memory.

// Versions of a head row. Those of the old one end with their cold part, and the audit has no digest of them.
const (
	rowVersionOld = 1
	rowVersion    = 2
)

// Flags of a head row.
const (
	flagPinned = 1 << iota
	flagDeleted
	flagSourced
	flagSupersedes // its cold part names artefacts that it replaces
	FlagGone       // gc dropped the version; of a page column: no version has it any more
	flagFloor      // there are no rows of the versions before it any more
	flagForgotten  // in the log only: all rows of the artefact go
)

// hot is the part of a head row that the catalogue keeps.
type hot struct {
	kind       store.Kind
	provenance store.Provenance
	priority   store.Priority
	Flags      uint8
	Scope      uint32
	Art        uint64
	Version    uint32
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

const coldFields = 19

// DecodeMsgpack reads a row that unpack has scanned, so lengths can be believed. The fields are named one by one, as in
// turnRow: reflection was two thirds of reading a head, which redo, a fault, check and gc do for each one.
func (c *cold) DecodeMsgpack(d *msgpack.Decoder) error {
	x := codec.Fields{D: d}
	x.Array(coldFields)
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

const pageRowBytes = 8 + 4 + 8 + 4 + 4 + 4 + 8 + store.DigestSaltSize + 32

// headRowSize is at least the size of a head's row, bytes.
func headRowSize(h *store.Head, coldBytes []byte) int {
	return 90 + len(h.ID) + len(h.Rows)*pageRowBytes + len(coldBytes) + rowProofSize
}

// encodeHead appends the row of a head without its proof. coldBytes is encodeCold's answer, made before the sequencer is
// entered.
func encodeHead(b []byte, h *store.Head, scope uint32, coldBytes []byte) []byte {
	e := codec.Encoder{B: b}
	e.U8(rowVersion)
	e.U8(uint8(h.Kind))
	e.U8(uint8(h.Provenance))
	e.U8(uint8(h.Priority))
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
	for flag, set := range map[uint8]bool{FlagGone: h.Gone, flagFloor: h.Floor, flagForgotten: h.Forgotten} {
		if set {
			flags |= flag
		}
	}
	e.U8(flags)
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
	e.Bytes(coldBytes)
	return e.B
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
func DecodeHot(d *codec.Decoder) (h hot) {
	if v := d.U8(); v != rowVersion && v != rowVersionOld {
		d.Fail()
		return h
	}
	h.kind = store.Kind(d.U8())
	h.provenance = store.Provenance(d.U8())
	h.priority = store.Priority(d.U8())
	h.Flags = d.U8()
	h.Scope = d.U32()
	h.Art = d.U64()
	h.Version = d.U32()
	h.lsn = d.U64()
	h.putAt = d.I64()
	h.asOf = d.I64()
	h.expires = d.I64()
	h.group = d.U64()
	h.seq = d.I64()
	h.id = d.Bytes()
	return h
}

func DecodeRows(d *codec.Decoder, rows []store.PageRow) []store.PageRow {
	n := d.Count(pageRowBytes)
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
	c, err := decodeCold(b, &d)
	if err != nil {
		return nil, err
	}
	h := &store.Head{
		Scope: scopeName(t.Scope), Art: t.Art, Version: t.Version, LSN: t.lsn, PutAt: codec.FromMicros(t.putAt),
		Actor: c.Actor, Deleted: t.Flags&flagDeleted != 0, Gone: t.Flags&FlagGone != 0, Floor: t.Flags&flagFloor != 0, GroupNum: t.group, Rows: rows, PartBytes: c.PartBytes, Counter: c.Counter,
		Source: store.Validator{Stamp: c.Stamp, Hash: c.SourceHash, At: codec.FromMicros(c.SourceAt)},
		Artefact: store.Artefact{
			ID: string(t.id), Kind: t.kind, Provenance: t.provenance, Parts: c.Parts, Role: c.Role, Name: c.Name,
			ToolCalls: c.ToolCalls, ToolCallID: c.ToolCallID, Source: c.Source, ExpiresAt: codec.FromMicros(t.expires),
			CurrentAsOf: codec.FromMicros(t.asOf), Priority: t.priority, Relevance: c.Relevance, Group: c.GroupName, Seq: t.seq,
			Subject: c.Subject, DerivedFrom: c.DerivedFrom, Supersedes: c.Supersedes, Pinned: t.Flags&flagPinned != 0,
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
func decodeCold(row []byte, d *codec.Decoder) (c cold, err error) {
	b := d.B
	if row[0] != rowVersionOld { // fields that come later stand between it and the proof
		if b = d.Bytes(); d.Err != nil || len(d.B) < rowProofSize {
			return c, codec.ErrMalformed
		}
	}
	return c, codec.Unpack(b, &c)
}

func encodeCold(h *store.Head) ([]byte, error) {
	return msgpack.Marshal(&cold{
		Role: h.Role, Name: h.Name, ToolCalls: h.ToolCalls, ToolCallID: h.ToolCallID, Parts: h.Parts, PartBytes: h.PartBytes,
		Source: h.Artefact.Source, Stamp: h.Source.Stamp, SourceHash: h.Source.Hash, SourceAt: codec.Micros(h.Source.At),
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

// commitRecord is the body of a C record: what a redo needs, and the audit leaf in the same frame, so that a crash
// cannot part them.
type commitRecord struct {
	LSN    uint64
	leaf   uint64 // index of the leaf
	batch  ulid.ULID
	at     int64
	Scopes []newScope
	groups []newGroup
	Heads  []headRecord
	State  []store.StateRow
	Held   []byte // encoded HeldBatch to store, nil: none
	HeldID ulid.ULID
	result []byte // encoded Outcome
	body   []byte // the leaf
}

type newScope struct {
	Num  uint32
	Name string
}

type newGroup struct {
	num   uint64
	scope uint32
	name  string
}

// headRecord is a head row with the texts of the pages that are new in it.
type headRecord struct {
	Row   []byte
	Texts []pageText
	head  *store.Head // decoded, or what the row was made of
}

type pageText struct {
	Num      uint64
	Text     string
	analysis *lexical.Analysis // nil when it came from the log: then it is made again
}

const CommitVersion = 1

func (c *commitRecord) encode(b []byte) []byte {
	e := codec.Encoder{B: b}
	e.U8(CommitVersion)
	e.U64(c.leaf)
	e.Bytes(c.body)
	e.U64(c.LSN)
	e.Raw(c.batch[:])
	e.I64(c.at)
	e.Count(len(c.Scopes))
	for _, s := range c.Scopes {
		e.U32(s.Num)
		e.Str(s.Name)
	}
	e.Count(len(c.groups))
	for _, g := range c.groups {
		e.U64(g.num)
		e.U32(g.scope)
		e.Str(g.name)
	}
	e.Count(len(c.Heads))
	for i := range c.Heads {
		h := &c.Heads[i]
		e.Bytes(h.Row)
		size := 0
		for _, t := range h.Texts {
			size += len(t.Text) + 16
		}
		e.B = slices.Grow(e.B, size)
		e.Count(len(h.Texts))
		for _, t := range h.Texts {
			e.U64(t.Num)
			e.Str(t.Text)
		}
	}
	size := 0 // a pass over a session may bring thousands of rows
	for _, s := range c.State {
		size += len(s.Key) + len(s.Value) + 16
	}
	e.B = slices.Grow(e.B, size)
	e.Count(len(c.State))
	for _, s := range c.State {
		e.Str(s.Key)
		if s.Value == nil {
			e.U8(0)
		} else {
			e.U8(1)
			e.Bytes(s.Value)
		}
	}
	e.Raw(c.HeldID[:])
	e.Bytes(c.Held)
	e.Bytes(c.result)
	return e.B
}

// commitHead reads the beginning of a C record: its leaf and its LSN. The body is borrowed.
func commitHead(b []byte) (leaf uint64, body []byte, lsn uint64, err error) {
	d := codec.Decoder{B: b}
	if v := d.U8(); v != CommitVersion {
		return 0, nil, 0, fmt.Errorf("%w: commit record of version %d, expected %d", codec.ErrMalformed, v, CommitVersion)
	}
	leaf, body, lsn = d.U64(), d.Bytes(), d.U64()
	return leaf, body, lsn, d.Err
}

// DecodeCommit reads a C record. Slices are copied: the log's buffer is borrowed.
func DecodeCommit(b []byte) (*commitRecord, error) {
	d := codec.Decoder{B: b}
	if v := d.U8(); v != CommitVersion {
		return nil, fmt.Errorf("%w: commit record of version %d, expected %d", codec.ErrMalformed, v, CommitVersion)
	}
	c := &commitRecord{leaf: d.U64(), body: d.Own(), LSN: d.U64()}
	copy(c.batch[:], d.Take(16))
	c.at = d.I64()
	for range d.Count(5) {
		c.Scopes = append(c.Scopes, newScope{d.U32(), d.Str()})
	}
	for range d.Count(13) {
		c.groups = append(c.groups, newGroup{d.U64(), d.U32(), d.Str()})
	}
	for range d.Count(2) {
		h := headRecord{Row: d.Own()}
		for range d.Count(9) {
			h.Texts = append(h.Texts, pageText{Num: d.U64(), Text: d.Str()})
		}
		c.Heads = append(c.Heads, h)
	}
	for range d.Count(2) {
		s := store.StateRow{Key: d.Str()}
		if d.U8() == 1 {
			s.Value = d.Own()
		}
		c.State = append(c.State, s)
	}
	copy(c.HeldID[:], d.Take(16))
	c.Held, c.result = d.Own(), d.Own()
	return c, d.Done()
}
