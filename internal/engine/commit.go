package engine

import (
	"sync"
	"sync/atomic"

	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// Commit is a batch that was judged and numbered, on its way through the log. done is closed at its
// end; outcome, installed and lost may be read from then on.
//
// Ownership of the record moves once. Until Tail.Commit has returned it belongs to the caller of
// sequence. From then on the log reads it (Append) and the installer changes it: analyses and the
// index built of them go to the index, and are cleared because the record is kept for a while.
// Exactly one of installer, Lost, enter and abandon closes done; installing and broken, both under
// flight, decide which.
//
// A commit goes through these states in order. Whether take has run shows in the maps of the
// sequencer, not in a field of the commit:
//
//	built        build has filled record, leaf, keys, outcome and use; nobody else sees it
//	in flight    take has entered it into the maps; Seq is set by Tail.Commit
//	installing   Durable has it
//	done closed  installed, or lost, or neither: the engine failed and the outcome is unknown
type Commit struct {
	Seq   uint64   // its record in the log; set by the Log before anyone else sees the commit
	After Counters // the numbers for the next commit

	record  format.Commit
	leaf    manifest.Leaf // record.body; hashed with the analyses
	trace   string        // id of the batch, by which the audit finds the leaf
	parent  string        // trace that the leaf names
	keys    []string      // see writeKeys
	outcome store.Outcome
	scope   string
	use     use // what it adds to its quotas
	held    int // how many batches it adds to those that wait for review
	done    chan struct{}
	// analysed ends when analyse has finished; the installer waits for it.
	analysing atomic.Bool
	analysed  sync.WaitGroup

	installing bool // the installer has it and will close done; under flight
	installed  bool
	lost       bool // taken back
}

// Frees reports whether the commit only removes data. Such commits (deletes, gc) must succeed on a
// full disk.
func (c *Commit) Frees() bool { return c.record.Frees() }

// Append appends the body of the commit's record to b. Only Tail.Commit may call it: later the
// engine changes the record.
func (c *Commit) Append(b []byte) []byte { return c.record.Encode(b) }

// enter puts a commit into flight and into the log. Its names count as taken from here on, its
// numbers from Tail.Commit on. If the log refuses the record, everything is put back; the numbers
// were never moved.
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
		if !q.broken { // otherwise abandon closed it
			close(c.done)
		}
		return enqueueError(err)
	}
	return nil
}

// take puts a commit into flight before the log has it. The other order would let the log report it
// Durable before it is in flight.
func (q *sequencer) take(c *Commit) bool {
	q.flight.Lock()
	defer q.flight.Unlock()
	if q.broken { // since the caller looked: its done would never be closed
		return false
	}
	c.analysed.Add(1)
	q.ids[c.record.Batch] = c
	for _, k := range c.keys {
		q.arts[k] = c
	}
	for i := range c.record.State {
		q.states[c.record.State[i].Key] = c
	}
	q.trace(c.trace, c.parent, 1)
	q.named(&c.record)
	return true
}

// drop takes a commit out of flight. The caller holds flight. A later commit may write the same
// artefact and stand in the map by now; then its entry stays.
func (q *sequencer) drop(c *Commit) {
	delete(q.ids, c.record.Batch)
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
	q.trace(c.trace, c.parent, -1)
}

// trace counts a leaf in flight under what the audit finds it by. Most reads have no parent. The
// caller holds flight.
func (q *sequencer) trace(trace, parent string, n int) {
	q.leaves += n
	for _, t := range [...]string{trace, parent} {
		if t == "" { // flying counts leaves then
			continue
		}
		q.traces[slotOf(t)] += n
	}
}

// leaf is trace for a leaf without a commit, which has the hashes of both. The caller holds flight.
func (q *sequencer) leaf(l *Leaf, n int) {
	q.leaves += n
	q.traces[l.leaf.Trace()%traceSlots] += n
	if parent, ok := l.leaf.Parent(); ok {
		q.traces[parent%traceSlots] += n
	}
}

// slotOf is where leaves of a trace are counted.
func slotOf(trace string) uint32 { return manifest.HashTrace(trace) % traceSlots }

// Lost implements Follower. It takes back commits that the log will never have. No reader has seen
// them, and the log gives their numbers to the next commits.
func (s *Engine) Lost(entries []Entry) {
	q := &s.seq
	q.flight.Lock()
	defer q.flight.Unlock()
	for _, e := range entries {
		if e.Commit == nil {
			q.leaf(e.Leaf, -1)
			continue
		}
		q.drop(e.Commit)
		e.Commit.lost = true
		close(e.Commit.done)
	}
	q.nameLocked(s.cat)
}

// inFlight counts leaves without a commit into flight (n = 1) or out of it (n = -1).
func (q *sequencer) inFlight(leaves []*Leaf, n int) {
	q.flight.Lock()
	defer q.flight.Unlock()
	for _, l := range leaves {
		q.leaf(l, n)
	}
}
