package engine

import (
	"fmt"
	"slices"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/lexical"
	"github.com/ctxpage/ctxpage/store"
	"github.com/oklog/ulid/v2"
)

// Rows of the catalogue are hand-coded: a million of them are read at every open, and only their fixed part is looked
// at then (engine note in FORMAT.md). What follows it are fields with tags (fields.go). Other rows are msgpack, decoded
// only after a scan of its lengths: five bytes can drive a msgpack decoder out of memory.

// Versions of a head row. A higher one is refused (codec.ErrNewer).
const (
	rowVersionOld    = 1 // ends with its cold part, msgpack, and the audit has no digest of it
	rowVersionPacked = 2 // has a cold part with a length, msgpack, then its proof
	rowVersion       = 3 // has tagged fields, then its proof
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

	flagsKnown = 1<<iota - 1
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
	facts      uint32 // of what follows its page rows, once it was looked at
}

const pageRowBytes = 8 + 4 + 8 + 4 + 4 + 4 + 8 + store.DigestSaltSize + 32

// headRowSize is at least the size of a head's row, bytes.
func headRowSize(h *store.Head, coldBytes []byte) int {
	return 90 + len(h.ID) + len(h.Rows)*pageRowBytes + len(coldBytes) + rowProofSize
}

// encodeHead appends the row of a head without its proof. coldBytes is what encodeCold gave before the sequencer was
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
	e.Raw(coldBytes)
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
	switch v := d.U8(); {
	case v > rowVersion:
		d.FailAs(fmt.Errorf("%w: head row of version %d, this program reads up to %d", codec.ErrNewer, v, rowVersion))
		return h
	case v == 0:
		d.Fail()
		return h
	}
	h.kind = store.Kind(d.U8())
	h.provenance = store.Provenance(d.U8())
	h.priority = store.Priority(d.U8())
	if h.Flags = d.U8(); h.Flags > flagsKnown {
		d.FailAs(fmt.Errorf("%w: head row with flags %#x", codec.ErrNewer, h.Flags))
	}
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
	h := &store.Head{
		Scope: scopeName(t.Scope), Art: t.Art, Version: t.Version, LSN: t.lsn, PutAt: codec.FromMicros(t.putAt),
		Deleted: t.Flags&flagDeleted != 0, Gone: t.Flags&FlagGone != 0, Floor: t.Flags&flagFloor != 0,
		Forgotten: t.Flags&flagForgotten != 0, GroupNum: t.group, Rows: rows,
		Artefact: store.Artefact{
			ID: string(t.id), Kind: t.kind, Provenance: t.provenance, Priority: t.priority, ExpiresAt: codec.FromMicros(t.expires),
			CurrentAsOf: codec.FromMicros(t.asOf), Seq: t.seq, Pinned: t.Flags&flagPinned != 0,
		},
	}
	if err := decodeCold(b[0], &d, h); err != nil {
		return nil, err
	}
	return h, nil
}

// decodeCold reads what follows the page rows, where the decoder stands.
func decodeCold(version byte, d *codec.Decoder, h *store.Head) error {
	if version != rowVersion {
		return decodePacked(version, d, h)
	}
	if len(d.B) < rowProofSize {
		return codec.ErrMalformed
	}
	d.B = d.B[:len(d.B)-rowProofSize]
	coldFields.Read(d, h)
	return d.Err
}

// encodeCold makes the fields of a row that follow its page rows.
func encodeCold(h *store.Head) []byte {
	e := codec.Encoder{B: make([]byte, 0, 64)}
	coldFields.Append(&e, h)
	return e.B
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
	salts  []byte // of the digests of State, in the leaf; nil: a record of an older program
	Held   []byte // encoded HeldBatch to store, nil: none
	HeldID ulid.ULID
	result []byte         // encoded Outcome
	body   []byte         // the leaf
	built  *lexical.Built // the texts, for the index; nil: each has its analysis
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

const commitVersion = 1

// CheckCommitVersion refuses a C record by its first byte.
func CheckCommitVersion(v uint8) error {
	switch {
	case v > commitVersion:
		return fmt.Errorf("%w: commit record of version %d, this program reads up to %d", codec.ErrNewer, v, commitVersion)
	case v < commitVersion:
		return fmt.Errorf("%w: commit record of version %d, expected %d", codec.ErrMalformed, v, commitVersion)
	}
	return nil
}

func (c *commitRecord) encode(b []byte) []byte {
	e := codec.Encoder{B: b}
	e.U8(commitVersion)
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
		size += len(s.Key) + len(s.Value) + 16 + store.DigestSaltSize
	}
	e.B = slices.Grow(e.B, size)
	e.Count(len(c.State))
	for i, s := range c.State {
		e.Str(s.Key)
		switch {
		case s.Value == nil:
			e.U8(0)
		case c.salt(i) == nil:
			e.U8(1)
			e.Bytes(s.Value)
		default:
			e.U8(2)
			e.Raw(c.salt(i))
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
	if err := CheckCommitVersion(d.U8()); err != nil {
		return 0, nil, 0, err
	}
	leaf, body, lsn = d.U64(), d.Bytes(), d.U64()
	return leaf, body, lsn, d.Err
}

// DecodeCommit reads a C record. Slices are copied: the log's buffer is borrowed.
func DecodeCommit(b []byte) (*commitRecord, error) {
	d := codec.Decoder{B: b}
	if err := CheckCommitVersion(d.U8()); err != nil {
		return nil, err
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
	rows := d.Count(2)
	for i := range rows {
		s := store.StateRow{Key: d.Str()}
		switch d.U8() {
		case 0:
		case 2:
			if c.salts == nil {
				c.salts = make([]byte, rows*store.DigestSaltSize)
			}
			copy(c.salt(i), d.Take(store.DigestSaltSize))
			fallthrough
		case 1:
			s.Value = d.Own()
		default:
			d.Fail()
		}
		c.State = append(c.State, s)
	}
	copy(c.HeldID[:], d.Take(16))
	c.Held, c.result = d.Own(), d.Own()
	return c, d.Done()
}
