package engine

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/store"
)

// changes tells callers that cache pages (the frames of a page table) which page versions ended, and
// background work which rows of told kinds were written. A caller that falls too far behind is told
// to forget everything and to read all told rows. That is always correct.
//
// Callers poll; the installer does not notify them. It could not reach a caller in another
// process, and a slow caller in this process would delay a group of commits.

// keptChanges is the number of groups of commits that are remembered. A caller that asks less often is told
// to forget everything.
const keptChanges = 4096

// changes are the page versions that stopped being current, newest last. mu is a leaf of the lock
// order.
//
//	from  <  lsn of every entry  ≤  lsn
//
// Commits that ended no page, or wrote no told row, have no entry of that kind; only lsn says that
// they happened. A caller that asks for what came after an LSN below from cannot be answered and
// gets All, or AllTold.
type changes struct {
	mu    sync.Mutex
	lsn   uint64 // the newest installed commit
	ended changed[uint64]
	told  changed[store.StateRow]
	next  chan struct{}                         // closed by the next commit; nil: no caller waits
	calls map[*func()]func(store.StateRow) bool // called by the next commit that writes a told row like that; see Engine.AfterTold
}

// changed are the things of one kind that groups of commits changed.
type changed[T any] struct {
	from   uint64            // commits above it are all in groups
	groups []changedGroup[T] // rising
}

// changedGroup has the changes of a group of commits, under the LSN of the last.
type changedGroup[T any] struct {
	lsn    uint64
	things []T
}

// add notes the things of a group of commits.
func (c *changed[T]) add(lsn uint64, things []T) {
	c.groups = append(c.groups, changedGroup[T]{lsn, things})
	if excess := len(c.groups) - keptChanges; excess > 0 { // moving them all each time took a tenth of the time of an append
		c.from = c.groups[excess-1].lsn
		clear(c.groups[:excess])
		c.groups = c.groups[excess:]
	}
}

// after calls fn for each thing that changed after an LSN, the newest group first, so the walk ends
// at the first group that the caller knows. It returns false if older ones are forgotten.
func (c *changed[T]) after(lsn uint64, fn func(T)) bool {
	if lsn < c.from {
		return false
	}
	for i := len(c.groups) - 1; i >= 0 && c.groups[i].lsn > lsn; i-- {
		for _, t := range c.groups[i].things {
			fn(t)
		}
	}
	return true
}

// last returns the LSN of the last group, or up to which groups are forgotten.
func (c *changed[T]) last() uint64 {
	if n := len(c.groups); n > 0 {
		return c.groups[n-1].lsn
	}
	return c.from
}

// start remembers what commits after an LSN change.
func (c *changes) start(lsn uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lsn, c.ended.from, c.told.from = lsn, lsn, lsn
}

// add notes what the commits up to an LSN changed, and wakes callers that wait.
func (c *changes) add(lsn uint64, ended []uint64, told []store.StateRow) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lsn = lsn
	if len(ended) > 0 {
		c.ended.add(lsn, ended)
	}
	if c.next != nil {
		close(c.next)
		c.next = nil
	}
	if len(told) > 0 {
		c.told.add(lsn, told)
		for fn, want := range c.calls {
			if slices.ContainsFunc(told, want) {
				delete(c.calls, fn)
				go (*fn)()
			}
		}
	}
}

// after returns what changed after an LSN. If there was no commit since, it returns a channel that
// the next commit closes.
func (c *changes) after(lsn uint64) (store.Changes, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if lsn >= c.lsn {
		if c.next == nil {
			c.next = make(chan struct{})
		}
		return store.Changes{LSN: c.lsn}, c.next
	}
	out := store.Changes{LSN: c.lsn}
	out.All = !c.ended.after(lsn, func(num uint64) { out.Ended = append(out.Ended, num) })
	newest := map[string]int{}
	out.AllTold = !c.told.after(lsn, func(r store.StateRow) {
		at, known := newest[r.Key]
		switch {
		case !known:
			newest[r.Key] = len(out.Told)
			out.Told = append(out.Told, r)
		case r.LSN > out.Told[at].LSN:
			out.Told[at] = r
		}
	})
	return out, nil
}

// told returns the rows of told kinds that a commit wrote. The memory is not the commit's.
func (s *Engine) told(c *format.Commit) (out []store.StateRow) {
	for _, r := range c.State {
		if slices.ContainsFunc(s.opts.State, func(k store.StateKind) bool { return k.Told && strings.HasPrefix(r.Key, k.Prefix) }) {
			out = append(out, store.StateRow{Key: strings.Clone(r.Key), Value: slices.Clone(r.Value), LSN: c.LSN})
		}
	}
	return out
}

// Changes implements store.Store. It waits until there is a commit after that LSN, until wait is
// over, or until ctx ends or the engine is shut. A wait that is over is no error: the caller gets
// what there is, which may be nothing.
func (s *Engine) Changes(ctx context.Context, after uint64, wait time.Duration) (store.Changes, error) {
	if err := s.Readable(ctx); err != nil {
		return store.Changes{}, err
	}
	out, next := s.changes.after(after)
	if next == nil || wait <= 0 {
		return out, nil
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-next:
		out, _ = s.changes.after(after)
		return out, nil
	case <-t.C:
		return out, nil
	case <-s.stop:
		return out, store.ErrClosed
	case <-ctx.Done():
		return out, ctx.Err()
	}
}

// AfterTold calls fn once, in a goroutine of its own, when a commit after an LSN is installed that wrote a told row that is
// wanted; at once if one wrote any. It is for callers that wait long: they have no goroutine meanwhile, and other commits do not
// wake them. want is called with each row, under a lock: it calls nobody. stop ends the wait; fn may be running by then.
func (s *Engine) AfterTold(lsn uint64, want func(store.StateRow) bool, fn func()) (stop func()) {
	c, key := &s.changes, &fn
	c.mu.Lock()
	defer c.mu.Unlock()
	if lsn < c.told.last() {
		go fn()
		return func() {}
	}
	if c.calls == nil {
		c.calls = map[*func()]func(store.StateRow) bool{}
	}
	c.calls[key] = want
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.calls, key)
	}
}

// holds are the readers in flight of this process, with the moment each one reads at. gc asks
// before it plans to drop a version, and again before it commits the drop. A reader that begins
// later reads at a later moment and does not need the version.
//
// A hold is a ticket: Hold returns it, Release ends it, and whoever reads between the two finds every
// version that was current at the moment. The engine never ends a hold by itself; a server ends
// the holds of a client that is gone (package remote).
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
// hold was taken, and reading one of those returns ErrGone.
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
