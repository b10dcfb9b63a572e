package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// audit is what hosts read of the audit. The tree has durable leaves only, and a read returns
// before its own leaf is durable. So a caller that asks for leaves in flight makes them durable
// first: for a trace, if a leaf of that trace is in flight; otherwise, if any leaf is. After a
// failure it returns what was durable before.
type audit struct {
	*manifest.Reader
	s *Engine
}

// Audit: see store.Store.
func (s *Engine) Audit() store.Audit { return audit{s.Leaves.Reader(s.question), s} }

// withClosedError turns the error of a closed log into that of a closed store, which every read
// returns.
func withClosedError[T any](v T, err error) (T, error) {
	if errors.Is(err, manifest.ErrClosed) {
		err = fmt.Errorf("%w: %w", store.ErrClosed, err)
	}
	return v, err
}

// landed waits until leaves in flight are durable; trace "" stands for all of them. An error is
// ignored: what is durable is then the answer.
func (a audit) landed(ctx context.Context, trace string) {
	if a.s.seq.flying(trace) && a.s.Failure() == nil {
		_ = a.s.log.Sync(ctx, 0, nil) // an error leaves what is durable
	}
}

// flying reports whether a leaf of a trace is in flight; "": any leaf.
func (q *sequencer) flying(trace string) bool {
	q.flight.Lock()
	defer q.flight.Unlock()
	if trace == "" {
		return q.leaves > 0
	}
	return q.traces[slotOf(trace)] > 0
}

// Size: see store.Audit.
func (a audit) Size(ctx context.Context) (uint64, error) {
	a.landed(ctx, "")
	return withClosedError(a.Reader.Size(ctx))
}

// Wait: see store.Audit. A leaf in flight is made durable first; the goroutine that appends a later
// leaf makes that one durable soon. It may return before there is a new leaf: the caller compares
// the size.
func (a audit) Wait(ctx context.Context, size uint64, wait time.Duration) (uint64, error) {
	a.landed(ctx, "")
	return withClosedError(a.Reader.Wait(ctx, size, wait))
}

// Body: see store.Audit.
func (a audit) Body(ctx context.Context, i uint64) ([]byte, error) {
	b, err := a.Reader.Body(ctx, i)
	if errors.Is(err, manifest.ErrNoLeaf) {
		a.landed(ctx, "")
		b, err = a.Reader.Body(ctx, i)
	}
	return withClosedError(b, err)
}

// Leaf: see store.Audit.
func (a audit) Leaf(ctx context.Context, i uint64) (*manifest.Record, error) {
	r, err := a.Reader.Leaf(ctx, i)
	if errors.Is(err, manifest.ErrNoLeaf) {
		a.landed(ctx, "")
		r, err = a.Reader.Leaf(ctx, i)
	}
	return withClosedError(r, err)
}

// Records: see store.Audit.
func (a audit) Records(ctx context.Context, from, to uint64, reverse bool, limit int) ([]*manifest.Record, error) {
	a.landed(ctx, "")
	return withClosedError(a.Reader.Records(ctx, from, to, reverse, limit))
}

// ByTrace: see store.Audit.
func (a audit) ByTrace(ctx context.Context, trace string) ([]*manifest.Record, error) {
	a.landed(ctx, trace)
	return withClosedError(a.Reader.ByTrace(ctx, trace))
}

// Named implements store.Audit. A leaf in flight is a yes without waiting.
func (a audit) Named(ctx context.Context, trace string) (bool, error) {
	if a.s.seq.flying(trace) { // asked first: a leaf is taken out of flight only after it is in the tree
		return true, nil
	}
	return withClosedError(a.Reader.Named(ctx, trace))
}

// Names: see store.Audit.
func (a audit) Names(ctx context.Context) (manifest.Names, error) {
	a.landed(ctx, "")
	return withClosedError(a.Reader.Names(ctx))
}

// Verify: see store.Audit.
func (a audit) Verify(ctx context.Context, head *manifest.Head, progress manifest.Progress) (manifest.Verification, error) {
	a.landed(ctx, "")
	return withClosedError(a.Reader.Verify(ctx, head, progress))
}

// Root: see store.Audit.
func (a audit) Root(ctx context.Context, size uint64) (manifest.Hash, error) {
	return withClosedError(a.Reader.Root(ctx, size))
}

// Head: see store.Audit.
func (a audit) Head(ctx context.Context, size uint64, now int64) (manifest.Head, error) {
	return withClosedError(a.Reader.Head(ctx, size, now))
}

// Question: see store.Audit.
func (a audit) Question(ctx context.Context, leaf *manifest.Record) (string, error) {
	return withClosedError(a.Reader.Question(ctx, leaf))
}

// Written: see store.Audit.
func (a audit) Written(ctx context.Context, num uint64, version uint32) (*manifest.Record, manifest.Write, error) {
	r, w, err := a.Reader.Written(ctx, num, version)
	r, err = withClosedError(r, err)
	return r, w, err
}

// ProveInclusion: see store.Audit.
func (a audit) ProveInclusion(ctx context.Context, i, size uint64) (manifest.Inclusion, error) {
	return withClosedError(a.Reader.ProveInclusion(ctx, i, size))
}

// ProveConsistency: see store.Audit.
func (a audit) ProveConsistency(ctx context.Context, old, size uint64) (manifest.Consistency, error) {
	return withClosedError(a.Reader.ProveConsistency(ctx, old, size))
}
