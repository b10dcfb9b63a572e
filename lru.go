package ctxpage

import (
	"math"
	"sync/atomic"

	"github.com/ctxpage/ctxpage/internal/alike"
	"github.com/ctxpage/ctxpage/internal/cut"
	"github.com/ctxpage/ctxpage/store"
	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// The states of a frame. state counts pins; the flags say where it is kept.
//
//	publish ─▶ pinned, listed ◀──pin── unpinned, listed ──trim or drop──▶ evicted (terminal)
//	               │    └─────unpin────────▲
//	             trim                      │
//	               ▼                       │
//	           pinned, off ────unpin: back─┘
//	               │
//	         any pinned one ──its version ended, or another frame took its slot──▶ gone: not counted any more,
//	                          kept by those who pinned it, then collected
//
// Invariant: only a compare-and-swap of state from 0 evicts, so no frame is evicted while somebody reads it.

// frame is a page in memory: its content and the head it was loaded with. Both are immutable. What is worked out from
// them stays with it.
//
// state counts pins; evicted is terminal. A hit pins by compare-and-swap and takes no lock; it sets ref only when it is
// clear, so that the steady state writes nothing another core reads.
type frame struct {
	num    uint64
	head   *store.Head
	page   int
	name   string // reference to this version of the page
	text   string
	bytes  int64 // changes under the table's lock only
	state  atomic.Int32
	ref    atomic.Bool
	parts  atomic.Pointer[cut.Parts]    // for cuts; nil: nobody has asked for one yet
	sketch atomic.Pointer[alike.Sketch] // for duplicates; nil: nobody has asked for it yet
	cost   atomic.Int32                 // tokens of the page in a context, header included; 0: not counted yet
	spoken atomic.Int32                 // the same of a turn in the requests of its session
	off    atomic.Bool                  // eviction took it off the list while it was pinned
	gone   bool                         // another frame took its place while it was pinned; under the table's lock
}

const evicted = -1

const frameOverhead = 512 // bytes of a head and of bookkeeping, roughly

// pin keeps a frame in memory until unpin; false: it is gone already.
func (f *frame) pin() bool {
	for {
		n := f.state.Load()
		if n == evicted {
			return false
		}
		if f.state.CompareAndSwap(n, n+1) {
			if !f.ref.Load() {
				f.ref.Store(true)
			}
			return true
		}
	}
}

// frames bounds what is kept by bytes. golang-lru's list is given a length it never reaches: its Add evicts by count
// and cannot refuse, while pinned frames must stay. So a pinned frame leaves the list and comes back when its last pin
// goes, and the oldest go while the bytes exceed the limit, each with a second chance if it was hit since.
//
// It is consulted on fault, install and eviction only, under the page table's lock.
type frames struct {
	list  *simplelru.LRU[uint64, *frame]
	limit int64
	bytes int64
}

func newFrames(limit int64) *frames {
	list, err := simplelru.NewLRU[uint64, *frame](math.MaxInt32, nil)
	if err != nil {
		panic(err) // only for a size below 1
	}
	return &frames{list: list, limit: limit}
}

// add takes a frame in and returns those that had to go.
func (l *frames) add(f *frame) (out []*frame) {
	l.list.Add(f.num, f)
	l.bytes += f.bytes
	return l.trim(f)
}

// trim takes out the oldest while there are too many bytes. newest has no second chance: nobody can have hit it yet.
func (l *frames) trim(newest *frame) (out []*frame) {
	for l.bytes > l.limit {
		num, old, ok := l.list.RemoveOldest()
		if !ok {
			break // all that is left is pinned
		}
		if old.ref.Swap(false) && old != newest {
			l.list.Add(num, old)
			continue
		}
		// off before the attempt: an unpin in between either makes it succeed, or sees the flag and brings it back.
		old.off.Store(true)
		if old.state.CompareAndSwap(0, evicted) {
			l.bytes -= old.bytes
			out = append(out, old)
		}
	}
	return out
}

// back puts an unpinned frame into the list again and returns those that had to go: what was pinned together may have been
// more than there is room for.
func (l *frames) back(f *frame) (out []*frame) {
	if f.off.Swap(false) && !f.gone && f.state.Load() != evicted {
		l.list.Add(f.num, f)
	}
	return l.trim(nil)
}

// drop forgets a frame at once: its version is not current any more.
func (l *frames) drop(f *frame) bool {
	if !f.state.CompareAndSwap(0, evicted) {
		return false
	}
	l.forget(f)
	return true
}

// replaced forgets a frame that is pinned still, and whose place another takes or nobody: whoever pins it keeps it, nobody
// counts it.
func (l *frames) replaced(f *frame) {
	f.gone = true
	l.forget(f)
}

func (l *frames) forget(f *frame) {
	if listed, ok := l.list.Peek(f.num); ok && listed == f {
		l.list.Remove(f.num)
	}
	l.bytes -= f.bytes
}
