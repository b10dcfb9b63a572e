package manifest

import "time"

// Filter selects leaves. A zero field selects all.
type Filter struct {
	Type    Type
	Scope   string // exactly this one, not those below it
	Session string
	Actor   string
	Since   time.Time // at this time or later
	Until   time.Time // before this time
}

// Match reports whether a leaf passes the filter. The session and actor of a leaf whose body was pruned are unknown: it
// does not pass a filter that names one.
func (f *Filter) Match(r *Record) bool {
	return (f.Type == 0 || r.Type == f.Type) && (f.Scope == "" || r.Scope == f.Scope) && (f.Session == "" || r.Session == f.Session) &&
		(f.Actor == "" || r.Actor == f.Actor) && (f.Since.IsZero() || r.Time >= f.Since.UnixMicro()) && (f.Until.IsZero() || r.Time < f.Until.UnixMicro())
}
