package engine

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/store"
	"github.com/oklog/ulid/v2"
)

// The way of a record that was not judged here: written before this process began, or by another host on the same order.
//
//	mark      size and root of the audit as its writer had it: the leaves up to here must hash to it
//	leaf      into the audit, its question into the overlay
//	commit    its leaf into the audit; below the LSN of the rows nothing else, at that LSN it is compared with them,
//	          above it goes into catalogue, index and overlay as if it had been installed here
//
// A record decides nothing: what it says was judged when it was written, and judging it anew could end in another way
// after a rule changed. So redo checks that a record is possible (numbers are the next ones, rows decode and have the
// digests that its leaf says) and never whether it was right.
//
// Recovery calls Follow from one goroutine before anybody reads. A host that follows others calls it while readers run:
// each record takes cat.mu by itself, so a reader sees whole commits.

// RecordError is a record of the log that is wrong.
type RecordError struct {
	LSN  uint64
	Err  error
	Hint string
}

func (e *RecordError) Error() string { return e.Err.Error() }

func (e *RecordError) Unwrap() error { return e.Err }

// Position: see Follower.
func (s *Engine) Position() Position {
	s.cat.mu.RLock()
	p := Position{LSN: s.cat.lsn}
	s.cat.mu.RUnlock()
	p.Leaves = s.Leaves.Size()
	p.Root, _ = s.Leaves.Root(p.Leaves) // of an audit that is closed: no order has the root of nothing there
	return p
}

// Counters: see Follower.
func (s *Engine) Counters() Counters {
	c := s.cat
	c.mu.RLock()
	defer c.mu.RUnlock()
	return Counters{LSN: c.lsn + 1, Leaf: s.Leaves.Size(), Art: uint64(len(c.arts)) + 1, Num: uint64(len(c.pages)) + 1, Group: uint64(len(c.groups)) + 1}
}

// Follow takes the next record of the log: a leaf into the audit, a commit above the LSN of the rows into catalogue and
// overlay too. A *RecordError says what is wrong with the record. See Follower.
func (s *Engine) Follow(kind Kind, seq uint64, body []byte) error {
	switch kind {
	case KindMark:
		var wrong *store.CorruptError
		if err := s.Leaves.CheckMark(body); err != nil && !errors.As(err, &wrong) {
			return err // the archive could not be read, which says nothing of what is in it
		} else if err != nil {
			return &RecordError{Err: err, Hint: "the audit log differs from its mark; restore a backup"}
		}
		return nil
	case KindLeaf:
		index, leaf, question, err := DecodeLeaf(body)
		if err != nil {
			return &RecordError{Err: err}
		}
		if err := s.followLeaf(index, leaf); err != nil {
			return err
		}
		s.cat.mu.Lock()
		defer s.cat.mu.Unlock()
		s.followQuestion(index, question)
		return nil
	}
	index, leaf, lsn, err := commitHead(body)
	if err != nil {
		return &RecordError{Err: err}
	}
	if err := s.followLeaf(index, leaf); err != nil {
		return err
	}
	if lsn < s.cat.lsn || lsn == s.cat.lsn && lsn != s.applied {
		return nil // in the rows already; the log is kept one checkpoint longer than it is needed
	}
	c, err := DecodeCommit(body)
	switch {
	case err != nil:
		return &RecordError{Err: err}
	case lsn == s.applied:
		return s.sameHistory(c)
	case c.LSN != s.cat.lsn+1:
		return &RecordError{LSN: c.LSN, Err: fmt.Errorf("expected lsn %d", s.cat.lsn+1)}
	}
	ended, err := s.redoCommit(c, seq)
	if err != nil {
		return err
	}
	s.seq.flight.Lock()
	s.seq.named(c)
	s.seq.flight.Unlock()
	s.changes.add(lsn, ended)
	return nil
}

// followLeaf takes a leaf of the log into the audit, which may have it from the archive.
func (s *Engine) followLeaf(index uint64, leaf []byte) error {
	s.followed = max(s.followed, index+1)
	return s.Leaves.Add(index, leaf)
}

// sameHistory compares the newest commit that rows and log both have: a log does not say whose it is, and its numbers
// may fit by chance. A head has random salts.
func (s *Engine) sameHistory(c *commitRecord) error {
	forgotten := map[uint64]bool{} // one commit may fold rows of an artefact and then remove them all
	for i := range c.Heads {
		if t := DecodeHot(&codec.Decoder{B: c.Heads[i].Row}); t.Flags&flagForgotten != 0 {
			forgotten[t.Art] = true
		}
	}
	return s.rows.View(func(tx Reader) error {
		for i := range c.Heads {
			d := codec.Decoder{B: c.Heads[i].Row}
			t := DecodeHot(&d)
			if forgotten[t.Art] {
				continue
			}
			key := headRowKey(HeadKey{t.Art, t.Version})
			row, err := codec.Unseal('m', key, tx.Get(TableMeta, key))
			if err != nil || !bytes.Equal(row, c.Heads[i].Row) {
				return &RecordError{LSN: c.LSN, Err: errors.Join(errors.New("it is not the log of this file"), err),
					Hint: "put the right one in its place; or " + store.HintSalvage}
			}
		}
		return nil
	})
}

func (s *Engine) redoCommit(c *commitRecord, seq uint64) (ended []uint64, err error) {
	s.cat.mu.Lock()
	defer s.cat.mu.Unlock()
	if !s.cat.namesFollow(c) {
		return nil, &RecordError{LSN: c.LSN, Err: codec.ErrMalformed}
	}
	s.cat.addNames(c)
	for i := range c.Heads {
		row := c.Heads[i].Row
		h, err := DecodeHead(row, s.cat.scopeName)
		if err == nil && row[0] != rowVersionOld {
			err = s.provedHead(HeadKey{h.Art, h.Version}, row, s.cat.names)
		}
		if err != nil {
			return nil, &RecordError{LSN: c.LSN, Err: err}
		}
		c.Heads[i].head = h
	}
	if err = s.redoneState(c); err == nil {
		ended, err = s.install(c, seq)
	}
	if err != nil {
		return nil, &RecordError{LSN: c.LSN, Err: err}
	}
	return ended, nil
}

// namesFollow says whether the names of a record are the next ones. Numbers are dense.
func (c *catalogue) namesFollow(r *commitRecord) bool {
	scopes, groups := len(c.scopes), len(c.groups)
	for i, n := range r.Scopes {
		if int(n.Num) != scopes+i+1 {
			return false
		}
	}
	for i, g := range r.groups {
		if g.num != uint64(groups+i+1) {
			return false
		}
	}
	return true
}

func (c *catalogue) addNames(r *commitRecord) {
	for _, n := range r.Scopes {
		c.addScope(n.Num, n.Name)
	}
	for _, g := range r.groups {
		c.addGroup(g.num, g.scope, g.name)
	}
}

// install makes a durable commit visible: catalogue, overlay, lexical tail. The caller holds cat.mu.
// It returns the page versions that stopped being current.
func (s *Engine) install(c *commitRecord, seq uint64) (ended []uint64, err error) {
	s.cat.addNames(c)
	o := s.overlay
	if o.Rows() == 0 {
		o.since = time.Now()
	}
	var later []supersession
	for i := range c.Heads {
		h := &c.Heads[i]
		d := codec.Decoder{B: h.Row}
		t := DecodeHot(&d)
		rows := DecodeRows(&d, nil)
		if d.Err != nil {
			return nil, d.Err
		}
		if err := s.validateHot(&t, rows); err != nil {
			return nil, err
		}
		if t.Flags&(flagFloor|flagForgotten) != 0 {
			if err := s.installForget(&t, rows, h.Row); err != nil {
				return nil, err
			}
			continue
		}
		if t.Flags&FlagGone != 0 {
			if err := s.installGone(&t, rows, h.Row, &ended); err != nil {
				return nil, err
			}
			continue
		}
		if t.Art <= uint64(len(s.cat.arts)) {
			ended = append(ended, s.cat.nums(t.Art)...)
		}
		var err error
		if t.facts, err = s.cat.facts.ofRow(h.Row[0], d); err != nil {
			return nil, err
		}
		s.cat.install(&t, rows)
		s.cat.addSummary(&t, h.head.DerivedFrom)
		if len(h.head.Supersedes) > 0 {
			later = append(later, supersession{t.Scope, h.head.Supersedes, t.Art, t.lsn})
		}
		o.heads[HeadKey{t.Art, t.Version}] = h.Row
		o.Bytes += len(h.Row)
		for j, x := range h.Texts {
			o.texts[x.Num] = x.Text
			o.Bytes += len(x.Text)
			// A checkpoint may have flushed postings of commits above the LSN it applied; redo must not add them twice.
			if c.built == nil && x.Num > s.index.Through() {
				s.index.Add(s.doc(x.Num, t.Scope, h.head, x.Text, x.analysis))
				h.Texts[j].analysis = nil // it is large, and the record is kept for a while
			}
		}
	}
	if c.built != nil {
		s.index.AddBuilt(c.built)
		c.built = nil // the record is kept for a while
	}
	s.cat.retire(later)
	for i, r := range c.State {
		if id, ok := strings.CutPrefix(r.Key, reviewGonePrefix); ok && len(id) == len(ulid.ULID{}) {
			o.held[ulid.ULID([]byte(id))] = []byte{}
			s.heldChanges, s.heldKnown = s.heldChanges+1, false // nobody looks whether it waited
			continue
		}
		if leaf, ok := GoneQuestion(r.Key); ok {
			o.asked[leaf] = nil
			continue
		}
		o.state[r.Key] = stateBody(c.LSN, c.stateProof(i), r.Value)
		o.Bytes += len(r.Key) + len(r.Value) + stateHead
	}
	if len(c.Held) > 0 {
		o.held[c.HeldID] = c.Held
		o.Bytes += len(c.Held)
		s.heldChanges++
		if c.HeldID == c.batch { // held; else one is decided, and only once
			s.heldOpen++
		} else {
			s.heldOpen--
		}
	}
	if len(c.result) > 0 {
		o.result[c.batch] = c.result
		o.Bytes += len(c.result)
	}
	o.scopes = append(o.scopes, c.Scopes...)
	o.groups = append(o.groups, c.groups...)
	o.LSN, o.Seq, o.Leaves, o.high = c.LSN, seq, c.leaf+1, s.cat.highest()
	s.cat.lsn = c.LSN
	s.countUnflushed()
	return ended, nil
}
