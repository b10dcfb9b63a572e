package store

import (
	"fmt"
	"time"

	"github.com/oklog/ulid/v2"
)

// GCJob is what gc needs to know. A deletion is no version that KeepVersions counts. KeepRecords and KeepNames are
// what stays known of what was dropped; a store may keep more.
type GCJob struct {
	KeepVersions int
	KeepFor      time.Duration
	KeepRecords  int
	KeepNames    int
	Expired      bool
	Scope        string // "": all
	By           string
	// Scopes, if not nil, restricts the job to these scopes, each with what it keeps instead of KeepFor and KeepVersions.
	Scopes map[string]GCKeep
	// Reviews, if not nil, are decided held batches that go, and nothing else does. Those that still wait stay.
	Reviews []ulid.ULID
	// Why is what the leaves of the run say as their reason; "": nothing.
	Why string
}

// GCKeep is what gc keeps in one scope.
type GCKeep struct {
	For      time.Duration
	Versions int
}

// Only says whether the job leaves out what belongs to no single scope.
func (j *GCJob) Only() bool { return j.Scope != "" || j.Scopes != nil }

// KeepIn is what a job keeps in a scope; false: it leaves the scope alone.
func (j *GCJob) KeepIn(scope string) (GCKeep, bool) {
	if j.Scopes != nil {
		keep, ok := j.Scopes[scope]
		return keep, ok
	}
	return GCKeep{j.KeepFor, j.KeepVersions}, j.Scope == "" || j.Scope == scope
}

// DefaultKeepRecords is for each artefact.
const DefaultKeepRecords = 4

// DefaultKeepNames is for the whole database.
const DefaultKeepNames = 1024

// GCReport says what gc dropped, or would drop, and what kept the rest. When gc ended early it says how far it came.
type GCReport struct {
	DryRun  bool      `json:"dry_run,omitempty"`
	Trace   string    `json:"trace,omitempty"` // of the run: its leaves and every ErrGone name it; empty when nothing was dropped
	Dropped GCTally   `json:"dropped"`
	Reasons []GCTally `json:"reasons"` // the same by reason: superseded, deleted, expired
	Kept    []GCTally `json:"kept"`    // versions that have ended and stay, by what keeps them
	Refs    []Ref     `json:"refs"`    // of what was dropped, the first 100

	Records int `json:"records"` // rows of versions dropped before that went, see GCOptions.KeepRecords
	Names   int `json:"names"`   // artefacts that were forgotten, see GCOptions.KeepNames
	Drafts  int `json:"drafts"`  // contexts whose drafts were dropped: replaying one is ErrGone
	Reviews int `json:"reviews"` // held batches that were decided, and dropped
	Turns   int `json:"turns"`   // deleted turns of which a session kept signals and verdicts
	Journal int `json:"journal"` // records of passes and of directives that newer ones replaced
	Scopes  int `json:"scopes"`  // names of scopes in which nothing was left
}

// GCTally counts versions.
type GCTally struct {
	Reason   string `json:"reason,omitempty"`
	Versions int    `json:"versions"`
	Pages    int    `json:"pages"`
	Bytes    int64  `json:"bytes"` // of their texts
	// Nearest are those of what stays that ended first.
	Nearest []Ref `json:"nearest,omitempty"`
}

// Why a version goes (GCTally.Reason).
const (
	GoneSuperseded = "superseded"
	GoneDeleted    = "deleted"
	GoneExpired    = "expired"
)

// What keeps a version that has ended (GCTally.Reason).
const (
	KeptNewest  = "among the newest versions"
	KeptYoung   = "ended too lately"
	KeptExpired = "expired, which was not asked for"
	KeptHeld    = "named by a held batch"
	KeptParent  = "a live artefact is derived from it"
	KeptSource  = "the source of a live artefact"
	KeptSession = "named by a session"
	KeptInUse   = "in use by a transaction or a read"
	KeptShared  = "its pages are needed for a version that stays"
	KeptChanged = "its artefact was written to meanwhile"
)

// GoneError says which version is gone, by which run of gc or erase, and when. page 0: the whole artefact was asked for.
func GoneError(h *Head, page int) error {
	if h.ErasedBy != "" {
		return erasedError(h, page)
	}
	ref := Ref{Scope: h.Scope, ID: h.ID, Page: page, Version: h.Version}
	when := ""
	if id, err := ulid.ParseStrict(h.GoneBy); err == nil {
		when = " at " + ulid.Time(id.Time()).UTC().Format(time.RFC3339)
	}
	return fmt.Errorf("%w: %s, dropped by gc %s%s", ErrGone, ref, h.GoneBy, when)
}
