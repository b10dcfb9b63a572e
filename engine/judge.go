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
	old      []*store.Head // newest head of each artefact put, nil: none
	again    []bool        // which of them another artefact superseded by now; filled in by judge
	beats    []bool        // which of them supersede an artefact that stands; filled in by judge
	heads    []*store.Head // what each put makes of it, the numbers still open
	cold     [][]byte
	keys     []string // writeKeys
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
	pre := &prepared{releases: s.Releases.Load()}
	var err error
	if pre.known, pre.spent, err = s.outcome(&b.Batch); err != nil || pre.known != nil || pre.spent {
		return pre, err
	}
	if b.Action == store.ActApprove || b.Action == store.ActReject {
		if err := s.prepareReview(ctx, b, pre); err != nil || pre.known != nil {
			return pre, err
		}
	}
	for i := range b.Puts {
		p := &b.Puts[i]
		old, err := s.newest(b.Scope, p.Artefact.ID)
		if err == nil {
			old, err = s.withoutLost(old, p.Pages)
		}
		if err != nil {
			return nil, err
		}
		h := s.headOf(b, p)
		c, err := encodeCold(h)
		if err != nil {
			return nil, fmt.Errorf("ctxpage: encode %s: %w", p.Artefact.ID, err)
		}
		pre.old, pre.heads, pre.cold = append(pre.old, old), append(pre.heads, h), append(pre.cold, c)
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
	s.Catalogue.Mu.RLock()
	var k HeadKey
	if n := s.Catalogue.byName[scope]; n != 0 {
		if art := s.Catalogue.lookup(n, id); art != 0 {
			k = HeadKey{art, s.Catalogue.art(art).version}
		}
	}
	s.Catalogue.Mu.RUnlock()
	if k.Art == 0 {
		return nil, nil
	}
	return s.head(k)
}

// judgement is what the sequencer decides about a batch.
type judgement struct {
	conflict *store.ConflictError
	stale    []manifest.Stale
	refs     []store.Ref
	hold     string // reason, "": apply
	retry    bool   // the catalogue moved since prepare
	err      error
}

// judge checks preconditions, in the order of the gate: conflict, stale context, then what the caller asked for.
// Called under the sequencer, with nothing in flight on the same artefacts.
func (s *Engine) judge(b *Request, pre *prepared) (v judgement) {
	s.Catalogue.Mu.RLock()
	defer s.Catalogue.Mu.RUnlock()
	for i, old := range pre.old {
		var have, now uint32
		if old != nil {
			have = old.Version
		}
		again, beats := false, false
		if n := s.Catalogue.byName[b.Scope]; n != 0 {
			a := &b.Puts[i].Artefact
			if art := s.Catalogue.lookup(n, a.ID); art != 0 {
				now, again = s.Catalogue.art(art).version, s.Catalogue.art(art).by != 0
			}
			beats = slices.ContainsFunc(a.Supersedes, func(id string) bool { return s.Catalogue.stands(n, id) })
		}
		if have != now {
			return judgement{retry: true}
		}
		pre.again, pre.beats = append(pre.again, again), append(pre.beats, beats)
	}
	for _, e := range b.Expect {
		if now := s.Catalogue.lsnOf(e.Ref); now != e.LSN && !b.Carried {
			v.conflict = &store.ConflictError{Ref: e.Ref, Have: e.LSN, Now: now}
			return v
		}
	}
	s.judgeContext(b, &v)
	switch {
	case b.Action == store.ActReject:
	case b.Action == store.ActHold:
		v.hold = b.Reason
	case len(v.refs) == 0 || b.OnStale == store.AllowStale || b.Force:
	case b.Action == store.ActApprove:
		v.err = fmt.Errorf("%w: %v; look at them, and approve them as stale if they do not matter", store.ErrStaleContext, v.refs)
	case b.OnStale == store.FailStale:
		v.err = fmt.Errorf("%w: %v", store.ErrStaleContext, v.refs)
	default:
		v.hold = store.ReasonStaleContext
	}
	return v
}

// judgeContext lists the page versions seen that were replaced, expired or deleted since.
func (s *Engine) judgeContext(b *Request, v *judgement) {
	now := codec.Micros(b.Now)
	for _, c := range b.Context {
		if c.Num == 0 || c.Num > uint64(len(s.Catalogue.pages)) {
			continue
		}
		p := s.Catalogue.page(c.Num)
		st := manifest.Stale{Num: c.Num, Seen: p.version}
		switch live := s.Catalogue.resolve(c.Num, 0, nil); {
		case live == c.Num && (p.expires == 0 || p.expires > now):
			continue
		case live == c.Num:
			st.Reason = "expired"
		case live == 0:
			st.Reason = "deleted"
		default:
			st.Reason, st.Now = "replaced", s.Catalogue.page(live).version
		}
		v.stale = append(v.stale, st)
		v.refs = append(v.refs, store.Ref{Scope: c.Scope, ID: c.ID, Page: c.Page, Version: p.version})
	}
}

// lsnOf is the LSN of the last commit that changed an artefact; 0: absent or deleted.
func (c *catalogue) lsnOf(r store.Ref) uint64 {
	n := c.byName[r.Scope]
	if n == 0 {
		return 0
	}
	art := c.lookup(n, r.ID)
	if art == 0 || c.art(art).pages == 0 {
		return 0
	}
	return c.art(art).lsn
}

// refuse records a conflict, or a stale context that was told to fail. Nothing of the batch is applied; the id stays
// free, so that the caller may retry with it.
func (s *Engine) refuse(b *Request, v judgement) error {
	leaf := b.Leaf
	leaf.Type, leaf.Status, leaf.Batch = manifest.TypeConflict, "conflict", b.ID.String()
	leaf.Writes, leaf.Stale = nil, v.stale
	leaf.Trace, leaf.Parent, leaf.Scope, leaf.Actor, leaf.Time = b.ID.String(), b.Trace, b.Scope, b.Actor, codec.Micros(b.Now)
	leaf.LSN = s.Seq.lsn
	why := v.err
	if v.conflict != nil {
		why = v.conflict
		leaf.Conflicts = []manifest.Conflict{{Ref: v.conflict.Ref.String(), Expect: v.conflict.Have, Found: v.conflict.Now}}
	} else {
		leaf.Status, leaf.Reason = "stale", store.ReasonStaleContext
	}
	if b.From != (ulid.ULID{}) {
		leaf.From = b.From.String()
	}
	if err := s.appendLocked([]*manifest.Record{&leaf}, nil); err != nil {
		return errors.Join(why, err)
	}
	return why
}
