package engine

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// The text of a question is personal more often than a page is, so it is not part of its leaf: a
// leaf stays forever. The text is a row of its own, by the index of the leaf, and the leaf has a
// salted digest of it. The salt goes with the row, and then the text cannot be guessed from the
// digest.
//
//	written   in the record of its leaf, so that a crash cannot separate them       leave
//	applied   by a checkpoint, with everything else in the overlay                 applyQuestions
//	redone    from the log, if the file does not cover the leaf yet                followQuestion
//	erased    by a commit, so that redo keeps the order                            eraseStateRows
//
// Leaves have no LSN that says whether the file has their row. So the file says up to which leaf it
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

// applyQuestions writes the rows of questions and removes the erased ones.
func applyQuestions(tx Writer, seals *sealBuffer, o *overlay, n *RowCounts) error {
	for _, leaf := range slices.Sorted(maps.Keys(o.asked)) {
		key, row := format.QuestionKey(leaf), o.asked[leaf]
		previous := tx.Get(TableQuestion, key)
		was := previous != nil
		n.AskedSum -= rowSum(previous)
		if row == nil {
			if err := tx.Delete(TableQuestion, key); err != nil {
				return err
			}
			if was {
				n.question--
			}
			continue
		}
		if !was {
			n.question++
		}
		row = sealed(seals, 'q', key, row)
		n.AskedSum += rowSum(row)
		if err := tx.Put(TableQuestion, key, row); err != nil {
			return err
		}
	}
	return nil
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
