package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/manifest"
)

// Body returns the bytes of leaf i; the caller may keep and change them.
// ErrNoLeaf: there is none. ErrPruned: they were removed.
func (l *Log) Body(i uint64) ([]byte, error) {
	v, err := l.view()
	if err != nil {
		return nil, err
	}
	b, err := v.body(i)
	return bytes.Clone(b), err
}

// Leaf returns leaf i. ErrNoLeaf: there is none.
func (l *Log) Leaf(i uint64) (*manifest.Record, error) {
	v, err := l.view()
	if err != nil {
		return nil, err
	}
	return v.leaf(i)
}

// Each calls fn for the leaves [from, min(to, Size)) as they were when Each was called; if reverse,
// the last leaf comes first. No lock is held while fn runs. Each ends with the first error: of fn,
// of ctx, or of a leaf that cannot be read.
func (l *Log) Each(ctx context.Context, from, to uint64, reverse bool, fn func(*manifest.Record) error) error {
	v, err := l.view()
	if err != nil {
		return err
	}
	return v.each(ctx, from, min(to, v.size()), reverse, func(s slot) error {
		r, err := v.record(s)
		if err != nil {
			return err
		}
		return fn(r)
	})
}

// ByTrace returns every leaf whose Trace or Parent is trace, in log order: a read, and the ends of
// the transactions that came from it. ErrNoLeaf: there is none. It reads the index from its end, 24
// bytes per leaf, and the bodies of hits only.
func (l *Log) ByTrace(ctx context.Context, trace string) ([]*manifest.Record, error) {
	v, err := l.view()
	if err != nil {
		return nil, err
	}
	if trace == "" { // it would match every leaf without a parent
		return nil, fmt.Errorf("%w: an empty trace was asked for", manifest.ErrNoLeaf)
	}
	var out []*manifest.Record
	h, parent := HashTrace(trace), hashParent(trace)
	match := func(r row) bool { return r.trace == h || r.parent == parent }
	err = v.find(ctx, match, func(i uint64) (bool, error) {
		r, err := v.leaf(i)
		if err == nil && (r.Trace == trace || r.Parent == trace) {
			out = append(out, r)
		}
		return true, err
	})
	if err != nil {
		return nil, err
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%w: none of trace %q", manifest.ErrNoLeaf, trace)
	}
	slices.Reverse(out)
	return out, nil
}

// Written returns the newest leaf that wrote this version of a page, and the
// write with its digest. ErrNoLeaf: there is none.
func (l *Log) Written(ctx context.Context, num uint64, version uint32) (*manifest.Record, manifest.Write, error) {
	v, err := l.view()
	if err != nil {
		return nil, manifest.Write{}, err
	}
	var leaf *manifest.Record
	var write manifest.Write
	err = v.find(ctx, func(r row) bool { return r.writes }, func(i uint64) (bool, error) {
		r, err := v.leaf(i)
		if err != nil {
			return false, err
		}
		for _, w := range r.Writes {
			if w.Num == num && w.Version == version && !w.Touch && !w.Gone {
				leaf, write = r, w
			}
		}
		return leaf == nil, nil
	})
	if err == nil && leaf == nil {
		err = fmt.Errorf("%w: none wrote version %d of page %d", manifest.ErrNoLeaf, version, num)
	}
	return leaf, write, err
}

// Names reads the leaves that wrote something. Its memory grows with the number
// of pages ever written. A page that only damaged leaves name is missing.
func (l *Log) Names(ctx context.Context) (map[uint64]string, error) {
	v, err := l.view()
	if err != nil {
		return nil, err
	}
	out := map[uint64]string{}
	err = v.find(ctx, func(r row) bool { return r.writes }, func(i uint64) (bool, error) {
		r, err := v.leaf(i)
		var damaged *codec.CorruptError
		if errors.As(err, &damaged) {
			return true, nil // another leaf can be shown all the same
		}
		if err != nil {
			return false, err
		}
		for _, w := range r.Writes {
			if _, ok := out[w.Num]; !ok && !w.Gone && w.Ref != "" { // newest first
				out[w.Num] = w.Ref
			}
		}
		return true, nil
	})
	return out, err
}

// Decided reports whether a commit up to an LSN approved or rejected a held
// batch. It reads the leaves of decisions made since the batch was held.
func (l *Log) Decided(ctx context.Context, batch string, lsn uint64) (decided bool, err error) {
	v, err := l.view()
	if err != nil {
		return false, err
	}
	h := HashTrace(batch)
	match := func(r row) bool {
		return r.typ == manifest.TypeApprove || r.typ == manifest.TypeReject || r.typ == manifest.TypeHeld && r.trace == h
	}
	err = v.find(ctx, match, func(i uint64) (bool, error) {
		r, err := v.leaf(i)
		if err != nil {
			return false, err
		}
		decided = decided || r.From == batch && r.LSN <= lsn
		return !decided && !(r.Type == manifest.TypeHeld && r.Trace == batch), nil
	})
	return decided, err
}
