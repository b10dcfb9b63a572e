package engine

import (
	"errors"
	"fmt"
	"io"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// A checksum finds damage by the disk. It does not find an edit by a program that recomputes the
// checksum. So the leaf of the commit that wrote a head row, or the row of a held batch, has a
// salted digest of it, and the leaves are under a tree whose head is kept elsewhere. A row says
// which leaf has its digest. If a row is edited to name another leaf, that leaf does not have its
// digest.
//
//	written    sequencer: rows get their place in the leaf, the leaf their digests                    addHead, setHeld
//	compared   when a row is read from the file, and for each row of the log when it is redone         proved
//
// The text of a page is under the digest in its head row, and so under the leaf.
//
// The salt keeps an erased row from being guessed from its digest. It is in the row, so it goes
// with the row.

// addHead adds a head to a commit, and its digest to the leaf.
func (s *Engine) addHead(rec *format.Commit, leaf *manifest.Record, hr format.HeadRecord, scope uint32, group string, cold []byte) error {
	h := hr.Head
	p := format.Proof{Leaf: rec.Leaf, Place: uint32(len(leaf.Rows))}
	if len(h.Rows) > 0 && h.ErasedBy == "" { // the salt of an erased row is gone
		p.Salt = h.Rows[0].Salt
	} else if _, err := io.ReadFull(s.opts.Rand, p.Salt[:]); err != nil {
		return fmt.Errorf("ctxpage: randomness: %w", err)
	}
	row := format.EncodeHead(make([]byte, 0, format.HeadRowSize(h, cold)), h, scope, cold)
	d := format.HeadDigest(p.Salt[:], h.Scope, group, row)
	leaf.Rows = append(leaf.Rows, d[:])
	hr.Row = p.AppendHead(row)
	rec.Heads = append(rec.Heads, hr)
	return nil
}

// provedHead compares a head row with the digest in its leaf. The names are those of its scope and
// its group. nil means that the row is what was committed, ErrEdited that it is not. Any other error
// says that row or audit could not be read.
func (s *Engine) provedHead(k format.HeadKey, row []byte, name func(*format.Hot) (scope, group string)) error {
	if s.Leaves == nil || s.opts.Trust { // the index alone is made before the audit is open
		return nil
	}
	t := format.DecodeHot(&codec.Decoder{B: row})
	if t.Art != k.Art || t.Version != k.Version {
		return codec.ErrMalformed
	}
	rest, p, err := format.CutHeadProof(row)
	if err != nil {
		return err
	}
	if s.destroyed(p) {
		return nil
	}
	scope, group := name(&t)
	return s.proved(p, format.HeadDigest(p.Salt[:], scope, group, rest))
}

// proved compares a digest with the one at its place in the audit.
func (s *Engine) proved(p format.Proof, is [32]byte) error {
	was, err := s.Leaves.RowDigest(p.Leaf, int(p.Place))
	return proofError(was == is, err)
}

// proofError returns the error of comparing a row with its leaf: equal is the result, and err the
// error of reading the leaf.
func proofError(equal bool, err error) error {
	switch {
	case errors.Is(err, manifest.ErrNoLeaf):
		return fmt.Errorf("%w (%w)", format.ErrEdited, err)
	case err != nil:
		return AuditError(err)
	case !equal:
		return format.ErrEdited
	}
	return nil
}

// provedText compares a text with the digest in the head row of its page.
func (s *Engine) provedText(num uint64, r *store.PageRow, text string) error {
	if s.opts.Trust || int(r.Bytes) == len(text) && store.SaltedDigest(r.Salt[:], text) == r.Digest {
		return nil
	}
	return s.Corrupt(fmt.Sprintf("content of page %d", num), errors.New("it is not the text that was committed: its digest differs"))
}

// provedHeld compares the row of a held batch with the digest in its leaf.
func (s *Engine) provedHeld(id []byte, row []byte) error {
	if s.opts.Trust {
		return nil
	}
	rest, p, err := format.CutProof(row)
	if err != nil {
		return err
	}
	return s.proved(p, format.HeldDigest(p.Salt[:], id, rest))
}
