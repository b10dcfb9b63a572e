package dbtest

import (
	"slices"
	"sync"
	"testing"
	"time"
)

// Stalls measures for how long the machine lets nobody of this process work, because it stands still or is busy with others: a
// goroutine sleeps a moment, again and again, and notes by how much it wakes too late. A test that judges how long something took
// takes that out.
type Stalls struct {
	mu    sync.Mutex
	since time.Time // when the sleep under way began
	late  []stall
}

// stall is a time in which nobody worked.
type stall struct{ from, to time.Time }

// nap is how long the goroutine of Stalls sleeps, and what it need not explain.
const nap = 5 * time.Millisecond

// WatchStalls measures until the test ends.
func WatchStalls(t testing.TB) *Stalls {
	s, end, ended := &Stalls{since: time.Now()}, make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-end:
				return
			case <-time.After(nap):
			}
			s.mu.Lock()
			s.note(time.Now())
			s.mu.Unlock()
		}
	}()
	t.Cleanup(func() { close(end); <-ended })
	return s
}

// note ends the sleep under way.
func (s *Stalls) note(now time.Time) {
	if due := s.since.Add(nap); now.Sub(due) > nap {
		s.late = append(s.late, stall{due, now})
	}
	s.since = now
}

// Since is time.Since without the stalls: how long something that began at a moment had, up to now, to get on.
func (s *Stalls) Since(begun time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	took := now.Sub(begun)
	for _, l := range append(slices.Clone(s.late), stall{s.since.Add(nap), now}) {
		if l.from.Before(begun) {
			l.from = begun
		}
		if lost := min(l.to.Sub(l.from), now.Sub(l.from)); lost > 0 {
			took -= lost
		}
	}
	return took
}
