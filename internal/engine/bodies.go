package engine

import (
	"context"
	"strings"
	"sync"

	"github.com/ctxpage/ctxpage/store"
)

// bodies counts what the bodies of audit leaves take, by scope. Only quotas of bodies and listings
// of the space of scopes need the counts, so nothing is counted until one of them asks. The first
// call reads the whole audit, later calls only the leaves added since. A prune can remove bodies
// anywhere in the audit, so it discards the counts.
//
// Rejected: counting when leaves are installed. Every read would pay for it, and every open would
// read the whole audit.
type bodies struct {
	mu   sync.Mutex // held while leaves are read; taken before no other lock
	upTo uint64
	by   map[string]int64
}

// countBodies brings the counts up to date and calls fn with them.
func (s *Engine) countBodies(ctx context.Context, fn func(by map[string]int64)) error {
	b := &s.bodies
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.by == nil {
		b.upTo, b.by = 0, map[string]int64{}
	}
	to := s.Leaves.Size()
	err := s.Leaves.Bodies(ctx, b.upTo, to, func(scope string, size int) { b.by[scope] += int64(size) })
	if err != nil {
		b.by = nil // a part of it was counted
		return AuditError(err)
	}
	b.upTo = to
	fn(b.by)
	return nil
}

// bodiesChanged begins the count anew.
func (s *Engine) bodiesChanged() {
	s.bodies.mu.Lock()
	defer s.bodies.mu.Unlock()
	s.bodies.by = nil
}

// bodiesQuota returns the quota of bodies that refuses a batch; nil: none does. Leaves in flight are
// not counted: reads are not refused, so the limit is passed in any case. It is asked when a batch
// is prepared and not at the tail, because it may read the whole audit once.
func (s *Engine) bodiesQuota(ctx context.Context, scope string) (exceeded *store.QuotaError, err error) {
	if s.Leaves == nil || !s.anyQuota() {
		return nil, nil
	}
	s.cat.mu.RLock()
	limits := map[string]int64{}
	for _, at := range store.ScopeChain(scope) {
		if q := s.quotas.by[at]; q.Bodies > 0 {
			limits[at] = q.Bodies
		}
	}
	s.cat.mu.RUnlock()
	if len(limits) == 0 {
		return nil, nil
	}
	err = s.countBodies(ctx, func(by map[string]int64) {
		for _, at := range store.ScopeChain(scope) {
			limit, ok := limits[at]
			if !ok || exceeded != nil {
				continue
			}
			used := int64(0)
			for name, n := range by {
				if store.Below(name, at) {
					used += n
				}
			}
			if used >= limit {
				exceeded = &store.QuotaError{Scope: at, What: store.QuotaBodies, Limit: limit, Used: used}
			}
		}
	})
	return exceeded, err
}

// bodiesByScope are the counts of scopes with a prefix, for a listing.
func (s *Engine) bodiesByScope(ctx context.Context, prefix string) (list map[string]int64, err error) {
	list = map[string]int64{}
	if s.Leaves == nil {
		return list, nil
	}
	err = s.countBodies(ctx, func(by map[string]int64) {
		for name, n := range by {
			if name != "" && name != store.OperatorScope && strings.HasPrefix(name, prefix) {
				list[name] = n
			}
		}
	})
	return list, err
}
