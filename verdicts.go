package ctxpage

import (
	"context"
	"fmt"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/talk"
)

func (c *conversation) loadVerdicts(ctx context.Context, pass uint64) (map[uint64]talk.Verdict, error) {
	if pass == 0 {
		return map[uint64]talk.Verdict{}, nil
	}
	row, err := c.db.store.State(ctx, c.PassKey(talk.VerdictRowKey, pass))
	if err != nil {
		return nil, err
	}
	if row.Value == nil {
		return nil, fmt.Errorf("%w: verdicts of pass %d of session %s", ErrGone, pass, c.ID)
	}
	out, err := talk.DecodeVerdicts(row.Value)
	if err != nil {
		return nil, fmt.Errorf("ctxpage: verdicts of pass %d of session %s: %w", pass, c.ID, err)
	}
	return out, nil
}

func (c *conversation) loadPass(ctx context.Context, n uint64) (p talk.PassRow, err error) {
	row, err := c.db.store.State(ctx, c.PassKey(talk.PassRowKey, n))
	if err != nil {
		return p, err
	}
	if row.Value == nil {
		return p, fmt.Errorf("%w: session %s has no pass %d", ErrNotFound, c.ID, n)
	}
	return p, codec.Unpack(row.Value, &p)
}
