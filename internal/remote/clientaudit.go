package remote

import (
	"context"
	"time"

	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// Audit reads the audit log of the server's store.
func (c *Client) Audit() store.Audit { return audit{c} }

// audit is store.Audit at the server. It has no state: each method is one call, except Records,
// which asks for one part after the other, and DB, which is known from the handshake.
type audit struct{ c *Client }

func (a audit) DB() string {
	a.c.mu.Lock()
	defer a.c.mu.Unlock()
	return a.c.server.Database
}

func (a audit) Size(ctx context.Context) (uint64, error) {
	return ask[uint64](ctx, a.c, "Audit.Size", none{}, callOptions{})
}

func (a audit) Wait(ctx context.Context, size uint64, wait time.Duration) (uint64, error) {
	return ask[uint64](ctx, a.c, "Audit.Wait", auditWaitAsk{size, wait}, callOptions{})
}

func (a audit) Body(ctx context.Context, i uint64) ([]byte, error) {
	return ask[[]byte](ctx, a.c, "Audit.Body", i, callOptions{})
}

func (a audit) Leaf(ctx context.Context, i uint64) (*manifest.Record, error) {
	return ask[*manifest.Record](ctx, a.c, "Audit.Leaf", i, callOptions{})
}

// Records asks again where the server gave a part.
func (a audit) Records(ctx context.Context, from, to uint64, reverse bool, limit int) (out []*manifest.Record, err error) {
	for {
		part, err := ask[records](ctx, a.c, "Audit.Records", recordsAsk{from, to, reverse, limit - len(out)}, callOptions{})
		out = append(out, part.Records...)
		if err != nil || !part.More || len(part.Records) == 0 {
			return out, err
		}
		if reverse {
			to = part.Records[len(part.Records)-1].Index
		} else {
			from += uint64(len(part.Records))
		}
	}
}

func (a audit) ByTrace(ctx context.Context, trace string) ([]*manifest.Record, error) {
	return ask[[]*manifest.Record](ctx, a.c, "Audit.ByTrace", trace, callOptions{})
}

func (a audit) Named(ctx context.Context, trace string) (bool, error) {
	return ask[bool](ctx, a.c, "Audit.Named", trace, callOptions{})
}

func (a audit) Written(ctx context.Context, num uint64, version uint32) (*manifest.Record, manifest.Write, error) {
	w, err := ask[written](ctx, a.c, "Audit.Written", writtenAsk{num, version}, callOptions{})
	return w.Leaf, w.Write, err
}

func (a audit) Question(ctx context.Context, leaf *manifest.Record) (string, error) {
	return ask[string](ctx, a.c, "Audit.Question", leaf, callOptions{})
}

func (a audit) Names(ctx context.Context) (map[uint64]string, error) {
	return ask[map[uint64]string](ctx, a.c, "Audit.Names", none{}, callOptions{})
}

func (a audit) Root(ctx context.Context, size uint64) (manifest.Hash, error) {
	return ask[manifest.Hash](ctx, a.c, "Audit.Root", size, callOptions{})
}

func (a audit) Head(ctx context.Context, size uint64, now int64) (manifest.Head, error) {
	return ask[manifest.Head](ctx, a.c, "Audit.Head", sizesAsk{Size: size, Now: now}, callOptions{})
}

func (a audit) ProveInclusion(ctx context.Context, i, size uint64) (manifest.Inclusion, error) {
	return ask[manifest.Inclusion](ctx, a.c, "Audit.ProveInclusion", sizesAsk{I: i, Size: size}, callOptions{})
}

func (a audit) ProveConsistency(ctx context.Context, old, size uint64) (manifest.Consistency, error) {
	return ask[manifest.Consistency](ctx, a.c, "Audit.ProveConsistency", sizesAsk{I: old, Size: size}, callOptions{})
}

func (a audit) Verify(ctx context.Context, against *manifest.Head, p func(done, total uint64)) (manifest.Verification, error) {
	h := callOptions{}
	if p != nil {
		h.progress = func(is progress) { p(is.Done, is.Total) }
	}
	return ask[manifest.Verification](ctx, a.c, "Audit.Verify", verifyAsk{against}, h)
}
