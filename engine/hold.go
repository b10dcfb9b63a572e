package engine

import (
	"context"
	"sync"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/store"
)

// holds are the readers in flight of this process, by the moment they read at. gc asks before it plans to drop a version
// and again before it commits that; a reader that comes later reads at a later moment, which does not need the version.
// There are few at a time, and they come and go with every read: a map is walked by gc and touched by readers.
type holds struct {
	mu   sync.Mutex // a leaf
	last store.Ticket
	at   map[store.Ticket]held
}

// held is a moment as rows have it.
type held struct {
	lsn uint64
	at  int64 // microseconds
}

// Hold: see store.Store.
func (s *Engine) Hold(ctx context.Context, at store.Moment) (store.Ticket, error) {
	if err := s.Readable(ctx); err != nil {
		return 0, err
	}
	h := &s.holds
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.at == nil {
		h.at = map[store.Ticket]held{}
	}
	h.last++
	h.at[h.last] = held{at.LSN, codec.Micros(at.Time)}
	return h.last, nil
}

// Release: see store.Store.
func (s *Engine) Release(t store.Ticket) {
	s.holds.mu.Lock()
	defer s.holds.mu.Unlock()
	delete(s.holds.at, t)
}

// keep says whether a reader in flight may read what a commit ended, or what ended by expiry (lsn 0) at a time.
func (h *holds) keep(lsn uint64, expired int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, x := range h.at {
		if x.lsn < lsn || lsn == 0 && x.at <= expired {
			return true
		}
	}
	return false
}
