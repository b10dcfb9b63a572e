package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/internal/format"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/oklog/ulid/v2"
)

// Judging has two halves. prepare runs without an order and may wait for the disk: it reads the
// heads, state rows and outcomes that the batch depends on. judge runs at the tail of the log and
// reads memory only, so it is short and final. Between the two, other commits may be installed.
// judge notices that by version numbers (replacing), by Engine.releases if a checkpoint moved rows, and
// by blocker for commits in flight, and the batch is prepared again.
//
// Invariant: judge changes nothing, so a batch that is refused after it leaves no trace but its
// leaf.

// prepared holds the results of prepare for a batch.
type prepared struct {
	prev     []*store.Head // newest head of each artefact put; nil: there is none
	heads    []*store.Head // the head that each put makes, its numbers still open
	cold     [][]byte
	keys     []string               // writeKeys
	carried  map[string]*store.Head // newest head of each artefact that is carried, nil: there is none
	state    []uint64               // LSN of each row of ExpectState in the rows below the overlay
	held     *store.HeldBatch
	releases uint64
	known    *store.Outcome
	// bodiesQuota is the quota of bodies that refuses it, if it adds anything; nil: none
	bodiesQuota *store.QuotaError

	spent bool // the audit has its id and no outcome is kept: it is in flight, or long ago; atTail finds out which
}

// flightKey names an artefact in the sequencer's maps: no scope has a zero byte. The key of a held
// batch that is decided begins with one, so it is never the key of an artefact.
func flightKey(scope, id string) string { return scope + "\x00" + id }

func cutFlightKey(key string) (scope, id string) {
	scope, id, _ = strings.Cut(key, "\x00")
	return scope, id
}

// writeKeys returns the keys of everything that a batch writes or retires: artefacts, and the held
// batch that it decides.
func writeKeys(b *Request) []string {
	keys := make([]string, 0, len(b.Puts)+len(b.Deletes))
	for i := range b.Puts {
		a := &b.Puts[i].Artefact
		keys = append(keys, flightKey(b.Scope, a.ID))
		for _, id := range a.Supersedes { // a batch that saw those is stale
			keys = append(keys, flightKey(b.Scope, id))
		}
	}
	for _, id := range b.Deletes {
		keys = append(keys, flightKey(b.Scope, id))
	}
	for i := range b.Carry {
		h := &b.Carry[i].Head
		keys = append(keys, flightKey(h.Scope, h.ID))
		for _, id := range h.Supersedes {
			keys = append(keys, flightKey(h.Scope, id))
		}
	}
	if x := b.extra; x != nil {
		if x.erase != nil {
			for _, r := range x.erase.refs {
				keys = append(keys, flightKey(r.Scope, r.ID))
			}
		}
		for _, h := range x.forget {
			keys = append(keys, flightKey(h.Scope, h.ID))
		}
	}
	if b.From != (ulid.ULID{}) {
		keys = append(keys, "\x00held"+b.From.String())
	}
	return keys
}

// prepare does the slow part outside the sequencer: it reads the old heads and encodes the cold
// fields. The releases counter is read first, so that a checkpoint that moves rows during any of
// the reads is noticed.
func (s *Engine) prepare(ctx context.Context, b *Request) (*prepared, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	err := format.CheckUnknown(&b.Batch)
	if err != nil {
		return nil, err
	}
	pre := &prepared{releases: s.releases.Load()}
	if pre.known, pre.spent, err = s.outcome(ctx, &b.Batch); err != nil || pre.known != nil || pre.spent {
		return pre, err
	}
	if b.Action == store.ActApprove || b.Action == store.ActReject {
		if err := s.prepareReview(ctx, b, pre); err != nil || pre.known != nil {
			return pre, err
		}
	}
	for i := range b.Puts {
		p := &b.Puts[i]
		prev, err := s.newest(b.Scope, p.Artefact.ID)
		if err == nil && prev != nil {
			prev, err = s.withoutLost(prev, p.Pages)
		}
		if err != nil {
			return nil, err
		}
		h := &store.Head{Artefact: p.Artefact, Scope: b.Scope, PutAt: b.Now, Actor: b.Actor, Trace: format.WrittenFrom(&b.Batch, p), Source: p.Source, PartBytes: p.PartBytes, Counter: p.Counter, Turn: p.Turn}
		pre.prev, pre.heads, pre.cold = append(pre.prev, prev), append(pre.heads, h), append(pre.cold, format.EncodeCold(h))
	}
	if len(b.Carry) > 0 {
		if pre.carried, err = s.newestImported(b); err != nil {
			return nil, err
		}
	}
	if len(b.ExpectState) > 0 {
		if pre.state, err = s.filedState(b.ExpectState); err != nil {
			return nil, err
		}
	}
	s.cat.mu.RLock()
	known, any := s.quotas.known, len(s.quotas.by) > 0
	s.cat.mu.RUnlock()
	if !known {
		if any, err = s.readQuotas(ctx); err != nil {
			return nil, err
		}
	}
	if any {
		if pre.bodiesQuota, err = s.bodiesQuota(ctx, b.Scope); err != nil {
			return nil, err
		}
	}
	pre.keys = writeKeys(b)
	return pre, nil
}

// newest reads the newest head of an artefact; nil: there is none.
func (s *Engine) newest(scope, id string) (*store.Head, error) {
	s.cat.mu.RLock() // to the end: the row may go once the lock is released
	defer s.cat.mu.RUnlock()
	art := s.cat.artOf(scope, id)
	if art == 0 {
		return nil, nil
	}
	return s.headLocked(format.HeadKey{Art: art, Version: s.cat.newestOf(s.cat.art(art)).version})
}

// judgement is the decision of the sequencer about a batch: one of retry, conflict, err and hold, or
// none: apply.
type judgement struct {
	retry    bool // the catalogue moved since prepare
	limited  bool // there are quotas
	conflict *store.ConflictError
	err      error
	hold     string // reason

	puts   []replacing      // by put
	erased uint64           // LSN up to which an erase that has begun takes versions; 0: none does
	at     uint64           // the LSN up to which it was judged
	stale  []manifest.Stale // what the batch was written from and is no longer current, for the leaf
	refs   []store.Ref      // the same, for the caller
}

// replacing tells two things of a put: it supersedes an artefact, or it brings back a superseded one.
type replacing struct {
	superseded bool // another artefact superseded this one; the put makes it current again
	supersedes bool // the put takes the place of another artefact that is current
}

// judge decides, in the order of the gate. Each step has a result of its own:
//
//	replacing      did an artefact change since prepare?              yes: prepare again
//	closedScope    is the scope closed for writes?                    yes: QuotaError, nothing is applied
//	conflict       Expect: did an artefact change since it was read?   yes: ConflictError, nothing is applied
//	stateConflict  ExpectState: did a state row?                       yes: the same
//	staleness      Context: are the pages that the batch was written from current?
//	AfterStale     OnStale and Action: apply, hold or fail
//
// It reads the catalogue and changes nothing. The caller has the tail, and nothing in flight
// touches the same artefacts (blocker). So the commit is installed on exactly what judge sees.
func (s *Engine) judge(b *Request, pre *prepared) (v judgement) {
	c := s.cat
	c.mu.RLock()
	defer c.mu.RUnlock()
	if v.retry = pre.releases != s.releases.Load(); v.retry { // what prepare read of rows is out of date
		return v
	}
	if v.puts, v.retry = c.replacing(b, pre.prev); v.retry || len(b.Carry) > 0 && c.movedImported(pre.carried) || !s.quotas.known {
		v.retry = true
		return v
	}
	v.limited = len(s.quotas.by) > 0
	if v.err = s.closedScope(b); v.err != nil {
		return v
	}
	if b.Hold != nil { // it was judged where it was held
		v.hold, v.refs = b.Reason, b.Hold.Stale
		return v
	}
	if !b.Carried { // otherwise Expect and ExpectState are LSNs of another database
		if v.conflict = c.conflict(b); v.conflict == nil && len(b.ExpectState) > 0 {
			v.conflict = s.stateConflict(b, pre.state)
		}
		if v.conflict != nil {
			return v
		}
	}
	if len(b.Carry) > 0 {
		if v.conflict = format.CarriedConflict(&b.Batch, func(scope, id string) *store.Head { return pre.carried[flightKey(scope, id)] }); v.conflict != nil {
			return v
		}
	}
	if len(b.Context) > 0 {
		v.stale, v.refs = c.staleness(b)
	}
	v.hold, v.err = format.AfterStale(&b.Batch, v.refs)
	for _, from := range s.eraseOpen {
		v.erased = max(v.erased, from)
	}
	return v
}

// conflict returns the first artefact that is not as the batch expects it; nil: all are.
func (c *catalogue) conflict(b *Request) *store.ConflictError {
	for _, e := range b.Expect {
		if now := c.lsnOf(e.Ref); now != e.LSN {
			return &store.ConflictError{Ref: e.Ref, Have: e.LSN, Now: now}
		}
	}
	return nil
}

// staleness lists the page versions in the batch's context that were replaced, expired or deleted
// since. Store versions are compared; sources are not probed again here.
func (c *catalogue) staleness(b *Request) (stale []manifest.Stale, refs []store.Ref) {
	now := codec.Micros(b.Now)
	for _, seen := range b.Context {
		if seen.Num == 0 || seen.Num > uint64(c.pages.len()) {
			continue
		}
		p := c.page(seen.Num)
		st := manifest.Stale{Num: seen.Num, Seen: c.numbers(p).version}
		expires := c.expires(p)
		switch live := c.resolve(seen.Num, 0, nil); {
		case live == seen.Num && (expires == 0 || expires > now):
			continue
		case live == seen.Num:
			st.Reason = "expired"
		case live == 0:
			st.Reason = "deleted"
		default:
			st.Reason, st.Now = "replaced", c.numbers(c.page(live)).version
		}
		stale = append(stale, st)
		refs = append(refs, store.Ref{Scope: seen.Scope, ID: seen.ID, Page: seen.Page, Version: c.numbers(p).version})
	}
	return stale, refs
}

// replacing judges the supersessions of each put. moved reports whether an artefact got another
// version since its head was read; prev has nil where there was no artefact.
func (c *catalogue) replacing(b *Request, prev []*store.Head) (out []replacing, moved bool) {
	out = make([]replacing, len(b.Puts))
	n := c.byName[b.Scope]
	for i := range prev {
		var have, now uint32
		if prev[i] != nil {
			have = prev[i].Version
		}
		a := &b.Puts[i].Artefact
		if n != 0 {
			if art := c.lookup(n, a.ID); art != 0 {
				col := c.art(art)
				now, out[i].superseded = c.newestOf(col).version, col.retired()
			}
			out[i].supersedes = len(a.Supersedes) > 0 && slices.ContainsFunc(a.Supersedes, func(id string) bool { return c.isCurrent(n, id) })
		}
		if have != now {
			return nil, true
		}
	}
	return out, false
}

// artOf returns the number of an artefact; 0: there is none.
func (c *catalogue) artOf(scope, id string) uint64 {
	n := c.byName[scope]
	if n == 0 {
		return 0
	}
	return c.lookup(n, id)
}

// lsnOf returns the LSN of the last commit that changed an artefact; 0: it is absent or deleted. A
// precondition of 0 therefore means "create": it holds for a deleted artefact too.
func (c *catalogue) lsnOf(r store.Ref) uint64 {
	art := c.artOf(r.Scope, r.ID)
	if art == 0 || !c.art(art).live() {
		return 0
	}
	return c.newestOf(c.art(art)).lsn
}

// refuse records a conflict, or a stale context that was told to fail. Nothing of the batch is
// applied. The id stays free, so the caller may retry with it. The caller gets the refusal even if
// its leaf could not be written, joined with that error.
func (s *Engine) refuse(ctx context.Context, b *Request, v judgement) error {
	leaf := b.Leaf
	leaf.Type, leaf.Status, leaf.Batch = manifest.TypeConflict, "conflict", b.ID.String()
	leaf.Writes, leaf.Stale = nil, v.stale
	leaf.Trace, leaf.Parent, leaf.Scope, leaf.Actor, leaf.Time = b.ID.String(), b.Trace, b.Scope, b.Actor, codec.Micros(b.Now)
	leaf.LSN = v.at
	why := v.err
	var quotaErr *store.QuotaError
	if errors.As(why, &quotaErr) {
		s.explainQuota(quotaErr)
		leaf.Status, leaf.Reason = "quota", fmt.Sprintf("the quota of %s is %d %s, %d are used, %d were asked for", quotaErr.Scope, quotaErr.Limit, quotaErr.What, quotaErr.Used, quotaErr.Asked)
		if quotaErr.What == "closed" {
			leaf.Reason = fmt.Sprintf("%s is closed for writes: %s", quotaErr.Scope, quotaErr.Closed)
		}
	} else if v.conflict != nil {
		why = v.conflict
		leaf.Conflicts = []manifest.Conflict{{Ref: v.conflict.Name(), Expect: v.conflict.Have, Found: v.conflict.Now}}
	} else {
		leaf.Status, leaf.Reason = "stale", store.ReasonStaleContext
	}
	if b.From != (ulid.ULID{}) {
		leaf.From = b.From.String()
	}
	if _, _, err := s.leave(ctx, []*manifest.Record{&leaf}, nil); err != nil {
		return errors.Join(why, err)
	}
	return why
}
