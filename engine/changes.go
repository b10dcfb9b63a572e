package engine

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/ctxpage/ctxpage/store"
)

// What ended, for those who keep pages of their own (frames of a page table). A caller that falls behind further than is
// remembered is told to forget everything, which is always right: nothing depends on changes but memory. The caller asks
// and the installer calls nobody: a caller in another process could not be called, and one in this process would make a
// group wait for its answer.

// keptChanges is how many groups of commits back changes reach. Who asks less often is told to forget all it has.
const keptChanges = 4096

// changes are the page versions that stopped being current, newest last. mu is a leaf of the lock order.
type changes struct {
	mu    sync.Mutex
	lsn   uint64        // newest commit that is seen
	from  uint64        // commits above it are all in ended
	ended []endedPages  // rising
	next  chan struct{} // closed with the next commit; nil: nobody waits
}

type endedPages struct {
	lsn  uint64
	nums []uint64
}

// start forgets nothing of what comes after an LSN.
func (c *changes) start(lsn uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lsn, c.from = lsn, lsn
}

// add notes what commits up to an LSN ended.
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

// after gives what ended after an LSN, or, where nothing was committed since, a channel that is closed with the next
// commit.
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

// Changes: see store.Store.
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
