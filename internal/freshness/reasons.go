package freshness

import "github.com/ctxpage/ctxpage/internal/triage"

// Why the pipeline leaves a candidate out after it looked at the source, as manifests name it.
const (
	ReasonFetchFailed = string(triage.FetchFailed)
	ReasonVanished    = string(triage.Vanished)
	ReasonReadOnly    = string(triage.ReadOnly)
	ReasonNoRoot      = string(triage.NoRoot)
	ReasonNoScheme    = string(triage.NoScheme)
	ReasonDerived     = "dirty: derived from a page that changed"
)

// Note is what a manifest says of a page whose source was not asked because another host has the file; "": it was asked, or the
// page has none.
func (f *Finding) Note() string {
	if f.Elsewhere == "" {
		return ""
	}
	return "unchecked: its file is on host " + f.Elsewhere
}
