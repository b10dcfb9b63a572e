package engine

// installAtOnce is how many batches are made visible under one lock. Those who wait for the first of a large group are
// at work again while the rest is installed.
const installAtOnce = 4

// InstallDurable is called by the leader of a batch group after its sync, before anybody of the group is woken by the
// log: it makes the group visible in LSN order, and lets go those who wait for a batch as soon as it is.
func (s *Engine) InstallDurable(durable uint64) {
	q := &s.Seq
	q.flight.Lock()
	n := 0
	for n < len(q.queue) && q.queue[n].seq <= durable {
		n++
	}
	group := q.queue[:n:n]
	q.queue = q.queue[n:]
	q.flight.Unlock()
	for len(group) > 0 {
		some := group[:min(installAtOnce, len(group))]
		if !s.installSome(some) {
			for _, p := range group { // they left the queue that fail lets go
				close(p.done)
			}
			return
		}
		group = group[len(some):]
	}
}

// installSome makes batches visible and wakes those who wait for them.
func (s *Engine) installSome(group []*pending) bool {
	for _, p := range group {
		p.analysed.Wait()
	}
	ended, err := s.installAll(group)
	if err != nil { // our own rows: a bug, and the memory no longer follows the log
		s.Fail(err)
		return false
	}
	q := &s.Seq
	q.flight.Lock()
	for _, p := range group {
		delete(q.ids, p.record.batch)
		for _, k := range p.keys {
			if q.arts[k] == p {
				delete(q.arts, k)
			}
		}
	}
	q.flight.Unlock()
	s.changes.add(group[len(group)-1].record.LSN, ended)
	for _, p := range group {
		close(p.done)
	}
	return true
}

func (s *Engine) installAll(group []*pending) (ended []uint64, err error) {
	s.Catalogue.Mu.Lock()
	defer s.Catalogue.Mu.Unlock()
	for _, p := range group {
		e, err := s.install(&p.record, p.seq)
		if err != nil {
			return nil, err
		}
		p.installed = true
		ended = append(ended, e...)
	}
	return ended, nil
}
