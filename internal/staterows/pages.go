package staterows

import (
	"context"
	"iter"

	"github.com/ctxpage/ctxpage/store"
)

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
