package loop

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

var errBroken, errLeftOut = errors.New("broken"), errors.New("left out")

// parts reads the numbers below n, three at a time, with the errors of the parts that have one.
func parts(n int, errs map[int]error, reads *int) func(int) ([]int, int, bool, error) {
	return func(at int) (part []int, next int, more bool, err error) {
		*reads++
		err = errs[at/3]
		if errors.Is(err, errBroken) {
			return nil, 0, false, err
		}
		for next = at; next < min(at+3, n); next++ {
			part = append(part, next)
		}
		return part, next, next < n, err
	}
}

// collected is what a range over a sequence sees: the items, and the errors with the zero value beside them.
func collected(t *testing.T, ctx context.Context, n int, errs map[int]error, seen func(int) bool) (items []int, failed []error, reads int) {
	for x, err := range All(ctx, 0, parts(n, errs, &reads)) {
		require.Empty(t, failed, "an error is the last pair")
		if err != nil {
			require.Zero(t, x)
			failed = append(failed, err)
			continue
		}
		items = append(items, x)
		if seen != nil && !seen(x) {
			break
		}
	}
	return items, failed, reads
}

func TestAll(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		n     int
		errs  map[int]error
		stop  int // break after this item
		want  int // items
		match []error
		reads int
	}{
		"empty":                      {n: 0, stop: -1, reads: 1},
		"one part":                   {n: 3, stop: -1, want: 3, reads: 1},
		"three parts":                {n: 8, stop: -1, want: 8, reads: 3},
		"break in a part":            {n: 8, stop: 4, want: 5, reads: 2},
		"break at the end of a part": {n: 8, stop: 2, want: 3, reads: 1},
		"error at once":              {n: 8, stop: -1, errs: map[int]error{0: errBroken}, match: []error{errBroken}, reads: 1},
		"error in the middle":        {n: 8, stop: -1, errs: map[int]error{1: errBroken}, want: 3, match: []error{errBroken}, reads: 2},
		"items left out":             {n: 8, stop: -1, errs: map[int]error{0: errLeftOut}, want: 8, match: []error{errLeftOut}, reads: 3},
		"left out, then broken":      {n: 8, stop: -1, errs: map[int]error{0: errLeftOut, 2: errBroken}, want: 6, match: []error{errLeftOut, errBroken}, reads: 3},
		"left out of the last":       {n: 8, stop: -1, errs: map[int]error{2: errLeftOut}, want: 8, match: []error{errLeftOut}, reads: 3},
		"break before an error":      {n: 8, stop: 2, errs: map[int]error{0: errLeftOut}, want: 3, reads: 1},
	} {
		items, failed, reads := collected(t, t.Context(), c.n, c.errs, func(x int) bool { return x != c.stop })
		require.Len(t, items, c.want, name)
		for i, x := range items {
			require.Equal(t, i, x, name)
		}
		require.Equal(t, c.reads, reads, name)
		require.Len(t, failed, min(1, len(c.match)), name)
		for _, e := range c.match {
			require.ErrorIs(t, failed[0], e, name)
		}
	}
}

func TestAllCancelled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	items, failed, reads := collected(t, ctx, 8, nil, func(x int) bool {
		if x == 3 {
			cancel()
		}
		return true
	})
	require.Equal(t, []int{0, 1, 2, 3}, items, "the next item is not given, although it was read")
	require.Len(t, failed, 1)
	require.ErrorIs(t, failed[0], context.Canceled)
	require.Equal(t, 2, reads)

	items, failed, reads = collected(t, ctx, 8, nil, nil)
	require.Empty(t, items)
	require.Len(t, failed, 1)
	require.Zero(t, reads)
}

// A sequence may be ranged over more than once.
func TestAllTwice(t *testing.T) {
	t.Parallel()
	reads := 0
	seq := All(t.Context(), 0, parts(4, nil, &reads))
	for range 2 {
		n := 0
		for x, err := range seq {
			require.NoError(t, err)
			require.Equal(t, n, x)
			n++
		}
		require.Equal(t, 4, n)
	}
	require.Equal(t, 4, reads)
}
