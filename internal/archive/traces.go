package archive

import (
	"context"
	"slices"
	"sync"
)

// traces are the hashes of the traces of the first upTo leaves, sorted: 4 bytes
// a leaf, made when a trace is first asked for. A search of the index, which
// ByTrace makes, takes milliseconds once there are a million leaves.
//
// A hash only proposes: a hit is compared with the leaf.
type traces struct {
	mu     sync.Mutex // taken before Log.mu
	upTo   uint64
	hashes []uint32
	fresh  []uint32 // those of leaves that came since hashes was sorted, in their order
}

// freshTraces bounds the hashes that are searched one by one before they are sorted in.
const freshTraces = 4096

// Named reports whether a leaf has this trace.
func (l *Log) Named(ctx context.Context, trace string) (bool, error) {
	v, err := l.view()
	if err != nil {
		return false, err
	}
	known, err := l.traces.has(ctx, v, HashTrace(trace))
	if err != nil || !known {
		return false, err
	}
	found := false
	h := HashTrace(trace)
	err = v.find(ctx, func(r row) bool { return r.trace == h }, func(i uint64) (bool, error) {
		r, err := v.leaf(i)
		found = err == nil && r.Trace == trace
		return !found, err
	})
	return found, err
}

// has reports whether a leaf has a trace with this hash. true may be a collision: Named reads the
// leaves to be sure. false is certain.
func (t *traces) has(ctx context.Context, v *view, hash uint32) (bool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.follow(ctx, v); err != nil {
		return false, err
	}
	if len(t.fresh) > freshTraces {
		t.hashes = append(t.hashes, t.fresh...)
		slices.Sort(t.hashes)
		t.fresh = t.fresh[:0]
	}
	_, found := slices.BinarySearch(t.hashes, hash)
	return found || slices.Contains(t.fresh, hash), nil
}

// follow adds the leaves that came since. It reads rows, not bodies.
func (t *traces) follow(ctx context.Context, v *view) error {
	for t.upTo < v.size() {
		if err := ctx.Err(); err != nil {
			return err
		}
		rows, err := v.rowsFrom(t.upTo)
		if err != nil {
			return err
		}
		for _, r := range rows {
			t.fresh = append(t.fresh, r.trace)
		}
		t.upTo += uint64(len(rows))
	}
	return nil
}
