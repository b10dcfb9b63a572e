package engine

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/ctxpage/ctxpage/store"
)

// changes tells callers that cache pages (the frames of a page table) which page versions ended. A
// caller that falls too far behind is told to forget everything. That is always correct: only
// caches depend on changes.
//
// Callers poll; the installer notifies none of them. It could not reach a caller in another
// process, and a slow caller in this process would delay a group of commits.

// keptChanges is how many groups of commits are remembered. A caller that asks less often is told
// to forget everything.
const keptChanges = 4096

// changes are the page versions that stopped being current, newest last. mu is a leaf of the lock
// order.
//
//	from  <  lsn of every entry of ended  ≤  lsn
//
// Commits that ended no page have no entry; only lsn says that they happened. A caller that asks
// for what came after an LSN below from cannot be answered and gets All.
type changes struct {
	mu    sync.Mutex
	lsn   uint64        // the newest installed commit
	from  uint64        // commits above it are all in ended
	ended []endedPages  // rising
	next  chan struct{} // closed by the next commit; nil: no caller waits
}

// endedPages are the page versions that a group of commits ended, under the LSN of the last one.
type endedPages struct {
	lsn  uint64
	nums []uint64
}

// start remembers what commits after an LSN end.
func (c *changes) start(lsn uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lsn, c.from = lsn, lsn
}

// add notes which pages the commits up to an LSN ended, and wakes callers that wait.
func (c *changes) add(lsn uint64, nums []uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lsn = lsn
	if len(nums) > 0 {
		c.ended = append(c.ended, endedPages{lsn, nums})
	}
	if excess := len(c.ended) - keptChanges; excess > 0 {
		c.from = c.ended[excess-1].lsn
		c.ended = slices.Delete(c.ended, 0, excess)
	}
	if c.next != nil {
		close(c.next)
		c.next = nil
	}
}

// after returns what ended after an LSN. If there was no commit since, it returns a channel that
// the next commit closes. The newest come first, so the walk ends at the first group that the
// caller knows.
func (c *changes) after(lsn uint64) (store.Changes, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if lsn >= c.lsn {
		if c.next == nil {
			c.next = make(chan struct{})
		}
		return store.Changes{LSN: c.lsn}, c.next
	}
	out := store.Changes{LSN: c.lsn, All: lsn < c.from}
	if out.All {
		return out, nil
	}
	for i := len(c.ended) - 1; i >= 0 && c.ended[i].lsn > lsn; i-- {
		out.Ended = append(out.Ended, c.ended[i].nums...)
	}
	return out, nil
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
