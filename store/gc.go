package store

import (
	"time"

	"github.com/oklog/ulid/v2"
)

// GCJob configures a gc run. KeepVersions does not count deletions. KeepRecords and KeepNames are
// how many tombstones stay, per artefact and in the whole database; a store may keep more.
type GCJob struct {
	KeepVersions int
	KeepFor      time.Duration
	KeepRecords  int
	KeepNames    int
	Expired      bool
	Scope        string // "": all
	By           string
	// Scopes, if not nil, restricts the job to these scopes. Each has its own values in place of
	// KeepFor and KeepVersions.
	Scopes map[string]GCKeep
	// Reviews, if not nil, lists decided held batches to drop. Nothing else is dropped, and batches
	// that still await review are kept.
	Reviews []ulid.ULID
	// Models, if not nil, names the models whose vectors are kept; vectors of other models are
	// dropped. They are derived and can be made again. A job that is restricted to scopes drops
	// none.
	Models []string
	// Why is recorded as the reason in the leaves of the run.
	Why string
}

// GCKeep says what gc keeps in one scope.
type GCKeep struct {
	For      time.Duration
	Versions int
}

// GCReport says what gc dropped, or would drop, and why the rest was kept. After an early end it
// covers what was done.
type GCReport struct {
	DryRun  bool      `json:"dry_run,omitempty"`
	Trace   string    `json:"trace,omitempty"` // of the run; its leaves and every ErrGone name it. Empty if nothing was dropped
	Dropped GCTally   `json:"dropped"`
	Reasons []GCTally `json:"reasons"` // the same by reason: superseded, deleted, expired
	Kept    []GCTally `json:"kept"`    // versions that have ended and were kept, by reason
	Refs    []Ref     `json:"refs"`    // the first 100 dropped versions

	Records int `json:"records"` // tombstones removed, see GCOptions.KeepRecords
	Names   int `json:"names"`   // artefacts that were forgotten, see GCOptions.KeepNames
	Drafts  int `json:"drafts"`  // contexts whose drafts were dropped; replaying one returns ErrGone
	Reviews int `json:"reviews"` // decided held batches that were dropped
	Turns   int `json:"turns"`   // deleted turns whose signals and verdicts were dropped
	Journal int `json:"journal"` // superseded records of passes and directives
	Scopes  int `json:"scopes"`  // names of empty scopes that were removed
	// Vectors counts those that were dropped, see GCOptions.Models.
	Vectors int `json:"vectors,omitempty"`
}

// GCTally counts versions.
type GCTally struct {
	Reason   string `json:"reason,omitempty"`
	Versions int    `json:"versions"`
	Pages    int    `json:"pages"`
	Bytes    int64  `json:"bytes"` // of their texts
	// Nearest lists the kept versions that ended first.
	Nearest []Ref `json:"nearest,omitempty"`
}
