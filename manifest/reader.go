package manifest

import "context"

// Reader reads a Log and cannot write to it. It is what a database hands to its host: one leaf that a host appends would
// part the archive from the log, and the file would not open again. It is safe for concurrent use.
type Reader struct {
	log   *Log
	asked Asked
	close func() error // nil: the log belongs to somebody else
}

// Asked finds the text that a leaf was asked; see Reader.Question.
type Asked func(ctx context.Context, leaf *Record) (string, error)

// Reader gives a reader of the log, whose Close leaves the log open. A nil asked knows no question.
func (l *Log) Reader(asked Asked) *Reader { return &Reader{log: l, asked: asked} }

// Owner gives a reader of the log, whose Close closes the log.
func (l *Log) Owner(asked Asked) *Reader { return &Reader{log: l, asked: asked, close: l.Close} }

// Question is the text that a leaf was asked, compared with the digest in the leaf. ErrNoQuestion: it was erased, or only
// its digest was kept, or nothing was asked.
func (r *Reader) Question(ctx context.Context, leaf *Record) (string, error) {
	if r.asked == nil || !leaf.QuestionKept {
		return "", ErrNoQuestion
	}
	return r.asked(ctx, leaf)
}

// Close closes what OpenManifests opened. Of an open database it does nothing.
func (r *Reader) Close() error {
	if r.close == nil {
		return nil
	}
	return r.close()
}

// unlessEnded reads, unless the context has ended. A read of one leaf is short, so it is not stopped half way.
func unlessEnded[T any](ctx context.Context, read func() (T, error)) (out T, err error) {
	if err := ctx.Err(); err != nil {
		return out, err
	}
	return read()
}

// DB is the database id; see Log.DB.
func (r *Reader) DB() string { return r.log.DB() }

// Size is the number of leaves.
func (r *Reader) Size(ctx context.Context) (uint64, error) { return r.log.Size(), ctx.Err() }

// Archived is the number of leaves in the archive.
func (r *Reader) Archived() uint64 { return r.log.Archived() }

// Body is the bytes of leaf i; the caller may keep and change them.
func (r *Reader) Body(ctx context.Context, i uint64) ([]byte, error) {
	return unlessEnded(ctx, func() ([]byte, error) { return r.log.Body(i) })
}

// Leaf is leaf i.
func (r *Reader) Leaf(ctx context.Context, i uint64) (*Record, error) {
	return unlessEnded(ctx, func() (*Record, error) { return r.log.Leaf(i) })
}

// Each calls fn for the leaves [from, min(to, Size)); see Log.Each.
func (r *Reader) Each(ctx context.Context, from, to uint64, reverse bool, fn func(*Record) error) error {
	return r.log.Each(ctx, from, to, reverse, fn)
}

// Progress hears how far long work has come. It is called from the goroutine of the call.
type Progress func(done, total uint64)

// Records are the leaves [from, min(to, Size)), the last first if reverse, at most limit of them. Fewer than limit are
// all there are.
func (r *Reader) Records(ctx context.Context, from, to uint64, reverse bool, limit int) (out []*Record, err error) {
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
	err = r.log.Each(ctx, from, to, reverse, func(rec *Record) error {
		out = append(out, rec)
		return nil
	})
	return out, err
}

// ByTrace is every leaf whose Trace or Parent is trace; see Log.ByTrace.
func (r *Reader) ByTrace(ctx context.Context, trace string) ([]*Record, error) {
	return r.log.ByTrace(ctx, trace)
}

// Named reports whether a leaf has this trace.
func (r *Reader) Named(ctx context.Context, trace string) (bool, error) {
	return r.log.Named(ctx, trace)
}

// Written finds the newest leaf that wrote this version of a page; see Log.Written.
func (r *Reader) Written(ctx context.Context, num uint64, version uint32) (*Record, Write, error) {
	return r.log.Written(ctx, num, version)
}

// Names maps page numbers to references; see Log.Names.
func (r *Reader) Names(ctx context.Context) (Names, error) { return r.log.Names(ctx) }

// Root is the root over the first size leaves.
func (r *Reader) Root(ctx context.Context, size uint64) (Hash, error) {
	return unlessEnded(ctx, func() (Hash, error) { return r.log.Root(size) })
}

// Head is Root as a line to be kept elsewhere; see Log.Head.
func (r *Reader) Head(ctx context.Context, size uint64, now int64) (Head, error) {
	return unlessEnded(ctx, func() (Head, error) { return r.log.Head(size, now) })
}

// ProveInclusion proves leaf i among the first size leaves.
func (r *Reader) ProveInclusion(ctx context.Context, i, size uint64) (Inclusion, error) {
	return unlessEnded(ctx, func() (Inclusion, error) { return r.log.ProveInclusion(i, size) })
}

// ProveConsistency proves that the first size leaves begin with the first old.
func (r *Reader) ProveConsistency(ctx context.Context, old, size uint64) (Consistency, error) {
	return unlessEnded(ctx, func() (Consistency, error) { return r.log.ProveConsistency(old, size) })
}

// Verify reads all bytes again; see Log.Verify.
func (r *Reader) Verify(ctx context.Context, against *Head, progress Progress) (Verification, error) {
	return r.log.Verify(ctx, against, progress)
}
