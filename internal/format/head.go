package format

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"sync"

	"github.com/ctxpage/ctxpage/internal/archive"
	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// Rows of the catalogue are hand-coded: a million are read at every open, and only their fixed part is looked
// at then (FORMAT.md). What follows it are fields with tags (fields.go).

// RowVersion is the version of a head row. A higher one is refused (codec.ErrNewer).
const RowVersion = 1

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

// What a row implies instead of saying it: almost all rows would say the same.
const (
	impliedActor = 1 << iota // the actor is called as the scope
	impliedEst2              // the counter is est/2
	impliedFirst             // the version is 1
	impliedNow               // it is current as of its put, and does not expire
	impliedAlone             // it has no group, and its seq is 0
	impliedPage              // it has one page row, with content, of this version
	impliedO200k             // the counter is o200k_base

	impliedKnown = 1<<iota - 1
)

// impliedCounters are the token counters that a row names by a bit: the defaults of the library and of dbctl.
// Their names are part of the format.
var impliedCounters = [...]struct {
	bit  uint8
	name string
}{{impliedEst2, "est/2"}, {impliedO200k, "o200k_base"}}

const impliedCounter = impliedEst2 | impliedO200k

// counterOf returns the counter that the bits of a row name; "": they name none.
func counterOf(bits uint8) string {
	for _, c := range impliedCounters {
		if bits&c.bit != 0 {
			return c.name
		}
	}
	return ""
}

// Hot is the part of a head row that the catalogue keeps.
type Hot struct {
	implied    uint8
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
	Ever       uint8  // likewise: what the engine keeps of each version of an artefact
}

// pageRowBytes is at least the length of a page row.
const pageRowBytes = 5*binary.MaxVarintLen64 + 1 + 8 + store.DigestSaltSize + 32

// HeadRowSize is at least the size of a head's row with its proof, bytes.
func HeadRowSize(h *store.Head, coldBytes []byte) int {
	return 64 + len(h.ID) + len(h.Rows)*pageRowBytes + len(coldBytes) + ProofSize
}

// EncodeHead appends the row of a head without its proof. coldBytes comes from EncodeCold, which runs before the sequencer is
// entered.
func EncodeHead(b []byte, h *store.Head, scope uint32, coldBytes []byte) []byte {
	e := codec.Encoder{B: b}
	e.U8(RowVersion)
	e.U8(uint8(h.Kind))
	e.U8(uint8(h.Provenance))
	e.U8(uint8(h.Priority))
	e.U8(flagsOf(h))
	implied := impliedBy(h) | impliedNumbers(h)
	e.U8(implied)
	e.Uvarint(uint64(scope))
	e.Uvarint(h.Art)
	if implied&impliedFirst == 0 {
		e.Uvarint(uint64(h.Version))
	}
	e.Uvarint(h.LSN)
	put := codec.Micros(h.PutAt)
	e.Varint(put)
	if implied&impliedNow == 0 {
		e.Varint(codec.Micros(h.CurrentAsOf) - put)
		e.Varint(codec.Micros(h.ExpiresAt))
	}
	if implied&impliedAlone == 0 {
		e.Uvarint(h.GroupNum)
		e.Varint(h.Seq)
	}
	e.Str(h.ID)
	encodePageRows(&e, h, implied)
	e.Raw(coldBytes)
	return e.B
}

// impliedNumbers are the bits for numbers that the row of a head leaves out.
func impliedNumbers(h *store.Head) (bits uint8) {
	if h.Version == 1 {
		bits |= impliedFirst
	}
	if codec.Micros(h.CurrentAsOf) == codec.Micros(h.PutAt) && codec.Micros(h.ExpiresAt) == 0 {
		bits |= impliedNow
	}
	if h.GroupNum == 0 && h.Seq == 0 {
		bits |= impliedAlone
	}
	if len(h.Rows) == 1 && pageRowBits(h, &h.Rows[0]) == pageContent {
		bits |= impliedPage
	}
	return bits
}

// impliedBy are the bits for fields that the row of a head leaves out. EncodeCold and EncodeHead ask both, before and after the head got its numbers.
func impliedBy(h *store.Head) (bits uint8) {
	if h.Actor == h.Scope && h.Actor != "" {
		bits |= impliedActor
	}
	for _, c := range impliedCounters {
		if h.Counter == c.name {
			bits |= c.bit
		}
	}
	return bits
}

// flagsOf returns the flags of a head.
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

// What a page row has that others do not.
const (
	pageContent = 1 << iota // hash, salt and digest: it was not erased
	pageVersion             // it is of an earlier version of the artefact
	pageLSN                 // and so of another commit

	pageBits = 1<<iota - 1
)

// leastPageRow is the length of the shortest page row: its number, bits, tokens and bytes.
const leastPageRow = 4

// encodePageRows writes the page rows of a head. The number of a page is relative to its predecessor; of an only page, to the
// number of the artefact. Differences wrap around, so any number has one.
func encodePageRows(e *codec.Encoder, h *store.Head, implied uint8) {
	if implied&impliedPage != 0 {
		r := &h.Rows[0]
		e.Varint(int64(r.Num - h.Art))
		encodePageRow(e, h, r, pageContent)
		return
	}
	e.Count(len(h.Rows))
	num := uint64(0)
	for i := range h.Rows {
		r := &h.Rows[i]
		bits := pageRowBits(h, r)
		e.Varint(int64(r.Num - num))
		e.U8(bits)
		encodePageRow(e, h, r, bits)
		num = r.Num
	}
}

// pageRowBits are the bits of a page row.
func pageRowBits(h *store.Head, r *store.PageRow) (bits uint8) {
	if r.Hash != 0 || r.Salt != ([store.DigestSaltSize]byte{}) || r.Digest != ([32]byte{}) {
		bits |= pageContent
	}
	if r.Version != h.Version {
		bits |= pageVersion
	}
	if r.LSN != h.LSN {
		bits |= pageLSN
	}
	return bits
}

// encodePageRow writes what follows the bits of a page row.
func encodePageRow(e *codec.Encoder, h *store.Head, r *store.PageRow, bits uint8) {
	if bits&pageVersion != 0 {
		e.Varint(int64(h.Version) - int64(r.Version))
	}
	if bits&pageLSN != 0 {
		e.Varint(int64(h.LSN - r.LSN))
	}
	e.Uvarint(uint64(r.Tokens))
	e.Uvarint(uint64(r.Bytes))
	if bits&pageContent != 0 {
		e.U64(r.Hash)
		e.Raw(r.Salt[:])
		e.Raw(r.Digest[:])
	}
}

// countPageRows reads how many page rows follow.
func countPageRows(d *codec.Decoder, t *Hot) int {
	if d.Err == nil && t.implied&impliedPage != 0 {
		return 1
	}
	return d.Count(leastPageRow)
}

// decodePageRow reads one of the rows that encodePageRows wrote, into r, which is zero; num is the number of the row before.
func decodePageRow(d *codec.Decoder, t *Hot, r *store.PageRow, num uint64) {
	bits := uint8(pageContent)
	if t.implied&impliedPage != 0 {
		num = t.Art
	}
	r.Num, r.Version, r.LSN = num+uint64(d.Varint()), t.Version, t.LSN
	if t.implied&impliedPage == 0 {
		bits = d.U8()
	}
	if bits > pageBits {
		d.FailAs(fmt.Errorf("%w: page row with bits %#x", codec.ErrNewer, bits))
	}
	if bits&pageVersion != 0 {
		r.Version = narrow[uint32](d, uint64(int64(t.Version)-d.Varint()))
	}
	if bits&pageLSN != 0 {
		r.LSN = t.LSN - uint64(d.Varint())
	}
	r.Tokens = narrow[uint32](d, d.Uvarint())
	r.Bytes = narrow[uint32](d, d.Uvarint())
	if bits&pageContent != 0 {
		r.Hash = d.U64()
		copy(r.Salt[:], d.Take(store.DigestSaltSize))
		copy(r.Digest[:], d.Take(32))
	}
}

// narrow refuses a number that its field has no room for.
func narrow[T uint32](d *codec.Decoder, v uint64) T {
	if uint64(T(v)) != v {
		d.Fail()
	}
	return T(v)
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
	if h.implied = d.U8(); h.implied > impliedKnown || bits.OnesCount8(h.implied&impliedCounter) > 1 {
		d.FailAs(fmt.Errorf("%w: head row that implies %#x", codec.ErrNewer, h.implied))
	}
	h.Scope = narrow[uint32](d, d.Uvarint())
	h.Art = d.Uvarint()
	if h.Version = 1; h.implied&impliedFirst == 0 {
		h.Version = narrow[uint32](d, d.Uvarint())
	}
	h.LSN = d.Uvarint()
	h.PutAt = d.Varint()
	if h.AsOf = h.PutAt; h.implied&impliedNow == 0 {
		h.AsOf += d.Varint()
		h.Expires = d.Varint()
	}
	if h.implied&impliedAlone == 0 {
		h.Group = d.Uvarint()
		h.Seq = d.Varint()
	}
	h.ID = d.Bytes()
	return h
}

// DecodeRows reads the page rows, into the memory of rows. The decoder stands where DecodeHot left it.
func DecodeRows(d *codec.Decoder, t *Hot, rows []store.PageRow) []store.PageRow {
	n := countPageRows(d, t)
	rows = slices.Grow(rows[:0], n)[:n]
	clear(rows)
	for i, num := 0, uint64(0); i < n && d.Err == nil; i++ {
		decodePageRow(d, t, &rows[i], num)
		num = rows[i].Num
	}
	return rows
}

// DecodeHead reads a whole row. scopeName resolves the number of a scope.
func DecodeHead(b []byte, scopeName func(uint32) string) (*store.Head, error) {
	d := codec.Decoder{B: b}
	t := DecodeHot(&d)
	rows := DecodeRows(&d, &t, nil)
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
	if err := DecodeCold(&t, &d, h); err != nil {
		return nil, err
	}
	return h, nil
}

// DecodeCold reads what follows the page rows, where the decoder stands. h has its scope.
func DecodeCold(t *Hot, d *codec.Decoder, h *store.Head) error {
	CutTail(d)
	coldFields.Read(d, h)
	if t.implied&impliedActor != 0 {
		h.Actor = h.Scope
	}
	if name := counterOf(t.implied); name != "" {
		h.Counter = name
	}
	return d.Err
}

// CutTail takes the proof off what follows the page rows.
func CutTail(d *codec.Decoder) {
	n := tailSize(d.B)
	if n > len(d.B) {
		d.Fail()
		n = len(d.B)
	}
	d.B = d.B[:len(d.B)-n]
}

// EncodeCold makes the fields of a row that follow its page rows.
func EncodeCold(h *store.Head) []byte {
	said, implied := copies.Get().(*store.Head), impliedBy(h)
	*said = *h
	if implied&impliedActor != 0 {
		said.Actor = ""
	}
	if implied&impliedCounter != 0 {
		said.Counter = ""
	}
	var e codec.Encoder
	coldFields.Append(&e, said)
	*said = store.Head{}
	copies.Put(said)
	return e.B
}

// copies are memory for EncodeCold: a head is large, and a put encodes one.
var copies = sync.Pool{New: func() any { return new(store.Head) }}

// GoneRow reports whether a head row belongs to a dropped version.
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
func HeadRowKey(k HeadKey) []byte { return AppendHeadKey(make([]byte, 0, 8), k) }

// AppendHeadKey appends the key of a head.
func AppendHeadKey(b []byte, k HeadKey) []byte {
	return codec.AppendOrdered(codec.AppendOrdered(append(b, 'h'), k.Art), uint64(k.Version))
}

// HeadRowPrefix begins the keys of the heads of an artefact, and no other key.
func HeadRowPrefix(art uint64) []byte { return codec.AppendOrdered([]byte{'h'}, art) }

// ReadHeadKey reads the key of a head; false: it is another one.
func ReadHeadKey(key []byte) (k HeadKey, ok bool) {
	if len(key) == 0 || key[0] != 'h' {
		return k, false
	}
	art, rest := codec.Ordered(key[1:])
	version, rest := codec.Ordered(rest)
	return HeadKey{art, uint32(version)}, rest != nil && len(rest) == 0 && version == uint64(uint32(version))
}

// TextRowKey is the key of the text of a page.
func TextRowKey(num uint64) []byte { return codec.AppendOrdered(nil, num) }

// Proof is the end of a row: its place in the audit.
type Proof struct {
	Salt  [store.DigestSaltSize]byte
	Leaf  uint64 // index of the leaf that has the digest
	Place uint32 // among those of the leaf
}

// ProofSize is the length of a proof, bytes.
const ProofSize = store.DigestSaltSize + 8 + 4

// Append appends the proof to a row.
func (p *Proof) Append(b []byte) []byte {
	b = append(b, p.Salt[:]...)
	b = binary.BigEndian.AppendUint64(b, p.Leaf)
	return binary.BigEndian.AppendUint32(b, p.Place)
}

// CutProof parts a row from its proof.
func CutProof(row []byte) (rest []byte, p Proof, err error) {
	n := len(row) - ProofSize
	if n < 1 {
		return nil, p, codec.ErrMalformed
	}
	p = readProof(row[n:])
	return row[:n:n], p, nil
}

// AppendHead appends the proof to a head row that EncodeHead made. A head with pages has the salt of its first page, and
// its leaf is near its LSN, so a few bytes tell them:
//
//	salt (16), if tailSalt is set · uvarint place · varint leaf − LSN · u8 bytes before this one, + tailSalt
func (p *Proof) AppendHead(row []byte) []byte {
	from := len(row)
	lsn, salt, err := headSalt(row)
	own := uint8(0)
	if err != nil || salt != p.Salt {
		own = tailSalt
		row = append(row, p.Salt[:]...)
	}
	row = binary.AppendUvarint(row, uint64(p.Place))
	row = binary.AppendVarint(row, int64(p.Leaf-lsn))
	return append(row, uint8(len(row)-from)|own)
}

const tailSalt = 0x80

// tailSize is the length of the proof at the end of a head row; more than there is if it has none.
func tailSize(row []byte) int {
	if len(row) == 0 {
		return 1
	}
	return 1 + int(row[len(row)-1]&^tailSalt)
}

// headSalt returns the LSN of a head row and the salt of its first page, zeros where it has none.
func headSalt(row []byte) (lsn uint64, salt [store.DigestSaltSize]byte, err error) {
	d := codec.Decoder{B: row}
	t := DecodeHot(&d)
	if countPageRows(&d, &t) > 0 {
		var first store.PageRow
		decodePageRow(&d, &t, &first, 0)
		salt = first.Salt
	}
	return t.LSN, salt, d.Err
}

// CutHeadProof parts a head row from its proof.
func CutHeadProof(row []byte) (rest []byte, p Proof, err error) {
	n := len(row) - tailSize(row)
	if n < 1 {
		return nil, p, codec.ErrMalformed
	}
	rest = row[:n:n]
	lsn, salt, err := headSalt(rest)
	if err != nil {
		return nil, p, err
	}
	d := codec.Decoder{B: row[n : len(row)-1]}
	if p.Salt = salt; row[len(row)-1]&tailSalt != 0 {
		copy(p.Salt[:], d.Take(store.DigestSaltSize))
	}
	p.Place = narrow[uint32](&d, d.Uvarint())
	p.Leaf = lsn + uint64(d.Varint())
	return rest, p, d.Done()
}

// readProof reads the proof at the beginning of b, which has room for one.
func readProof(b []byte) (p Proof) {
	d := codec.Decoder{B: b}
	copy(p.Salt[:], d.Take(store.DigestSaltSize))
	p.Leaf, p.Place = d.U64(), d.U32()
	return p
}

// HeadDigest covers a head row and what its numbers stand for: a scope or a group that got another name is another row.
func HeadDigest(salt []byte, scope, group string, row []byte) [32]byte {
	return store.SaltedMAC(salt, func(b []byte) []byte {
		e := codec.Encoder{B: b}
		e.Str("head")
		e.Str(scope)
		e.Str(group)
		e.Raw(row)
		return e.B
	})
}

// GroupName is the name of the group of a head in the catalogue; "": it has none.
func GroupName(h *store.Head) string {
	switch {
	case h.GroupNum == 0:
		return ""
	case h.Group != "":
		return h.Group
	}
	return "\x00" + h.ID // of its own pages
}

// ErrEdited says that a row is not the one that was committed.
var ErrEdited = errors.New("it is not the row that was committed: the audit has another digest of it")

// Proofs compares rows with an audit without an engine.
type Proofs struct{ Log *archive.Log }

// Head compares a head row, of which h was decoded. A leaf that cannot be read says nothing.
func (p Proofs) Head(row []byte, h *store.Head) error {
	rest, at, err := CutHeadProof(row)
	if err != nil {
		return err
	}
	was, err := p.Log.RowDigest(at.Leaf, int(at.Place))
	return p.same(at, was == HeadDigest(at.Salt[:], h.Scope, GroupName(h), rest), err)
}

// Held compares the row of a held batch.
func (p Proofs) Held(id, row []byte) error {
	rest, at, err := CutProof(row)
	if err != nil {
		return err
	}
	was, err := p.Log.RowDigest(at.Leaf, int(at.Place))
	return p.same(at, was == HeldDigest(at.Salt[:], id, rest), err)
}

// State compares a stored state row, sealed.
func (p Proofs) State(key, sealed []byte) error {
	body, err := StateBodyOf(key, sealed)
	if err != nil {
		return err
	}
	at := StateProof(body)
	if at.Leaf == NoLeaf {
		return nil
	}
	was, err := p.Log.StateEntry(at.Leaf, int(at.Place))
	return p.same(at, err == nil && StateEntered(was, key, body), err)
}

// same judges what a leaf has of a row. err is of reading the leaf: one that has no such digest is told from one that
// cannot be read, or is not there any more.
func (p Proofs) same(at Proof, equal bool, err error) error {
	if err == nil && !equal || errors.Is(err, manifest.ErrNoLeaf) && at.Leaf < p.Log.Size() {
		return ErrEdited
	}
	return nil
}
