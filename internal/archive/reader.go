package archive

import (
	"context"
	"time"

	"github.com/ctxpage/ctxpage/manifest"
)

// Reader reads a Log and cannot write to it. Hosts get a Reader, because a single
// leaf that a host appended would make archive and log disagree, and the file would not open again.
// It is safe for concurrent use.
type Reader struct {
	log   *Log
	asked Asked
	close func() error // nil: the log has another owner, who closes it
}

// Asked returns the text of the question of a leaf; see Reader.Question.
type Asked func(ctx context.Context, leaf *manifest.Record) (string, error)

// Reader returns a reader of the log; closing it leaves the log open. With a
// nil asked, Question knows no text.
func (l *Log) Reader(asked Asked) *Reader { return &Reader{log: l, asked: asked} }

// Owner returns a reader of the log; closing it closes the log.
func (l *Log) Owner(asked Asked) *Reader { return &Reader{log: l, asked: asked, close: l.Close} }

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

// DB returns the database id; see Log.DB.
func (r *Reader) DB() string { return r.log.DB() }

// Size returns the number of leaves.
func (r *Reader) Size(ctx context.Context) (uint64, error) { return r.log.Size(), ctx.Err() }

// Wait returns Size, once there is a leaf beyond size or the time is over; see Log.Wait.
func (r *Reader) Wait(ctx context.Context, size uint64, wait time.Duration) (uint64, error) {
	return r.log.Wait(ctx, size, wait)
}

// Archived returns the number of leaves in the archive.
func (r *Reader) Archived() uint64 { return r.log.Archived() }

// Body returns the bytes of leaf i; the caller may keep and change them.
// ErrPruned: they were removed.
func (r *Reader) Body(ctx context.Context, i uint64) ([]byte, error) {
	return unlessEnded(ctx, func() ([]byte, error) { return r.log.Body(i) })
}

// Leaf returns leaf i.
func (r *Reader) Leaf(ctx context.Context, i uint64) (*manifest.Record, error) {
	return unlessEnded(ctx, func() (*manifest.Record, error) { return r.log.Leaf(i) })
}

// Each calls fn for the leaves [from, min(to, Size)); see Log.Each.
func (r *Reader) Each(ctx context.Context, from, to uint64, reverse bool, fn func(*manifest.Record) error) error {
	return r.log.Each(ctx, from, to, reverse, fn)
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

// ByTrace returns every leaf whose Trace or Parent is trace; see Log.ByTrace.
func (r *Reader) ByTrace(ctx context.Context, trace string) ([]*manifest.Record, error) {
	return r.log.ByTrace(ctx, trace)
}

// Named reports whether a leaf has this trace.
func (r *Reader) Named(ctx context.Context, trace string) (bool, error) {
	return r.log.Named(ctx, trace)
}

// Written returns the newest leaf that wrote this version of a page; see
// Log.Written.
func (r *Reader) Written(ctx context.Context, num uint64, version uint32) (*manifest.Record, manifest.Write, error) {
	return r.log.Written(ctx, num, version)
}

// Names returns the references of page numbers; see Log.Names.
func (r *Reader) Names(ctx context.Context) (map[uint64]string, error) { return r.log.Names(ctx) }

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

// Verify reads all bytes again; see Log.Verify.
func (r *Reader) Verify(ctx context.Context, against *manifest.Head, progress func(done, total uint64)) (manifest.Verification, error) {
	return r.log.Verify(ctx, against, progress)
}
