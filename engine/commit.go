package engine

import (
	"sync"

	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// Commit is a batch that was judged and numbered, on its way through the log. done is closed when that has an end; outcome,
// installed and lost may be read from then on.
type Commit struct {
	Seq   uint64   // record of the log; set by the Log before anybody else sees the commit
	After Counters // numbers for the next one

	record  commitRecord
	leaf    manifest.Leaf // record.body; hashed with the analyses
	parent  string        // trace that the leaf names
	keys    []string      // see writeKeys
	outcome store.Outcome
	done    chan struct{}
	// analysed is waited for by the installer; see analyse
	analysed sync.WaitGroup

	installing bool // the installer has it, and closes done; under flight
	installed  bool
	lost       bool // taken back
}

// Frees says that it only takes away: deletes and what gc drops must get through on a full disk.
func (c *Commit) Frees() bool { return c.record.frees() }

// Append gives b with the body of the record behind it. It is for Tail.Commit: later the commit is the engine's.
func (c *Commit) Append(b []byte) []byte { return c.record.encode(b) }

// enter puts a commit into flight and into the log. Its names are taken from here on; its numbers with the log's.
func (s *Engine) enter(tail Tail, c *Commit) error {
	q := &s.seq
	if !q.take(c) {
		return s.Failure()
	}
	if err := tail.Commit(c); err != nil {
		q.flight.Lock()
		defer q.flight.Unlock()
		q.drop(c)
		q.nameLocked(s.cat)
		c.lost = true
		if !q.broken { // else abandon did
			close(c.done)
		}
		return enqueueError(err)
	}
	return nil
}

// take puts a commit into flight before the log has it, so that it cannot be durable first.
func (q *sequencer) take(c *Commit) bool {
	q.flight.Lock()
	defer q.flight.Unlock()
	if q.broken { // since the caller looked: nobody would let go of it
		return false
	}
	c.analysed.Add(1)
	q.ids[c.record.batch] = c
	for _, k := range c.keys {
		q.arts[k] = c
	}
	for i := range c.record.State {
		q.states[c.record.State[i].Key] = c
	}
	q.trace(c.record.batch.String(), c.parent, 1)
	q.named(&c.record)
	return true
}

// drop takes a commit out of flight. The caller holds flight.
func (q *sequencer) drop(c *Commit) {
	delete(q.ids, c.record.batch)
	for _, k := range c.keys {
		if q.arts[k] == c {
			delete(q.arts, k)
		}
	}
	for i := range c.record.State {
		if k := c.record.State[i].Key; q.states[k] == c {
			delete(q.states, k)
		}
	}
	q.trace(c.record.batch.String(), c.parent, -1)
}

// trace counts a leaf in flight under what the audit finds it by. The caller holds flight.
func (q *sequencer) trace(trace, parent string, n int) {
	q.leaves += n
	for _, t := range [...]string{trace, parent} {
		if q.traces[t] += n; q.traces[t] == 0 {
			delete(q.traces, t)
		}
	}
}

// Lost takes commits back that the log will never have: nothing of them was visible, their numbers go to the next ones.
// See Follower.
func (s *Engine) Lost(entries []Entry) {
	q := &s.seq
	q.flight.Lock()
	defer q.flight.Unlock()
	for _, e := range entries {
		if e.Commit == nil {
			q.trace(e.Leaf.trace, e.Leaf.parent, -1)
			continue
		}
		q.drop(e.Commit)
		e.Commit.lost = true
		close(e.Commit.done)
	}
	q.nameLocked(s.cat)
}

// inFlight counts leaves without a commit.
func (q *sequencer) inFlight(leaves []*Leaf, n int) {
	q.flight.Lock()
	defer q.flight.Unlock()
	for _, l := range leaves {
		q.trace(l.trace, l.parent, n)
	}
}
