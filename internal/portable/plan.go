package portable

import (
	"cmp"
	"context"
	"slices"

	"github.com/ctxpage/ctxpage/internal/directivelog"
	"github.com/ctxpage/ctxpage/store"
)

// An export writes versions in the order of their commits, so that an import meets a version after those it supersedes. The
// store lists artefacts, not commits, so all versions are collected first as small entries and sorted. Heads and texts are
// read later, some hundred at a time.

// scanRows is the size of one part of a listing.
const scanRows = 1000

// entry is one version that gets a line, 40 bytes of it: an export holds one for each version, and no more.
type entry struct {
	lsn, art uint64
	put      int64  // µs. Only an import has several in one commit: those of the old commits
	num      uint64 // of its first page, 0: it has none
	version  uint32
	refAt    uint32 // place in plan.refs, from 1; 0: it is neither deleted, nor has it versions before it without content
}

// plan lists what an export writes, in the order of the commits.
type plan struct {
	entries   []entry
	refs      []store.Ref
	artefacts uint64
	head      *Header // which versions
}

// collect lists the versions that a header announces, of the artefacts in only; nil: of all.
func collect(ctx context.Context, st store.Store, head *Header, only map[store.Ref]bool, progress store.Progress) (*plan, error) {
	o := &plan{head: head}
	scopes, err := scopesOf(ctx, st)
	if err != nil {
		return nil, err
	}
	for i, scope := range scopes {
		progress("scopes", uint64(i), uint64(len(scopes)))
		err := eachHead(ctx, st, store.ScanQuery{What: store.ScanArtefacts, Scopes: store.Scopes{scope}, Deleted: true, Brief: true}, func(h *store.Head) error {
			if only != nil && !only[store.Ref{Scope: h.Scope, ID: h.ID}] {
				return nil
			}
			return o.artefact(ctx, st, h)
		})
		if err != nil {
			return nil, err
		}
	}
	slices.SortFunc(o.entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.lsn, b.lsn), cmp.Compare(a.put, b.put), cmp.Compare(a.num, b.num), cmp.Compare(a.art, b.art))
	})
	progress("scopes", uint64(len(scopes)), uint64(len(scopes)))
	return o, nil
}

func scopesOf(ctx context.Context, st store.Store) (names []string, err error) {
	for q := (store.ScanQuery{What: store.ScanScopes, Limit: scanRows}); ; {
		page, err := st.Scan(ctx, q)
		if err != nil {
			return nil, err
		}
		for _, s := range page.Names {
			names = append(names, s.Name)
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			return names, nil
		}
	}
}

// eachHead calls fn for the heads of a listing.
func eachHead(ctx context.Context, st store.Store, q store.ScanQuery, fn func(*store.Head) error) error {
	for q.Limit = scanRows; ; {
		page, err := st.Scan(ctx, q)
		if err != nil {
			return err
		}
		for _, h := range page.Heads {
			if err := fn(h); err != nil {
				return err
			}
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			return nil
		}
	}
}

// artefact notes the versions of an artefact, of which newest is the newest. Pages of directives come with their rows, and
// then whole (ExportOptions.Versions).
func (o *plan) artefact(ctx context.Context, st store.Store, newest *store.Head) error {
	was, since := len(o.entries), o.head.Since
	if newest.ID == directivelog.PageID {
		if o.head.Versions {
			return nil
		}
		since = 0
	}
	if newest.LSN <= since {
		return nil
	}
	heads := []*store.Head{newest} // newest first
	if newest.Version > 1 {
		heads = heads[:0]
		if err := history(ctx, st, newest.Scope, newest.ID, func(h *store.Head) { heads = append(heads, h) }); err != nil {
			return err
		}
	}
	for i, h := range heads {
		if h.Gone || h.LSN <= since || h.LSN > o.head.LSN {
			continue
		}
		e := entry{lsn: h.LSN, art: h.Art, put: h.PutAt.UnixMicro(), version: h.Version}
		if len(h.Rows) > 0 {
			e.num = h.Rows[0].Num
		}
		if h.Deleted || i+1 < len(heads) && heads[i+1].Gone { // its history is read again
			o.refs = append(o.refs, store.Ref{Scope: h.Scope, ID: h.ID})
			e.refAt = uint32(len(o.refs))
		}
		o.entries = append(o.entries, e)
	}
	if len(o.entries) > was {
		o.artefacts++
	}
	return nil
}

func history(ctx context.Context, st store.Store, scope, id string, fn func(*store.Head)) error {
	return eachHead(ctx, st, store.ScanQuery{What: store.ScanHistory, Scopes: store.Scopes{scope}, ID: id}, func(h *store.Head) error {
		fn(h)
		return nil
	})
}
