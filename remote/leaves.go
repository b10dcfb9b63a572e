package remote

import (
	"fmt"
	"slices"

	"github.com/ctxpage/ctxpage/manifest"
)

// How leaves go to Append: their pages are moved into tables, which are read and written in a
// fraction of the time, and are put back at the server. The caller's leaves stay as they are.

// withTables moves the pages of leaves into tables, for a server of protocol 3 or 4.
func (q appendAsk) withTables() appendAsk {
	leaves := make([]*manifest.Record, len(q.Leaves))
	q.Pages = make([]pageTable, len(q.Leaves))
	for i, leaf := range q.Leaves {
		if leaves[i] = leaf; len(leaf.Pages) > 0 {
			bare := *leaf
			bare.Pages = nil
			leaves[i], q.Pages[i] = &bare, leaf.Pages
		}
	}
	q.Leaves = leaves
	return q
}

// packed moves the pages of leaves, and those that they name as left out, into packed tables.
func (q appendAsk) packed() appendAsk {
	leaves := make([]*manifest.Record, len(q.Leaves))
	q.Packed = make([]leafPages, len(q.Leaves))
	for i, leaf := range q.Leaves {
		bare := *leaf
		if len(leaf.Pages) > 0 {
			q.Packed[i].Pages, bare.Pages = leaf.Pages, nil
		}
		if len(leaf.Excluded) > 0 {
			bare.Excluded = slices.Clone(leaf.Excluded)
			q.Packed[i].Nearest = make([]packedPages, len(leaf.Excluded))
		}
		for j := range bare.Excluded {
			if x := &bare.Excluded[j]; len(x.Nearest) > 0 {
				q.Packed[i].Nearest[j], x.Nearest = x.Nearest, nil
			}
		}
		leaves[i] = &bare
	}
	q.Leaves = leaves
	return q
}

// whole gives leaves the pages that withTables or packed took. A request whose tables do not fit
// its leaves is malformed and changes nothing: the server refuses it before the store sees a leaf.
func (q appendAsk) whole() error {
	switch {
	case q.Pages == nil && q.Packed == nil:
		return nil
	case q.Pages != nil && len(q.Pages) != len(q.Leaves), q.Packed != nil && len(q.Packed) != len(q.Leaves):
		return &malformed{fmt.Errorf("%d and %d tables of pages for %d leaves", len(q.Pages), len(q.Packed), len(q.Leaves))}
	}
	for i, leaf := range q.Leaves {
		var from leafPages
		if q.Packed != nil {
			from = q.Packed[i]
		}
		if q.Pages != nil && len(q.Pages[i]) > 0 {
			from.Pages = packedPages(q.Pages[i])
		}
		if leaf == nil || len(from.Pages) > 0 && leaf.Pages != nil || len(from.Nearest) > len(leaf.Excluded) {
			return &malformed{fmt.Errorf("leaf %d is missing, or does not fit its tables of pages", i)}
		}
		if len(from.Pages) > 0 {
			leaf.Pages = from.Pages
		}
		for j, nearest := range from.Nearest {
			if len(nearest) > 0 {
				leaf.Excluded[j].Nearest = nearest
			}
		}
	}
	return nil
}
