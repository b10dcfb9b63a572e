package ctxpage

import (
	"context"
	"iter"

	"github.com/ctxpage/ctxpage/internal/loop"
	"github.com/ctxpage/ctxpage/store"
)

// A listing is a sequence. It reads a part at a time, by these rules, which internal/loop implements:
//
//   - It reads nothing until it is ranged over, and each range reads again from the start.
//   - Breaking out of the loop reads no further part. AtMost ends it after one part and returns the place of the next.
//   - An error is yielded once, as the last pair, with a zero value. The items before it are valid. The end of ctx is
//     such an error.
//   - Each part is a snapshot, the whole list is not: what others write meanwhile may or may not be listed. No item is
//     listed twice, and none is missed that was there from start to end.
//   - It serves no content and leaves no manifest, except Session.Turns.

// part is the request of AtMost.
type part struct {
	limit  int
	cursor string
	next   *string
}

// listedAtOnce bounds the items that a sequence reads at a time.
const listedAtOnce = 256

// size returns how many items the part has at most.
func (p *part) size() int {
	if p.limit <= 0 {
		return 100
	}
	return p.limit
}

// ranged makes the sequence of a listing by cursor: of the whole list (p is nil), atOnce items at a time, or of one part. A part with
// both a cursor and an error left damaged items out.
func ranged[T any](ctx context.Context, p *part, atOnce int, read func(cursor string, limit int) ([]T, string, error)) iter.Seq2[T, error] {
	if p == nil {
		return loop.All(ctx, "", func(cursor string) ([]T, string, bool, error) {
			part, next, err := read(cursor, atOnce)
			return part, next, next != "", err
		})
	}
	return loop.All(ctx, p.cursor, func(cursor string) ([]T, string, bool, error) {
		part, next, err := read(cursor, p.size())
		if p.next != nil {
			*p.next = next
		}
		return part, next, false, err
	})
}

// stateRows makes the sequence of the state rows that begin with prefix. bad is the error of the handle.
func stateRows[T any](ctx context.Context, st store.Store, bad error, p *part, prefix string, read func(store.StateRow) (T, error)) iter.Seq2[T, error] {
	return ranged(ctx, p, listedAtOnce, func(cursor string, limit int) (out []T, next string, err error) {
		if bad != nil {
			return nil, "", bad
		}
		page, err := st.Scan(ctx, store.ScanQuery{What: store.ScanState, Prefix: prefix, Cursor: cursor, Limit: limit})
		if err != nil {
			return nil, "", err
		}
		for _, row := range page.State {
			x, err := read(row)
			if err != nil {
				return out, "", err
			}
			out = append(out, x)
		}
		return out, page.Next, nil
	})
}
