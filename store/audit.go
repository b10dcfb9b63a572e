package store

import (
	"context"
	"iter"
	"time"

	"github.com/ctxpage/ctxpage/internal/loop"
	"github.com/ctxpage/ctxpage/manifest"
)

// Audit reads the audit log: one leaf for each read and each end of a transaction, under a Merkle
// tree. Neither its methods nor their results write anything. Every method may be called
// concurrently. If the context has ended, its error is returned; if a store cannot answer, it
// returns an error, never an outdated answer.
type Audit interface {
	// DB is the database id. It never changes, so it needs no context.
	DB() string
	// Size is the number of leaves.
	Size(ctx context.Context) (uint64, error)
	// Wait returns Size once there are more than size leaves, or after the time wait. It may
	// return early, so compare the result.
	Wait(ctx context.Context, size uint64, wait time.Duration) (uint64, error)
	// Body is the bytes of leaf i, a copy. ErrNoLeaf.
	Body(ctx context.Context, i uint64) ([]byte, error)
	// Leaf is leaf i. ErrNoLeaf.
	Leaf(ctx context.Context, i uint64) (*manifest.Record, error)
	// Records returns the leaves [from, min(to, Size)), the last first if reverse, at most limit
	// leaves. Fewer than limit means that there are no more. See the function Records.
	Records(ctx context.Context, from, to uint64, reverse bool, limit int) ([]*manifest.Record, error)
	// ByTrace is every leaf whose Trace or Parent is trace, in log order. ErrNoLeaf.
	ByTrace(ctx context.Context, trace string) ([]*manifest.Record, error)
	// Named reports whether a leaf has this trace.
	Named(ctx context.Context, trace string) (bool, error)
	// Written finds the newest leaf that wrote this version of a page, with its digest. ErrNoLeaf.
	Written(ctx context.Context, num uint64, version uint32) (*manifest.Record, manifest.Write, error)
	// Question returns the text of the question that a leaf records, after comparing it with the
	// digest in the leaf. manifest.ErrNoQuestion: it was erased, or only its digest was kept.
	Question(ctx context.Context, leaf *manifest.Record) (string, error)
	// Names maps page numbers to references.
	Names(ctx context.Context) (map[uint64]string, error)
	// Root is the root over the first size leaves. ErrNoLeaf.
	Root(ctx context.Context, size uint64) (manifest.Hash, error)
	// Head is Root as a line to be kept elsewhere; now in unix µs. Ask for synced sizes only
	// (Store.Head).
	Head(ctx context.Context, size uint64, now int64) (manifest.Head, error)
	// ProveInclusion proves leaf i among the first size leaves. ErrNoLeaf.
	ProveInclusion(ctx context.Context, i, size uint64) (manifest.Inclusion, error)
	// ProveConsistency proves that the first size leaves begin with the first old.
	ProveConsistency(ctx context.Context, old, size uint64) (manifest.Consistency, error)
	// Verify reads all bytes again and compares them with the tree and with a head; nil: with none.
	Verify(ctx context.Context, against *manifest.Head, progress func(done, total uint64)) (manifest.Verification, error)
}

// recordsAtOnce bounds the leaves that Records asks for at a time.
const recordsAtOnce = 256

// Records ranges over the leaves [from, min(to, Size)) of an audit, the last first if reverse.
// Size is taken at the start, so leaves that are added meanwhile are not listed. An error,
// including the end of ctx, is yielded once and last; the leaves before it are valid. Breaking out
// of the loop reads no further leaf.
func Records(ctx context.Context, a Audit, from, to uint64, reverse bool) iter.Seq2[*manifest.Record, error] {
	type span struct{ from, to uint64 }
	return func(yield func(*manifest.Record, error) bool) {
		size, err := a.Size(ctx)
		if err != nil {
			yield(nil, err)
			return
		}
		all := span{from, min(to, size)}
		loop.All(ctx, all, func(s span) ([]*manifest.Record, span, bool, error) {
			if s.from >= s.to {
				return nil, s, false, nil
			}
			part, err := a.Records(ctx, s.from, s.to, reverse, recordsAtOnce)
			if reverse {
				s.to -= min(s.to, uint64(len(part)))
			} else {
				s.from += uint64(len(part))
			}
			return part, s, err == nil && len(part) > 0 && s.from < s.to, err
		})(yield)
	}
}

// EachRecord calls fn for the leaves that Records yields. It returns the first error of fn, of
// reading a leaf, or of ctx.
func EachRecord(ctx context.Context, a Audit, from, to uint64, reverse bool, fn func(*manifest.Record) error) error {
	for r, err := range Records(ctx, a, from, to, reverse) {
		if err != nil {
			return err
		}
		if err := fn(r); err != nil {
			return err
		}
	}
	return nil
}
