package engine

import (
	"github.com/ctxpage/ctxpage/manifest"
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

// installAtOnce is how many commits are made visible under one lock. The callers of the first
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
			reads := readsOf(entries[n:])
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

// leavesAtOnce is how many leaves of reads enter the tree under one lock: readers of the audit wait
// for it.
const leavesAtOnce = 64

// readsOf counts the leaves of reads that entries begin with, up to leavesAtOnce.
func readsOf(entries []Entry) (n int) {
	for n < min(len(entries), leavesAtOnce) && entries[n].Commit == nil {
		n++
	}
	return n
}

// installLeaves takes into the audit the leaf of a commit, or those of some reads. It waits for the
// analysis of a commit first: the analysis takes about as long as a sync, and waiting for it later
// would hold catalogue.mu meanwhile.
func (s *Engine) installLeaves(entries []Entry) error {
	if c := entries[0].Commit; c != nil {
		s.analyse(c)
		c.analysed.Wait()
		return s.Leaves.AddNew(c.record.Leaf, c.leaf)
	}
	var run [leavesAtOnce]*manifest.Leaf
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
	ended, err := s.installAll(some)
	if err != nil {
		return err
	}
	q := &s.seq
	var told []store.StateRow
	q.flight.Lock()
	for _, c := range some {
		q.drop(c)
		told = append(told, s.told(&c.record)...)
	}
	q.flight.Unlock()
	s.changes.add(some[len(some)-1].record.LSN, ended, told)
	for _, c := range some {
		close(c.done)
	}
	return nil
}

// installAll installs commits under one lock and returns the page versions that stopped being
// current.
func (s *Engine) installAll(some []*Commit) (ended []uint64, err error) {
	s.cat.mu.Lock()
	defer s.cat.mu.Unlock()
	for _, c := range some {
		e, err := s.install(&c.record, c.Seq)
		if err != nil {
			return nil, err
		}
		c.installed = true
		ended = append(ended, e...)
	}
	return ended, nil
}
