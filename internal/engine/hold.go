package engine

import (
	"context"
	"sync"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/store"
)

// holds are the readers in flight of this process, with the moment each one reads at. gc asks
// before it plans to drop a version, and again before it commits the drop. A reader that begins
// later reads at a later moment and does not need the version.
//
// A hold is a ticket: Hold gives it, Release ends it, and whoever reads between the two finds every
// version that was current at the moment. The engine never ends a hold by itself; a server ends
// those of a client that is gone (package remote).
//
// A hold is memory only. After a crash there is no reader that could need it.
type holds struct {
	mu   sync.Mutex // a leaf
	last store.Ticket
	at   map[store.Ticket]held
}

// held is a moment in the units of rows.
type held struct {
	lsn uint64
	at  int64 // microseconds
}

// Hold implements store.Store. It takes no lock but its own, so it never waits for a commit. It
// does not check whether the moment is still readable: gc may have dropped versions before this
// hold was taken, and a read of one of them gives ErrGone.
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

// Release implements store.Store. A ticket that is unknown or was released is ignored.
func (s *Engine) Release(t store.Ticket) {
	s.holds.mu.Lock()
	defer s.holds.mu.Unlock()
	delete(s.holds.at, t)
}

// OldestHold returns the earliest LSN and the earliest time that readers in flight read at; false:
// there are none. A store that several hosts share passes it on to the other hosts, whose gc
// respects it like a hold of its own.
func (s *Engine) OldestHold() (at store.Moment, any bool) {
	h := &s.holds
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, x := range h.at {
		if t := codec.FromMicros(x.at); !any || t.Before(at.Time) {
			at.Time = t
		}
		if !any || x.lsn < at.LSN {
			at.LSN = x.lsn
		}
		any = true
	}
	return at, any
}

// keep reports whether a reader in flight may read what a commit ended, or what ended by expiry (lsn
// 0) at a time.
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
