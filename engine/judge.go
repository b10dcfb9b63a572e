package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ctxpage/ctxpage/internal/codec"
	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
	"github.com/oklog/ulid/v2"
)

// prepared is what can be done for a batch outside the sequencer.
type prepared struct {
	prev     []*store.Head // newest head of each artefact put, nil: there is none
	heads    []*store.Head // what each put makes of it, the numbers still open
	cold     [][]byte
	keys     []string // writeKeys
	state    []uint64 // LSN of each row of ExpectState in the rows below the overlay
	held     *store.HeldBatch
	releases uint64
	known    *store.Outcome
	spent    bool // the audit has its id; sequence tells one in flight from one whose outcome is no longer kept
}

// decidedMeanwhile says whether a held batch was decided after it was prepared for review: then prepare must see that.
func (s *Engine) decidedMeanwhile(ctx context.Context, b *Request) (bool, error) {
	if b.From == (ulid.ULID{}) {
		return false, nil
	}
	h, err := s.Held(ctx, b.From)
	return h.Decided != "", err
}

func FlightKey(scope, id string) string { return scope + "\x00" + id }

// writeKeys names the artefacts a batch writes or retires.
func writeKeys(b *Request) []string {
	keys := make([]string, 0, len(b.Puts)+len(b.Deletes)+1)
	for i := range b.Puts {
		a := &b.Puts[i].Artefact
		keys = append(keys, FlightKey(b.Scope, a.ID))
		for _, id := range a.Supersedes { // whoever saw those goes stale
			keys = append(keys, FlightKey(b.Scope, id))
		}
	}
	for _, id := range b.Deletes {
		keys = append(keys, FlightKey(b.Scope, id))
	}
	if b.erase != nil {
		for _, r := range b.erase.refs {
			keys = append(keys, FlightKey(r.Scope, r.ID))
		}
	}
	for _, h := range b.forget {
		keys = append(keys, FlightKey(h.Scope, h.ID))
	}
	if b.From != (ulid.ULID{}) {
		keys = append(keys, "\x00held"+b.From.String())
	}
	return keys
}

// prepare does the slow part outside the sequencer: reads the old heads, packs what is cold.
func (s *Engine) prepare(ctx context.Context, b *Request) (*prepared, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	pre := &prepared{releases: s.releases.Load()}
	var err error
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
		if err := artefactFields.CheckUnknown(p.Artefact.Unknown); err != nil {
			return nil, store.Invalid("unknown", fmt.Sprintf("%d bytes that are no fields of a later release", len(p.Artefact.Unknown)), "what was read with the artefact, as it is")
		}
		prev, err := s.newest(b.Scope, p.Artefact.ID)
		if err == nil {
			prev, err = s.withoutLost(prev, p.Pages)
		}
		if err != nil {
			return nil, err
		}
		h := s.headOf(b, p)
		pre.prev, pre.heads, pre.cold = append(pre.prev, prev), append(pre.heads, h), append(pre.cold, encodeCold(h))
	}
	if pre.state, err = s.filedState(b.ExpectState); err != nil {
		return nil, err
	}
	pre.keys = writeKeys(b)
	return pre, nil
}

// headOf is the head a put makes, its numbers still open.
func (s *Engine) headOf(b *Request, p *store.Put) *store.Head {
	return &store.Head{Artefact: p.Artefact, Scope: b.Scope, PutAt: b.Now, Actor: b.Actor, Source: p.Source, PartBytes: p.PartBytes, Counter: p.Counter}
}

// newest reads the newest head of an artefact, nil when there is none.
func (s *Engine) newest(scope, id string) (*store.Head, error) {
	s.cat.mu.RLock()
	var k HeadKey
	if art := s.cat.artOf(scope, id); art != 0 {
		k = HeadKey{art, s.cat.art(art).version}
	}
	s.cat.mu.RUnlock()
	if k.Art == 0 {
		return nil, nil
	}
	return s.head(k)
}

// judgement is what the sequencer decides about a batch: one of retry, conflict, err and hold, or none: apply.
type judgement struct {
	retry    bool // the catalogue moved since prepare
	conflict *store.ConflictError
	err      error
	hold     string // reason

	puts  []replacing      // by put
	at    uint64           // LSN up to which it was judged
	stale []manifest.Stale // what the batch was written from and is not current any more, for the leaf
	refs  []store.Ref      // likewise, for the caller
}

// replacing is how a put meets supersession, by the catalogue.
type replacing struct {
	superseded bool // another artefact superseded its own; by this put it is current again
	supersedes bool // it takes the place of another artefact that is current
}

// judge decides, in the order of the gate, each step with a result of its own:
//
//	moved          is what prepare read still the newest?              no: prepare again
//	conflict       Expect: did an artefact change since it was read?   yes: ConflictError, nothing is applied
//	stateConflict  ExpectState: did a state row?                       likewise
//	staleness      Context: is what the batch was written from current?
//	afterStale     OnStale and Action: apply, hold or fail
//
// It reads the catalogue, changes nothing, and is called under the sequencer with nothing in flight on the same artefacts:
// what it sees is what the commit is installed on.
func (s *Engine) judge(b *Request, pre *prepared) (v judgement) {
	c := s.cat
	c.mu.RLock()
	defer c.mu.RUnlock()
	if v.retry = c.moved(b, pre.prev); v.retry {
		return v
	}
	if v.conflict = c.conflict(b); v.conflict != nil {
		return v
	}
	if v.conflict = s.stateConflict(b, pre.state); v.conflict != nil {
		return v
	}
	v.stale, v.refs = c.staleness(b)
	if v.hold, v.err = afterStale(b, v.refs); v.err != nil {
		return v
	}
	v.puts = c.replacing(b)
	return v
}

// moved says whether an artefact got another version since its head was read; prev has nil where there was none.
func (c *catalogue) moved(b *Request, prev []*store.Head) bool {
	for i, h := range prev {
		var have, now uint32
		if h != nil {
			have = h.Version
		}
		if art := c.artOf(b.Scope, b.Puts[i].Artefact.ID); art != 0 {
			now = c.art(art).version
		}
		if have != now {
			return true
		}
	}
	return false
}

// conflict is the first artefact that is not as the batch expects it; nil: there is none. A batch that was carried here
// from another database brings LSNs of that one: they expect nothing.
func (c *catalogue) conflict(b *Request) *store.ConflictError {
	if b.Carried {
		return nil
	}
	for _, e := range b.Expect {
		if now := c.lsnOf(e.Ref); now != e.LSN {
			return &store.ConflictError{Ref: e.Ref, Have: e.LSN, Now: now}
		}
	}
	return nil
}

// staleness lists the page versions seen that were replaced, expired or deleted since.
func (c *catalogue) staleness(b *Request) (stale []manifest.Stale, refs []store.Ref) {
	now := codec.Micros(b.Now)
	for _, seen := range b.Context {
		if seen.Num == 0 || seen.Num > uint64(len(c.pages)) {
			continue
		}
		p := c.page(seen.Num)
		st := manifest.Stale{Num: seen.Num, Seen: p.version}
		switch live := c.resolve(seen.Num, 0, nil); {
		case live == seen.Num && (p.expires == 0 || p.expires > now):
			continue
		case live == seen.Num:
			st.Reason = "expired"
		case live == 0:
			st.Reason = "deleted"
		default:
			st.Reason, st.Now = "replaced", c.page(live).version
		}
		stale = append(stale, st)
		refs = append(refs, store.Ref{Scope: seen.Scope, ID: seen.ID, Page: seen.Page, Version: p.version})
	}
	return stale, refs
}

// afterStale gives the reason to hold a batch, or the error to refuse it with; neither: it is applied.
func afterStale(b *Request, stale []store.Ref) (hold string, err error) {
	switch {
	case b.Action == store.ActReject:
		return "", nil
	case b.Action == store.ActHold:
		return b.Reason, nil
	case len(stale) == 0 || b.OnStale == store.AllowStale || b.Force:
		return "", nil
	case b.Action == store.ActApprove:
		return "", fmt.Errorf("%w: %v; look at them, and approve them as stale if they do not matter", store.ErrStaleContext, stale)
	case b.OnStale == store.FailStale:
		return "", fmt.Errorf("%w: %v", store.ErrStaleContext, stale)
	}
	return store.ReasonStaleContext, nil
}

// replacing says of each put how it meets supersession.
func (c *catalogue) replacing(b *Request) []replacing {
	out := make([]replacing, len(b.Puts))
	n := c.byName[b.Scope]
	if n == 0 {
		return out
	}
	for i := range b.Puts {
		a := &b.Puts[i].Artefact
		if art := c.lookup(n, a.ID); art != 0 {
			out[i].superseded = c.art(art).by != 0
		}
		out[i].supersedes = slices.ContainsFunc(a.Supersedes, func(id string) bool { return c.isCurrent(n, id) })
	}
	return out
}

// artOf is the number of an artefact; 0: there is none.
func (c *catalogue) artOf(scope, id string) uint64 {
	n := c.byName[scope]
	if n == 0 {
		return 0
	}
	return c.lookup(n, id)
}

// lsnOf is the LSN of the last commit that changed an artefact; 0: absent or deleted.
func (c *catalogue) lsnOf(r store.Ref) uint64 {
	art := c.artOf(r.Scope, r.ID)
	if art == 0 || c.art(art).pages == 0 {
		return 0
	}
	return c.art(art).lsn
}

// refuse records a conflict, or a stale context that was told to fail. Nothing of the batch is applied; the id stays
// free, so that the caller may retry with it.
func (s *Engine) refuse(ctx context.Context, b *Request, v judgement) error {
	leaf := b.Leaf
	leaf.Type, leaf.Status, leaf.Batch = manifest.TypeConflict, "conflict", b.ID.String()
	leaf.Writes, leaf.Stale = nil, v.stale
	leaf.Trace, leaf.Parent, leaf.Scope, leaf.Actor, leaf.Time = b.ID.String(), b.Trace, b.Scope, b.Actor, codec.Micros(b.Now)
	leaf.LSN = v.at
	why := v.err
	if v.conflict != nil {
		why = v.conflict
		leaf.Conflicts = []manifest.Conflict{{Ref: v.conflict.Name(), Expect: v.conflict.Have, Found: v.conflict.Now}}
	} else {
		leaf.Status, leaf.Reason = "stale", store.ReasonStaleContext
	}
	if b.From != (ulid.ULID{}) {
		leaf.From = b.From.String()
	}
	if _, err := s.leave(ctx, []*manifest.Record{&leaf}, nil); err != nil {
		return errors.Join(why, err)
	}
	return why
}
