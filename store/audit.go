package store

import (
	"context"

	"github.com/ctxpage/ctxpage/manifest"
)

// Audit reads the audit log: one leaf for each read and each end of a transaction, under a tree. No method writes, and
// nothing that a method returns does. Every method may be called concurrently.
type Audit interface {
	// DB is the database id.
	DB() string
	// Size is the number of leaves.
	Size() uint64
	// Body is the bytes of leaf i, a copy. ErrNoLeaf.
	Body(i uint64) ([]byte, error)
	// Leaf is leaf i. ErrNoLeaf.
	Leaf(i uint64) (*manifest.Record, error)
	// Each calls fn for the leaves [from, min(to, Size)), the last first if reverse, until fn or a leaf fails.
	Each(ctx context.Context, from, to uint64, reverse bool, fn func(*manifest.Record) error) error
	// ByTrace is every leaf whose Trace or Parent is trace, in log order. ErrNoLeaf.
	ByTrace(ctx context.Context, trace string) ([]*manifest.Record, error)
	// Named reports whether a leaf has this trace.
	Named(ctx context.Context, trace string) (bool, error)
	// Written finds the newest leaf that wrote this version of a page, with its digest. ErrNoLeaf.
	Written(ctx context.Context, num uint64, version uint32) (*manifest.Record, manifest.Write, error)
	// Question is the text that a leaf was asked, compared with the digest in the leaf. manifest.ErrNoQuestion: it was
	// erased, or only its digest was kept.
	Question(ctx context.Context, leaf *manifest.Record) (string, error)
	// Names maps page numbers to references.
	Names(ctx context.Context) (manifest.Names, error)
	// Root is the root over the first size leaves. ErrNoLeaf.
	Root(size uint64) (manifest.Hash, error)
	// Head is Root as a line to be kept elsewhere; now in unix µs. Ask for synced sizes only (Store.Head).
	Head(size uint64, now int64) (manifest.Head, error)
	// ProveInclusion proves leaf i among the first size leaves. ErrNoLeaf.
	ProveInclusion(i, size uint64) (manifest.Inclusion, error)
	// ProveConsistency proves that the first size leaves begin with the first old.
	ProveConsistency(old, size uint64) (manifest.Consistency, error)
	// Verify reads all bytes again and compares them with the tree and with a head; nil: with none.
	Verify(ctx context.Context, against *manifest.Head, progress func(done, total uint64)) (manifest.Verification, error)
}
