package storetest

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/ctxpage/ctxpage/manifest"
	"github.com/ctxpage/ctxpage/store"
)

// outcomeDays is how old the id of a batch may be, and idAhead how far ahead of the clock.
const (
	outcomeDays = 7 * 24 * time.Hour
	idAhead     = 12 * time.Hour
)

// Commit: see store.Store.
func (m *Memory) Commit(ctx context.Context, b store.Batch) (out store.Outcome, err error) {
	defer m.locked()()
	if err := cmp.Or(m.usable(ctx), store.CheckClock(b.Now), b.CheckIDs()); err != nil {
		return out, err
	}
	switch age := b.Now.Sub(ulid.Time(b.ID.Time())); {
	case age > outcomeDays:
		return out, fmt.Errorf("%w: %s is %s old; use a new id", store.ErrTxnExpired, b.ID, age)
	case age < -idAhead:
		return out, store.Invalid("batch id", b.ID.String(), "a ULID of about now")
	}
	if b = own(b); b.Bound == nil {
		if err := b.Bind(); err != nil {
			return out, err
		}
	}
	if known, ok := m.outcomes[b.ID]; ok {
		if !bytes.Equal(known.bound, b.Bound) {
			return out, store.Invalid("batch id", b.ID.String(), "an id of your own")
		}
		return own(known.Outcome), nil
	}
	if b.Action == store.ActApprove || b.Action == store.ActReject {
		if known, err := m.review(&b); known != nil || err != nil {
			return *cmp.Or(known, &out), err
		}
	}
	v := m.judge(&b)
	if v.err != nil {
		return out, m.refuse(&b, v)
	}
	out, err = m.apply(&b, v)
	return own(out), err
}

var decision = map[store.Action]string{store.ActApprove: "approved", store.ActReject: "rejected"}

// review takes over what the held batch wanted; a batch that was decided the same way gives that outcome again.
func (m *Memory) review(b *store.Batch) (*store.Outcome, error) {
	h, ok := m.held[b.From]
	switch {
	case !ok:
		return nil, fmt.Errorf("%w: no held batch %s", store.ErrNotFound, b.From)
	case h.Decided == decision[b.Action]:
		return &h.Outcome, nil
	case h.Decided != "":
		return nil, fmt.Errorf("%w: %s was %s by %s", store.ErrReviewed, b.From, h.Decided, h.By)
	}
	was := own(h.Batch)
	b.Scope, b.Actor, b.Trace = was.Scope, was.Actor, was.Trace
	if b.Action == store.ActReject {
		return nil, nil
	}
	b.Expect, b.ExpectState, b.Context, b.Puts, b.Deletes, b.State = was.Expect, was.ExpectState, was.Context, was.Puts, was.Deletes, was.State
	for i := range b.Puts {
		if b.Raise {
			b.Puts[i].Artefact.Provenance = store.HumanVerified
		}
	}
	return nil, nil
}

type verdict struct {
	err   error // refuse
	hold  string
	leaf  []manifest.Stale
	stale []store.Ref
}

// judge decides in this order: conflict, then stale context, then what was asked.
func (m *Memory) judge(b *store.Batch) (v verdict) {
	if b.Hold != nil { // it was judged where it was held
		return verdict{hold: b.Reason, stale: b.Hold.Stale}
	}
	if c := m.carryConflict(b); c != nil {
		return verdict{err: c}
	}
	for _, e := range b.Expect {
		var is uint64 // 0: absent, or deleted
		if h := m.at(name{e.Ref.Scope, e.Ref.ID}, now); h != nil && h.Live() {
			is = h.LSN
		}
		if is != e.LSN {
			return verdict{err: &store.ConflictError{Ref: e.Ref, Have: e.LSN, Now: is}}
		}
	}
	for _, e := range b.ExpectState {
		if is := m.state[e.Key].LSN; is != e.LSN {
			return verdict{err: &store.ConflictError{Key: e.Key, Have: e.LSN, Now: is}}
		}
	}
	for _, c := range b.Context {
		if c.Num == 0 || c.Num > uint64(len(m.pages)) {
			continue
		}
		p := m.pages[c.Num-1]
		st := manifest.Stale{Num: c.Num, Seen: p.Version}
		switch is := m.answers(c.Num, now); {
		case is == c.Num && !m.headOf(p).Expired(b.Now):
			continue
		case is == c.Num:
			st.Reason = "expired"
		case is == 0:
			st.Reason = "deleted"
		default:
			st.Reason, st.Now = "replaced", m.pages[is-1].Version
		}
		v.leaf, v.stale = append(v.leaf, st), append(v.stale, store.Ref{Scope: c.Scope, ID: c.ID, Page: c.Page, Version: st.Seen})
	}
	switch {
	case b.Action == store.ActReject:
	case b.Action == store.ActHold:
		v.hold = b.Reason
	case len(v.stale) == 0 || b.OnStale == store.AllowStale || b.Force:
	case b.Action == store.ActApprove || b.OnStale == store.FailStale:
		v.err = fmt.Errorf("%w: %v", store.ErrStaleContext, v.stale)
	default:
		v.hold = store.ReasonStaleContext
	}
	return v
}

// leafOf is the audit leaf of a batch, without what its outcome adds.
func leafOf(b *store.Batch, v verdict, lsn uint64) *manifest.Record {
	leaf := b.Leaf
	leaf.Trace, leaf.Parent, leaf.Batch, leaf.Scope, leaf.Actor = b.ID.String(), b.Trace, b.ID.String(), b.Scope, b.Actor
	leaf.Time, leaf.LSN, leaf.Stale, leaf.Writes = b.Now.UnixMicro(), lsn, v.leaf, nil
	if b.From != (ulid.ULID{}) {
		leaf.From = b.From.String()
	}
	return &leaf
}

// refuse leaves a trace in the audit and nothing else: the id may be used again.
func (m *Memory) refuse(b *store.Batch, v verdict) error {
	leaf := leafOf(b, v, m.lsn)
	leaf.Type, leaf.Status, leaf.Reason = manifest.TypeConflict, "stale", store.ReasonStaleContext
	if c, ok := v.err.(*store.ConflictError); ok {
		leaf.Status, leaf.Reason = "conflict", ""
		leaf.Conflicts = []manifest.Conflict{{Ref: c.Name(), Expect: c.Have, Found: c.Now}}
	}
	if err := m.append(leaf); err != nil {
		return err
	}
	return v.err
}

func (m *Memory) apply(b *store.Batch, v verdict) (store.Outcome, error) {
	m.lsn++
	leaf := leafOf(b, v, m.lsn)
	out := store.Outcome{LSN: m.lsn, Leaf: m.log.Size(), Reason: v.hold, Stale: v.stale}
	switch {
	case v.hold != "":
		leaf.Type, leaf.Reason, out.Status = manifest.TypeHeld, v.hold, store.StatusHeld
		h := store.HeldBatch{Batch: *b, Reason: v.hold, Stale: v.stale, At: b.Now, LSN: m.lsn}
		if was := b.Hold; was != nil {
			h.Decided, h.By, h.Note, h.Outcome, h.Batch.Hold = was.Decided, was.By, was.Note, was.Outcome, nil
		}
		m.held[b.ID] = h
	case b.Action == store.ActReject:
		leaf.Type, out.Status = manifest.TypeReject, store.StatusRejected
	default:
		leaf.Type = cmp.Or(leaf.Type, manifest.TypeCommit)
		for i := range b.Carry {
			if err := m.carry(&b.Carry[i], leaf); err != nil {
				return store.Outcome{}, err
			}
		}
		m.write(b, &out, leaf)
	}
	if h, ok := m.held[b.From]; ok {
		if b.Action == store.ActApprove {
			leaf.Type = manifest.TypeApprove
		}
		h.Decided, h.By, h.Note, h.Outcome = decision[b.Action], leaf.By, leaf.Note, out
		m.held[b.From] = h
	}
	leaf.Status = out.Status.String()
	m.outcomes[b.ID] = remembered{out, b.Bound}
	return out, m.done(leaf)
}

// done ends a commit: its leaf is written, and who waits for changes is woken.
func (m *Memory) done(leaf *manifest.Record) error {
	close(m.moved)
	m.moved = make(chan struct{})
	return m.append(leaf)
}

func (m *Memory) write(b *store.Batch, out *store.Outcome, leaf *manifest.Record) {
	for i := range b.Puts {
		m.put(b, &b.Puts[i], out, leaf)
	}
	for _, id := range b.Deletes {
		if h := m.at(name{b.Scope, id}, now); h != nil && !h.Deleted {
			m.delete(h, b, out, leaf)
		}
	}
	m.setState(b.State)
}

func (m *Memory) setState(rows []store.StateRow) {
	for _, r := range rows {
		if delete(m.state, r.Key); r.Value != nil {
			m.state[r.Key] = store.StateRow{Key: r.Key, Value: slices.Clone(r.Value), LSN: m.lsn}
		}
	}
}
