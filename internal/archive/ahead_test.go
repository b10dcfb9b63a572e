package archive

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ctxpage/ctxpage/manifest"
)

// numbered is an audit of leaves without content. It gives fewer at a time than it is asked for, as a store may, and the
// later ones of two calls first.
type numbered struct {
	bad     uint64 // the leaf that cannot be read
	reading atomic.Int64
	most    atomic.Int64
}

var errBad = errors.New("it cannot be read")

func (a *numbered) Records(ctx context.Context, from, to uint64, _ bool, limit int) (out []*manifest.Record, err error) {
	n := a.reading.Add(1)
	defer a.reading.Add(-1)
	for was := a.most.Load(); n > was && !a.most.CompareAndSwap(was, n); was = a.most.Load() {
	}
	if from/leavesAhead%2 == 0 {
		time.Sleep(100 * time.Microsecond)
	}
	for i := from; i < min(to, from+uint64(min(limit, 50))); i++ {
		if i == a.bad {
			return out, errBad
		}
		out = append(out, &manifest.Record{Index: i})
	}
	return out, ctx.Err()
}

// Leaves come in their order, however many readers decode them, and each error comes where it is.
func TestEachAhead(t *testing.T) {
	t.Parallel()
	errFn := errors.New("enough")
	for _, c := range []struct{ size, bad, stop, want uint64 }{
		{0, 9000, 9000, 0}, {1, 9000, 9000, 1}, {leavesAhead, 9000, 9000, leavesAhead}, {2000, 9000, 9000, 2000}, {2000, 777, 9000, 777}, {2000, 9000, 555, 556}, {2000, 0, 9000, 0},
	} {
		a, seen := &numbered{bad: c.bad}, uint64(0)
		err := EachAhead(t.Context(), a, c.size, func(r *manifest.Record) error {
			require.Equal(t, seen, r.Index)
			seen++
			if r.Index == c.stop {
				return errFn
			}
			return nil
		})
		switch {
		case c.stop < c.size:
			require.ErrorIs(t, err, errFn)
		case c.bad < c.size:
			require.ErrorIs(t, err, errBad)
		default:
			require.NoError(t, err)
		}
		require.Equal(t, c.want, seen, "%+v", c)
		require.Zero(t, a.reading.Load(), "a reader is left")
		require.LessOrEqual(t, a.most.Load(), int64(readersAhead))
	}
	ctx, cancel := context.WithCancel(t.Context())
	err := EachAhead(ctx, &numbered{bad: 9000}, 2000, func(r *manifest.Record) error {
		if r.Index == 300 {
			cancel()
		}
		return nil
	})
	require.ErrorIs(t, err, context.Canceled)
}
