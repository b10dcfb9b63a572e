package ui

import (
	"context"
	"fmt"
	"sort"
	"sync"
	"time"
)

// strip is a quarter of an hour in the strip that shows how much happened in a day.
type strip struct {
	At      string // when it began
	Count   uint64
	X, Y, H string // in percent
}

const (
	quarters = 96
	quarter  = 15 * time.Minute
)

// density remembers between which leaves the quarters of the last day lie. Only what is over is remembered.
type density struct {
	mu     sync.Mutex
	bounds map[int64]uint64 // index of the first leaf of a quarter, by its beginning
}

// strip counts the leaves of the last day by quarters. It finds the bounds by their times, in which leaves are in order unless a clock was
// set back; the counts may then be wrong by what was written out of order.
func (h *Handler) strip(ctx context.Context, size uint64) ([]strip, error) {
	end := h.o.Now().UTC().Truncate(quarter).Add(quarter)
	var bounds [quarters + 1]uint64
	bounds[quarters] = size
	h.day.mu.Lock()
	defer h.day.mu.Unlock()
	known, high := map[int64]uint64{}, size
	for i := quarters - 1; i >= 0; i-- {
		at := end.Add(-time.Duration(quarters-i) * quarter).UnixMicro()
		first, ok := h.day.bounds[at]
		if !ok || first > high {
			var err error
			if first, err = h.firstSince(ctx, at, high); err != nil {
				return nil, err
			}
		}
		bounds[i], high = first, first
		known[at] = first
	}
	h.day.bounds = known
	most := uint64(1)
	for i := range quarters {
		most = max(most, bounds[i+1]-bounds[i])
	}
	out := make([]strip, quarters)
	for i := range out {
		n := bounds[i+1] - bounds[i]
		tall := 0.0
		if n > 0 {
			tall = 8 + 92*float64(n)/float64(most)
		}
		out[i] = strip{
			At: end.Add(-time.Duration(quarters-i) * quarter).Format("15:04"), Count: n,
			X: fmt.Sprintf("%.3f%%", 100*float64(i)/quarters), Y: fmt.Sprintf("%.1f%%", 100-tall), H: fmt.Sprintf("%.1f%%", tall),
		}
	}
	return out, nil
}

// firstSince finds the first leaf below high that was written at a time or later; high: there is none.
func (h *Handler) firstSince(ctx context.Context, at int64, high uint64) (first uint64, err error) {
	n := sort.Search(int(high), func(i int) bool {
		if err != nil {
			return true
		}
		leaf, lerr := h.o.DB.Manifests().Leaf(ctx, uint64(i))
		if lerr != nil {
			err = lerr
			return true
		}
		return leaf.Time >= at
	})
	return uint64(n), err
}
