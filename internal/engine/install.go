package engine

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/ctxpage/ctxpage/internal/archive"
	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/store"
)

// The installer makes durable commits visible, in the order of the log. Leaves enter the tree here
// and nowhere else. So a head, a proof or the archive never contains a leaf that a failed sync
// could take away.
//
//	leaf         its question into the overlay, then the leaf into the tree: a reader that finds the leaf finds the question
//	commit       its leaf first, then its pages: a reader that sees a page finds the record of who wrote it
//	installed    catalogue, index and overlay under one lock, a few commits at a time; then their callers are woken
//
// The log calls it for one group at a time, while it syncs the next group. The installer holds no
// other lock of the store, and the log waits for its report. So it must not call the log, and no
// goroutine may wait for the log while it holds a lock that the installer needs (flight,
// catalogue.mu and what follows them).
//
// Crash: a commit that is durable and not installed at a crash is installed by redo. Every
// installed commit was durable. A caller that was answered can therefore never lose its commit, and
// a reader never saw a page that is gone after a restart.
//
// Failure: there is no way back from an install that stopped half way, so the engine fails and
// takes no more commits. Readers go on with the installed commits.

// installAtOnce is the number of commits that are made visible under one lock. The callers of the first
// commits of a large group are at work again while the rest is installed.
const installAtOnce = 4

// Durable implements Follower. The leader of a group calls it after its sync, before the log wakes
// the others of the group. It wakes the caller of each batch as soon as that batch is installed.
func (s *Engine) Durable(entries []Entry) {
	if !s.seq.installing(entries) {
		return
	}
	some := make([]*Commit, 0, installAtOnce)
	for len(entries) > 0 {
		n := 0
		for n < len(entries) && len(some) < installAtOnce {
			reads := 0 // leaves of reads that come next
			for reads < min(len(entries)-n, leavesAtOnce) && entries[n+reads].Commit == nil {
				reads++
			}
			if err := s.installLeaves(entries[n : n+max(reads, 1)]); err != nil {
				s.failInstall(err, append(some, commits(entries[n:])...))
				return
			}
			if reads == 0 {
				some = append(some, entries[n].Commit)
			}
			n += max(reads, 1)
		}
		if err := s.installSome(some); err != nil {
			s.failInstall(err, append(some, commits(entries[n:])...))
			return
		}
		some, entries = some[:0], entries[n:]
	}
}

// failInstall ends the engine: the memory no longer follows the log. A durable commit that cannot
// be installed is a bug of ours, or comes from the log of another database. The commits before the
// one that failed are installed and answered. left has not been answered: their callers learn that
// the outcome is unknown, which is true, since the log has them.
func (s *Engine) failInstall(err error, left []*Commit) {
	_ = s.Fail(err)
	for _, c := range left { // the installer has them, so abandon did not close them
		close(c.done)
	}
}

// commits returns the commits among entries, in their order.
func commits(entries []Entry) (out []*Commit) {
	for _, e := range entries {
		if e.Commit != nil {
			out = append(out, e.Commit)
		}
	}
	return out
}

// installing marks the commits as the installer's, so that abandon leaves them alone. It returns
// false if the engine was abandoned before: then abandon has closed them, and nothing is installed.
func (q *sequencer) installing(entries []Entry) bool {
	q.flight.Lock()
	defer q.flight.Unlock()
	if q.broken {
		return false
	}
	for _, e := range entries {
		if e.Commit != nil {
			e.Commit.installing = true
		}
	}
	return true
}

// leavesAtOnce is the number of leaves of reads that enter the tree under one lock: readers of the audit wait
// for it.
const leavesAtOnce = 64

// installLeaves takes into the audit the leaf of a commit, or the leaves of some reads. The index of a
// large commit is built here at the latest, before catalogue.mu is taken.
func (s *Engine) installLeaves(entries []Entry) error {
	if c := entries[0].Commit; c != nil {
		if c.large {
			s.prebuild(c)
		}
		return s.Leaves.AddNew(c.record.Leaf, c.leaf)
	}
	var run [leavesAtOnce]*archive.Leaf
	for i, e := range entries {
		if l := e.Leaf; l.question != nil {
			s.cat.mu.Lock()
			s.addQuestion(l.Index, l.question)
			s.countUnflushed()
			s.cat.mu.Unlock()
		}
		run[i] = &e.Leaf.leaf
	}
	if err := s.Leaves.AddRun(entries[0].Leaf.Index, run[:len(entries)]); err != nil {
		return err
	}
	s.seq.flight.Lock()
	defer s.seq.flight.Unlock()
	for _, e := range entries {
		s.seq.leaf(e.Leaf, -1)
	}
	return nil
}

// installSome makes commits visible, takes them out of flight, reports what ended, and wakes their
// callers, in that order. A caller that is awake must see its commit, must not meet it in flight,
// and must find its changes.
func (s *Engine) installSome(some []*Commit) error {
	if len(some) == 0 {
		return nil
	}
	var ended []uint64 // page versions that stopped being current
	s.cat.mu.Lock()
	for _, c := range some {
		e, err := s.install(&c.record, c.Seq)
		if err != nil {
			s.cat.mu.Unlock()
			return err
		}
		c.installed = true
		ended = append(ended, e...)
	}
	s.cat.mu.Unlock()
	q := &s.seq
	var told []store.StateRow
	q.flight.Lock()
	for _, c := range some {
		q.drop(c)
		if len(c.record.State) > 0 {
			told = append(told, s.told(&c.record)...)
		}
	}
	q.flight.Unlock()
	s.changes.add(some[len(some)-1].record.LSN, ended, told)
	for _, c := range some {
		close(c.done)
	}
	s.indexBehind()
	return nil
}

// Follow takes records that were not judged here: they were written before this process began, or
// by another host on the same order.
//
//	mark      size and root of the audit as its writer had it: the leaves up to here must hash to it
//	leaf      into the audit, its question into the overlay
//	commit    its leaf into the audit. Below the LSN of the rows nothing else; at that LSN it is compared with the rows;
//	          above it, it goes into catalogue, index and overlay as if it had been installed here
//
// Following a record decides nothing. The commit was judged when it was written; judging it again
// could give another result after a rule changed. So redo checks that a record is possible (numbers
// are the next ones, rows decode and have the digests that its leaf says), and never whether it was
// right.
//
// Recovery calls Follow from one goroutine before there are readers. A host that follows others
// calls it while readers run: each record takes cat.mu once, so a reader sees whole commits.
//
// Crash: the log is kept one checkpoint longer than it is needed, so redo meets commits that the
// rows already have. It skips them by LSN. Leaves have no LSN; the audit skips those that the
// archive has, and questions have a mark of their own (askedTo).

// RecordError is the error of a wrong record of the log. The Log adds the file and offset. LSN is 0 if
// it is not known.
type RecordError struct {
	LSN  uint64
	Err  error
	Hint string
}

// Error returns the text of Err alone: the Log names file and offset.
func (e *RecordError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *RecordError) Unwrap() error { return e.Err }

// Position implements Follower.
func (s *Engine) Position() Position {
	s.cat.mu.RLock()
	p := Position{LSN: s.cat.lsn}
	s.cat.mu.RUnlock()
	p.Leaves = s.Leaves.Size()
	p.Root, _ = s.Leaves.Root(p.Leaves) // zero if the audit is closed: no order has that root
	return p
}

// Counters implements Follower.
func (s *Engine) Counters() Counters {
	c := s.cat
	c.mu.RLock()
	defer c.mu.RUnlock()
	return Counters{LSN: c.lsn + 1, Leaf: s.Leaves.Size(), Art: uint64(c.arts.len()) + 1, Num: uint64(c.pages.len()) + 1, Group: uint64(len(c.groups)) + 1}
}

// Follow implements Follower: it takes the next record of the log. A *RecordError says what is
// wrong with the record; other errors mean that something could not be read.
//
// The caller decides what to do about a wrong record. Recovery of an embedded log refuses to open,
// because later records may depend on it.
func (s *Engine) Follow(kind Kind, seq uint64, body []byte) error {
	switch kind {
	case KindMark:
		var wrong *store.CorruptError
		if err := s.Leaves.CheckMark(body); err != nil && !errors.As(err, &wrong) {
			return err // the archive could not be read, which is no damage of its content
		} else if err != nil {
			return &RecordError{Err: err, Hint: "the audit log differs from its mark; restore a backup"}
		}
		return nil
	case KindLeaf:
		index, leaf, question, err := format.DecodeLeaf(body)
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
	index, leaf, lsn, err := format.CommitStart(body)
	if err != nil {
		return &RecordError{Err: err}
	}
	if err := s.followLeaf(index, leaf); err != nil {
		return err
	}
	if lsn < s.cat.lsn || lsn == s.cat.lsn && lsn != s.applied {
		return nil // in the rows already; the log is kept one checkpoint longer than it is needed
	}
	c, err := format.DecodeCommit(body)
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
	s.indexBehind()
	s.seq.watch.followed(c)
	s.changes.add(lsn, ended, s.told(c))
	return nil
}

// followLeaf takes a leaf of the log into the audit. The audit may have it from the archive
// already; then the two must agree.
func (s *Engine) followLeaf(index uint64, leaf []byte) error {
	s.followed = max(s.followed, index+1)
	return s.Leaves.Add(index, leaf)
}

// sameHistory compares the newest commit that rows and log both have: a log does not say whose it
// is, and its numbers may fit by chance. A head has random salts.
func (s *Engine) sameHistory(c *format.Commit) error {
	forgotten := map[uint64]bool{} // one commit may fold rows of an artefact and then remove them all
	for i := range c.Heads {
		if t := format.DecodeHot(&codec.Decoder{B: c.Heads[i].Row}); t.Flags&format.FlagForgotten != 0 {
			forgotten[t.Art] = true
		}
	}
	return s.rows.View(func(tx Reader) error {
		for i := range c.Heads {
			d := codec.Decoder{B: c.Heads[i].Row}
			t := format.DecodeHot(&d)
			if forgotten[t.Art] {
				continue
			}
			key := format.HeadRowKey(format.HeadKey{Art: t.Art, Version: t.Version})
			row, err := codec.Unseal('m', key, tx.Get(TableMeta, key))
			if err != nil || !bytes.Equal(row, c.Heads[i].Row) {
				return &RecordError{LSN: c.LSN, Err: errors.Join(errors.New("it is not the log of this file"), err),
					Hint: "put the right one in its place; or " + store.HintSalvage}
			}
		}
		return nil
	})
}

// redoCommit installs a commit of the log. Before it changes anything that readers see, it checks
// that the names of the record are the next ones, that each head decodes, and that heads and state
// rows have the digests that the leaf says.
func (s *Engine) redoCommit(c *format.Commit, seq uint64) (ended []uint64, err error) {
	s.cat.mu.Lock()
	defer s.cat.mu.Unlock()
	if !s.cat.namesFollow(c) {
		return nil, &RecordError{LSN: c.LSN, Err: codec.ErrMalformed}
	}
	s.cat.addNames(c)
	for i := range c.Heads {
		row := c.Heads[i].Row
		h, err := format.DecodeHead(row, s.cat.scopeName)
		if err == nil {
			err = s.provedHead(format.HeadKey{Art: h.Art, Version: h.Version}, row, s.cat.names)
		}
		if err != nil {
			return nil, &RecordError{LSN: c.LSN, Err: err}
		}
		c.Heads[i].Head = h
	}
	if err = s.redoneState(c); err == nil {
		ended, err = s.install(c, seq)
	}
	if err != nil {
		return nil, &RecordError{LSN: c.LSN, Err: err}
	}
	return ended, nil
}

// namesFollow reports whether the names of a record are the next ones. Numbers are dense.
func (c *catalogue) namesFollow(r *format.Commit) bool {
	scopes, groups := len(c.scopes.cols), len(c.groups)
	for i, n := range r.Scopes {
		if int(n.Num) != scopes+i+1 {
			return false
		}
	}
	for i, g := range r.Groups {
		if g.Num != uint64(groups+i+1) {
			return false
		}
	}
	return true
}

// addNames enters the new scopes and groups of a record. Names that are there already
// are left as they are, so install may call it again after redoCommit did.
func (c *catalogue) addNames(r *format.Commit) {
	for _, n := range r.Scopes {
		c.addScope(n.Num, n.Name)
	}
	for _, g := range r.Groups {
		c.addGroup(g.Num, g.Scope, g.Name)
	}
}

// install makes a durable commit visible: catalogue, overlay, lexical tail. The caller holds
// cat.mu. It returns the page versions that stopped being current.
//
// Its steps, in order; nothing is taken back if one fails, and then the engine fails as a whole:
//
//	names       new scopes and groups
//	heads       each is a new version, or takes something away: content (gone), rows below it (floor), all rows (forgotten)
//	retire      supersessions, when all heads of the commit are known
//	clear       columns of pages that forgotten artefacts had, in one walk for the whole commit
//	state       rows, and the keys that stand for deletions of reviews, questions, scopes and groups
//	held        the row of a held batch, and how many wait for review
//	result      the outcome, by the id of the batch
//	position    LSN, record and leaf of the overlay; then the LSN that readers see
func (s *Engine) install(c *format.Commit, seq uint64) (ended []uint64, err error) {
	if len(c.Scopes)+len(c.Groups) > 0 {
		s.cat.addNames(c)
	}
	o := s.overlay
	if o.Rows() == 0 {
		o.since = time.Now()
	}
	var to installed
	for i := range c.Heads {
		if err := s.installHead(c, &c.Heads[i], &to); err != nil {
			return nil, err
		}
	}
	if c.Built != nil {
		s.index.AddBuilt(c.Built)
		c.Built = nil // the record is kept for a while
	}
	if len(to.later) > 0 {
		s.cat.retire(to.later)
	}
	if len(to.forgot) > 0 {
		s.cat.clear(to.forgot, nil)
	}
	if len(c.State) > 0 {
		if err := s.dropScopes(goneScopes(c.State)); err != nil {
			return nil, err
		}
	}
	for i := range c.State {
		s.installState(c, i)
	}
	if len(c.State)+len(c.Held) > 0 {
		s.quotaInstalled(c)
	}
	if len(c.Held) > 0 {
		s.installHeld(c)
	}
	if len(c.Result) > 0 {
		o.result[c.Batch] = c.Result
		o.Bytes += len(c.Result)
	}
	o.scopes = append(o.scopes, c.Scopes...)
	o.groups = append(o.groups, c.Groups...)
	o.LSN, o.Seq, o.Leaves, o.high = c.LSN, seq, c.Leaf+1, s.cat.highest()
	s.cat.lsn = c.LSN
	s.countUnflushed()
	return to.ended, nil
}

// installed collects, from the heads of a commit, work for the later steps of install.
type installed struct {
	ended  []uint64          // page versions that stopped being current
	later  []supersession    // of new versions
	forgot map[uint64]uint32 // artefacts whose rows are removed, with the version of the head
}

// installHead installs one head: a new version, or one that takes something away.
func (s *Engine) installHead(c *format.Commit, h *format.HeadRecord, to *installed) error {
	d := codec.Decoder{B: h.Row}
	t := format.DecodeHot(&d)
	rows := format.DecodeRows(&d, &t, s.pageRows) // nobody keeps them
	s.pageRows = rows[:0]
	if d.Err != nil {
		return d.Err
	}
	if err := s.validateHot(&t, rows); err != nil {
		return err
	}
	// A row of a known version takes something away from it: its content, or the rows below it.
	came := t.Art > uint64(s.cat.arts.len()) || t.Version > s.cat.newestOf(s.cat.art(t.Art)).version
	if !came && t.Flags&(format.FlagFloor|format.FlagForgotten) != 0 {
		if err := s.installForget(&t, rows, h.Row); err != nil {
			return err
		}
		if t.Flags&format.FlagForgotten != 0 {
			if to.forgot == nil {
				to.forgot = map[uint64]uint32{}
			}
			to.forgot[t.Art] = t.Version
		}
		return nil
	}
	if !came && t.Flags&format.FlagGone != 0 {
		return s.installGone(&t, rows, h.Row, &to.ended)
	}
	if t.Art <= uint64(s.cat.arts.len()) {
		for _, num := range s.cat.nums(t.Art) {
			to.ended = append(to.ended, uint64(num))
		}
	}
	if err := s.cat.facts.ofRow(&t, d); err != nil {
		return err
	}
	s.cat.install(&t, rows)
	if t.Kind == store.KindSummary {
		s.cat.addSummary(&t, h.Head.DerivedFrom)
	}
	if len(h.Head.Supersedes) > 0 {
		to.later = append(to.later, supersession{t.Scope, h.Head.Supersedes, t.Art, t.LSN})
	}
	o := s.overlay
	o.heads[format.HeadKey{Art: t.Art, Version: t.Version}] = h.Row
	if t.Flags&format.FlagFloor != 0 {
		o.floors[t.Art] = t.Version
	}
	o.Bytes += len(h.Row)
	for j, x := range h.Texts {
		o.texts[x.Num] = x.Text
		o.Bytes += len(x.Text)
		// A checkpoint may have flushed postings of commits above the LSN it applied; redo must
		// not add them twice.
		if c.Built == nil && x.Num > s.index.Through() {
			s.index.Add(s.doc(x.Num, t.Scope, h.Head, x.Text, x.Analysis))
			h.Texts[j].Analysis = nil // it may be large, and the record is kept for a while
		}
	}
	return nil
}

// installState installs state row i of a commit, or what its key stands for.
func (s *Engine) installState(c *format.Commit, i int) {
	o, r := s.overlay, &c.State[i]
	if id, ok := format.GoneReview(r.Key); ok {
		o.held[id] = []byte{}
		s.heldChanges, s.heldKnown = s.heldChanges+1, false // whether it waited for review is not looked up
		return
	}
	if leaf, ok := format.GoneQuestion(r.Key); ok {
		o.asked[leaf] = nil
		return
	}
	if _, _, ok := goneScope(r.Key); ok {
		return
	}
	if num, ok := goneGroup(r.Key); ok {
		s.dropGroup(num)
		return
	}
	s.eraseRowInstalled(r.Key, c.LSN, r.Value)
	o.state[r.Key] = format.StateBody(c.LSN, c.StateProof(i), r.Value)
	o.Bytes += len(r.Key) + len(r.Value) + format.StateHead
}

// installHeld installs the row of a held batch, and counts those that wait for review.
func (s *Engine) installHeld(c *format.Commit) {
	o := s.overlay
	o.held[c.HeldID] = c.Held
	o.Bytes += len(c.Held)
	s.heldChanges++
	if c.HeldID == c.Batch { // held; otherwise it decides one, and only once
		if st, err := format.HeldState(c.Held); err == nil && st.Decided == "" { // otherwise it was decided in another database
			s.heldOpen++
		}
	} else {
		s.heldOpen--
	}
}
