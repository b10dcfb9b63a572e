package remote

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/ctxpage/ctxpage/store"
)

// A session is the server's memory of one client. It makes a call that is sent twice run once, and
// it ends the holds of a client that vanished.
//
// 	hello ─▶ live ─▶ goodbye, or silent for the lease ─▶ gone: its holds are released, its numbers are unknown
//
// Locks: mu is held while fields change and never while the store is called, except by end and
// release, whose store calls (Release) take no lock of this package. A session in use (busy > 0)
// never lapses.
//
// Bounds: keptCalls answers are kept. A call with a forgotten number is refused, because the server
// cannot tell whether it was made.

// session has what a server knows of a client: the holds it has, and the calls that must not be made
// twice. It ends with the client's goodbye, or when the client was silent for longer than the
// lease.
type session struct {
	id        string
	lease     time.Duration
	lapse     func(*session) // ends it at the server
	mu        sync.Mutex
	busy      int // calls under way
	gone      bool
	timer     *time.Timer
	last      time.Time                     // when the last call ended
	holds     map[store.Ticket]store.Ticket // the client's number → the store's
	calls     map[uint64]*onceCall
	callOrder []uint64 // of calls, the oldest first
	forgot    uint64   // the highest number of a call whose answer is not kept any more
	waited    sync.WaitGroup
}

// onceCall is a call that is made once. Its answer is kept for the client that asks again.
type onceCall struct {
	done   chan struct{}
	answer []byte
	err    error
	given  bool // it is over, and answer and err are its results
}

// keptCalls is how many answers a session keeps. A client has few calls under way at once.
const keptCalls = 256

// newSession begins a session. lapse is called once, by the timer, when the client was silent for
// the lease.
func newSession(id string, lease time.Duration, lapse func(*session)) *session {
	s := &session{id: id, lease: lease, lapse: lapse, last: time.Now(), holds: map[store.Ticket]store.Ticket{}, calls: map[uint64]*onceCall{}}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.timer = time.AfterFunc(lease, s.expire)
	return s
}

// expire ends a session that was silent for its lease, or looks again when it may have been. Calls
// do not move the timer: that woke a thread for each of them. A lease is in real time, whatever the
// database's clock says.
func (s *session) expire() {
	s.mu.Lock()
	left := s.lease - time.Since(s.last)
	if s.busy > 0 {
		left = s.lease
	}
	silent := !s.gone && left <= 0
	switch {
	case silent:
		s.gone = true
	case !s.gone:
		s.timer.Reset(left)
	}
	s.mu.Unlock()
	if silent {
		s.lapse(s)
	}
}

// enter counts a call; false: the session is gone.
func (s *session) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone {
		return false
	}
	s.busy++
	s.waited.Add(1)
	return true
}

// leave ends a call. The lease begins anew when no call is under way.
func (s *session) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy--
	s.last = time.Now()
	s.waited.Done()
}

// end releases the holds of the session; the calls under way end first.
func (s *session) end(st store.Store) {
	s.mu.Lock()
	s.gone = true
	s.timer.Stop()
	s.mu.Unlock()
	s.waited.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.holds {
		st.Release(t)
	}
	clear(s.holds)
}

// hold takes a hold under the client's number for it; a number that has one is the same call, sent
// again. The store is asked under no lock, so the same call may be here twice: the second hold is
// given back.
func (s *session) hold(ctx context.Context, st store.Store, q holdAsk) error {
	s.mu.Lock()
	_, known := s.holds[q.Ticket]
	s.mu.Unlock()
	if known {
		return nil
	}
	t, err := st.Hold(ctx, q.At)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.holds[q.Ticket]; known {
		st.Release(t)
		return nil
	}
	s.holds[q.Ticket] = t
	return nil
}

// release ends holds by the client's numbers. Numbers that are not known were released before.
func (s *session) release(st store.Store, tickets []store.Ticket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range tickets {
		if own, ok := s.holds[t]; ok {
			st.Release(own)
			delete(s.holds, t)
		}
	}
}

// errGivenUp is of a call that came after its client had given it up, or with a number before one
// that is forgotten: nobody knows whether that was made.
var errGivenUp = refuse(refusedCall, "the client gave this call up before it came, or its number is too old to be known")

// once runs a call unless it was run before, and returns the answer. A call that was ended by its
// connection has no answer to keep: the next one of its number is made.
func (s *session) once(ctx context.Context, number uint64, run func() ([]byte, error)) ([]byte, error) {
	for {
		s.mu.Lock()
		c := s.calls[number]
		if c == nil && number <= s.forgot {
			s.mu.Unlock()
			return nil, errGivenUp // whether it was made is forgotten
		}
		if c == nil {
			c = &onceCall{done: make(chan struct{})}
			s.keep(number, c)
			s.mu.Unlock()
			return s.run(ctx, number, c, run)
		}
		s.mu.Unlock()
		select {
		case <-c.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if c.given {
			return c.answer, c.err
		}
	}
}

// run makes a call and keeps its answer. Callers of the same number wait for done.
func (s *session) run(ctx context.Context, number uint64, c *onceCall, run func() ([]byte, error)) ([]byte, error) {
	c.answer, c.err = run()
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.given = c.err == nil || ctx.Err() == nil; !c.given {
		delete(s.calls, number)
	}
	close(c.done)
	return c.answer, c.err
}

// keep remembers a call, and forgets the oldest that is over when there are many. A call that is
// under way stays, and keeps no other: a backup of an hour must not keep the answers of a million
// commits.
func (s *session) keep(number uint64, c *onceCall) {
	s.calls[number] = c
	s.callOrder = append(s.callOrder, number)
	for len(s.callOrder) > keptCalls {
		i := slices.IndexFunc(s.callOrder, func(n uint64) bool { c := s.calls[n]; return c == nil || c.given })
		if i < 0 {
			return
		}
		delete(s.calls, s.callOrder[i])
		s.forgot = max(s.forgot, s.callOrder[i])
		s.callOrder = slices.Delete(s.callOrder, i, i+1)
	}
}

// giveUp makes sure that calls which their client does not wait for are over when it returns: those
// under way are waited for, and those that are still to come will be refused. A number that is
// refused in advance takes a place among the kept answers.
func (s *session) giveUp(ctx context.Context, numbers []uint64) error {
	for _, n := range numbers {
		for settled := false; !settled; {
			s.mu.Lock()
			c := s.calls[n]
			if c == nil {
				c = &onceCall{done: make(chan struct{}), err: errGivenUp, given: true}
				close(c.done)
				s.keep(n, c)
			}
			s.mu.Unlock()
			select {
			case <-c.done:
			case <-ctx.Done():
				return ctx.Err()
			}
			settled = c.given
		}
	}
	return nil
}
