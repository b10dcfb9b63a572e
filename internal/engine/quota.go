package engine

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// Quotas. The catalogue counts stored versions by scope and kind. A commit that adds some is
// compared with its quotas at the tail of the log, after it was built: the installed versions and
// those in flight count. (Bodies of the audit count as of when the batch was prepared, see
// quota.go.) A commit that is being installed may be counted twice for a moment. If that decides
// the case, the judged commit waits for it and is judged again.
//
// Rows of quotas are read when a batch is prepared, and read again after a commit wrote one.
//
// The quota of a scope covers the scope and all scopes below it, so a commit is compared with the
// quota of each scope on the way up. Three things are limited, each by itself: bytes of texts, page
// versions, and held batches that wait for review; bodies of the audit are a fourth (quota.go). 0
// means no limit. A quota can also close its scopes for writes (closedScope).
//
//	refused    what is stored and what the batch adds pass the limit: QuotaError, a leaf says so, the batch id stays free
//	behind     only commits in flight make them pass it: the batch waits for one of these and is judged again
//	enters     otherwise
//
// Old versions count until gc drops them: they take space. Versions that a source brings by a refetch
// are never refused, nor are the held batches that a salvage brings along; both count as stored.

// reservedIDs is the prefix of the ids of artefacts that the database itself writes. No quota
// counts them.
const reservedIDs = "ctxpage:"

// use is the space that page versions take.
//
// pages counts page versions; bytes is the length of their texts.
type use struct {
	pages int
	bytes int64
}

// quotas holds the limits and the usage that are known; under cat.mu. by has the limits by scope
// name. known is false before the first batch was prepared and after a commit wrote a row of a
// quota; the next prepare reads the rows again.
type quotas struct {
	known   bool
	changes int // rows of quotas that were written
	by      map[string]store.Quota
	held    map[string]int // batches that wait for review, by scope; nil: no quota asks for them
}

// usedBelow returns the space of a scope and the scopes below it. The caller holds mu.
func (c *catalogue) usedBelow(scope string) (u use) {
	for num, name := range c.scopes.named() {
		if !store.Below(name, scope) {
			continue
		}
		for _, k := range c.scope(num).uses {
			u.pages, u.bytes = u.pages+k.pages, u.bytes+k.bytes
		}
	}
	return u
}

// kindSpaces is the space of pages by kind, old versions apart.
type kindSpaces [len(store.KindNames)]store.KindSpace

// add counts a page version. One that has ended also counts as old.
func (by *kindSpaces) add(c *catalogue, p *pageCol) {
	k, n := &by[min(int(p.kind), len(by)-1)], int64(c.numbers(p).bytes)
	k.Pages, k.Bytes = k.Pages+1, k.Bytes+n
	if c.end(p) != 0 {
		k.OldPages, k.OldBytes = k.OldPages+1, k.OldBytes+n
	}
}

// list returns the kinds that have pages; not nil.
func (by *kindSpaces) list() []store.KindSpace {
	out := []store.KindSpace{}
	for i := range by {
		if by[i].Kind = store.KindNames[i]; by[i].Pages > 0 {
			out = append(out, by[i])
		}
	}
	return out
}

// addSpace says what scopes take. It looks at every page once.
func (c *catalogue) addSpace(list []store.ScopeInfo, bodies map[string]int64) {
	by := make([]kindSpaces, len(c.scopes.cols))
	for _, p := range c.pages.all() {
		if p.art != 0 && !p.gone() {
			by[p.scope-1].add(c, p)
		}
	}
	for i := range list {
		list[i].Space, list[i].Bodies = []store.KindSpace{}, bodies[list[i].Name]
		if at := c.byName[list[i].Name]; at != 0 {
			list[i].Space = by[at-1].list()
		}
	}
}

// readQuotas reads the rows, if they are not known, and reports whether there are any. It reads without a lock and begins again if a
// row of a quota was written meanwhile, or, where batches are counted, if one was held or decided.
// Each round that finds a change begins again; a writer of quotas that never stops would keep it
// here, so ctx ends it through Scan.
func (s *Engine) readQuotas(ctx context.Context) (any bool, err error) {
	for {
		s.cat.mu.RLock()
		known, any, changes, held := s.quotas.known, len(s.quotas.by) > 0, s.quotas.changes, s.heldChanges
		s.cat.mu.RUnlock()
		if known {
			return any, nil
		}
		next := quotas{known: true, by: map[string]store.Quota{}}
		counts := false
		err := s.eachState(ctx, format.QuotaRows, func(r store.StateRow) error {
			is, err := format.DecodeQuota(r)
			if err != nil {
				return s.Corrupt("state row "+r.Key, err)
			}
			next.by[is.Scope] = is.Quota
			counts = counts || is.Held > 0
			return nil
		})
		if err != nil {
			return false, err
		}
		if counts {
			next.held = map[string]int{}
			if err := s.eachUndecided(func(h *store.HeldBatch) { next.held[h.Batch.Scope]++ }); err != nil {
				return false, err
			}
		}
		s.cat.mu.Lock()
		if s.quotas.changes == changes && (next.held == nil || s.heldChanges == held) {
			next.changes = changes
			s.quotas = next
		}
		s.cat.mu.Unlock()
	}
}

// quotaInstalled follows a commit: rows of quotas, and batches that wait. The caller holds cat.mu.
func (s *Engine) quotaInstalled(c *format.Commit) {
	q := &s.quotas
	for i := range c.State {
		if strings.HasPrefix(c.State[i].Key, format.QuotaRows) || q.held != nil && strings.HasPrefix(c.State[i].Key, reviewGonePrefix) {
			q.known, q.changes = false, q.changes+1
		}
	}
	if !q.known || q.held == nil || len(c.Held) == 0 {
		return
	}
	h, err := format.HeldState(c.Held)
	switch {
	case err != nil:
		q.known, q.changes = false, q.changes+1
	case h.Decided == "":
		q.held[h.Batch.Scope]++
	default:
		q.held[h.Batch.Scope]--
	}
}

// setUse computes what a commit adds to the usage.
func (c *Commit) setUse(b *Request) {
	c.scope = b.Scope
	if b.Carried || b.Leaf.Type == manifest.TypeRefetch {
		return
	}
	if c.outcome.Status == store.StatusHeld {
		c.held = 1
		return
	}
	for i := range c.record.Heads {
		h := &c.record.Heads[i]
		if h.Head == nil || strings.HasPrefix(h.Head.ID, reservedIDs) {
			continue
		}
		for _, t := range h.Texts {
			c.use.pages, c.use.bytes = c.use.pages+1, c.use.bytes+int64(len(t.Text))
		}
	}
}

// closedScope returns the refusal of a batch to a scope that is closed for writes; nil: it is open. The
// operator's housekeeping passes: it moves nothing that an export would miss. So does what comes
// from another database (Hold; Carry has the operator's scope), else a scope could not move back.
// The caller holds cat.mu and the tail, and no change of a quota above the scope is in flight
// (sequencer.quota).
func (s *Engine) closedScope(b *Request) error {
	if len(s.quotas.by) == 0 || b.extra != nil || b.Carried || b.Hold != nil || b.Leaf.Type == manifest.TypeRefetch {
		return nil
	}
	switch b.Leaf.Action {
	case "quota", "retention", "delete expired":
		return nil
	}
	for _, scope := range store.ScopeChain(b.Scope) {
		if why := s.quotas.by[scope].Closed; why != "" {
			return &store.QuotaError{Scope: scope, What: "closed", Closed: why}
		}
	}
	return nil
}

// quota returns a commit in flight that changes a quota above a scope; nil: there is none. A batch
// waits for it, so that one that closes a scope is final. The caller holds flight.
func (q *sequencer) quota(scope string) *Commit {
	if len(q.states) == 0 {
		return nil
	}
	for _, scope := range store.ScopeChain(scope) {
		if c := q.states[format.QuotaRows+scope]; c != nil {
			return c
		}
	}
	return nil
}

// exceededQuota compares a commit that was built with the quotas above its scope, if there are any
// (judgement.limited). behind: one in flight decides, and must be installed first. known is false if
// a row of a quota was installed since the batch was judged: held batches are not counted from then on.
// The caller has the tail. The scopes are asked from the commit's own upwards, and the first that refuses is the
// answer: it is the nearest that an operator can raise.
func (s *Engine) exceededQuota(c *Commit, pre *prepared) (exceeded *store.QuotaError, behind *Commit, known bool) {
	if c.use.pages+c.held == 0 {
		return nil, nil, true
	}
	if pre.bodiesQuota != nil {
		return pre.bodiesQuota, nil, true
	}
	flying := s.seq.adding() // before the catalogue: a commit installed since is counted twice, but never missed
	s.cat.mu.RLock()
	defer s.cat.mu.RUnlock()
	if !s.quotas.known {
		return nil, nil, false
	}
	for _, scope := range store.ScopeChain(c.scope) {
		q, ok := s.quotas.by[scope]
		if !ok {
			continue
		}
		used, held := s.cat.usedBelow(scope), 0
		for at, n := range s.quotas.held {
			if store.Below(at, scope) {
				held += n
			}
		}
		var up use
		var upHeld int
		var first *Commit
		for _, f := range flying {
			if store.Below(f.scope, scope) {
				up.pages, up.bytes, upHeld, first = up.pages+f.use.pages, up.bytes+f.use.bytes, upHeld+f.held, f
			}
		}
		for _, x := range []struct {
			what                string
			limit, used, up, by int64
		}{
			{"bytes", q.Bytes, used.bytes, up.bytes, c.use.bytes}, {"pages", int64(q.Pages), int64(used.pages), int64(up.pages), int64(c.use.pages)},
			{"held", int64(q.Held), int64(held), int64(upHeld), int64(c.held)},
		} {
			switch {
			case x.limit == 0 || x.by == 0 || x.used+x.up+x.by <= x.limit:
			case x.used+x.by <= x.limit:
				return nil, first, true
			default:
				return &store.QuotaError{Scope: scope, What: x.what, Limit: x.limit, Used: x.used, Asked: x.by}, nil, true
			}
		}
	}
	return nil, nil, true
}

// adding are the commits in flight that add something.
func (q *sequencer) adding() (list []*Commit) {
	q.flight.Lock()
	defer q.flight.Unlock()
	for _, c := range q.ids {
		if c.use.pages+c.held > 0 {
			list = append(list, c)
		}
	}
	slices.SortFunc(list, func(a, b *Commit) int { return a.record.Batch.Compare(b.record.Batch) })
	return list
}

// explainQuota adds to a refusal by what the space is used. It looks at every page, so it is not
// done at the tail.
func (s *Engine) explainQuota(e *store.QuotaError) {
	if e.What == "held" || e.What == "bodies" || e.What == "closed" {
		return
	}
	s.cat.mu.RLock()
	defer s.cat.mu.RUnlock()
	var by kindSpaces
	for _, p := range s.cat.pages.all() {
		if p.art != 0 && !p.gone() && store.Below(s.cat.scopeName(p.scope), e.Scope) {
			by.add(s.cat, p)
		}
	}
	e.Kinds = by.list()
	for _, k := range e.Kinds {
		if e.What == "bytes" {
			e.Old += k.OldBytes
		} else {
			e.Old += int64(k.OldPages)
		}
	}
}

// bodies counts what the bodies of audit leaves take, by scope. Only quotas of bodies and listings
// of the space of scopes need the counts, so nothing is counted until one asks. The first
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
	if s.Leaves == nil {
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
				exceeded = &store.QuotaError{Scope: at, What: "bodies", Limit: limit, Used: used}
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
