package engine

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/store"
)

// changes tells callers that cache pages (the frames of a page table) which page versions ended, and
// background work which rows of told kinds were written. A caller that falls too far behind is told
// to forget everything and to read all told rows. That is always correct.
//
// Callers poll; the installer notifies none of them. It could not reach a caller in another
// process, and a slow caller in this process would delay a group of commits.

// keptChanges is how many groups of commits are remembered. A caller that asks less often is told
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
	next  chan struct{} // closed by the next commit; nil: no caller waits
}

// changed are the things of one kind that groups of commits changed.
type changed[T any] struct {
	from   uint64            // commits above it are all in groups
	groups []changedGroup[T] // rising
}

// changedGroup is what a group of commits changed, under the LSN of the last one.
type changedGroup[T any] struct {
	lsn    uint64
	things []T
}

// add notes the things of a group of commits.
func (c *changed[T]) add(lsn uint64, things []T) {
	if len(things) > 0 {
		c.groups = append(c.groups, changedGroup[T]{lsn, things})
	}
	if excess := len(c.groups) - keptChanges; excess > 0 {
		c.from = c.groups[excess-1].lsn
		c.groups = slices.Delete(c.groups, 0, excess)
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
	c.ended.add(lsn, ended)
	c.told.add(lsn, told)
	if c.next != nil {
		close(c.next)
		c.next = nil
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
