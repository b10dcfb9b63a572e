package format

import (
	"slices"
	"time"

	"github.com/ctxpage/ctxpage/internal/triage"
	"github.com/ctxpage/ctxpage/store"
)

// Live reports whether a version has content: it is not a deletion, and neither gc nor an erase
// took it.
func Live(h *store.Head) bool { return !h.Deleted && !h.Gone }

// Expired reports whether a version is no longer served at a time.
func Expired(h *store.Head, now time.Time) bool {
	return !h.ExpiresAt.IsZero() && h.ExpiresAt.UnixMicro() <= now.UnixMicro()
}

// own reports whether a version is a turn of the session that asks.
func own(q *store.CandidateQuery, h *store.Head) bool {
	return q.Session != "" && h.Group == q.Session && h.Scope == q.Scopes[0]
}

// Excludes returns the first rule that keeps a live version out of the candidates; "": none does. It does not apply the
// filter; see Passes.
func Excludes(q *store.CandidateQuery, h *store.Head) triage.Reason {
	p := Ruled{Kind: h.Kind, Provenance: h.Provenance, Own: own(q, h)}
	p.Turn = h.Kind == store.KindMessage && h.Provenance <= store.Tool && h.Group != ""
	if !h.ExpiresAt.IsZero() {
		p.Expires = h.ExpiresAt.UnixMicro()
	}
	return Rule(q, &p)
}

// Ruled is what the rules ask of a live page.
type Ruled struct {
	Expires    int64 // microseconds; 0: never
	Kind       store.Kind
	Provenance store.Provenance
	Turn       bool // an agent or a tool said it in a conversation
	Own        bool // it is a turn of the session that asks; needed only of turns and below the floor
}

// Rule returns the first rule that keeps a page out of the candidates; "": none does. It defines the rules and the order in
// which they are reported, for every store: an expired page below the floor counts as expired.
func Rule(q *store.CandidateQuery, p *Ruled) triage.Reason {
	switch {
	case p.Expires != 0 && p.Expires <= q.Now.UnixMicro():
		return triage.Expired
	case p.Kind == store.KindSystem:
		return ""
	case p.Provenance < q.Floor && !p.Own:
		return triage.BelowFloor
	case p.Turn && !p.Own:
		return triage.OtherSession
	case len(q.Kinds) > 0 && !slices.Contains(q.Kinds, p.Kind):
		return triage.OtherKind
	}
	return ""
}

// Passes reports whether a version passes the filter. Turns of the session pass any filter, and
// system pages one that is not Strict.
func Passes(q *store.CandidateQuery, h *store.Head) bool {
	return own(q, h) || h.Kind == store.KindSystem && !q.Strict || q.Filter.Match(h)
}

// LeavesOut reports whether the filter excludes a version that has not been put yet, as of the
// given time.
func LeavesOut(q *store.CandidateQuery, h *store.Head, now time.Time) bool {
	if q.Filter.IsZero() || !q.Strict && h.Kind == store.KindSystem || q.Session != "" && h.Group == q.Session {
		return false
	}
	if h.PutAt.IsZero() {
		put := *h
		put.PutAt = now
		h = &put
	}
	return !q.Filter.Match(h)
}
