package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/oklog/ulid/v2"
)

// A checksum finds damage by the disk. It does not find an edit by a program that recomputes the
// checksum. So the leaf of the commit that wrote a head row, or the row of a held batch, has a
// salted digest of it, and the leaves are under a tree whose head is kept elsewhere. A row says
// which leaf has its digest. If a row is edited to name another leaf, that leaf does not have its
// digest.
//
//	written    sequencer: rows get their place in the leaf, the leaf their digests                    addHead, setHeld
//	compared   when a row is read from the file, and for each row of the log when it is redone         proved
//	old rows   those older than the first leaf with digests have none; a check counts them             unproved
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
// its group. nil means that the row is what was committed, or is older than all digests; ErrEdited
// that it is not. Any other error says that row or audit could not be read.
func (s *Engine) provedHead(k format.HeadKey, row []byte, name func(*format.Hot) (scope, group string)) error {
	if s.Leaves == nil || s.opts.Trust { // the index alone is made before the audit is open
		return nil
	}
	t := format.DecodeHot(&codec.Decoder{B: row})
	if t.Art != k.Art || t.Version != k.Version {
		return codec.ErrMalformed
	}
	if len(row) > 0 && row[0] == format.RowVersionOld {
		return s.unproved(t.LSN)
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

// firstEntry is the LSN from which all rows of a kind have a place in the audit; 0: none has. It is
// looked up once.
type firstEntry struct {
	once sync.Once
	lsn  uint64
	err  error
}

// refuse refuses a row without a place in the audit, but those from before the audit had any.
func (f *firstEntry) refuse(lsn uint64, rows string, first func() (uint64, error)) error {
	f.once.Do(func() { f.lsn, f.err = first() })
	if f.err != nil {
		return f.err
	}
	if f.lsn != 0 && lsn >= f.lsn {
		return fmt.Errorf("%w: it has no place in the audit, and all %s from lsn %d on have one", format.ErrEdited, rows, f.lsn)
	}
	return nil
}

// unproved refuses a row without a digest, unless it is older than all digests.
func (s *Engine) unproved(lsn uint64) error {
	return s.provedFrom.refuse(lsn, "rows", func() (uint64, error) {
		leaf, found, err := s.Leaves.FirstRows(context.Background())
		if !found {
			return 0, AuditError(err)
		}
		return leaf.LSN, AuditError(err)
	})
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
	rest, p, ok, err := format.CutHeld(row)
	if err != nil {
		return err
	}
	if ok {
		return s.proved(p, format.HeldDigest(p.Salt[:], id, rest))
	}
	h, err := format.DecodeHeldState(rest)
	if err != nil {
		return err
	}
	return s.unproved(max(h.LSN, h.Outcome.LSN))
}

// heldBy takes the writer and scope of a batch from the leaf that says it was held. In a row
// without a digest nothing else can be compared.
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
	return format.ErrEdited
}
