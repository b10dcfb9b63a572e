package lexical

import (
	"maps"
	"math"
	"slices"
)

// The owner writes the index in steps, each in a transaction of its own:
//
//	Step ──commit──▶ Apply ──▶ Step ──commit──▶ Apply ──▶ … ──▶ false ──▶ Checkpoint ──commit──▶ Apply
//	crash before a commit: the step never was, and the next run repeats it
//	crash between commit and Apply: the rows have the new list, and the next Open reads it
//
// and a segment passes through these states, of which the list row (segment.go) has all but the
// first:
//
//	parts of the tail, or segments to merge
//	being written   its number is among the dead, so a crash leaves rows that a later step deletes
//	listed          readers use it
//	dead            a merge replaced it; readers of the list before may still use its rows
//	deleted         a step after the one that replaced it took its rows
//
// Rejected: to delete the rows in the step that replaces them. A reader that began before has the
// old list, and would miss rows of its own snapshot.

const (
	// flushDocs pages in the tail make a segment. Fewer would write more rows a
	// page, more would keep more in memory and in the redo of an open.
	flushDocs = 1024
	// mergeFactor segments of about one size become one.
	mergeFactor = 8
	// A segment is written anew when this share of its pages was removed.
	removedShare = 4
	// stepTerms lists are about what one step writes, and deletes.
	stepTerms = 1 << 15
	// deadShare is the part of stepTerms from which rows to delete are worth a step. They have some
	// 512 bytes each, so they are 1 MiB.
	deadShare = 16
	// stepBytes of lists are about the most that one step writes.
	stepBytes = 4 << 20
)

// atMost is about how much one step may write of a segment. bytes is a goal: a step ends behind the
// list that passes it.
type atMost struct{ lists, bytes int }

var everything = atMost{math.MaxInt, math.MaxInt}

// Swap has the changes of a checkpoint. It takes effect with Apply, after the
// transaction that the checkpoint wrote to is committed.
type Swap struct {
	manifest manifest
	merging  *merging
	dropped  []uint64 // removed numbers that are in no segment any more
	saved    int
	changed  bool
}

// Step does a bounded part of the pending work, because a transaction keeps all rows that it writes
// in memory. It continues the segment that the steps before it began. If there is none, it begins
// one: of the tail's whole parts if they are more than one step writes, else of segments that are
// to be merged. It reports whether it did something. The owner commits the transaction, calls
// Apply, and repeats this until nothing was done; then it calls Checkpoint. Neither Step nor
// Checkpoint changes the index, so a failed transaction has no effect and the next one repeats the
// work. Rows of merged segments are deleted in a later step, because readers may still use the old
// list. Step and Checkpoint must not run at the same time.
func (x *Index) Step(w Writer) (Swap, bool, error) {
	c := x.snapshot(false)
	c.w = w
	whole := c.merging == nil && !c.oneStep()
	if !whole && !c.merges() && !c.manyDead() {
		return Swap{}, false, nil
	}
	if err := c.deleteDead(c.step); err != nil {
		return Swap{}, false, err
	}
	var err error
	switch most := (atMost{c.step, stepBytes}); {
	case whole:
		err = c.flush(c.parts, most)
	case c.merges():
		err = c.merge(most)
	}
	if err == nil {
		err = c.save()
	}
	if err != nil {
		return Swap{}, false, err
	}
	return c.swap(), true, nil
}

// Checkpoint writes what Step leaves to the owner's last transaction: whole parts of the tail, no
// more than a step writes, and the numbers of removed pages. When force is set it writes everything
// at once: the rest of the tail and all merges.
func (x *Index) Checkpoint(w Writer, force bool) (Swap, error) {
	c := x.snapshot(force)
	c.w = w
	dead, most := c.step, everything
	if force {
		dead = math.MaxInt
	} else if !c.oneStep() { // pages came since the last step
		most = atMost{c.step, stepBytes}
	}
	if err := c.deleteDead(dead); err != nil {
		return Swap{}, err
	}
	if err := c.flushRest(most, force); err != nil {
		return Swap{}, err
	}
	for force && c.merges() {
		if err := c.merge(everything); err != nil {
			return Swap{}, err
		}
	}
	if err := c.save(); err != nil {
		return Swap{}, err
	}
	return c.swap(), nil
}

// Rest writes the whole tail as a segment and merges nothing. It is for an owner that closes, so
// that its next open need not add the pages of the tail again.
func (x *Index) Rest(w Writer) (Swap, error) {
	c := x.snapshot(true)
	c.w = w
	if err := c.flushRest(everything, true); err != nil {
		return Swap{}, err
	}
	if err := c.save(); err != nil {
		return Swap{}, err
	}
	return c.swap(), nil
}

// oneStep reports whether the parts are no more than one step may write, whatever words they share.
func (c *checkpoint) oneStep() bool {
	lists, bytes := 0, 0
	for _, p := range c.parts {
		lists += p.terms()
		if p.packed != nil {
			bytes += len(p.packed.data)
		}
	}
	return lists <= c.step && bytes <= stepBytes
}

func (c *checkpoint) swap() Swap {
	return Swap{manifest: c.manifest, merging: c.merging, dropped: c.dropped, saved: c.saved, changed: c.changed}
}

// Apply makes a committed checkpoint visible. The zero Swap changes nothing. It runs under the
// owner's write lock. Pages that were added since the checkpoint's snapshot stay: Apply only drops
// the parts that the checkpoint wrote, and the removed numbers that no segment has any more.
func (x *Index) Apply(s Swap) {
	if !s.changed {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, n := range s.dropped {
		delete(x.removed, n)
	}
	if s.manifest.through > x.manifest.through {
		if x.tail = x.tail.after(s.manifest.through); x.tail == nil {
			x.parts = partWriter{}
		}
	}
	x.manifest, x.merging, x.saved = s.manifest, s.merging, s.saved
	x.countPending()
}

// checkpoint is one run of Step or Checkpoint: a snapshot of the index and its changes. The maps
// and the list are copies, the parts are shared and never change: nothing that comes while it runs
// is seen by it. It belongs to one goroutine.
type checkpoint struct {
	w        Writer
	step     int // lists
	manifest manifest
	merging  *merging
	parts    []*part
	purge    bool
	removed  map[uint64]struct{}
	saved    int
	pending  map[uint32]uint64
	dropped  []uint64
	changed  bool

	key    []byte
	values []byte // see endBlock
	block  block
}

// snapshot takes what a run of Step or Checkpoint works on, so that it holds mu for a moment only:
// pages that come meanwhile are left for the next run. Removed pages and counts are copied; parts
// are shared, because a whole part does not change.
func (x *Index) snapshot(force bool) *checkpoint {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.invert()
	return &checkpoint{
		step: x.stepTerms, manifest: x.manifest.clone(), merging: x.merging, parts: x.tail.whole(force),
		removed: maps.Clone(x.removed), pending: maps.Clone(x.pending), saved: x.saved, purge: x.purge,
	}
}

// gone reports whether a page was removed before the snapshot.
func (c *checkpoint) gone(num uint64) bool {
	_, gone := c.removed[num]
	return gone
}

// deadNow returns the segments whose rows may go: not the segments of a merge under way.
func (c *checkpoint) deadNow() []uint32 {
	dead := slices.Clone(c.manifest.dead)
	if c.merging == nil {
		return dead
	}
	return slices.DeleteFunc(dead, func(id uint32) bool { return id == c.merging.segment.id })
}

// manyDead reports whether dead segments have so many rows that a step of its own deletes them. The
// owner's last transaction would delete them as well, but only what is freed before it is there for
// the rows that it writes: otherwise the store grows by as much.
func (c *checkpoint) manyDead() bool {
	n, many := 0, c.step/deadShare
	for _, id := range c.deadNow() {
		c.w.Scan(segmentKey(rowTerm, id), nil, func(_, _ []byte) bool {
			n++
			return n <= many
		})
	}
	return n > many || c.purge && len(c.deadNow()) > 0
}

// deleteDead deletes up to most rows of dead segments; one that still has rows stays in the list.
func (c *checkpoint) deleteDead(most int) error {
	for _, id := range c.deadNow() {
		for _, kind := range []byte{rowDocs, rowScopes, rowTerm} {
			n, err := deletePrefix(c.w, segmentKey(kind, id), most)
			if err != nil {
				return err
			}
			if most -= n; most <= 0 {
				c.changed = true
				return nil
			}
		}
		c.manifest.dead = slices.DeleteFunc(c.manifest.dead, func(d uint32) bool { return d == id })
		c.changed = true
	}
	return nil
}

// deletePrefix deletes up to most rows and says how many there were. It does it in batches: the
// store must not change under a scan.
func deletePrefix(w Writer, prefix []byte, most int) (n int, err error) {
	const batch = 4096
	var keys []byte // one behind the other
	var ends []int
	for n < most {
		keys, ends = keys[:0], ends[:0]
		w.Scan(prefix, nil, func(k, _ []byte) bool {
			keys = append(keys, k...)
			ends = append(ends, len(keys))
			return len(ends) < min(batch, most-n)
		})
		for at, from := 0, 0; at < len(ends); at, from = at+1, ends[at] {
			if err := w.Delete(keys[from:ends[at]]); err != nil {
				return n, err
			}
		}
		n += len(ends)
		if len(ends) < batch {
			break
		}
	}
	return n, nil
}

// flushRest writes the parts that steps left. all: also what belongs to a segment that they did not
// end; otherwise it waits, and what came behind it.
func (c *checkpoint) flushRest(most atMost, all bool) error {
	switch m := c.merging; {
	case m == nil:
	case all && m.old == nil:
		if err := c.merge(everything); err != nil {
			return err
		}
		c.parts = tail(c.parts).after(c.manifest.through)
	case !all && (m.old == nil || most != everything):
		return nil
	}
	return c.flush(c.parts, most)
}

// flush writes parts of the tail as a segment. A step that does not come to its end leaves a
// merging. Removed pages of the parts are left out here, so they never reach a segment. Where the store
// masks words, many parts become several segments: one, and the others wait, unless all is to be written.
func (c *checkpoint) flush(parts []*part, most atMost) error {
	for len(parts) > 0 {
		n := len(parts)
		by, masks := c.w.(Masked)
		if masks = masks && by.Masks(); masks {
			n = 0
			for lists := 0; n < len(parts) && lists < maskedSteps*c.step; n++ {
				lists += parts[n].terms()
			}
		}
		m, rows := c.joined(parts[:n])
		if masks {
			m.parts, m.masked = nil, mask(m.parts, by)
		}
		if err := c.begin(m, rows); err != nil {
			return err
		}
		if err := c.goOn(m, most); err != nil || most != everything {
			return err
		}
		parts = parts[n:]
	}
	return nil
}

// joined returns the segment that parts are to become, and the rows of its pages.
func (c *checkpoint) joined(parts []*part) (*merging, *docRows) {
	c.changed = true
	m := &merging{parts: make([]*packed, len(parts)), through: parts[len(parts)-1].last(), gone: map[uint64]struct{}{}}
	rows := &docRows{id: c.manifest.next}
	for i, p := range parts {
		m.parts[i] = p.inOrder()
		for _, row := range p.docs {
			if c.gone(row.num) {
				m.gone[row.num] = struct{}{}
			} else {
				rows.add(row)
			}
		}
	}
	return m, rows
}

// drop notes that no segment has a removed page any more: its number need not be kept.
func (c *checkpoint) drop(num uint64) {
	c.dropped = append(c.dropped, num)
	delete(c.removed, num)
}

// save writes the list row and the removed numbers, when they changed.
func (c *checkpoint) save() error {
	nums := slices.Sorted(maps.Keys(c.removed))
	nums = slices.DeleteFunc(nums, func(n uint64) bool { return n > c.manifest.through })
	if len(nums) != c.saved || len(c.dropped) > 0 {
		key := []byte{rowRemoved}
		if err := c.w.Put(key, seal(key, encodeRemoved(nums))); err != nil {
			return err
		}
		c.saved, c.changed = len(nums), true
	}
	if !c.changed {
		return nil
	}
	key := []byte{rowList}
	return c.w.Put(key, seal(key, c.manifest.encode()))
}
