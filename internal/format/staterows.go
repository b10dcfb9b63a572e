package format

import (
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"time"

	"github.com/ctxpage/ctxpage/store"
)

// State rows are the rows that the pipeline keeps in a store: those of sessions, directives, recorded directories and file
// roots. A change of a row is a loop: read the row, decide, commit on the condition that the row is unchanged. Walk is the
// read of many rows, Retry is the loop.

// Walk calls fn for every state row whose key begins with prefix, in the order of the keys. It stops at the first error.
func Walk(ctx context.Context, st store.Store, prefix string, fn func(store.StateRow) error) error {
	for page, err := range Pages(ctx, st, store.ScanQuery{What: store.ScanState, Prefix: prefix, Limit: 4096}) {
		if err != nil {
			return err
		}
		for _, r := range page.State {
			if err := fn(r); err != nil {
				return err
			}
		}
	}
	return nil
}

// tries is the number of attempts of a change while other writers win. A caller that appends a turn must not fail because another
// process is busy. A hundred tries take about a second.
const tries = 100

// Retry calls fn until it returns something other than a conflict, at most a hundred times. fn must read the rows that it
// decides on at every call.
//
// Retry waits after each conflict, longer each time and for a random time: a writer that is nearer to the store would
// otherwise win every round, and two writers that wait equally long would collide again. The random wait decides when a
// change is tried, never what is written, so answers stay deterministic.
func Retry(ctx context.Context, fn func() error) error {
	for try := 1; ; try++ {
		err := fn()
		if !errors.Is(err, store.ErrConflict) || try == tries {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(rand.N(time.Duration(min(try, 20)) * time.Millisecond)):
		}
	}
}

// Pages ranges over the parts of a scan. After an error, which is yielded with the part it came with, there is no further
// part.
func Pages(ctx context.Context, st store.Store, q store.ScanQuery) iter.Seq2[store.ScanPage, error] {
	return func(yield func(store.ScanPage, error) bool) {
		for {
			page, err := st.Scan(ctx, q)
			if !yield(page, err) || err != nil {
				return
			}
			if q.Cursor = page.Next; q.Cursor == "" {
				return
			}
		}
	}
}
