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

// frame is a page in memory: its content and the head it was loaded with. Both are immutable. What is computed from
// them is kept with it.
//
// state counts pins; evicted is terminal. A hit pins by compare-and-swap and takes no lock. It sets ref only when ref
// is clear, so that in the steady state it writes nothing that another core reads.
type frame struct {
	num    uint64
	head   *store.Head
	page   int
	name   string // reference to this version of the page
	text   string
	bytes  int64 // changes under the table's lock only
	state  atomic.Int32
	ref    atomic.Bool
	parts  atomic.Pointer[cut.Parts]    // for cuts; nil: not computed yet
	sketch atomic.Pointer[alike.Sketch] // for duplicates; nil: not computed yet
	cost   atomic.Int32                 // tokens of the page in a context, header included; 0: not counted yet
	spoken atomic.Int32                 // the same for a turn in a context of its own session
	off    atomic.Bool                  // eviction took it off the list while it was pinned
	gone   bool                         // another frame took its place while it was pinned; under the table's lock
}

const evicted = -1

const frameOverhead = 512 // bytes of a head and of bookkeeping, roughly

// pin keeps a frame in memory until unpin. false: the frame was evicted.
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

// frames limits the kept bytes. golang-lru's list gets a length that it never reaches, because its Add evicts by count
// and cannot refuse, while pinned frames must stay. So a pinned frame leaves the list and comes back when its last pin
// goes, and the oldest frames go while the bytes exceed the limit, each with a second chance if it was hit since.
//
// It is used on fault, install and eviction only, under the page table's lock.
type frames struct {
	list  *simplelru.LRU[uint64, *frame]
	limit int64
	bytes int64
}

// newFrames limits frames to so many bytes; 0: nothing is kept.
func newFrames(limit int64) *frames {
	list, err := simplelru.NewLRU[uint64, *frame](math.MaxInt32, nil)
	if err != nil {
		panic(err) // only for a size below 1
	}
	return &frames{list: list, limit: limit}
}

// add takes a frame and returns those that it evicted.
func (l *frames) add(f *frame) (out []*frame) {
	l.list.Add(f.num, f)
	l.bytes += f.bytes
	return l.trim(f)
}

// trim evicts the oldest frames while there are too many bytes. newest gets no second chance: nothing can have hit it
// yet.
func (l *frames) trim(newest *frame) (out []*frame) {
	for l.bytes > l.limit {
		num, f, ok := l.list.RemoveOldest()
		if !ok {
			break // all others are pinned
		}
		if f.ref.Swap(false) && f != newest {
			l.list.Add(num, f)
			continue
		}
		// off before the attempt: an unpin in between either makes it succeed, or sees the flag and brings it back.
		f.off.Store(true)
		if f.state.CompareAndSwap(0, evicted) {
			l.bytes -= f.bytes
			out = append(out, f)
		}
	}
	return out
}

// back puts an unpinned frame into the list again and returns those that it evicted: frames that were pinned together
// may exceed the limit.
func (l *frames) back(f *frame) (out []*frame) {
	if f.off.Swap(false) && !f.gone && f.state.Load() != evicted {
		l.list.Add(f.num, f)
	}
	return l.trim(nil)
}

// drop forgets a frame at once, because its version is not current any more. false: the frame is pinned.
func (l *frames) drop(f *frame) bool {
	if !f.state.CompareAndSwap(0, evicted) {
		return false
	}
	l.forget(f)
	return true
}

// replaced forgets a frame that is still pinned: its holders keep it, and its bytes are not counted any more.
func (l *frames) replaced(f *frame) {
	f.gone = true
	l.forget(f)
}

// forget takes a frame off the list, unless another frame of its number is listed, and out of the count.
func (l *frames) forget(f *frame) {
	if listed, ok := l.list.Peek(f.num); ok && listed == f {
		l.list.Remove(f.num)
	}
	l.bytes -= f.bytes
}
