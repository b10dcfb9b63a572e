package ops

import (
	"context"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/store"
)

// Quotas sets and lists the quotas of one database. Admin.Quotas returns it. It is meant for the operator and is safe for
// concurrent use.
type Quotas struct {
	Store store.Store
	Now   func() time.Time
	NewID func() (ulid.ULID, error)
}

// Set replaces the quota of a scope; a zero quota removes it. Existing data is never deleted.
func (k *Quotas) Set(ctx context.Context, scope string, q store.Quota, by string) error {
	return k.Change(ctx, scope, by, func(store.Quota) store.Quota { return q })
}

// Change applies a function to the quota of a scope. The function is called again if the quota was changed concurrently.
func (k *Quotas) Change(ctx context.Context, scope, by string, change func(was store.Quota) store.Quota) error {
	if err := store.CheckID("by", by); err != nil {
		return err
	}
	if err := store.CheckScope(scope); err != nil {
		return err
	}
	return operator{k.Store, k.Now, k.NewID}.changeRow(ctx, format.QuotaRows, scope, "quota", by, func(row store.StateRow) (any, error) {
		var was store.StoredQuota
		if row.Value != nil {
			var err error
			if was, err = format.DecodeQuota(row); err != nil {
				return nil, err
			}
		}
		q := change(was.Quota)
		if err := q.Check(); err != nil || q == (store.Quota{}) {
			return nil, err
		}
		return store.StoredQuota{Scope: scope, By: by, At: k.Now().UTC(), Quota: q}, nil
	})
}

// Usage is a quota and how much of it is used.
type Usage struct {
	store.StoredQuota
	Used  store.Quota       `json:"used"`
	Space []store.KindSpace `json:"space"` // of Used, by kind
}

// All returns the stored quotas, sorted by scope, with their usage.
func (k *Quotas) All(ctx context.Context) (list []Usage, err error) {
	err = format.Walk(ctx, k.Store, format.QuotaRows, func(r store.StateRow) error {
		q, err := format.DecodeQuota(r)
		list = append(list, Usage{StoredQuota: q, Space: []store.KindSpace{}})
		return err
	})
	if err != nil || len(list) == 0 {
		return list, err
	}
	spaces, err := k.Spaces(ctx)
	if err != nil {
		return nil, err
	}
	for i := range list {
		u := &list[i]
		for _, s := range spaces {
			if store.Below(s.Name, u.Scope) {
				u.Space = sumSpace(u.Space, s.Space)
				u.Used.Bodies += s.Bodies
			}
		}
		for _, s := range u.Space {
			u.Used.Bytes, u.Used.Pages = u.Used.Bytes+s.Bytes, u.Used.Pages+s.Pages
		}
	}
	return list, k.held(ctx, list)
}

// held counts the batches awaiting review.
func (k *Quotas) held(ctx context.Context, list []Usage) error {
	for page, err := range format.Pages(ctx, k.Store, store.ScanQuery{What: store.ScanHeld, Limit: 500}) {
		if err != nil {
			return err
		}
		for i := range page.Held {
			for j := range list {
				if store.Below(page.Held[i].Batch.Scope, list[j].Scope) {
					list[j].Used.Held++
				}
			}
		}
	}
	return nil
}

// Spaces returns the space used by each scope, by name and kind, with the bodies of its audit leaves. The first call after an
// open reads the whole audit.
func (k *Quotas) Spaces(ctx context.Context) (list []store.ScopeInfo, err error) {
	for page, err := range format.Pages(ctx, k.Store, store.ScanQuery{What: store.ScanScopes, Space: true, Limit: 10_000}) {
		if err != nil {
			return nil, err
		}
		list = append(list, page.Names...)
	}
	return list, nil
}

// sumSpace adds two lists of space by kind, in the order of the first. Kinds that only the second has come last.
func sumSpace(a, b []store.KindSpace) []store.KindSpace {
	out := append([]store.KindSpace{}, a...)
next:
	for _, x := range b {
		for i := range out {
			if y := &out[i]; y.Kind == x.Kind {
				y.Pages, y.Bytes, y.OldPages, y.OldBytes = y.Pages+x.Pages, y.Bytes+x.Bytes, y.OldPages+x.OldPages, y.OldBytes+x.OldBytes
				continue next
			}
		}
		out = append(out, x)
	}
	return out
}
