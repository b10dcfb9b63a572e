package format

import (
	"cmp"
	"fmt"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/ctxpage/ctxpage/store"
)

// OutcomeDays is how long the outcome of a batch id is remembered. A batch with an older id is
// refused, and so never applied twice.
const OutcomeDays = 7 * 24 * time.Hour

// idAhead is how far the clock of the maker of a batch id may be ahead of Batch.Now.
const idAhead = 12 * time.Hour

// Admit makes the checks of a batch that need nothing but the batch, and sets Bound if it is nil.
//
// The two limits on the age of an id belong together: an id is refused when it is older than
// outcomes are kept, so a repeated id is never applied twice; and an id from the future is refused
// because the newest id is the clock by which outcomes are forgotten.
func Admit(b *store.Batch) error {
	if err := store.CheckClock(b.Now); err != nil {
		return err
	}
	if age := b.Now.Sub(ulid.Time(b.ID.Time())); age > OutcomeDays {
		return fmt.Errorf("%w: %s is %s old; use a new id", store.ErrTxnExpired, b.ID, age.Round(time.Hour))
	}
	if now := max(b.Now.UnixMilli(), 0); b.ID.Time() > uint64(now+idAhead.Milliseconds()) {
		return store.Invalid("batch id", b.ID.String()+", of "+ulid.Time(b.ID.Time()).UTC().Format(time.DateOnly), "a ULID of about now")
	}
	if err := CheckIDs(b); err != nil {
		return err
	}
	if b.Bound == nil {
		Bind(b)
	}
	return nil
}

// Decision is what a held batch is called after an action: "" for one that decides nothing.
func Decision(a store.Action) string {
	return map[store.Action]string{store.ActApprove: "approved", store.ActReject: "rejected"}[a]
}

// Decided returns the first outcome of a held batch that was decided before in the way b asks for,
// or ErrReviewed if it was decided in the other way. Both are nil while the batch waits.
func Decided(b *store.Batch, h *store.HeldBatch) (*store.Outcome, error) {
	switch h.Decided {
	case "":
		return nil, nil
	case Decision(b.Action):
		return &h.Outcome, nil
	}
	return nil, fmt.Errorf("%w: %s was %s by %s", store.ErrReviewed, b.From, h.Decided, h.By)
}

// TakeOver makes a review write what the held batch wanted, in the name of its writer. The puts are
// shared with h; Raise changes them. Rows of state are not taken over: a held batch has none, and a row that a damaged or
// forged file claims for it would be applied unseen.
func TakeOver(b *store.Batch, h *store.Batch) {
	b.Scope, b.Actor, b.Trace = h.Scope, h.Actor, h.Trace
	if b.Action != store.ActApprove {
		return
	}
	b.Expect, b.Context = h.Expect, h.Context
	b.Puts, b.Deletes = h.Puts, h.Deletes
	for i := range b.Puts {
		if b.Raise {
			b.Puts[i].Artefact.Provenance = store.HumanVerified
		}
	}
}

// AfterStale returns the reason to hold a batch, or the error that refuses it. If both are zero the
// batch is applied. A rejection ignores staleness, because it writes nothing. An approval must name
// it (Force), so that the reviewer has seen it.
func AfterStale(b *store.Batch, stale []store.Ref) (hold string, err error) {
	switch {
	case b.Action == store.ActReject:
		return "", nil
	case b.Action == store.ActHold:
		return b.Reason, nil
	case len(stale) == 0 || b.OnStale == store.AllowStale || b.Force:
		return "", nil
	case b.Action == store.ActApprove:
		return "", fmt.Errorf("%w: %v; look at them, and approve them as stale if they do not matter", store.ErrStaleContext, stale)
	case b.OnStale == store.FailStale || len(b.State) > 0: // a held batch has no rows of state
		return "", fmt.Errorf("%w: %v", store.ErrStaleContext, stale)
	}
	return store.ReasonStaleContext, nil
}

// Hold makes the held batch of a batch, which may have been held or decided in another database.
func Hold(b *store.Batch, reason string, stale []store.Ref, lsn uint64) store.HeldBatch {
	was := cmp.Or(b.Hold, &store.CarriedHold{})
	return store.HeldBatch{
		Batch: *b, Reason: reason, Stale: stale, At: b.Now, LSN: lsn,
		Decided: was.Decided, By: was.By, Note: was.Note, Outcome: was.Outcome,
	}
}

// Deletion is the version that a batch makes of an artefact when it deletes it. It supersedes
// nothing; else it would retire what was put again since.
func Deletion(newest *store.Head, b *store.Batch, lsn uint64) *store.Head {
	h := *newest
	h.Deleted, h.Version, h.LSN, h.PutAt, h.Actor = true, newest.Version+1, lsn, b.Now, b.Actor
	h.Rows, h.Supersedes, h.Turn = nil, nil, nil
	return &h
}

// WrittenFrom is the trace that a version keeps: that of its batch. What a user said was written from no context.
func WrittenFrom(b *store.Batch, p *store.Put) string {
	if p.Artefact.Role == "user" {
		return ""
	}
	return b.Trace
}
