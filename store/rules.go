package store

import (
	"slices"
	"time"

	"github.com/ctxpage/ctxpage/internal/triage"
)

// Live reports whether a version has content: it is not a deletion, and neither gc nor an erase
// took it.
func (h *Head) Live() bool { return !h.Deleted && !h.Gone }

// Expired reports whether a version is no longer served at a time.
func (h *Head) Expired(now time.Time) bool {
	return !h.ExpiresAt.IsZero() && h.ExpiresAt.UnixMicro() <= now.UnixMicro()
}

// own reports whether a version is a turn of the session that asks.
func (q *CandidateQuery) own(h *Head) bool {
	return q.Session != "" && h.Group == q.Session && h.Scope == q.Scopes[0]
}

// Excludes returns the first rule that keeps a live version out of the candidates; "": none does. It does not apply the
// filter; see Passes.
func (q *CandidateQuery) Excludes(h *Head) triage.Reason {
	p := Ruled{Kind: h.Kind, Provenance: h.Provenance, Own: q.own(h)}
	p.Turn = h.Kind == KindMessage && h.Provenance <= Tool && h.Group != ""
	if !h.ExpiresAt.IsZero() {
		p.Expires = h.ExpiresAt.UnixMicro()
	}
	return q.Rule(&p)
}

// Ruled is what the rules ask of a live page.
type Ruled struct {
	Expires    int64 // microseconds; 0: never
	Kind       Kind
	Provenance Provenance
	Turn       bool // an agent or a tool said it in a conversation
	Own        bool // it is a turn of the session that asks; needed only of turns and below the floor
}

// Rule returns the first rule that keeps a page out of the candidates; "": none does. It defines the rules and the order in
// which they are reported, for every store: an expired page below the floor counts as expired.
func (q *CandidateQuery) Rule(p *Ruled) triage.Reason {
	switch {
	case p.Expires != 0 && p.Expires <= q.Now.UnixMicro():
		return triage.Expired
	case p.Kind == KindSystem:
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
func (q *CandidateQuery) Passes(h *Head) bool {
	return q.own(h) || h.Kind == KindSystem && !q.Strict || q.Filter.Match(h)
}
