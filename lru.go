package ctxpage

import (
	"cmp"
	"math"
	"slices"
	"sync/atomic"

	"github.com/ctxpage/ctxpage/internal/prose"
	"github.com/ctxpage/ctxpage/store"
	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// The states of a frame. state counts pins; the flags say where it is kept.
//
//	publish ─▶ pinned, kept ◀──pin── unpinned, kept ──trim or drop──▶ evicted (terminal)
//	               │    └─────unpin────────▲
//	             trim                      │
//	               ▼                       │
//	           pinned, off ────unpin: back─┘
//	               │
//	         any pinned one ──its version ended, or another frame took its slot──▶ gone: not counted any more,
//	                          kept by those who pinned it, then collected
//
// Invariant: only a compare-and-swap of a state without pins evicts, so no frame is evicted while somebody reads it.

// frame is a page in memory: its content and the head it was loaded with. Both are immutable. What is computed from
// them is kept with it.
type frame struct {
	num    uint64
	head   *store.Head
	page   int
	name   string // reference to this version of the page
	text   string
	bytes  int64 // changes under the table's lock only
	state  atomic.Uint64
	next   *frame                       // on the stack of hit frames
	last   uint64                       // the stamp that settle sorts by; under the table's lock
	parts  atomic.Pointer[prose.Parts]  // for cuts; nil: not computed yet
	sketch atomic.Pointer[prose.Sketch] // for duplicates; nil: not computed yet
	cost   atomic.Int32                 // tokens of the page in a context, header included; 0: not counted yet
	spoken atomic.Int32                 // the same for a turn in a context of its own session
	tail   atomic.Uint64                // the length and the parts of the count of its text in a context (countLine); 0: not counted yet
	off    atomic.Bool                  // eviction took it off the list while it was pinned
	gone   bool                         // another frame took its place while it was pinned; under the table's lock
}

// The state of a frame is one word, so that a hit writes once: the number of pins, whether the frame was hit since it
// last entered the list, and the stamp of its last hit. Stamps wrap; they are compared by their distance.
const (
	pinBits  = 20
	pinMask  = 1<<pinBits - 1
	hitFlag  = 1 << pinBits
	stampAt  = pinBits + 1
	evicted  = pinMask // terminal
	stampTop = ^uint64(1<<stampAt - 1)
)

const frameOverhead = 512 // bytes of a head and of bookkeeping, roughly

// evict makes a frame terminal unless its state has one of the given bits, and returns the state that it found.
func (f *frame) evict(unless uint64) (found uint64, ok bool) {
	for {
		n := f.state.Load()
		if n&unless != 0 {
			return n, false
		}
		if f.state.CompareAndSwap(n, evicted) {
			return n, true
		}
	}
}

// frames limits the kept bytes: the frame that was read longest ago leaves first. The order is golang-lru's list. A hit
// must not take its lock, so it writes its stamp into the frame, and the first hit since the frame entered the list puts
// it on a stack, where a new frame begins. settle moves the frames of the stack to the front of the list in the order of
// their stamps. All of them were read after those that are in the list only, so trim takes these first, and a working set
// that has room is never put in order.
//
// The list gets a length that it never reaches, because its Add evicts by count and cannot refuse, while pinned frames
// must stay. An eviction that meets a pinned frame takes it off the list; it comes back, as the newest, when its last
// pin goes.
//
// All but pin is used on fault, install and eviction only, under the page table's lock.
type frames struct {
	list  *simplelru.LRU[uint64, *frame]
	hit   atomic.Pointer[frame] // stack of the frames with hitFlag, linked by next
	batch []*frame              // memory of settle
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

// pin keeps a frame in memory until unpin and stamps it as read. It takes no lock. false: the frame was evicted.
func (l *frames) pin(f *frame, stamp uint64) bool {
	stamp <<= stampAt
	for {
		n := f.state.Load()
		if n&pinMask == evicted {
			return false
		}
		last := n & stampTop
		if int64(stamp-last) > 0 { // else a later hit was faster
			last = stamp
		}
		if !f.state.CompareAndSwap(n, last|hitFlag|n&pinMask+1) {
			continue
		}
		if n&hitFlag == 0 {
			l.push(f)
		}
		return true
	}
}

// push puts a frame on the stack. The caller set its hitFlag, so no other goroutine pushes it.
func (l *frames) push(f *frame) {
	for {
		f.next = l.hit.Load()
		if l.hit.CompareAndSwap(f.next, f) {
			return
		}
	}
}

// settle brings the list up to date with the hits. A frame that is hit meanwhile goes on the stack again.
func (l *frames) settle() {
	f := l.hit.Swap(nil)
	if f == nil {
		return
	}
	batch := l.batch[:0]
	for f != nil {
		next := f.next // before the flag goes: the next hit writes it
		f.last = f.state.And(^uint64(hitFlag)) & stampTop
		batch = append(batch, f)
		f = next
	}
	slices.SortFunc(batch, func(a, b *frame) int { return cmp.Compare(int64(a.last-b.last), 0) })
	for _, f := range batch {
		if !f.gone && !f.off.Load() && f.state.Load() != evicted {
			l.list.Add(f.num, f)
		}
	}
	clear(batch) // keep no frame alive
	l.batch = batch[:0]
}

// add takes a frame, whose state has hitFlag, and returns those that it evicted.
func (l *frames) add(f *frame) (out []*frame) {
	l.push(f)
	l.bytes += f.bytes
	return l.trim()
}

// trim evicts the oldest frames while there are too many bytes.
func (l *frames) trim() (out []*frame) {
	for l.bytes > l.limit {
		_, f, ok := l.list.RemoveOldest()
		if !ok {
			if l.settle(); l.list.Len() == 0 {
				break // all others are pinned
			}
			continue
		}
		// off before the attempt: an unpin in between either makes it succeed, or sees the flag and brings it back.
		f.off.Store(true)
		if found, ok := f.evict(pinMask | hitFlag); ok {
			l.bytes -= f.bytes
			out = append(out, f)
		} else if found&hitFlag != 0 {
			f.off.Store(false) // it is on the stack
		}
	}
	return out
}

// back puts an unpinned frame into the list again and returns those that it evicted: frames that were pinned together
// may exceed the limit.
func (l *frames) back(f *frame) (out []*frame) {
	l.settle()
	if f.off.Swap(false) && !f.gone && f.state.Load() != evicted {
		l.list.Add(f.num, f)
	}
	return l.trim()
}

// drop forgets a frame at once, because its version is not current any more. false: the frame is pinned.
func (l *frames) drop(f *frame) bool {
	l.unstack(f)
	if _, ok := f.evict(pinMask); !ok {
		return false
	}
	l.forget(f)
	return true
}

// replaced forgets a frame that is still pinned: its holders keep it, and its bytes are not counted any more.
func (l *frames) replaced(f *frame) {
	l.unstack(f)
	f.gone = true
	l.forget(f)
}

// unstack takes a frame off the stack, which would keep it in memory.
func (l *frames) unstack(f *frame) {
	if f.state.Load()&hitFlag != 0 {
		l.settle()
	}
}

// forget takes a frame off the list, unless another frame of its number is listed, and out of the count.
func (l *frames) forget(f *frame) {
	if listed, ok := l.list.Peek(f.num); ok && listed == f {
		l.list.Remove(f.num)
	}
	l.bytes -= f.bytes
}
