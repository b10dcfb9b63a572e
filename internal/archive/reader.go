package archive

import (
	"context"

	"github.com/ctxpage/ctxpage/manifest"
)

// Reader is a Log as readers of the audit have it: a read of one leaf takes a context as well, and Question
// finds the text that a leaf was asked. It is safe for concurrent use.
type Reader struct {
	*Log
	asked Asked
	close func() error // nil: the log has another owner, who closes it
}

// Asked returns the text of the question of a leaf; see Reader.Question.
type Asked func(ctx context.Context, leaf *manifest.Record) (string, error)

// Reader returns a reader of the log; closing it leaves the log open. With a nil asked, Question knows no
// text.
func (l *Log) Reader(asked Asked) *Reader { return &Reader{Log: l, asked: asked} }

// Owner returns a reader of the log; closing it closes the log.
func (l *Log) Owner(asked Asked) *Reader { return &Reader{Log: l, asked: asked, close: l.Close} }

// Question returns the text that a leaf was asked, compared with the digest in the leaf. ErrNoQuestion: it
// was erased, or only its digest was kept, or there was no question.
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

// unlessEnded calls read unless the context has ended. The read of one leaf is short, so it is not
// interrupted.
func unlessEnded[T any](ctx context.Context, read func() (T, error)) (out T, err error) {
	if err := ctx.Err(); err != nil {
		return out, err
	}
	return read()
}

// Size is Log.Size.
func (r *Reader) Size(ctx context.Context) (uint64, error) { return r.Log.Size(), ctx.Err() }

// Body is Log.Body.
func (r *Reader) Body(ctx context.Context, i uint64) ([]byte, error) {
	return unlessEnded(ctx, func() ([]byte, error) { return r.Log.Body(i) })
}

// Leaf is Log.Leaf.
func (r *Reader) Leaf(ctx context.Context, i uint64) (*manifest.Record, error) {
	return unlessEnded(ctx, func() (*manifest.Record, error) { return r.Log.Leaf(i) })
}

// Records returns the leaves [from, min(to, Size)), the last first if reverse, at most limit. Fewer than
// limit means there are no more.
func (r *Reader) Records(ctx context.Context, from, to uint64, reverse bool, limit int) (out []*manifest.Record, err error) {
	to = min(to, r.Log.Size())
	n := uint64(max(limit, 0))
	if from >= to || n == 0 {
		return nil, ctx.Err()
	}
	if n = min(n, to-from); reverse {
		from = to - n
	} else {
		to = from + n
	}
	err = r.Each(ctx, from, to, reverse, func(rec *manifest.Record) error {
		out = append(out, rec)
		return nil
	})
	return out, err
}

// Root is Log.Root.
func (r *Reader) Root(ctx context.Context, size uint64) (manifest.Hash, error) {
	return unlessEnded(ctx, func() (manifest.Hash, error) { return r.Log.Root(size) })
}

// Head is Log.Head.
func (r *Reader) Head(ctx context.Context, size uint64, now int64) (manifest.Head, error) {
	return unlessEnded(ctx, func() (manifest.Head, error) { return r.Log.Head(size, now) })
}

// ProveInclusion is Log.ProveInclusion.
func (r *Reader) ProveInclusion(ctx context.Context, i, size uint64) (manifest.Inclusion, error) {
	return unlessEnded(ctx, func() (manifest.Inclusion, error) { return r.Log.ProveInclusion(i, size) })
}

// ProveConsistency is Log.ProveConsistency.
func (r *Reader) ProveConsistency(ctx context.Context, old, size uint64) (manifest.Consistency, error) {
	return unlessEnded(ctx, func() (manifest.Consistency, error) { return r.Log.ProveConsistency(old, size) })
}
