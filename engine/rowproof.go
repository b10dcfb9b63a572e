package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/oklog/ulid/v2"
)

// A checksum finds what a disk did. It does not find who opened the file with another program and made the checksums
// right again. So the leaf of the commit that wrote a head row, or the row of a held batch, has a salted digest of it,
// and the leaves stand under a tree whose head is kept elsewhere. A row says in which leaf its digest stands; who changes
// that points at a leaf that does not have the digest of the changed row.
//
//	written    sequencer: rows get their place in the leaf, the leaf their digests                    addHead, setHeld
//	compared   when a row is read from the file, and for each row of the log when it is redone         proved
//	old rows   those from before the first leaf with digests have none; a check counts them            unproved
//
// The text of a page is under the digest in its head row, and so under the leaf.

// rowProof is the end of a row.
type rowProof struct {
	salt  [store.DigestSaltSize]byte
	leaf  uint64 // index of the leaf that has the digest
	place uint32 // among those of the leaf
}

const rowProofSize = store.DigestSaltSize + 8 + 4

func (p *rowProof) append(b []byte) []byte {
	b = append(b, p.salt[:]...)
	b = binary.BigEndian.AppendUint64(b, p.leaf)
	return binary.BigEndian.AppendUint32(b, p.place)
}

// cutProof parts a row from its proof.
func cutProof(row []byte) (rest []byte, p rowProof, err error) {
	n := len(row) - rowProofSize
	if n < 1 {
		return nil, p, codec.ErrMalformed
	}
	d := codec.Decoder{B: row[n:]}
	copy(p.salt[:], d.Take(store.DigestSaltSize))
	p.leaf, p.place = d.U64(), d.U32()
	return row[:n:n], p, d.Err
}

// headDigest covers a head row and what its numbers stand for: a scope or a group that got another name is another row.
func headDigest(salt []byte, scope, group string, row []byte) [32]byte {
	return store.SaltedMAC(salt, func(b []byte) []byte {
		e := codec.Encoder{B: b}
		e.Str("head")
		e.Str(scope)
		e.Str(group)
		e.Raw(row)
		return e.B
	})
}

func heldDigest(salt, id, row []byte) [32]byte {
	return store.SaltedMAC(salt, func(b []byte) []byte {
		e := codec.Encoder{B: b}
		e.Str("held")
		e.Bytes(id)
		e.Raw(row)
		return e.B
	})
}

// groupName is what the group of a head is called in the catalogue; "": it has none.
func groupName(h *store.Head) string {
	switch {
	case h.GroupNum == 0:
		return ""
	case h.Group != "":
		return h.Group
	}
	return "\x00" + h.ID // of its own pages
}

// addHead adds a head to a commit, and its digest to the leaf.
func (s *Engine) addHead(rec *commitRecord, leaf *manifest.Record, hr headRecord, scope uint32, group string, cold []byte) error {
	h := hr.head
	p := rowProof{leaf: rec.leaf, place: uint32(len(leaf.Rows))}
	if len(h.Rows) > 0 && h.ErasedBy == "" { // with what was erased went its salt
		p.salt = h.Rows[0].Salt
	} else if _, err := io.ReadFull(s.opts.Rand, p.salt[:]); err != nil {
		return fmt.Errorf("ctxpage: randomness: %w", err)
	}
	row := encodeHead(make([]byte, 0, headRowSize(h, cold)), h, scope, cold)
	d := headDigest(p.salt[:], h.Scope, group, row)
	leaf.Rows = append(leaf.Rows, d[:])
	hr.Row = p.append(row)
	rec.Heads = append(rec.Heads, hr)
	return nil
}

// errUnproved is what an edited row is told by.
var errUnproved = errors.New("it is not the row that was committed: the audit has another digest of it")

// provedHead compares a head row with the digest in its leaf. The names are those of its scope and its group.
func (s *Engine) provedHead(k HeadKey, row []byte, name func(*hot) (scope, group string)) error {
	if s.Leaves == nil || s.opts.Trust { // the index alone is made before the audit is open
		return nil
	}
	t := DecodeHot(&codec.Decoder{B: row})
	if t.Art != k.Art || t.Version != k.Version {
		return codec.ErrMalformed
	}
	if len(row) > 0 && row[0] == rowVersionOld {
		return s.unproved(t.lsn)
	}
	rest, p, err := cutProof(row)
	if err != nil {
		return err
	}
	scope, group := name(&t)
	return s.proved(p, headDigest(p.salt[:], scope, group, rest))
}

func (s *Engine) proved(p rowProof, is [32]byte) error {
	was, err := s.Leaves.RowDigest(p.leaf, int(p.place))
	switch {
	case errors.Is(err, manifest.ErrNoLeaf):
		return fmt.Errorf("%w (%w)", errUnproved, err)
	case err != nil:
		return AuditError(err)
	case was != is:
		return errUnproved
	}
	return nil
}

// unproved refuses a row without a digest, but those from before the audit had any.
func (s *Engine) unproved(lsn uint64) error {
	s.provedFrom.once.Do(func() {
		leaf, found, err := s.Leaves.FirstRows(context.Background())
		if s.provedFrom.err = AuditError(err); found {
			s.provedFrom.lsn = leaf.LSN
		}
	})
	if s.provedFrom.err != nil {
		return s.provedFrom.err
	}
	if from := s.provedFrom.lsn; from != 0 && lsn >= from {
		return fmt.Errorf("%w: it has no place in the audit, and all rows from lsn %d on have one", errUnproved, from)
	}
	return nil
}

// provedText compares a text with the digest in the head row of its page.
func (s *Engine) provedText(num uint64, r *store.PageRow, text string) error {
	if s.opts.Trust || int(r.Bytes) == len(text) && store.SaltedDigest(r.Salt[:], text) == r.Digest {
		return nil
	}
	return s.Corrupt(fmt.Sprintf("content of page %d", num), errors.New("it is not the text that was committed: its digest is another"))
}

// heldMark begins the row of a held batch that has a digest; no msgpack begins with it.
const heldMark = 0xc1

// cutHeld parts the row of a held batch from its proof; ok is false for one that has none.
func cutHeld(row []byte) (rest []byte, p rowProof, ok bool, err error) {
	if len(row) == 0 || row[0] != heldMark {
		return row, p, false, nil
	}
	rest, p, err = cutProof(row[1:])
	return rest, p, true, err
}

// provedHeld compares the row of a held batch with the digest in its leaf.
func (s *Engine) provedHeld(id []byte, row []byte) error {
	if s.opts.Trust {
		return nil
	}
	rest, p, ok, err := cutHeld(row)
	if err != nil {
		return err
	}
	if ok {
		return s.proved(p, heldDigest(p.salt[:], id, rest))
	}
	h, err := decodeHeldState(rest)
	if err != nil {
		return err
	}
	return s.unproved(max(h.LSN, h.Outcome.LSN))
}

// heldBy takes who wrote a batch, and where, from the leaf that says it was held: of a row without a digest nothing else
// can be compared.
func (s *Engine) heldBy(ctx context.Context, id ulid.ULID, h *store.HeldBatch) error {
	leaves, err := s.Leaves.ByTrace(ctx, id.String())
	if err != nil && !errors.Is(err, manifest.ErrNoLeaf) {
		return AuditError(err)
	}
	for _, l := range leaves {
		if l.Type == manifest.TypeHeld && l.Trace == id.String() {
			h.Batch.Actor, h.Batch.Scope, h.Batch.Trace = l.Actor, l.Scope, l.Parent
			return nil
		}
	}
	return errUnproved
}

// Proofs holds rows against an audit without an engine. The zero LSNs of an audit without digests refuse nothing.
type Proofs struct {
	l    *manifest.Log
	from uint64 // LSN from which head rows and held batches have digests; 0: never
}

// ProofsOf begins to hold rows against the leaves of a log.
func ProofsOf(ctx context.Context, l *manifest.Log) (Proofs, error) {
	leaf, found, err := l.FirstRows(ctx)
	if !found {
		return Proofs{l: l}, err
	}
	return Proofs{l, leaf.LSN}, err
}

// ErrEdited is what Proofs say of a row that is not the one that was committed.
var ErrEdited = errUnproved

// Head compares a head row; h is what it decodes to. A leaf that cannot be read says nothing.
func (p Proofs) Head(row []byte, h *store.Head) error {
	if row[0] == rowVersionOld {
		return p.withoutProof(h.LSN)
	}
	rest, at, err := cutProof(row)
	if err != nil {
		return err
	}
	return p.same(at, headDigest(at.salt[:], h.Scope, groupName(h), rest))
}

// Held compares the row of a held batch.
func (p Proofs) Held(id, row []byte, lsn uint64) error {
	rest, at, ok, err := cutHeld(row)
	switch {
	case err != nil:
		return err
	case !ok:
		return p.withoutProof(lsn)
	}
	return p.same(at, heldDigest(at.salt[:], id, rest))
}

// State compares a stored state row, sealed.
func (p Proofs) State(key, sealed []byte) error {
	body, err := unsealState(key, sealed)
	if err != nil {
		return err
	}
	at := stateProof(body)
	if at.leaf == noLeaf {
		return nil
	}
	was, err := p.l.StateEntry(at.leaf, int(at.place))
	if is := stateMAC(at.salt[:], stateLSN(body), key, body[stateHead:]); err == nil && is != [len(is)]byte(was[8:]) {
		return errUnproved
	}
	return p.unread(at, err)
}

func (p Proofs) withoutProof(lsn uint64) error {
	if p.from != 0 && lsn >= p.from {
		return errUnproved
	}
	return nil
}

func (p Proofs) same(at rowProof, is [32]byte) error {
	was, err := p.l.RowDigest(at.leaf, int(at.place))
	if err == nil && was != is {
		return errUnproved
	}
	return p.unread(at, err)
}

// unread tells a leaf that has no such digest from one that cannot be read, or is not there any more.
func (p Proofs) unread(at rowProof, err error) error {
	if errors.Is(err, manifest.ErrNoLeaf) && at.leaf < p.l.Size() {
		return errUnproved
	}
	return nil
}
