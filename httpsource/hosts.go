package httpsource

import (
	"context"
	"sync"
)

// hosts bounds the exchanges with each host. A host that nobody asks has no entry, so the table is as large as what is
// going on now.
type hosts struct {
	mu    sync.Mutex
	limit int
	slots map[string]*slot
}

type slot struct {
	free  chan struct{} // holds a token for each exchange under way
	users int           // under way or waiting; guarded by hosts.mu
}

// enter waits for a place with a host; leave frees it.
func (h *hosts) enter(ctx context.Context, host string) (leave func(), err error) {
	h.mu.Lock()
	s := h.slots[host]
	if s == nil {
		s = &slot{free: make(chan struct{}, h.limit)}
		h.slots[host] = s
	}
	s.users++
	h.mu.Unlock()
	select {
	case s.free <- struct{}{}:
		return func() { <-s.free; h.forget(host, s) }, nil
	case <-ctx.Done():
		h.forget(host, s)
		return nil, ctx.Err()
	}
}

func (h *hosts) forget(host string, s *slot) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.users--; s.users == 0 {
		delete(h.slots, host)
	}
}
