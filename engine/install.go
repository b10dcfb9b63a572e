package engine

// The installer makes visible what is durable, in the order of the log. Leaves enter the tree here and nowhere else, so
// that a head, a proof, or the archive never has one that a failed sync could take away.
//
//	leaf         its question into the overlay, then the leaf into the tree: who finds it may ask
//	commit       its leaf likewise, before its pages: who sees a page finds who wrote it
//	installed    catalogue, index and overlay under one lock, some commits at a time; then those who wait are woken
//
// The log calls it for one group at a time, while it syncs the next. It holds no lock of the store then.

// installAtOnce is how many batches are made visible under one lock. Those who wait for the first of a large group are
// at work again while the rest is installed.
const installAtOnce = 4

// Durable installs the next entries in flight. It is called by the leader of a group after its sync, before anybody of the
// group is woken by the log, and lets go those who wait for a batch as soon as it is installed. See Follower.
func (s *Engine) Durable(entries []Entry) {
	if !s.seq.installing(entries) {
		return
	}
	some := make([]*Commit, 0, installAtOnce)
	for len(entries) > 0 {
		n := 0
		for n < len(entries) && len(some) < installAtOnce {
			if err := s.installLeaf(entries[n]); err != nil {
				s.failInstall(err, append(some, commits(entries[n:])...))
				return
			}
			if c := entries[n].Commit; c != nil {
				some = append(some, c)
			}
			n++
		}
		if err := s.installSome(some); err != nil {
			s.failInstall(err, append(some, commits(entries[n:])...))
			return
		}
		some, entries = some[:0], entries[n:]
	}
}

// failInstall ends the engine. What is durable and cannot be installed is our own bug, or a log that is not ours: the
// memory no longer follows it.
func (s *Engine) failInstall(err error, left []*Commit) {
	_ = s.Fail(err)
	for _, c := range left { // they are the installer's: abandon let them be
		close(c.done)
	}
}

func commits(entries []Entry) (out []*Commit) {
	for _, e := range entries {
		if e.Commit != nil {
			out = append(out, e.Commit)
		}
	}
	return out
}

// installing takes the commits out of the reach of abandon.
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

// installLeaf takes the leaf of an entry into the audit.
func (s *Engine) installLeaf(e Entry) error {
	if c := e.Commit; c != nil {
		c.analysed.Wait()
		return s.Leaves.AddNew(c.record.leaf, c.leaf)
	}
	l := e.Leaf
	if l.question != nil {
		s.cat.mu.Lock()
		s.addQuestion(l.Index, l.question)
		s.countUnflushed()
		s.cat.mu.Unlock()
	}
	if err := s.Leaves.AddNew(l.Index, l.leaf); err != nil {
		return err
	}
	s.seq.flight.Lock()
	defer s.seq.flight.Unlock()
	s.seq.trace(l.trace, l.parent, -1)
	return nil
}

// installSome makes batches visible and wakes those who wait for them.
func (s *Engine) installSome(some []*Commit) error {
	if len(some) == 0 {
		return nil
	}
	ended, err := s.installAll(some)
	if err != nil {
		return err
	}
	q := &s.seq
	q.flight.Lock()
	for _, c := range some {
		q.drop(c)
	}
	q.flight.Unlock()
	s.changes.add(some[len(some)-1].record.LSN, ended)
	for _, c := range some {
		close(c.done)
	}
	return nil
}

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
