package storetest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ctxpage/ctxpage/store"
)

// Resolve: see store.Store.
func (m *Memory) Resolve(ctx context.Context, scopes store.Scopes, ref store.Ref) (l store.Located, err error) {
	defer m.locked()()
	if err := m.usable(ctx); err != nil {
		return l, err
	}
	for _, scope := range scopes {
		newest := m.at(name{scope, ref.ID}, now)
		if newest == nil || ref.Scope != "" && ref.Scope != scope || newest.Deleted && ref.Scope == "" && ref.Version == 0 {
			continue // deleted here: that of an ancestor may be current
		}
		if ref.Version > newest.Version {
			break
		}
		h := m.versions(name{scope, ref.ID})[cmp.Or(ref.Version, newest.Version)-1]
		if h.Gone {
			return l, store.GoneError(h, ref.Page)
		}
		if l = m.locate(h, newest, ref.Page); len(l.Pages) > 0 {
			return l, nil
		}
		break // an ancestor is not asked
	}
	return store.Located{}, fmt.Errorf("%w: %s", store.ErrNotFound, ref)
}

// locate describes a version and its pages, or one of them.
func (m *Memory) locate(h, newest *store.Head, page int) store.Located {
	l := store.Located{Scope: h.Scope, Version: h.Version, LSN: h.LSN, Current: h == newest}
	if !h.ExpiresAt.IsZero() {
		l.Expires = h.ExpiresAt.UnixMicro()
	}
	for i, r := range h.Rows {
		if page == 0 || page == i+1 {
			l.Pages = append(l.Pages, store.PageKey{Num: r.Num, Version: h.Version})
		}
	}
	if by := m.supersededBy(h, now); by != nil && l.Current {
		if l.ByID = by.ID; len(m.at(nameOf(by), now).Rows) > 0 {
			l.By = m.at(nameOf(by), now).Rows[0].Num
		}
	}
	return l
}

// Load: see store.Store.
func (m *Memory) Load(ctx context.Context, scopes store.Scopes, keys []store.PageKey, want store.Want) ([]store.Loaded, error) {
	defer m.locked()()
	out := make([]store.Loaded, len(keys))
	for i, k := range keys {
		p := m.visible(scopes, k.Num)
		if p == nil {
			out[i] = store.Loaded{Key: k, Err: fmt.Errorf("%w: page %d", store.ErrNotFound, k.Num)}
			continue
		}
		vs := m.versions(p.of)
		k.Version = cmp.Or(k.Version, m.headOf(p).Version)
		out[i] = store.Loaded{Key: k, Page: p.at}
		if k.Version > uint32(len(vs)) || !has(vs[k.Version-1], p) {
			out[i].Err = fmt.Errorf("%w: version %d has no page %d", store.ErrGone, k.Version, k.Num)
			continue
		}
		if out[i].Head = own(vs[k.Version-1]); out[i].Head.Gone {
			out[i].Err = store.GoneError(out[i].Head, p.at)
		} else if want == store.WantText {
			out[i].Text = p.text
		}
	}
	return out, m.usable(ctx)
}

// Changes: see store.Store.
func (m *Memory) Changes(ctx context.Context, after uint64, wait time.Duration) (out store.Changes, err error) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for waited := wait <= 0; ; {
		unlock := m.locked()
		moved := m.moved
		if out.LSN = m.lsn; m.lsn > after || waited || m.closed.Load() {
			defer unlock()
			for _, p := range m.pages {
				next := slices.IndexFunc(m.heads, func(h *store.Head) bool { return nameOf(h) == p.of && h.LSN > p.LSN && !has(h, p) })
				if p.gone > after || next >= 0 && m.heads[next].LSN > after {
					out.Ended = append(out.Ended, p.Num)
				}
			}
			return out, m.usable(ctx)
		}
		unlock()
		select {
		case <-moved:
		case <-timer.C:
			waited = true
		case <-ctx.Done():
			return store.Changes{}, ctx.Err()
		}
	}
}
