package ctxpage

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/session"
)

// The verdicts of a pass in one row: a version, their number, then for each in the order of page numbers the number's
// growth, action and reason in a byte, keywords found, turns behind the head.
const verdictVersion = 1

func encodeVerdicts(blocks []block) []byte {
	at := make([]*block, 0, len(blocks))
	for i := range blocks {
		if blocks[i].judged {
			at = append(at, &blocks[i])
		}
	}
	byNum := func(a, b *block) int { return cmp.Compare(a.nums[0], b.nums[0]) }
	if !slices.IsSortedFunc(at, byNum) {
		slices.SortFunc(at, byNum)
	}
	e := codec.Encoder{B: make([]byte, 0, 8*len(at)+8)}
	e.U8(verdictVersion)
	e.Count(len(at))
	last := uint64(0)
	for _, b := range at {
		e.Count(int(b.nums[0] - last))
		e.U8(uint8(b.verdict.action) | uint8(b.verdict.reason)<<2)
		e.Count(b.verdict.hits)
		e.Count(int(b.verdict.delta))
		last = b.nums[0]
	}
	return e.B
}

func decodeVerdicts(b []byte) (map[uint64]verdict, error) {
	d := codec.Decoder{B: b}
	if v := d.U8(); v != verdictVersion {
		return nil, fmt.Errorf("%w: verdicts of version %d, expected %d", codec.ErrMalformed, v, verdictVersion)
	}
	n := d.Count(4)
	out := make(map[uint64]verdict, n)
	num := uint64(0)
	for range n {
		num += d.Uvarint()
		kind := d.U8()
		out[num] = verdict{session.Action(kind & 3), session.Reason(kind >> 2), int(d.Uvarint()), int64(d.Uvarint())}
		if kind&3 == 3 {
			d.Fail()
		}
	}
	return out, d.Done()
}

func (c *conversation) loadVerdicts(ctx context.Context, pass uint64) (map[uint64]verdict, error) {
	if pass == 0 {
		return map[uint64]verdict{}, nil
	}
	raw, err := c.db.store.State(ctx, c.passKey(verdictRowKey, pass))
	if err != nil {
		return nil, err
	}
	if raw == nil {
		return nil, fmt.Errorf("%w: verdicts of pass %d of session %s", ErrGone, pass, c.id)
	}
	out, err := decodeVerdicts(raw)
	if err != nil {
		return nil, fmt.Errorf("ctxpage: verdicts of pass %d of session %s: %w", pass, c.id, err)
	}
	return out, nil
}

func (c *conversation) loadPass(ctx context.Context, n uint64) (p passRow, err error) {
	raw, err := c.db.store.State(ctx, c.passKey(passRowKey, n))
	if err != nil {
		return p, err
	}
	if raw == nil {
		return p, fmt.Errorf("%w: session %s has no pass %d", ErrNotFound, c.id, n)
	}
	return p, codec.Unpack(raw, &p)
}
