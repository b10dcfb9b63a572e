package ctxpage

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ctxpage/ctxpage/store"
)

// pageTable is the working set of this process: page number → frame. The page that was read longest ago leaves first
// (lru.go). A hit is two atomic loads, a count and a compare-and-swap; the count is also the stamp of the hit. Faults, evictions and drops take mu, which is last in the lock order and never held during I/O.
//
// A read of one page:
//
//	load ─▶ hit: slot → frame of the requested version, pinned ──────────────▶ frame
//	  └────▶ miss ─▶ dropEnded ─▶ Store.Load, no lock held ─▶ publish: add, trim ─▶ frame
//
// Invariants: a frame in a slot is pinned, in the list or on its stack, so its bytes are counted once. The bytes exceed the
// limit only while the pinned frames do. Every frame that load returns is pinned, and its caller unpins it. With a
// limit of 0 nothing is kept: frames are made for one caller and enter no slot.
//
// Page numbers name immutable versions and are never used again, so a late fault cannot bring an old version back under
// a current name. Frames of versions that ended are dropped on a fault.
//
// Rejected: a map under a lock for the slots. Every hit would have written to the lock's cache line; the slots are an
// array in chunks, so that it grows without moving and a reader needs no lock.
type pageTable struct {
	store  store.Store
	slots  atomic.Pointer[[]atomic.Pointer[slotChunk]]
	mu     sync.Mutex
	frames *frames

	seen atomic.Uint64 // up to this LSN, frames of versions that ended have been dropped

	hits, faults, evictions atomic.Int64

	pins, unpins atomic.Uint64 // pins is the clock of the working set: the stamp of each hit
}

// slotChunk is a fixed part of the slots, made with the first of its frames. Page numbers are dense, so an array needs less
// memory than a map and no lock.
type slotChunk [128]atomic.Pointer[frame]

// TableStats are counters of the working set since Open. Bytes and Limit are in bytes.
type TableStats struct {
	Hits      int64 `json:"hits"`
	Faults    int64 `json:"faults"`
	Evictions int64 `json:"evictions"`
	Refetches int64 `json:"refetches"`
	Pinned    int64 `json:"pinned"`
	Frames    int   `json:"frames"`
	Bytes     int64 `json:"bytes"`
	Limit     int64 `json:"limit"`
}

// newPageTable makes an empty working set of at most limit bytes; 0 or less: nothing is kept.
func newPageTable(st store.Store, limit int64) *pageTable {
	t := &pageTable{store: st, frames: newFrames(max(limit, 0))}
	t.slots.Store(&[]atomic.Pointer[slotChunk]{})
	t.seen.Store(st.Mark().LSN)
	return t
}

// slot returns the slot of a page number, nil if none was made. It takes no lock.
func (t *pageTable) slot(num uint64) *atomic.Pointer[frame] {
	chunks := *t.slots.Load()
	if i := num / uint64(len(slotChunk{})); i < uint64(len(chunks)) {
		if c := chunks[i].Load(); c != nil {
			return &c[num%uint64(len(slotChunk{}))]
		}
	}
	return nil
}

// grow makes a slot for a page number. The caller holds mu.
func (t *pageTable) grow(num uint64) *atomic.Pointer[frame] {
	chunks, at := *t.slots.Load(), int(num/uint64(len(slotChunk{})))
	if at >= len(chunks) {
		more := make([]atomic.Pointer[slotChunk], max(at+1, len(chunks)*5/4))
		for i := range chunks {
			more[i].Store(chunks[i].Load())
		}
		t.slots.Store(&more)
		chunks = more
	}
	if chunks[at].Load() == nil {
		chunks[at].Store(new(slotChunk))
	}
	return t.slot(num)
}

// hit returns the frame of a page, pinned, if it is there in the requested version.
func (t *pageTable) hit(key store.PageKey) *frame {
	s := t.slot(key.Num)
	if s == nil {
		return nil
	}
	f := s.Load()
	if f == nil || f.head.Version != key.Version {
		return nil
	}
	if !t.frames.pin(f, t.pins.Add(1)) {
		t.unpins.Add(1)
		return nil
	}
	return f
}

// load returns the frames of pages, pinned, in order: hits as they are, the rest in one fault. A page that could not be
// loaded leaves a nil frame and its error; without a failure the errors are nil. They are in out if they fit, which must be
// empty. The caller unpins.
func (t *pageTable) load(ctx context.Context, scopes store.Scopes, keys []store.PageKey, out []*frame) ([]*frame, []error, error) {
	out = slices.Grow(out, len(keys))[:len(keys)]
	var miss []int
	for i, k := range keys {
		if out[i] = t.hit(k); out[i] == nil {
			miss = append(miss, i)
		}
	}
	t.hits.Add(int64(len(keys) - len(miss)))
	if len(miss) == 0 {
		return out, nil, nil
	}
	errs := make([]error, len(keys))
	t.faults.Add(int64(len(miss)))
	want := make([]store.PageKey, len(miss))
	for j, i := range miss {
		want[j] = keys[i]
	}
	var loaded []store.Loaded
	err := t.dropEnded(ctx)
	if err == nil {
		loaded, err = t.store.Load(ctx, scopes, want, store.WantText)
	}
	if err != nil {
		t.unpin(out)
		return nil, nil, err
	}
	for j, i := range miss {
		if l := &loaded[j]; l.Err != nil {
			errs[i] = l.Err
		} else {
			out[i] = t.publish(l)
		}
	}
	return out, errs, nil
}

// publish makes a frame of a loaded page, pinned for the caller. Of two faults for one page the first wins.
func (t *pageTable) publish(l *store.Loaded) *frame {
	f := &frame{num: l.Key.Num, head: l.Head, page: l.Page, name: l.Head.PageRef(l.Page).String(), text: l.Text, bytes: int64(len(l.Text)) + frameOverhead}
	stamp := t.pins.Add(1)
	f.state.Store(stamp<<stampAt | hitFlag | 1)
	if t.frames.limit == 0 {
		return f
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.grow(f.num)
	if first := s.Load(); first != nil {
		if first.head.Version == f.head.Version && t.frames.pin(first, stamp) {
			return first
		}
		if !t.frames.drop(first) {
			t.frames.replaced(first)
		}
	}
	s.Store(f)
	t.evict(t.frames.add(f))
	return f
}

// evict empties the slots of evicted frames. A slot may hold another frame by now, which stays.
func (t *pageTable) evict(out []*frame) {
	for _, gone := range out {
		t.slot(gone.num).CompareAndSwap(gone, nil)
		t.evictions.Add(1)
	}
}

// grew counts what was computed for a pinned frame and makes room for it.
func (t *pageTable) grew(f *frame, bytes int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.frames.limit > 0 && !f.gone {
		f.bytes += bytes
		t.frames.bytes += bytes
		t.evict(t.frames.trim())
	}
}

// unpin releases frames. It skips nil ones.
func (t *pageTable) unpin(fs []*frame) {
	for _, f := range fs {
		if f == nil {
			continue
		}
		t.unpins.Add(1)
		if f.state.Add(^uint64(0))&pinMask == 0 && f.off.Load() {
			t.mu.Lock()
			t.evict(t.frames.back(f))
			t.mu.Unlock()
		}
	}
}

// dropEnded drops the frames of versions that ended since its last call. A fault calls it, because it needs their
// memory. Holders of a pin keep their frame; nobody else finds it, so that memory does not serve what gc drops. A fault
// ends with the error: a store that did not answer is not asked again, which would double the time until somebody is told.
func (t *pageTable) dropEnded(ctx context.Context) error {
	seen := t.seen.Load()
	if t.store.Mark().LSN <= seen { // a store elsewhere need not be asked
		return nil
	}
	ch, err := t.store.Changes(ctx, seen, 0)
	if err != nil || ch.LSN <= seen || !t.seen.CompareAndSwap(seen, ch.LSN) {
		return err // nil: another fault drops them
	}
	if ch.All {
		t.mu.Lock()
		t.frames.settle()
		ch.Ended = t.frames.list.Keys()
		t.mu.Unlock()
	}
	t.drop(ch.Ended)
	return nil
}

// drop takes frames out of the table.
func (t *pageTable) drop(nums []uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, n := range nums {
		s := t.slot(n)
		if s == nil {
			continue
		}
		if f := s.Load(); f != nil {
			if !t.frames.drop(f) {
				t.frames.replaced(f)
			}
			s.CompareAndSwap(f, nil)
		}
	}
}

// stats drops ended frames first, so that the figures count current pages only.
func (t *pageTable) stats() TableStats {
	_ = t.dropEnded(context.Background()) // else the figures count a few more
	t.mu.Lock()
	t.frames.settle()
	frames, bytes := t.frames.list.Len(), t.frames.bytes
	t.mu.Unlock()
	return TableStats{
		Hits: t.hits.Load(), Faults: t.faults.Load(), Evictions: t.evictions.Load(),
		Pinned: int64(t.pins.Load() - t.unpins.Load()), Frames: frames, Bytes: bytes, Limit: t.frames.limit,
	}
}
