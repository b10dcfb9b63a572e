package engine

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/ctxpage/ctxpage/internal/archive"
	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// Audit leaves of reads. A read is answered when its leaf is with the operating system, and waits
// for the disk only if it was told to (store.Synced). So a killed process loses no leaf, and a
// power cut the leaves of the last 100 ms.
//
// The Log decides the places of leaves among the commits in flight. A leaf of a read may enter the
// tree before the leaf of a commit that began earlier, but always in the order of the log.
//
// A leaf that the log refused is not in the audit, and then the read fails: an answer that cannot
// be audited is not given.

// At tells a test that a step is reached. The test's answer becomes the error of that step.
func (s *Engine) At(step string) error {
	if s.opts.Hook == nil {
		return nil
	}
	return s.opts.Hook(step)
}

// Append implements store.Store: it writes the leaves that a caller may write.
func (s *Engine) Append(ctx context.Context, leaves []*manifest.Record, d store.Durability) error {
	if err := format.CheckLeaves(leaves); err != nil {
		return err
	}
	return s.Note(ctx, leaves, d)
}

// Note writes audit leaves, also leaves of the database itself. They are with the operating system when it
// returns. They enter the tree when they are durable; readers of the audit wait for the leaves they
// ask for (audit.go).
func (s *Engine) Note(ctx context.Context, leaves []*manifest.Record, d store.Durability) error {
	if s.opts.ReadOnly && !s.closed.Load() {
		return nil // a read-only database logs nothing, and its answers say so
	}
	if err := s.Writable(); err != nil {
		return err
	}
	asked, err := s.askedRows(leaves)
	if err != nil {
		return err
	}
	own, last, err := s.leave(ctx, leaves, asked)
	if errors.Is(err, ErrLogFull) && len(leaves) == 1 && s.opts.Space.Relieve(ctx) == nil {
		own, last, err = s.leave(ctx, leaves, asked)
	}
	if err != nil {
		return s.opts.Space.NoSpace(err, 0)
	}
	if d != store.Synced {
		err = s.log.Write()
	}
	if d == store.Synced || errors.Is(err, ErrLogClosed) { // Close syncs the log before it closes it
		err = s.log.Sync(ctx, last, nil)
	}
	if err != nil {
		return s.syncError(ctx, err)
	}
	if !s.opts.Repeat { // a log on a server numbers them later
		for i, l := range own {
			leaves[i].Index = l.Index
		}
	}
	return nil
}

// leave puts leaves into the log, each with the row of its question; asked nil: none has one. They
// are encoded before the log is asked for their places, so that no other caller waits for that, and
// hashed when they enter the tree.
func (s *Engine) leave(ctx context.Context, leaves []*manifest.Record, asked [][]byte) (own []*Leaf, last uint64, err error) {
	own = make([]*Leaf, len(leaves))
	for i, leaf := range leaves {
		own[i] = new(Leaf)
		if own[i].leaf, err = archive.EncodeLeaf(leaf); err != nil {
			return nil, 0, fmt.Errorf("ctxpage: encode leaf: %w", err)
		}
		if asked != nil {
			own[i].question = asked[i]
		}
	}
	s.seq.inFlight(own, 1)
	last, err = s.log.Leave(ctx, own)
	for i, l := range own {
		if l.Seq == 0 { // it is not in the log
			s.seq.inFlight(own[i:], -1)
			break
		}
	}
	if err != nil {
		err = enqueueError(err)
	}
	return own, last, err
}

// audit is the audit as hosts read it. The tree has durable leaves only, and a read returns
// before its own leaf is durable. So a caller that asks for leaves in flight makes them durable
// first: for a trace, if a leaf of that trace is in flight; otherwise, if any leaf is. After a
// failure it returns what was durable before.
type audit struct {
	*archive.Reader
	s *Engine
}

// Audit: see store.Store.
func (s *Engine) Audit() store.Audit { return audit{s.Leaves.Reader(s.question), s} }

// landed waits until leaves in flight are durable; trace "" stands for all. An error is
// ignored: what is durable is then the answer.
func (a audit) landed(ctx context.Context, trace string) {
	if a.s.seq.flying(trace) && a.s.Failure() == nil {
		_ = a.s.log.Sync(ctx, 0, nil) // an error leaves what is durable
	}
}

// flying reports whether a leaf of a trace is in flight; "": any leaf.
func (q *sequencer) flying(trace string) bool {
	q.flight.Lock()
	defer q.flight.Unlock()
	if trace == "" {
		return q.leaves > 0
	}
	return q.traces[archive.HashTrace(trace)%traceSlots] > 0
}

// Size: see store.Audit.
func (a audit) Size(ctx context.Context) (uint64, error) {
	a.landed(ctx, "")
	return a.Reader.Size(ctx)
}

// Wait: see store.Audit. A leaf in flight is made durable first; the goroutine that appends a later
// leaf makes that one durable soon. It may return before there is a new leaf: the caller compares
// the size.
func (a audit) Wait(ctx context.Context, size uint64, wait time.Duration) (uint64, error) {
	a.landed(ctx, "")
	return a.Reader.Wait(ctx, size, wait)
}

// Body: see store.Audit.
func (a audit) Body(ctx context.Context, i uint64) ([]byte, error) {
	b, err := a.Reader.Body(ctx, i)
	if errors.Is(err, manifest.ErrNoLeaf) {
		a.landed(ctx, "")
		b, err = a.Reader.Body(ctx, i)
	}
	return b, err
}

// Leaf: see store.Audit.
func (a audit) Leaf(ctx context.Context, i uint64) (*manifest.Record, error) {
	r, err := a.Reader.Leaf(ctx, i)
	if errors.Is(err, manifest.ErrNoLeaf) {
		a.landed(ctx, "")
		r, err = a.Reader.Leaf(ctx, i)
	}
	return r, err
}

// Records: see store.Audit.
func (a audit) Records(ctx context.Context, from, to uint64, reverse bool, limit int) ([]*manifest.Record, error) {
	a.landed(ctx, "")
	return a.Reader.Records(ctx, from, to, reverse, limit)
}

// ByTrace: see store.Audit.
func (a audit) ByTrace(ctx context.Context, trace string) ([]*manifest.Record, error) {
	a.landed(ctx, trace)
	return a.Reader.ByTrace(ctx, trace)
}

// Named implements store.Audit. A leaf in flight is a yes without waiting.
func (a audit) Named(ctx context.Context, trace string) (bool, error) {
	if a.s.seq.flying(trace) { // asked first: a leaf is taken out of flight only after it is in the tree
		return true, nil
	}
	return a.Reader.Named(ctx, trace)
}

// Names: see store.Audit.
func (a audit) Names(ctx context.Context) (map[uint64]string, error) {
	a.landed(ctx, "")
	return a.Reader.Names(ctx)
}

// Verify: see store.Audit.
func (a audit) Verify(ctx context.Context, head *manifest.Head, progress func(done, total uint64)) (manifest.Verification, error) {
	a.landed(ctx, "")
	return a.Reader.Verify(ctx, head, progress)
}

// The text of a question is personal more often than a page is, so it is not part of its leaf: a
// leaf stays forever. The text is a row of its own, by the index of the leaf, and the leaf has a
// salted digest of it. The salt goes with the row, and then the text cannot be guessed from the
// digest.
//
//	written   in the record of its leaf, so that a crash cannot separate them       leave
//	applied   by a checkpoint, with everything else in the overlay                 applySmall
//	redone    from the log, if the file does not cover the leaf yet                followQuestion
//	erased    by a commit, so that redo keeps the order                            eraseStateRows
//
// Leaves have no LSN to show whether the file has their row. So the file says up to which leaf it
// has the rows, and the record of an older leaf does not bring an erased row back.

// askedRows makes the rows of the questions of leaves, and puts their digests into the leaves; nil:
// there are none. The salt is made here and never leaves the row: whoever erases the row leaves a
// digest that nobody can try guesses against.
func (s *Engine) askedRows(leaves []*manifest.Record) (rows [][]byte, err error) {
	for i, leaf := range leaves {
		if leaf.Question == "" || leaf.QuestionKept {
			continue
		}
		if rows == nil {
			rows = make([][]byte, len(leaves))
		}
		row := make([]byte, store.DigestSaltSize, store.DigestSaltSize+len(leaf.Question))
		if _, err := io.ReadFull(s.opts.Rand, row); err != nil {
			return nil, fmt.Errorf("ctxpage: randomness: %w", err)
		}
		d := format.QuestionDigest(row, leaf.Question)
		leaf.Query, leaf.QuestionKept = d[:], true
		rows[i] = append(row, leaf.Question...)
	}
	return rows, nil
}

// addQuestion puts a row into the overlay. The caller holds cat.mu, or is recovery.
func (s *Engine) addQuestion(leaf uint64, row []byte) {
	o := s.overlay
	if o.Rows() == 0 {
		o.since = time.Now()
	}
	o.asked[leaf], o.askedTo = row, leaf+1
	o.Bytes += len(row) + 8
}

// followQuestion takes the row that came with a leaf, unless the file covers the leaf: a row that
// is missing there was erased.
func (s *Engine) followQuestion(leaf uint64, row []byte) {
	if row != nil && leaf >= s.askedFrom {
		s.addQuestion(leaf, bytes.Clone(row))
	}
}

// question returns the text that a leaf was asked. manifest.ErrNoQuestion: it was erased or not
// kept. CorruptError: it is not the text whose digest the leaf has.
func (s *Engine) question(ctx context.Context, r *manifest.Record) (string, error) {
	if err := s.Readable(ctx); err != nil {
		return "", err
	}
	if !r.QuestionKept {
		return "", manifest.ErrNoQuestion
	}
	row, err := s.questionRow(r.Index)
	switch {
	case err != nil:
		return "", err
	case row == nil:
		return "", manifest.ErrNoQuestion
	case s.opts.Trust && len(row) >= store.DigestSaltSize:
		return string(row[store.DigestSaltSize:]), nil
	}
	text, err := format.QuestionOf(r, row)
	if err != nil {
		err = s.Corrupt(fmt.Sprintf("question of leaf %d", r.Index), err)
	}
	return text, err
}

// questionRow returns the row of a leaf; nil: it has none.
func (s *Engine) questionRow(leaf uint64) ([]byte, error) {
	erased := false
	row := s.overlayRow(func(o *overlay) ([]byte, bool) {
		r, ok := o.asked[leaf]
		erased = erased || ok && r == nil
		return r, ok
	})
	if row != nil || erased {
		return row, nil
	}
	row, err := s.row(TableQuestion, 'q', format.QuestionKey(leaf))
	if errors.Is(err, codec.ErrDestroyed) {
		return nil, nil
	}
	return row, err
}

// questions walks I1 and I18 over the rows of questions. It compares their sum (I13) only if each
// row and their number are right, because otherwise the sum tells nothing new.
func (c *invariantWalk) questions() error {
	return c.s.rows.View(func(tx Reader) error {
		before, n := len(c.problems), 0
		err := each(tx, TableQuestion, func(k, v []byte) error {
			n++
			where := fmt.Sprintf("question %x", k)
			if codec.IsDestroyed(v) {
				return nil
			}
			row, err := codec.Unseal('q', k, v)
			if err != nil || len(k) != 8 {
				c.bad("I1", where, "%v", errors.Join(err, codec.ErrMalformed))
				return nil
			}
			leaf, err := c.s.Leaves.Leaf(binary.BigEndian.Uint64(k))
			if err == nil {
				_, err = format.QuestionOf(leaf, row)
			}
			if err != nil {
				c.bad("I18", where, "%v", err)
			}
			return nil
		})
		if _, sum := SumRows(tx); err == nil && sum != c.base.Rows.AskedSum && n == c.base.Rows.question && len(c.problems) == before {
			c.bad("I13", "file", "rows of question are not those that the system row was written with")
		}
		return err
	})
}

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

// provedHead compares a head row with the digest in its leaf. name returns the names of its scope and
// its group. nil means that the row is the committed one, ErrEdited that it is not. Any other error
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
