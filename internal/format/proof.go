package format

import (
	"encoding/binary"
	"errors"

	"github.com/ctxpage/ctxpage/internal/archive"
	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

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

// AppendHead appends the proof to a head row that EncodeHead made. The salt of a head with pages is that of its first page, and
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

// GroupName is what the group of a head is called in the catalogue; "": it has none.
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

// Head compares a head row; h is what it decodes to. A leaf that cannot be read says nothing.
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
