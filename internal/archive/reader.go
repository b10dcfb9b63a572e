package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/manifest"
)

// Reader reads a Log and cannot write to it. Hosts get a Reader, because a single
// leaf that a host appended would make archive and log disagree, and the file would not open again.
// It is safe for concurrent use.
type Reader struct {
	reads // what a reader does as the log does
	log   *Log
	asked Asked
	close func() error // nil: the log has another owner, who closes it
}

type reads interface {
	DB() string
	Archived() uint64
	Wait(ctx context.Context, size uint64, wait time.Duration) (uint64, error)
	Each(ctx context.Context, from, to uint64, reverse bool, fn func(*manifest.Record) error) error
	ByTrace(ctx context.Context, trace string) ([]*manifest.Record, error)
	Named(ctx context.Context, trace string) (bool, error)
	Written(ctx context.Context, num uint64, version uint32) (*manifest.Record, manifest.Write, error)
	Names(ctx context.Context) (map[uint64]string, error)
	Verify(ctx context.Context, against *manifest.Head, progress func(done, total uint64)) (manifest.Verification, error)
}

// Asked returns the text of the question of a leaf; see Reader.Question.
type Asked func(ctx context.Context, leaf *manifest.Record) (string, error)

// Reader returns a reader of the log; closing it leaves the log open. With a
// nil asked, Question knows no text.
func (l *Log) Reader(asked Asked) *Reader { return &Reader{l, l, asked, nil} }

// Owner returns a reader of the log; closing it closes the log.
func (l *Log) Owner(asked Asked) *Reader { return &Reader{l, l, asked, l.Close} }

// Question returns the text that a leaf was asked, compared with the digest in
// the leaf. ErrNoQuestion: it was erased, or only its digest was kept, or there
// was no question.
func (r *Reader) Question(ctx context.Context, leaf *manifest.Record) (string, error) {
	if r.asked == nil || leaf == nil || !leaf.QuestionKept {
		return "", manifest.ErrNoQuestion
	}
	return r.asked(ctx, leaf)
}

// Close closes the log if the reader owns it.
func (r *Reader) Close() error {
	if r.close == nil {
		return nil
	}
	return r.close()
}

// unlessEnded calls read unless the context has ended. The read of one leaf is
// short, so it is not interrupted.
func unlessEnded[T any](ctx context.Context, read func() (T, error)) (out T, err error) {
	if err := ctx.Err(); err != nil {
		return out, err
	}
	return read()
}

// Size returns the number of leaves.
func (r *Reader) Size(ctx context.Context) (uint64, error) { return r.log.Size(), ctx.Err() }

// Body returns the bytes of leaf i; the caller may keep and change them.
// ErrPruned: they were removed.
func (r *Reader) Body(ctx context.Context, i uint64) ([]byte, error) {
	return unlessEnded(ctx, func() ([]byte, error) { return r.log.Body(i) })
}

// Leaf returns leaf i.
func (r *Reader) Leaf(ctx context.Context, i uint64) (*manifest.Record, error) {
	return unlessEnded(ctx, func() (*manifest.Record, error) { return r.log.Leaf(i) })
}

// Records returns the leaves [from, min(to, Size)), the last first if reverse,
// at most limit. Fewer than limit means there are no more.
func (r *Reader) Records(ctx context.Context, from, to uint64, reverse bool, limit int) (out []*manifest.Record, err error) {
	to = min(to, r.log.Size())
	n := uint64(max(limit, 0))
	if from >= to || n == 0 {
		return nil, ctx.Err()
	}
	if n = min(n, to-from); reverse {
		from = to - n
	} else {
		to = from + n
	}
	err = r.log.Each(ctx, from, to, reverse, func(rec *manifest.Record) error {
		out = append(out, rec)
		return nil
	})
	return out, err
}

// Root returns the root over the first size leaves.
func (r *Reader) Root(ctx context.Context, size uint64) (manifest.Hash, error) {
	return unlessEnded(ctx, func() (manifest.Hash, error) { return r.log.Root(size) })
}

// Head returns Root as a head that can be kept elsewhere; see Log.Head.
func (r *Reader) Head(ctx context.Context, size uint64, now int64) (manifest.Head, error) {
	return unlessEnded(ctx, func() (manifest.Head, error) { return r.log.Head(size, now) })
}

// ProveInclusion proves leaf i among the first size leaves.
func (r *Reader) ProveInclusion(ctx context.Context, i, size uint64) (manifest.Inclusion, error) {
	return unlessEnded(ctx, func() (manifest.Inclusion, error) { return r.log.ProveInclusion(i, size) })
}

// ProveConsistency proves that the first size leaves begin with the first old.
func (r *Reader) ProveConsistency(ctx context.Context, old, size uint64) (manifest.Consistency, error) {
	return unlessEnded(ctx, func() (manifest.Consistency, error) { return r.log.ProveConsistency(old, size) })
}

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
