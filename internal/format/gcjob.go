package format

import "github.com/ctxpage/ctxpage/store"

// ScopedGC reports whether the job is restricted to scopes, and so skips data that belongs to no single
// scope.
func ScopedGC(j *store.GCJob) bool { return j.Scope != "" || j.Scopes != nil }

// KeepIn returns what the job keeps in a scope; false means that the job does not touch the scope.
func KeepIn(j *store.GCJob, scope string) (store.GCKeep, bool) {
	if j.Scopes != nil {
		keep, ok := j.Scopes[scope]
		return keep, ok
	}
	return store.GCKeep{For: j.KeepFor, Versions: j.KeepVersions}, j.Scope == "" || j.Scope == scope
}

// What gc keeps by default: tombstones of each artefact, and names of deleted artefacts in the whole database.
const (
	DefaultKeepRecords = 4
	DefaultKeepNames   = 1024
)
