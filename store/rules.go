package store

import (
	"slices"
	"time"
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

// Excludes names the first rule that keeps a live version out of the candidates; "" means that none
// does. It defines the rules: stores that judge by columns must give the same result. It does not
// apply the filter; see Passes.
func (q *CandidateQuery) Excludes(h *Head) string {
	switch own := q.own(h); {
	case h.Expired(q.Now):
		return ReasonExpired
	case h.Kind == KindSystem:
		return ""
	case h.Provenance < q.Floor && !own:
		return ReasonFloor
	case h.Kind == KindMessage && h.Provenance <= Tool && h.Group != "" && !own:
		return ReasonOther
	case len(q.Kinds) > 0 && !slices.Contains(q.Kinds, h.Kind):
		return ReasonKind
	}
	return ""
}

// Passes reports whether a version passes the filter. Turns of the session pass any filter, and
// system pages one that is not Strict.
func (q *CandidateQuery) Passes(h *Head) bool {
	return q.own(h) || h.Kind == KindSystem && !q.Strict || q.Filter.Match(h)
}
