package remote

import (
	"context"
	"time"

	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// guestAudit is the audit of a guest: it asks the store that the guest uses at the time.
type guestAudit struct{ g *guest }

func ofAudit[A any](a guestAudit, call func(store.Audit) (A, error)) (A, error) {
	return do(a.g, func(st store.Store) (A, error) { return call(st.Audit()) })
}

func (a guestAudit) DB() string { return a.g.is.Load().st.Audit().DB() }

func (a guestAudit) Size(ctx context.Context) (uint64, error) {
	return ofAudit(a, func(to store.Audit) (uint64, error) { return to.Size(ctx) })
}

func (a guestAudit) Wait(ctx context.Context, size uint64, wait time.Duration) (uint64, error) {
	return ofAudit(a, func(to store.Audit) (uint64, error) { return to.Wait(ctx, size, wait) })
}

func (a guestAudit) Body(ctx context.Context, i uint64) ([]byte, error) {
	return ofAudit(a, func(to store.Audit) ([]byte, error) { return to.Body(ctx, i) })
}

func (a guestAudit) Leaf(ctx context.Context, i uint64) (*manifest.Record, error) {
	return ofAudit(a, func(to store.Audit) (*manifest.Record, error) { return to.Leaf(ctx, i) })
}

func (a guestAudit) Records(ctx context.Context, from, to uint64, reverse bool, limit int) ([]*manifest.Record, error) {
	return ofAudit(a, func(of store.Audit) ([]*manifest.Record, error) { return of.Records(ctx, from, to, reverse, limit) })
}

func (a guestAudit) ByTrace(ctx context.Context, trace string) ([]*manifest.Record, error) {
	return ofAudit(a, func(to store.Audit) ([]*manifest.Record, error) { return to.ByTrace(ctx, trace) })
}

func (a guestAudit) Named(ctx context.Context, trace string) (bool, error) {
	return ofAudit(a, func(to store.Audit) (bool, error) { return to.Named(ctx, trace) })
}

func (a guestAudit) Written(ctx context.Context, num uint64, version uint32) (leaf *manifest.Record, w manifest.Write, err error) {
	w, err = ofAudit(a, func(to store.Audit) (w manifest.Write, err error) {
		leaf, w, err = to.Written(ctx, num, version)
		return w, err
	})
	return leaf, w, err
}

func (a guestAudit) Question(ctx context.Context, leaf *manifest.Record) (string, error) {
	return ofAudit(a, func(to store.Audit) (string, error) { return to.Question(ctx, leaf) })
}

func (a guestAudit) Names(ctx context.Context) (map[uint64]string, error) {
	return ofAudit(a, func(to store.Audit) (map[uint64]string, error) { return to.Names(ctx) })
}

func (a guestAudit) Root(ctx context.Context, size uint64) (manifest.Hash, error) {
	return ofAudit(a, func(to store.Audit) (manifest.Hash, error) { return to.Root(ctx, size) })
}

func (a guestAudit) Head(ctx context.Context, size uint64, now int64) (manifest.Head, error) {
	return ofAudit(a, func(to store.Audit) (manifest.Head, error) { return to.Head(ctx, size, now) })
}

func (a guestAudit) ProveInclusion(ctx context.Context, i, size uint64) (manifest.Inclusion, error) {
	return ofAudit(a, func(to store.Audit) (manifest.Inclusion, error) { return to.ProveInclusion(ctx, i, size) })
}

func (a guestAudit) ProveConsistency(ctx context.Context, old, size uint64) (manifest.Consistency, error) {
	return ofAudit(a, func(to store.Audit) (manifest.Consistency, error) { return to.ProveConsistency(ctx, old, size) })
}

func (a guestAudit) Verify(ctx context.Context, against *manifest.Head, p func(done, total uint64)) (manifest.Verification, error) {
	return ofAudit(a, func(to store.Audit) (manifest.Verification, error) { return to.Verify(ctx, against, p) })
}
